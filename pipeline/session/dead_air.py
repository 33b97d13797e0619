"""Measures the silences in the agent's turn and finds the cause of each.

The silence is that on the wire: an agent that speaks while its leg takes no frames is silent. Sound from the
far end ends a silence only if the sound was the caller's, which is known later: noise that is taken for the
caller, again and again, must not hide that nobody answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from pipeline.plane.outgoing import Left
from pipeline.turns.events import State

LIMIT_S: Final = 1.8
"""Silences longer than this are recorded, in seconds. After 2 s of silence people ask "hello?"; the end of a
voice in noise is known to within 0.2 s."""

_QUIET: Final = "tts_silent"
_NS: Final = 1e9

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
"""The cause of a silence by the state of the turn machine, for states of the agent's turn."""


SILENT_AGENT: Final = "agent_silent"
"""The cause of a silence in which the agent's answer to the caller was empty."""

_THINKING: Final = frozenset((State.OPENING, State.REPLYING))


def cause_in(state: State, *, agent: str) -> str:
    """Names the cause of a silence in `state`, "" for the caller's turn. `agent`: the cause while the agent
    works."""
    if state in _THINKING or (state is State.LISTENING and agent == SILENT_AGENT):
        return agent
    return CAUSES.get(state, "")


class DeadAirWatch:
    """The measure of silences in one conversation. `note(begin, seconds, cause)` is called at the end of a
    silence longer than `LIMIT_S` with the part that the server caused and the cause of most of that part."""

    __slots__ = ("_last", "_note", "_otherwise", "_phases", "_voice")

    def __init__(self, note: Callable[[float, float, str], None], now: float) -> None:
        self._note = note
        self._last = now
        self._otherwise = ""  # the cause that `_QUIET` has replaced until a frame is audible
        self._voice: float | None = None  # begin of a sound that awaits `caller` or `nobody`
        self._phases: list[tuple[float, str]] = [(now, "")]

    def phase(self, cause: str, since: float) -> None:
        """Attributes silence from loop time `since` on to `cause`; "" for the caller's turn."""
        phases = self._phases
        while len(phases) > 1 and phases[-1][0] >= since:
            phases.pop()
        if phases[-1][1] == cause:
            return
        while len(phases) > 1 and phases[1][0] <= self._last:
            del phases[0]
        phases.append((since, cause))

    def frames(self, told: Sequence[Left]) -> None:
        """Notes that the leg sent frames of the agent."""
        first = 0
        while first < len(told):
            last, audible = first, told[first][1]
            while last + 1 < len(told) and told[last + 1][1] == audible:
                last += 1
            (self.sound if audible else self.quiet)(told[first][0] / _NS)
            if audible and last > first:
                self.sound(told[last][0] / _NS)
            first = last + 1

    def quiet(self, now: float) -> None:
        """Notes that the leg sent an inaudible frame of the agent: the cause is from now on "tts_silent"."""
        cause = self._phases[-1][1]
        if cause not in ("", _QUIET):
            self._otherwise = cause
            self.phase(_QUIET, now)

    def sound(self, now: float) -> None:
        """Notes that the leg sent an audible frame of the agent, which ends a silence."""
        if now - self._last > LIMIT_S:
            self._look_back(now)
        self._last = max(self._last, now)
        if self._phases[-1][1] == _QUIET:
            self.phase(self._otherwise, now)
        self._voice = None

    def voice(self, now: float) -> None:
        """Notes a sound of the far end that may be the caller, pending `caller` or `nobody`."""
        if self._voice is None:
            self._voice = now

    def caller(self, until: float) -> None:
        """Attributes the pending sound to the caller, who spoke until `until`."""
        began = until if self._voice is None else min(self._voice, until)
        if began - self._last > LIMIT_S:
            self._look_back(began)
        self._last = max(self._last, until)
        self._voice = None

    def nobody(self, now: float) -> None:
        """Takes the pending sound for noise; silence since its begin belongs to the caller's turn."""
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
