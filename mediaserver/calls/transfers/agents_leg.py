"""The leg on which an agent talks with the far end of a phone call."""

from __future__ import annotations

from mediaserver.calls.detail_record import CallDetailRecord
from mediaserver.calls.outbound_legs import OutboundLegs
from mediaserver.calls.transfers.moved_caller import MovedCaller
from mediaserver.errors import Conflict
from pipeline.leg import Leg
from pipeline.media.bridge import Bridge
from pipeline.media.patched_leg import PatchedLeg
from sip.call import Call


class AgentsLeg:
    """`leg` is the call itself, onto which others can be patched, or the bridge of a call whose far end may
    refer the agent elsewhere."""

    def __init__(
        self, call: Call, legs: OutboundLegs | None, cdr: CallDetailRecord, dialled: set[str]
    ) -> None:
        self._call = call
        self._moved: MovedCaller | None = None
        self._patched: PatchedLeg | None = None
        self.leg: Leg = call
        if legs is not None and call.movable:
            self._moved = MovedCaller(legs, call, cdr, dialled)
            self.leg = self._moved.bridge
        elif legs is not None:
            self.leg = self._patched = PatchedLeg(call, legs.pacer, call.position)

    @property
    def call(self) -> Call:
        """The telephone that the agent talks with."""
        return self._call if self._moved is None else self._moved.call

    def bridge(self) -> Bridge:
        """Returns the bridge between caller and agent, which is there from now on. Raises `Conflict` where
        there can be none."""
        if self._moved is not None:
            return self._moved.bridge
        if self._patched is None:
            raise Conflict("Nobody can join this call")
        return self._patched.patched()

    async def pause(self) -> None:
        """Obeys no REFER until `resume`."""
        if self._moved is not None:
            await self._moved.pause()

    def resume(self) -> None:
        """Obeys REFERs again: the agent has the caller back."""
        if self._moved is not None:
            self._moved.resume()

    async def close(self) -> None:
        """Obeys no REFER any more."""
        if self._moved is not None:
            await self._moved.close()
