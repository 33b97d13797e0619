"""Runs the transfer after a conversation: the outbound leg, the recording, the apology for a person who is
not reached, and the webhook event."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from mediaserver.calls.carrier_referral import Attempt, CarrierReferral, Rung
from mediaserver.calls.live_conversation import LiveConversation
from mediaserver.calls.outbound_legs import DialRefused, LinesBusy, OutboundLegs, Route
from mediaserver.calls.transfer_bridge import Ladder, TransferBridge, TransferResult, Visit
from mediaserver.errors import StoreError
from pipeline.audio import Pcm
from pipeline.audio.resample import resample
from pipeline.errors import EngineError, RecordingError, boundary
from pipeline.media.bridge import Bridge
from pipeline.media.recording import Recording
from pipeline.result import EndReason, SessionResult
from pipeline.session.prompts import synthesise
from pipeline.speech import TextToSpeech
from pipeline.text.prompts import Phrase
from sip.call import Call

log = logging.getLogger(__name__)

EVENT: Final = "call.transferred"

ANSWER_S: Final = 5.0
"""Seconds beside the ring in which a carrier that was asked to connect a caller may tell how that ended."""

OnAnswer = Callable[[Call, float], None]


def was_transferred(result: SessionResult | None) -> bool:
    """Whether the agent ended the conversation to transfer the caller."""
    return result is not None and result.reason is EndReason.TRANSFER


async def transfer_call(
    live: LiveConversation,
    bridge: Bridge,
    result: SessionResult | None,
    *,
    caller: Call | None = None,
    on_answer: OnAnswer | None = None,
) -> None:
    """Connects the callers in `bridge` with the agent's transfer target; returns when the transfer is over,
    at once where the agent named none. `caller`: the only one, by phone, whose carrier may transfer the call
    itself. `on_answer` is called when the person has answered. Never raises."""
    outbound_legs = live.services.outbound_legs
    if result is None or not was_transferred(result) or outbound_legs is None or live.stopped:
        return
    with boundary(log, "transfer failed", **live.cdr.fields()):
        await _Transfer(live, outbound_legs, result, caller=caller, on_answer=on_answer).run(bridge)


class _Transfer:
    """One transfer of one caller."""

    def __init__(
        self,
        live: LiveConversation,
        outbound_legs: OutboundLegs,
        result: SessionResult,
        *,
        caller: Call | None,
        on_answer: OnAnswer | None,
    ) -> None:
        self._live = live
        self._cdr = live.cdr
        self._caller = caller
        self._on_answer = on_answer
        self._outbound_legs = outbound_legs
        self._result = result
        self._told = False
        self._tried: list[Attempt] = []

    async def run(self, bridge: Bridge) -> None:
        """Connects the callers in `bridge` with the target, and sends the webhook event."""
        people = self._people()
        handed = await (self._visit(bridge, people) if people is not None else self._call(bridge))
        self._cdr.transfer = self._data(handed) | {"talkMs": handed.talk_ms, "endedBy": handed.ended_by}
        log.info("transfer over", extra={**self._cdr.fields(), "outcome": handed.outcome})
        if not self._told:
            self._cdr.tell(EVENT, self._data(handed))

    def _people(self) -> Bridge | None:
        agent_id = self._cdr.claim.agent_id
        try:
            return self._outbound_legs.people_in(
                agent_id, self._outbound_legs.target(agent_id, self._result.transfer_target)
            )
        except DialRefused:
            return None  # reported when it is dialled

    async def _visit(self, bridge: Bridge, people: Bridge) -> TransferResult:
        """Adds the callers to a room, whose own recording includes them."""
        visit = Visit(bridge, people)
        self._live.transfer = visit
        self._told = True
        self._cdr.tell(EVENT, self._data(TransferResult("answered", ring_ms=0)))
        try:
            return await visit.run()
        finally:
            self._live.transfer = None

    async def _call(self, bridge: Bridge) -> TransferResult:
        recording = await self._go_on_recording(bridge.rate_hz)
        transfer_bridge = TransferBridge(bridge, plan=self._plan, regret=self._regret, recording=recording)
        transfer_bridge.on_answer = self._answered
        self._live.transfer = transfer_bridge
        if self._live.stopped:
            transfer_bridge.stop()
        try:
            return await transfer_bridge.run()
        finally:
            self._live.transfer = None
            await self._close(recording)

    async def _plan(self) -> Ladder:
        """Returns the rungs: those of the caller's carrier as its trunk allows, if the person is called over
        the same trunk, then the bridge. Raises `DialRefused`."""
        claim, outbound_legs, caller = self._cdr.claim, self._outbound_legs, self._caller
        number = outbound_legs.target(claim.agent_id, self._result.transfer_target)
        try:
            route = await outbound_legs.route(claim.agent_id, number)
        except StoreError as error:
            raise LinesBusy("the do-not-call list cannot be looked up now") from error
        ladder = Ladder(lambda: self._dial(route), tried=self._tried)
        if caller is None or caller.trunk_id != route.trunk_id or route.transfer == "bridge":
            return ladder
        uris, limit_s = outbound_legs.refer_to(route), route.agent.transfer_ring_s + ANSWER_S
        ladder.bridge = route.transfer == "auto"
        ladder.refer = CarrierReferral(caller, uris, rung=Rung.REFER, limit_s=limit_s)
        ladder.hand_over = lambda person: CarrierReferral(
            caller, (person.replaced_by(uris[0]),), rung=Rung.REPLACES, limit_s=limit_s
        )
        return ladder

    async def _dial(self, route: Route) -> Call:
        claim, leg_id = self._cdr.claim, f"{self._cdr.call_id}-transfer"
        return await self._outbound_legs.dial(
            route, call_id=leg_id, leg_of=claim.call_id, variables=claim.variables
        )

    def _answered(self, call: Call) -> None:
        self._told = True
        if self._on_answer is not None:
            self._on_answer(call, asyncio.get_running_loop().time())
        self._cdr.tell(EVENT, self._data(TransferResult("answered", ring_ms=0, rung=Rung.BRIDGE)))

    def _data(self, handed: TransferResult) -> dict[str, Any]:
        data: dict[str, Any] = {"target": self._result.transfer_target, "outcome": handed.outcome}
        if handed.reason:
            data["reason"] = handed.reason
        if handed.rung:
            data["rung"] = handed.rung
        if self._tried:
            data["tried"] = [_tried(attempt) for attempt in self._tried]
        return data

    # Apology where the person is not reached ----------------------------------------------------------------

    async def _regret(self, rate_hz: int) -> Pcm:
        part = self._live.profile
        voices: Sequence[TextToSpeech] = (part.engines.tts, *part.engines.fallback_tts)
        for voice in voices if part.unreachable else ():
            try:
                words = await synthesise(voice, part.unreachable, part.language)
            except (EngineError, TimeoutError) as error:
                log.warning("words cannot be said", extra={**self._cdr.fields(), "reason": str(error)})
            else:
                return resample(words, voice.rate_hz, rate_hz)
        return part.engines.phrases.at(Phrase.APOLOGY, rate_hz).samples

    # The recording ------------------------------------------------------------------------------------------

    async def _go_on_recording(self, rate_hz: int) -> Recording | None:
        path = self._result.recording
        if path is None:
            return None
        try:
            return await self._live.services.recorder.resume(path, rate_hz=rate_hz, now=self._live.began)
        except OSError as error:
            log.error("transfer goes on unrecorded", extra={**self._cdr.fields(), "reason": str(error)})
            self._live.unrecorded(error)
            return None

    async def _close(self, recording: Recording | None) -> None:
        if recording is None:
            return
        try:
            await recording.close(asyncio.get_running_loop().time())
        except RecordingError as error:
            log.error("recording is incomplete", extra={**self._cdr.fields(), "reason": str(error)})
            self._live.unrecorded(error)


def _tried(attempt: Attempt) -> dict[str, Any]:
    """Returns what came of a rung, as the call's record tells it."""
    return {"rung": attempt.rung, "outcome": attempt.outcome, "status": attempt.status or None}
