"""One utterance of the agent in the playout: its words and their places in the audio."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pipeline.speech import SpokenWord
from pipeline.transcript import heard_words, placed_words


class _Piece:
    """The text and audio of one request to a voice; `start`: index of its first sample in the utterance;
    `quiet`: silent samples at its end."""

    __slots__ = ("complete", "quiet", "samples", "spoken", "start", "text")

    def __init__(self, text: str, start: int) -> None:
        self.text = text
        self.start = start
        self.samples = 0
        self.quiet = 0
        self.spoken: list[SpokenWord] = []
        self.complete = False


class Utterance:
    """One utterance of the agent. Made by `Playout.begin`; may be written while its beginning is heard.

    `samples`: number written so far, at the leg's `rate_hz`. `started_at`, `last_sent_at`: loop time at which
    the first and the last frame so far were sent; None before. `first_frame`: number of the first frame in
    the playout. `ended`: all audio is written. `on_cut`: called with the milliseconds of it that were heard,
    without what was inserted, where it is cut short.
    """

    __slots__ = (
        "_inserted", "_pauses", "_pieces", "ended", "first_frame", "interruptible", "last_sent_at", "on_cut",
        "rate_hz", "samples", "started_at",
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
        self.on_cut: Callable[[int], None] | None = None
        self._inserted: list[tuple[int, int]] = []  # first sample of an interjection, its length
        self._pauses: list[tuple[int, float]] = []  # first sample after the pause, length in seconds

    def begin_piece(self, text: str) -> None:
        """Begins a piece: the samples that follow say `text`."""
        self._pieces.append(_Piece(text, self.samples))

    def extend_piece(self, text: str) -> None:
        """Adds `text` to what the piece under way says."""
        piece = self._pieces[-1]
        piece.text = f"{piece.text} {text}".strip()

    def continue_piece(self, text: str) -> None:
        """Goes on with the text of the piece under way, which may break off within a word."""
        self._pieces[-1].text += text

    def add(self, samples: int, words: Sequence[SpokenWord] = ()) -> None:
        """Counts `samples` more; `words` begin in these, with times counted from the start of the piece."""
        self.samples += samples
        if self._pieces:
            self._pieces[-1].samples += samples
            self._pieces[-1].spoken.extend(words)

    def end_piece(self, quiet: int = 0) -> None:
        """Marks the piece as complete: the voice has said all of its text, then `quiet` silent samples."""
        if self._pieces:
            self._pieces[-1].complete = True
            self._pieces[-1].quiet = min(quiet, self._pieces[-1].samples)

    def retract(self, samples: int) -> None:
        """Takes the last `samples` off the count, since the playout removed them."""
        self.samples -= samples
        if self._pieces:
            self._pieces[-1].samples -= samples

    def break_piece(self, quiet: int = 0) -> str:
        """Ends the piece of a voice that broke off and returns the words that are not in the audio, which
        another voice has to say. `quiet`: number of silent samples at the end of the audio. For a voice
        without word times the slowest speech is assumed: a word that is said twice does less harm than a
        missing one."""
        return self._broken(slowest=True, quiet=quiet)

    def _broken(self, *, slowest: bool, quiet: int = 0) -> str:
        piece = self._pieces[-1]
        spoken = self.samples - quiet
        kept = heard_words(self._placed(piece, slowest=slowest), spoken)
        # A word without its last 20 ms counts as whole, since the resampler holds some samples back.
        kept = tuple(word for word in kept if word.end <= spoken + self.rate_hz // 50)
        piece.samples -= quiet
        words = piece.text.split()
        piece.text = " ".join(words[: len(kept)])
        piece.spoken = piece.spoken[: len(kept)]
        piece.complete = True
        return " ".join(words[len(kept) :])

    def interject(self, text: str, samples: int) -> None:
        """Inserts `samples` that say `text` before the rest of the piece under way."""
        piece = self._pieces[-1] if self._pieces and not self._pieces[-1].complete else None
        rest = self._broken(slowest=False) if piece is not None else ""
        self._inserted.append((self.samples, samples))
        self.begin_piece(text)
        self.add(samples)
        self.end_piece()
        if piece is not None:
            # The engine counts on from the start of its piece, which the inserted samples move back.
            self._pieces.append(_Piece(rest, self.samples - piece.samples))
            self._pieces[-1].samples = piece.samples

    @property
    def text(self) -> str:
        """The text of all pieces so far."""
        return " ".join(piece.text for piece in self._pieces if piece.text)

    def words(self) -> tuple[SpokenWord, ...]:
        """All words, with times in samples from the start of the utterance."""
        return tuple(word for piece in self._pieces for word in self._placed(piece))

    def heard(self, samples: int) -> tuple[SpokenWord, ...]:
        """The words that a listener has heard after the first `samples`."""
        return heard_words(self.words(), samples)

    def cut(self, samples: int) -> None:
        """Tells whoever made the audio that no more than the first `samples` was heard."""
        if self.on_cut is not None:
            inserted = sum(min(size, samples - at) for at, size in self._inserted if at < samples)
            self.on_cut((samples - inserted) * 1000 // self.rate_hz)

    def into_word(self, samples: int) -> int:
        """Number of samples from the beginning of a word to the position `samples`; 0 between two words and
        in the last tenth of a word, since engines count the pause after a word as a part of the word."""
        for word in self.words():
            if word.start < samples < word.end - (word.end - word.start) // 10:
                return samples - word.start
        return 0

    def went_on(self, samples: int, now: float) -> None:
        """Notes that the audio resumed at `now` with its sample `samples`, after a pause."""
        self._pauses.append((samples, now - self.time_of(samples)))

    def time_of(self, samples: int) -> float:
        """Loop time at which the sample was or will be sent; infinity before the first was sent."""
        if self.started_at is None:
            return float("inf")
        paused = sum(pause for begin, pause in self._pauses if begin <= samples)
        return self.started_at + samples / self.rate_hz + paused

    def _placed(self, piece: _Piece, *, slowest: bool = False) -> tuple[SpokenWord, ...]:
        placed = placed_words(
            piece.text,
            piece.spoken,
            samples=piece.samples - piece.quiet,
            rate_hz=self.rate_hz,
            complete=piece.complete,
            slowest=slowest,
        )
        return tuple(
            SpokenWord(word.text, piece.start + word.start, piece.start + word.end) for word in placed
        )
