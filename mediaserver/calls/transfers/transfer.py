"""Runs the transfer after a conversation: the outbound leg, the recording, the apology for a person who is
not reached, and the webhook event."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Final

from mediaserver.calls.live_conversation import LiveConversation
from mediaserver.calls.outbound_legs import CALLED_BEFORE, DialRefused, LinesBusy, OutboundLegs, Route
from mediaserver.calls.transfers.agents_leg import AgentsLeg
from mediaserver.calls.transfers.bridge import Brief, Ladder, TransferBridge, TransferResult, Visit
from mediaserver.calls.transfers.briefing import Briefing, brief
from mediaserver.calls.transfers.carrier_referral import Attempt, CarrierReferral, Rung, Said
from mediaserver.errors import StoreError
from pipeline.agent import TransferFailed
from pipeline.audio import Pcm, silence
from pipeline.audio.resample import resample
from pipeline.errors import EngineError, RecordingError, boundary
from pipeline.media.bridge import Bridge
from pipeline.media.recording import Recording
from pipeline.result import EndReason, SessionObserver, SessionResult
from pipeline.session.prompts import synthesise
from pipeline.speech import TextToSpeech
from pipeline.text.prompts import Phrase
from pipeline.text.templates import fill
from sip.call import Call

log = logging.getLogger(__name__)

EVENT: Final = "call.transferred"

ANSWER_S: Final = 5.0
"""Seconds beside the ring in which a carrier that was asked to connect a caller may tell how that ended."""

_LEGS: Final = count(1)
"""Numbers the legs of transfers: a call may have several, one of which is still being cancelled."""

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
) -> TransferFailed | None:
    """Connects the callers in `bridge` with the agent's transfer target; returns when the transfer is over,
    at once where the agent named none: what the agent is to be told where the caller is back with it, None
    where the call is over. `caller`: the only one, by phone, whose carrier may transfer the call itself.
    `on_answer` is called when the person has answered. Never raises."""
    outbound_legs = live.services.outbound_legs
    if result is None or not was_transferred(result) or outbound_legs is None or live.stopped:
        return None
    with boundary(log, "transfer failed", **live.cdr.fields()):
        return await _Transfer(live, outbound_legs, result, caller=caller, on_answer=on_answer).run(bridge)
    return None


async def conversed(
    live: LiveConversation,
    bridge: Bridge,
    result: SessionResult | None,
    *,
    there: AgentsLeg | None = None,
    observer: SessionObserver | None = None,
    on_answer: OnAnswer | None = None,
) -> tuple[SessionResult | None, str]:
    """Transfers the caller as often as the agent asks, which goes on with whom nobody took; returns the
    result of the whole conversation, and an error. `there`: the caller's telephone, if it is the only one,
    which leads the agent nowhere during a transfer. Other parameters as for `transfer_call`. Never raises."""
    error = ""
    while result is not None and was_transferred(result) and not live.stopped:
        if there is not None:
            await there.pause()
        caller = there.call if there is not None else None
        failed = await transfer_call(live, bridge, result, caller=caller, on_answer=on_answer)
        if failed is None or live.stopped:
            break
        if there is not None:
            there.resume()
        result, error = await live.resume(bridge, result, failed, observer=observer)
        if error:
            break
    return result, error


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
        self._number = ""
        self._person: Call | None = None
        self._summary: asyncio.Task[str] | None = None

    async def run(self, bridge: Bridge) -> TransferFailed | None:
        """Connects the callers in `bridge` with the target, and sends the webhook event; returns what the
        agent is told whose caller is back."""
        people = self._people()
        handed = await (self._visit(bridge, people) if people is not None else self._call(bridge))
        self._cdr.transfer = self._data(handed) | {"talkMs": handed.talk_ms, "endedBy": handed.ended_by}
        log.info("transfer over", extra={**self._cdr.fields(), "outcome": handed.outcome})
        if not self._told:
            self._cdr.tell(EVENT, self._data(handed))
        if handed.outcome != Said.ANSWERED and not self._perhaps_called(handed):
            self._live.dialled.discard(self._number)
        served = bool(handed.rung) or handed.outcome in (Said.ANSWERED, Said.ABANDONED)
        if not self._comes_back or served or not any(seat.stays for seat in bridge.seats):
            return None
        return TransferFailed(self._result.transfer_target, handed.outcome, self._live.profile.unreachable)

    @property
    def _comes_back(self) -> bool:
        """Whether the agent goes on with a caller whom nobody took."""
        return self._live.profile.transfer.kind != "blind"

    def _perhaps_called(self, handed: TransferResult) -> bool:
        """Whether nobody knows if the person's telephone rang."""
        person = self._person
        silent = person is not None and not person.definite
        asked = any(attempt.outcome == Said.UNKNOWN for attempt in self._tried)
        asked = asked or handed.outcome == Said.UNKNOWN
        return (silent or asked) and handed.outcome not in (Said.ANSWERED, Said.DECLINED)

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
            if self._summary is not None:
                self._summary.cancel()
            await self._close(recording)

    async def _plan(self) -> Ladder:
        """Returns the rungs: those of the caller's carrier as its trunk allows, if the person is called over
        the same trunk, then the bridge. Raises `DialRefused`."""
        claim, outbound_legs, caller = self._cdr.claim, self._outbound_legs, self._caller
        target = outbound_legs.target(claim.agent_id, self._result.transfer_target)
        try:
            route = await outbound_legs.route(claim.agent_id, target)
        except StoreError as error:
            raise LinesBusy("the do-not-call list cannot be looked up now") from error
        if route.number in self._live.dialled:
            raise DialRefused(CALLED_BEFORE)
        self._number = route.number
        self._live.dialled.add(route.number)
        kind = self._live.profile.transfer.kind
        limit_s = route.agent.transfer_ring_s + ANSWER_S
        ladder = Ladder(lambda: self._dial(route), tried=self._tried, brief=self._briefing(), limit_s=limit_s)
        if caller is None or caller.trunk_id != route.trunk.id or route.trunk.transfer == "bridge":
            return ladder
        uris = outbound_legs.refer_to(route)
        if kind == "blind":
            ladder.bridge = route.trunk.transfer == "auto"
            ladder.refer = CarrierReferral(caller, uris, rung=Rung.REFER, limit_s=limit_s)
        ladder.hand_over = lambda person: CarrierReferral(
            caller, (person.replaced_by(uris[0]),), rung=Rung.REPLACES, limit_s=limit_s
        )
        return ladder

    async def _dial(self, route: Route) -> Call:
        claim, leg_id = self._cdr.claim, f"{self._cdr.call_id}-transfer-{next(_LEGS)}"
        self._person = person = await self._outbound_legs.dial(
            route, call_id=leg_id, leg_of=claim.call_id, variables=claim.variables
        )
        return person

    def _briefing(self) -> Brief | None:
        """Returns what the person hears before the caller is connected, None for nothing. The summary is made
        while their telephone rings."""
        live, how = self._live, self._live.profile.transfer
        warm = how.kind == "warm"
        if how.kind == "blind" or not (warm or how.announce):
            return None
        summary = self._summary = asyncio.create_task(live.summary(self._result)) if warm else None

        async def tell(person: Call) -> bool:
            known = {"summary": await summary} if summary is not None else {}
            words = fill(
                f"{how.announce} {how.briefing if warm else ''}", {**self._cdr.claim.variables, **known}
            )
            briefing = Briefing(words, how.question if warm else "")
            return await brief(person, briefing, live.profile, call_id=self._cdr.call_id)

        return tell

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
        if self._comes_back:
            return silence(rate_hz)[:0]  # the agent finds its own words
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
