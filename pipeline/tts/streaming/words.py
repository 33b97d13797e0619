"""Places the words of a text by what a service tells of its sound: words, parts of words or characters, in
the service's own spelling. Sans I/O."""

from __future__ import annotations

from collections import deque
from typing import Final

from pipeline.speech import SpokenWord
from pipeline.transcript import placed_words

_AHEAD: Final = 24  # letters of the text that a service may leave out before what it tells next
_EARLY_S: Final = 30  # most seconds that words are told before their sound comes
_SHORTEST: Final = 3  # letters of something told that is searched for, and not only expected next


class WordPlacer:
    """The words of one answer in samples of its sound. A word is given once its sound is there as a whole;
    its letters count, not its signs or cases."""

    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._words: list[str] = []
        self._ends: list[int] = []  # of each word in `_letters`
        self._letters = ""
        self._at = 0  # letters told
        self._begin = -1  # of the word under way, in samples
        self._last = 0  # end of what was told last, in samples
        self._told: deque[SpokenWord] = deque()  # complete, with sound that may not be there yet
        self._lost: tuple[str, int] | None = None  # letters that are not what comes next, and their beginning
        self._placed = 0  # words told or placed by their length
        self.samples = 0
        """Samples of the answer so far."""

    def add(self, text: str) -> None:
        """Adds a piece of the text."""
        for word in text.split():
            self._words.append(word)
            self._letters += _letters(word)
            self._ends.append(len(self._letters))

    def tell(self, text: str, start: int, end: int) -> None:
        """Takes what the service tells, in samples from the beginning of the answer. What is not in the text,
        and times before what was told last, are left out."""
        told = _letters(text)
        if not told:
            return
        if self._lost and not self._letters.startswith(told, self._at):
            told, start = self._lost[0] + told, self._lost[1]
        place = self._found(told)
        if place < 0:
            self._lost = (told[-_AHEAD:], start)
            return
        self._lost = None
        if end > self.samples + _EARLY_S * self._rate_hz:
            return
        start, end = max(start, self._last), max(end, start, self._last)
        self._pass_to(place, start)
        if self._begin < 0:
            self._begin = start
        self._at, self._last = place + len(told), end
        self._pass_to(self._at, end)

    def _found(self, told: str) -> int:
        if self._letters.startswith(told, self._at):
            return self._at
        if len(told) < _SHORTEST:
            return -1
        return self._letters.find(told, self._at, self._at + _AHEAD + len(told))

    def _pass_to(self, letters: int, at: int) -> None:
        """Completes the words of the first `letters` at the sample `at`."""
        while letters and self._placed < len(self._words) and self._ends[self._placed] <= letters:
            is_sign = self._ends[self._placed] == self._begin_of_word()
            begin = self._begin if self._begin >= 0 else at
            self._told.append(SpokenWord(self._words[self._placed], begin, begin if is_sign else at))
            self._placed += 1
            if not is_sign:
                self._begin = -1
        if self._begin < 0 and letters > self._begin_of_word():
            self._begin = at

    def _begin_of_word(self) -> int:
        return self._ends[self._placed - 1] if self._placed else 0

    def taken(self) -> tuple[SpokenWord, ...]:
        """Takes the words whose sound is there."""
        there = []
        while self._told and self._told[0].end <= self.samples:
            there.append(self._told.popleft())
        return tuple(there)

    def spread(self, words: int, begin: int, *, complete: bool) -> tuple[SpokenWord, ...]:
        """Places the next `words` that are not placed, by their length, in the samples from `begin` on; those
        of an incomplete sound by the slowest speed."""
        text = " ".join(self._words[self._placed : self._placed + words])
        size = self.samples - begin
        placed = placed_words(
            text, (), samples=size, rate_hz=self._rate_hz, complete=complete, slowest=not complete
        )
        there = [word for word in placed if word.end <= size]
        self._placed += len(there)
        return tuple(SpokenWord(word.text, begin + word.start, begin + word.end) for word in there)

    def rest(self) -> tuple[SpokenWord, ...]:
        """Takes all that was told, within the sound that there is: no more comes. Words of which nothing was
        told follow the last."""
        told, self._told = list(self._told), deque()
        if told or self._placed:
            at = told[-1].end if told else self._last
            told += [SpokenWord(word, at, self.samples) for word in self._words[self._placed :]]
            self._placed = len(self._words)
        last = self.samples
        return tuple(SpokenWord(word.text, min(word.start, last), min(word.end, last)) for word in told)

    @property
    def unplaced(self) -> int:
        """Number of words of which nothing was told."""
        return len(self._words) - self._placed


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))
