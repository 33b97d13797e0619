"""Keys on their way to an answer: when the answer is whole, and which later keys still belong to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pipeline.speech import Expected
from pipeline.text.word_lists import WordLists, plain
from pipeline.turns.noise import WORDLESS_S

MAX_KEYS: Final = 64
"""As many digits as can be asked for. A key that is stuck ends here too, not only with the call."""

BESIDE_S: Final = 1.0
"""A key so soon after a masked answer was meant to be one of its digits."""

_FIGURES: Final = frozenset(("digits", "number"))


class Gather:
    """The keys of one answer after the other. `pause_s`: seconds without a key that end an answer of unknown
    length."""

    __slots__ = (
        "_at", "_end", "_end_until", "_hides", "_keys", "_masked", "_pause_s", "due", "expected", "taken",
    )  # fmt: skip

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s
        self.expected: Expected | None = None
        """What the caller's next answer may be."""
        self._masked = False
        self._keys = ""
        self.due = 0.0
        """Loop time until which another key is waited for."""
        self.taken = ""
        """The keys that are being answered, until the caller hears something of the answer."""
        self._at = 0.0  # when the last key came
        self._end = ""  # the key that people press behind an answer which was taken without it
        self._end_until = 0.0
        self._hides = False  # that answer was masked

    def expect(self, expected: Expected | None, *, masked: bool) -> None:
        """What the next answer may be; `masked`: nobody but the agent may see the answer."""
        self.expected, self._masked = expected, masked

    @property
    def has_begun(self) -> bool:
        """Keys of an answer that is not whole have come."""
        return bool(self._keys)

    @property
    def awaited(self) -> Expected | None:
        """What the caller's next words may be: the rest of what they have begun to key."""
        expected = self.expected
        if expected is None or not expected.digits or not self._keys:
            return expected
        return replace(expected, digits=max(1, expected.digits - len(self._keys)))

    def forget(self) -> None:
        """Drops the keys so far: the next key is the first of an answer."""
        self._keys = ""

    def is_said_by(self, text: str, lists: WordLists) -> bool:
        """`text` says no more than the keys do, or those that are being answered: many read aloud what they
        key."""
        figures, idle = "", lists.fillers | lists.light | lists.backchannels
        for word in plain(text).split():
            figure = word if word.isdecimal() else lists.digits.get(word) or lists.homophones.get(word, "")
            if not figure and word not in idle:
                return False
            figures += figure
        return figures in (self._keys or self.taken)

    def press(self, key: str, now: float) -> float:
        """Takes one more key. Returns the loop time until which another key is waited for: `now` where the
        answer is whole."""
        expected, self._at = self._answer, now
        self._end = ""
        if key == expected.terminator:
            return now
        self._keys += key
        pause_s = expected.key_timeout_s or self._pause_s
        self.due = due = now if self._is_whole() else now + pause_s
        self._end, self._end_until = expected.terminator, due + pause_s
        self._hides = self._masked and due == now
        return due

    def take(self) -> str:
        """Takes the answer out: its keys, or its terminator where no key came before that."""
        self.taken, self._keys = self._keys or self._answer.terminator, ""
        return self.taken

    def is_trailing_key(self, key: str, now: float) -> bool:
        """`key` belongs to keys that are answered already: "#" after the last of all digits, which many are
        told to press; a digit too many of a masked number. Ask once for each key."""
        if self.has_begun:
            return False
        beside = self._hides and now - self._at <= BESIDE_S
        ends = bool(key) and key == self._end and now <= self._end_until
        if beside and not ends:
            self._at = now
        else:
            self._end, self._hides = "", False
        return beside or ends

    def is_kept_waiting(self, voice_since: float, now: float) -> bool:
        """The keys would have been answered by now, but for a voice that goes on since `voice_since`."""
        return self.has_begun and now >= max(self.due, voice_since + WORDLESS_S)

    @property
    def _answer(self) -> Expected:
        return self.expected or Expected()

    def _is_whole(self) -> bool:
        """All digits are there, or a choice is that no other begins with. Where a number may be keyed as
        well, one key is its first digit."""
        expected, keys = self._answer, self._keys
        if 0 < expected.digits <= len(keys) or len(keys) >= MAX_KEYS:
            return True
        longer = any(choice != keys and choice.startswith(keys) for choice in expected.choices)
        return keys in expected.choices and not longer and not _FIGURES.intersection(expected.kinds)
