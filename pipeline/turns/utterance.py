"""What the caller is saying: when their voice began and paused, and which words of it are known."""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field

from pipeline.turns.events import FinalTranscript


def word_count(text: str) -> int:
    """How many words `text` has."""
    return len(text.split())


@dataclass(slots=True)
class CallerUtterance:
    """The utterance that the caller is saying, or the last one. Moments are loop time in seconds; all begin
    at `now`."""

    now: InitVar[float]
    heard_since: float = field(init=False)
    """The utterance's first voice."""
    voice_since: float = field(init=False)
    """When the voice that goes on began, after a pause too."""
    silent_since: float = field(init=False)
    """The caller's last voiced sample; on a noisy line their last word."""
    voiced_until: float = field(init=False)
    """The last voiced sample, on a noisy line too."""
    voiced_ms: int = 0
    words: FinalTranscript | None = None
    """What the recogniser answered; None while its answer is awaited."""
    partial: str = ""
    """The words so far of a voice that goes on, or that is over the agent's."""
    worded_at: float = field(init=False)
    """When the last new word of `partial` was known."""
    asked_at: float = field(init=False)
    """When the recogniser was asked for all the words."""
    asked_after: str = ""
    """The words so far when the recogniser was last asked once more."""
    overdue_at: float = field(init=False)
    """Until when the recogniser's answer is waited for."""

    def __post_init__(self, now: float) -> None:
        self.heard_since = self.voice_since = self.silent_since = self.voiced_until = now
        self.worded_at = self.asked_at = self.overdue_at = now

    def begin(self, now: float) -> None:
        """A new utterance has begun."""
        self.heard_since = self.worded_at = now
        self.partial = ""
        self.go_on(now)

    def go_on(self, now: float) -> None:
        """The voice has begun, or goes on after a pause: an answer about the words before the pause is no
        longer awaited."""
        self.words, self.asked_after = None, ""
        self.voice_since = now

    def pause(self, silent_since: float, voiced_ms: int) -> None:
        """The voice has fallen silent."""
        self.silent_since = self.voiced_until = silent_since
        self.voiced_ms = voiced_ms

    def is_more(self, text: str) -> bool:
        """`text` has more words than are known of the voice that goes on."""
        return word_count(text) > word_count(self.partial)

    def note_words(self, text: str, now: float) -> None:
        """`text` has a word that was not known before."""
        self.partial, self.worded_at = text, now

    @property
    def known(self) -> str:
        """The partial result or the recogniser's answer, whichever has more words."""
        return max(self.partial, self.text, key=word_count)

    @property
    def text(self) -> str:
        """The recogniser's answer, empty where there is none."""
        return self.words.text if self.words is not None else ""

    @property
    def is_empty(self) -> bool:
        """The recogniser has answered that there are no words."""
        return self.words is not None and not self.words.text and not self.words.failed

    def is_understood(self, turn: int) -> bool:
        """The recogniser's answer belongs to `turn` and has words."""
        return self.words is not None and self.words.turn == turn and bool(self.words.text)

    @property
    def is_asked_whole(self) -> bool:
        """The recogniser was asked for all the words of the voice that goes on."""
        return self.asked_at > self.voice_since

    def wordless_s(self, now: float) -> float:
        """For how long the voice that goes on has had no new word."""
        return now - max(self.worded_at, self.voice_since)
