"""Stands for the phonemes: the letters themselves."""


class EspeakG2P:
    """As `misaki.espeak.EspeakG2P`."""

    def __init__(self, *, language: str) -> None:
        self.language = language

    def __call__(self, text: str) -> tuple[str, None]:
        return text.lower(), None
