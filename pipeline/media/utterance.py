"""One utterance of the agent on its way to the caller: its words and their places in the audio."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.speech import SpokenWord
from pipeline.transcript import heard_words, placed_words


class _Piece:
    """What one request to a voice made: `start` is its first sample in the utterance."""

    __slots__ = ("complete", "samples", "spoken", "start", "text")

    def __init__(self, text: str, start: int) -> None:
        self.text = text
        self.start = start
        self.samples = 0
        self.spoken: list[SpokenWord] = []
        self.complete = False


class Utterance:
    """One utterance of the agent. Made by `Playout.begin`, written while its beginning is already heard.

    `samples`: written so far, at the leg's `rate_hz`. `started_at`, `last_sent_at`: loop time at which the
    first and the last frame so far were handed to the wire; None before.
    """

    __slots__ = (
        "_pauses", "_pieces", "ended", "first_frame", "interruptible", "last_sent_at", "rate_hz", "samples",
        "started_at",
    )  # fmt: skip

    def __init__(self, *, rate_hz: int, interruptible: bool, first_frame: int) -> None:
        self.rate_hz = rate_hz
        self.interruptible = interruptible
        self.first_frame = first_frame
        self.samples = 0
        self.ended = False
        self.started_at: float | None = None
        self.last_sent_at: float | None = None
        self._pieces: list[_Piece] = []
        self._pauses: list[tuple[int, float]] = []  # from which sample on, seconds

    def begin_piece(self, text: str) -> None:
        """Begins a piece: the samples that follow say `text`."""
        self._pieces.append(_Piece(text, self.samples))

    def add(self, samples: int, words: Sequence[SpokenWord] = ()) -> None:
        """Appends `samples`; `words` begin in these, counted from the start of the piece."""
        self.samples += samples
        if self._pieces:
            self._pieces[-1].samples += samples
            self._pieces[-1].spoken.extend(words)

    def end_piece(self) -> None:
        """Completes the piece: the voice has said all of it."""
        if self._pieces:
            self._pieces[-1].complete = True

    def retract(self, samples: int) -> None:
        """The last `samples` will not be heard."""
        self.samples -= samples
        if self._pieces:
            self._pieces[-1].samples -= samples

    def break_piece(self, quiet: int = 0) -> str:
        """The voice broke off: keeps the words that are in the audio, of which the last `quiet` samples are
        silence, returns those that are not, which are to be said again. Of a voice without word times the
        slowest speech is assumed: a word that is said twice is understood, one that is never said is not."""
        return self._broken(slowest=True, quiet=quiet)

    def _broken(self, *, slowest: bool, quiet: int = 0) -> str:
        piece = self._pieces[-1]
        spoken = self.samples - quiet
        kept = heard_words(self._placed(piece, slowest=slowest), spoken)
        # All of a word but its last 20 ms counts as whole: the resampler still holds a little back.
        kept = tuple(word for word in kept if word.end <= spoken + self.rate_hz // 50)
        piece.samples -= quiet
        words = piece.text.split()
        piece.text = " ".join(words[: len(kept)])
        piece.spoken = piece.spoken[: len(kept)]
        piece.complete = True
        return " ".join(words[len(kept) :])

    def interject(self, text: str, samples: int) -> None:
        """`samples` that say `text` come between what was written and the rest of the piece under way."""
        piece = self._pieces[-1] if self._pieces and not self._pieces[-1].complete else None
        rest = self._broken(slowest=False) if piece is not None else ""
        self.begin_piece(text)
        self.add(samples)
        self.end_piece()
        if piece is not None:
            # The engine goes on counting from the start of its piece, which has moved back by what came
            # between.
            self._pieces.append(_Piece(rest, self.samples - piece.samples))
            self._pieces[-1].samples = piece.samples

    @property
    def text(self) -> str:
        """The whole text to be said so far."""
        return " ".join(piece.text for piece in self._pieces if piece.text)

    def words(self) -> tuple[SpokenWord, ...]:
        """Every word with its samples, counted from the start of the utterance."""
        return tuple(word for piece in self._pieces for word in self._placed(piece))

    def heard(self, samples: int) -> tuple[SpokenWord, ...]:
        """The words that were heard when `samples` of the audio were."""
        return heard_words(self.words(), samples)

    def into_word(self, samples: int) -> int:
        """How many samples into a word the position `samples` is; 0 between two words, and in the last tenth
        of one: engines count the pause after a word to the word."""
        for word in self.words():
            if word.start < samples < word.end - (word.end - word.start) // 10:
                return samples - word.start
        return 0

    def went_on(self, samples: int, now: float) -> None:
        """Notes that the audio resumed at `now` with its sample `samples`, after a pause."""
        self._pauses.append((samples, now - self.time_of(samples)))

    def time_of(self, samples: int) -> float:
        """Loop time at which the sample was or will be handed to the wire. Before the first was: infinity."""
        if self.started_at is None:
            return float("inf")
        paused = sum(pause for begin, pause in self._pauses if begin <= samples)
        return self.started_at + samples / self.rate_hz + paused

    def _placed(self, piece: _Piece, *, slowest: bool = False) -> tuple[SpokenWord, ...]:
        placed = placed_words(
            piece.text,
            piece.spoken,
            samples=piece.samples,
            rate_hz=self.rate_hz,
            complete=piece.complete,
            slowest=slowest,
        )
        return tuple(
            SpokenWord(word.text, piece.start + word.start, piece.start + word.end) for word in placed
        )
