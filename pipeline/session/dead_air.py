"""What the caller hears of us, watched: a silence in our turn never goes by without somebody knowing why.

What is heard of the far end breaks a silence if it was the caller, and that is known later than it is heard:
a noise that is taken for them, again and again, must not hide that nobody answers.

The watch sits where sound leaves and arrives, not where it is thought of: an agent that believes it speaks
while its leg takes no frames is silent here. Between two sounds it remembers what was being waited for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from pipeline.turns.events import State

LIMIT_S: Final = 1.8
"""After 2 s people ask into a silence ("hello?"); the end of a voice in noise is known to a fifth."""

_QUIET: Final = "tts_silent"

CAUSES: Final[Mapping[State, str]] = MappingProxyType(
    {
        State.ENDPOINTING: "endpointing",
        State.PRESUMING: "endpointing",
        State.WAITING: "waiting",
        State.SPEAKING: "held",
        State.OVERLAPPED: "held",
        State.JUDGING: "held",
        State.HALTED: "interrupted",
        State.DOUBTING: "interrupted",
        State.LEAVING: "closing",
        State.CLOSING: "closing",
    }
)
"""Why the caller hears nothing, in states in which it is not their turn."""


SILENT_AGENT: Final = "agent_silent"
"""The caller has said something, and the agent has nothing to say to it."""

_THINKING: Final = frozenset((State.OPENING, State.REPLYING))


def cause_in(state: State, *, agent: str, asking: bool) -> str:
    """Whom a silence in `state` is due to. `agent`: what that waits for; `asking`: words are awaited."""
    if state in _THINKING or (state is State.LISTENING and agent == SILENT_AGENT):
        return agent
    return "stt_late" if state is State.ENDPOINTING and asking else CAUSES.get(state, "")


class DeadAirWatch:
    """Of one conversation. `note(begin, seconds, cause)` is called when a silence of ours ends that was
    longer than `LIMIT_S`: how much of it was ours, and what most of that was spent on."""

    __slots__ = ("_last", "_note", "_otherwise", "_phases", "_voice")

    def __init__(self, note: Callable[[float, float, str], None], now: float) -> None:
        self._note = note
        self._last = now
        self._otherwise = ""  # the cause, were there something to be heard in the frames that leave
        self._voice: float | None = None  # of which nobody knows yet whether it is the caller's
        self._phases: list[tuple[float, str]] = [(now, "")]

    def phase(self, cause: str, since: float) -> None:
        """From then on, whatever was thought, a silence is due to `cause`; "" for the caller's own."""
        phases = self._phases
        while len(phases) > 1 and phases[-1][0] >= since:
            phases.pop()
        if phases[-1][1] == cause:
            return
        while len(phases) > 1 and phases[1][0] <= self._last:
            del phases[0]
        phases.append((since, cause))

    def quiet(self, now: float) -> None:
        """A frame left in which there is nothing to be heard: the line takes what the voice makes, and the
        voice is silent."""
        cause = self._phases[-1][1]
        if cause not in ("", _QUIET):
            self._otherwise = cause
            self.phase(_QUIET, now)

    def sound(self, now: float) -> None:
        """The agent was heard, up to `now`."""
        if now - self._last > LIMIT_S:
            self._look_back(now)
        self._last = max(self._last, now)
        if self._phases[-1][1] == _QUIET:
            self.phase(self._otherwise, now)
        self._voice = None

    def voice(self, now: float) -> None:
        """Somebody or something was heard: the caller, if words come of it."""
        if self._voice is None:
            self._voice = now

    def caller(self, until: float) -> None:
        """It was the caller, and they spoke until then."""
        began = until if self._voice is None else min(self._voice, until)
        if began - self._last > LIMIT_S:
            self._look_back(began)
        self._last = max(self._last, until)
        self._voice = None

    def nobody(self, now: float) -> None:
        """It was a noise, while the floor was the caller's."""
        if self._voice is not None:
            self.phase("", self._voice)
        self._voice = None

    def _look_back(self, now: float) -> None:
        spent: dict[str, float] = {}
        begin = now
        ends = [at for at, _ in self._phases[1:]] + [now]
        for (at, cause), end in zip(self._phases, ends, strict=True):
            lasted = end - max(at, self._last)
            if cause and lasted > 0:
                begin = min(begin, max(at, self._last))
                spent[cause] = spent.get(cause, 0.0) + lasted
        ours = sum(spent.values())
        if ours > LIMIT_S:
            self._note(begin, ours, max(spent, key=lambda cause: spent[cause]))
