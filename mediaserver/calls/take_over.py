"""A supervisor who talks in the agent's place, from the take-over to the hand-back.

The agent's session has ended and the leg is kept, as in a transfer. What is said meanwhile is recorded and
transcribed; the agent goes on with it. A caller is never left alone: a supervisor who is lost has handed the
call back."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import partial
from typing import Any, Final

from mediaserver.calls.services import CallProfile
from pipeline.agent import HandedBack
from pipeline.audio import Pcm
from pipeline.errors import RecordingError
from pipeline.leg import Leg
from pipeline.media.bridge import Bridge, Seat, record
from pipeline.media.recording import Recording
from pipeline.media.who_hears import Role as Hearer
from pipeline.result import EndReason, SessionObserver, SessionResult
from pipeline.session.person_transcript import RESULT_S, PersonTranscript
from pipeline.transcript import Role, TranscriptEntry

log = logging.getLogger(__name__)


EARLY: Final = 250
"""Frames of both sides that wait for the recording: 5 s."""

MAX_TAKEN_OVER_S: Final = 4 * 3600.0
"""After it the agent has the caller back: a supervisor's browser was left open."""


Heard = tuple[Sequence[tuple[Seat, Pcm]], int, float]
"""Frames of the seats, the position of the mix, and the loop time."""


class TakeOverEnd(StrEnum):
    """How a supervisor's talk ended. `LOST`: nothing came from them any more; `FAR_END`: the caller left;
    `STOPPED`: the call was ended."""

    HANDED_BACK = "handed_back"
    LOST = "lost"
    FAR_END = "far_end"
    STOPPED = "stopped"


LAST_WORDS_S: Final[Mapping[TakeOverEnd, float]] = {
    TakeOverEnd.HANDED_BACK: 1.5,  # the caller waits for the agent
    TakeOverEnd.LOST: 1.5,
    TakeOverEnd.FAR_END: RESULT_S,
    TakeOverEnd.STOPPED: 4.0,  # a server that stops waits 5 s for its calls
}
"""How long the words are waited for that were said just before the end."""


class TakeOver:
    """The supervisor behind `leg` in the agent's place on `bridge`. `who`: their identity; `began`: when the
    conversation did, in loop time. Also the `LegListener` of the bridge. `on_over` gets how it ended."""

    def __init__(
        self, bridge: Bridge, leg: Leg, *, who: str, profile: CallProfile, call_id: str, began: float
    ) -> None:
        self.who = who
        self.after = Hearer.MONITOR
        """The supervisor's role after the hand-back."""
        self.on_over: Callable[[TakeOverEnd], None] | None = None
        self._bridge, self.leg = bridge, leg
        self._profile, self._call_id, self._began = profile, call_id, began
        self._loop = asyncio.get_running_loop()
        self._began_at = self._loop.time()
        self._over: asyncio.Future[TakeOverEnd] = self._loop.create_future()
        self._leg_reason = ""
        self._recording: Recording | None = None
        self._ended_at = 0.0
        self._said: list[tuple[Leg, TranscriptEntry]] = []
        self._told = 0  # of these, how many the conversation has
        self._closing: set[asyncio.Task[None]] = set()
        self._people: dict[Leg, PersonTranscript] = {}
        self._observer: SessionObserver | None = None
        self._early: deque[Heard] = deque(maxlen=EARLY)

    def begin(self) -> None:
        """Lets the supervisor be heard by all, and the agent by nobody, at once."""
        self._bridge.change_role(self.leg, Hearer.TAKE_OVER)
        self._bridge.role = Hearer.PAUSED_AGENT
        self._bridge.tap = self._heard

    def undo(self) -> None:
        """Gives the agent its place back; the supervisor stays, as `after`."""
        self._bridge.tap = None
        self._bridge.role = Hearer.AGENT
        self._bridge.change_role(self.leg, self.after)
        self.end(TakeOverEnd.HANDED_BACK)
        on_over, self.on_over = self.on_over, None
        if on_over is not None:
            on_over(self._over.result())

    @property
    def ended(self) -> bool:
        """Whether the supervisor's talk has ended: the agent is about to have the caller back."""
        return self._over.done()

    def end(self, how: TakeOverEnd) -> None:
        """Ends the supervisor's talk; the first end stands."""
        if not self._over.done():
            self._ended_at = self._loop.time()
            self._over.set_result(how)

    async def run(
        self, before: SessionResult, recording: Recording | None, observer: SessionObserver
    ) -> tuple[SessionResult, HandedBack | None]:
        """Waits for the end of the supervisor's talk, after `before`; returns the conversation with it, and
        what the agent is told, None where the call is over."""
        for leg, entry in self._said:
            observer.person_said(leg, entry)
        self._recording, self._observer = recording, observer
        while self._early and recording is not None:
            record(recording, *self._early.popleft())
        self._bridge.attach(self, None)
        try:
            await asyncio.wait((self._over,), timeout=MAX_TAKEN_OVER_S)
        finally:
            self._bridge.attach(None, None)
            self.undo()
            await self._close(recording)
        how = self._over.result()
        if how is TakeOverEnd.STOPPED:
            await self._bridge.hang_up()
        await self._hear_out(LAST_WORDS_S[how])
        log.info("call handed back", extra={"call_id": self._call_id, "how": how.value})
        return self._result(before, how)

    async def last_words(self) -> Sequence[TranscriptEntry]:
        """Returns the words that came too late for `run`, at the end of the call."""
        await self._hear_out(LAST_WORDS_S[TakeOverEnd.STOPPED])
        return [entry for _, entry in self._said[self._told :]]

    def data(self) -> dict[str, Any]:
        """Returns who talked, from when to when, and how that ended, as the call's analysis has it."""
        return {
            "by": self.who,
            "startMs": self._ms(self._began_at),
            "endMs": self._ms(self._ended_at),
            "ended": self._over.result().value if self._over.done() else "",
        }

    def _result(self, before: SessionResult, how: TakeOverEnd) -> tuple[SessionResult, HandedBack | None]:
        self._told = len(self._said)
        said = tuple(sorted((entry for _, entry in self._said), key=lambda entry: entry.end_ms))
        result = replace(before, transcript=before.transcript + said, duration_ms=self._ms(self._ended_at))
        if how is TakeOverEnd.FAR_END:
            return replace(result, reason=EndReason.FAR_END, leg_reason=self._leg_reason), None
        if how is TakeOverEnd.STOPPED:
            return replace(result, reason=EndReason.STOPPED), None
        return result, HandedBack(said, heard=before.heard, interrupted=before.cut_short)

    # From the bridge ----------------------------------------------------------------------------------------

    def _heard(self, said: Sequence[tuple[Seat, Pcm]], position: int, now: float) -> None:
        """Records the callers left and the supervisors right, and transcribes each of them."""
        if self._recording is not None:
            record(self._recording, said, position, now)
        elif self._observer is None:  # the session before is closing its recording
            self._early.append((said, position, now))
        for seat, frame in said:
            self._words_of(seat).push(frame, now)

    def _words_of(self, seat: Seat) -> PersonTranscript:
        found = self._people.get(seat.leg)
        if found is None:
            found = self._people[seat.leg] = PersonTranscript(
                self._profile.engines.stt,
                rate_hz=self._bridge.rate_hz,
                language=self._profile.language,
                call_id=self._call_id,
                told=partial(self._add, seat),
            )
        return found

    def _add(self, seat: Seat, text: str, confidence: float, began: float, ended: float) -> None:
        leg, role = seat.leg, Role.CALLER if seat.role is Hearer.CALLER else Role.COLLEAGUE
        entry = TranscriptEntry(role, text, self._ms(began), self._ms(ended), confidence=confidence)
        self._said.append((leg, entry))
        if self._observer is not None:
            self._observer.person_said(leg, entry)

    def _ms(self, moment: float) -> int:
        return max(0, round((moment - self._began) * 1000))

    async def _close(self, recording: Recording | None) -> None:
        """Closes what was opened; recognition goes on with what it has."""
        self._closing = {asyncio.create_task(each.close()) for each in self._people.values()}
        try:
            if recording is not None:
                await recording.close(self._ended_at)
        except RecordingError as error:
            log.error("recording is incomplete", extra={"call_id": self._call_id, "reason": str(error)})

    async def _hear_out(self, limit_s: float) -> None:
        if self._closing:
            await asyncio.wait(self._closing, timeout=limit_s)

    def audio_received(self, frame: Pcm, position: int, now: float, *, concealed: bool) -> None:
        """Does nothing: a session that is paused hears nothing."""

    def digit_received(self, digit: str, now: float) -> None:
        """Ignores keys: there is no agent whom they could be for."""

    def leg_ended(self, reason: str, now: float) -> None:
        """Ends the talk: every caller has left."""
        self._leg_reason = reason
        self.end(TakeOverEnd.FAR_END)
