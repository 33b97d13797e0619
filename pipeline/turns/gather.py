"""Gathers the caller's DTMF digits into an answer: when the answer is complete, and which later digits belong
to an answer that was taken."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pipeline.speech import Expected
from pipeline.text.word_lists import WordLists, plain
from pipeline.turns.noise import WORDLESS_S

MAX_KEYS: Final = 64
"""Most digits of an answer, also those of a key that is stuck."""

BESIDE_S: Final = 1.0
"""Time after a masked answer, in seconds, in which a further key counts as one of the answer's digits."""

_FIGURES: Final = frozenset(("digits", "number"))


class Gather:
    """Gathers the keys of one answer at a time. `pause_s`: seconds without a key that end an answer of
    unknown length."""

    __slots__ = (
        "_at", "_end", "_end_until", "_hides", "_keys", "_masked", "_pause_s", "awaited", "due", "expected",
        "taken",
    )  # fmt: skip

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s
        self.expected: Expected | None = None
        """The answers expected of the caller next; None: any."""
        self.awaited: Expected | None = None
        """The answers expected of the caller's next words: `expected` less the digits keyed so far."""
        self._masked = False
        self._keys = ""
        self.due = 0.0
        """Loop time at which the answer ends if no further key comes."""
        self.taken = ""
        """The keys that the agent is answering, until the caller hears a part of the agent's answer."""
        self._at = 0.0  # loop time of the last key
        self._end = ""  # the terminator, which people press even after an answer was taken as complete
        self._end_until = 0.0
        self._hides = False  # the answer taken last was masked

    def expect(self, expected: Expected | None, *, masked: bool) -> None:
        """Sets the answers expected of the caller; `masked`: nobody but the agent may see the answer."""
        self.expected, self._masked = expected, masked
        self._hold(self._keys)

    @property
    def has_begun(self) -> bool:
        """Whether the caller has keyed a part of an answer."""
        return bool(self._keys)

    def forget(self) -> None:
        """Drops the keys so far; the next key begins an answer."""
        self._hold("")

    def _hold(self, keys: str) -> None:
        self._keys, self.awaited = keys, self.expected
        if self.expected is not None and self.expected.digits and keys:
            self.awaited = replace(self.expected, digits=max(1, self.expected.digits - len(keys)))

    def is_said_by(self, text: str, lists: WordLists) -> bool:
        """Whether `text` has only digits of the keys so far, or of those that the agent is answering, since
        many callers read aloud the digits that they key."""
        figures, idle = "", lists.fillers | lists.light | lists.backchannels
        for word in plain(text).split():
            figure = word if word.isdecimal() else lists.digits.get(word) or lists.homophones.get(word, "")
            if not figure and word not in idle:
                return False
            figures += figure
        return figures in (self._keys or self.taken)

    def press(self, key: str, now: float) -> float:
        """Adds a key. Returns the loop time at which the answer ends if no further key comes; `now` for a
        complete answer."""
        expected, self._at = self._answer, now
        self._end = ""
        if key == expected.terminator:
            return now
        self._hold(self._keys + key)
        pause_s = expected.key_timeout_s or self._pause_s
        self.due = due = now if self._is_whole() else now + pause_s
        self._end, self._end_until = expected.terminator, due + pause_s
        self._hides = self._masked and due == now
        return due

    def take(self) -> str:
        """Returns the answer's keys and empties them; the terminator if that was the only key."""
        self.taken = self._keys or self._answer.terminator
        self._hold("")
        return self.taken

    def is_trailing_key(self, key: str, now: float) -> bool:
        """Whether `key` belongs to an answer that was taken: the terminator after the last digit, which many
        callers are told to press, or a further digit of a masked number. Changes state; call once a key."""
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
        """Whether the keys would have been answered by now but for a voice, which began at `voice_since`."""
        return self.has_begun and now >= max(self.due, voice_since + WORDLESS_S)

    @property
    def _answer(self) -> Expected:
        return self.expected or Expected()

    def _is_whole(self) -> bool:
        """Whether the keys have the expected number of digits or are a choice, and no longer choice begins
        with them. Where a number may be keyed too, a choice may be the first digit of that number."""
        expected, keys = self._answer, self._keys
        if 0 < expected.digits <= len(keys) or len(keys) >= MAX_KEYS:
            return True
        longer = any(choice != keys and choice.startswith(keys) for choice in expected.choices)
        return keys in expected.choices and not longer and not _FIGURES.intersection(expected.kinds)
