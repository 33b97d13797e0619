"""The state of offer and answer of a call (RFC 3264, RFC 6337): one offer at a time, one version each."""

from __future__ import annotations

import secrets
from enum import Enum, auto

from sip.errors import LocalError, MalformedSdp
from sip.sdp.media_plan import MediaPlan
from sip.sdp.negotiation import Capabilities, accept, answer, make_offer
from sip.sdp.security import Agreed


class OfferState(Enum):
    """Whether an offer of this side waits for its answer (RFC 3264)."""

    IDLE = auto()
    OFFERED = auto()  # an offer was sent


class OfferAnswer:
    """The negotiation of one call. `plan` is the last one negotiated; a refused change does not alter it."""

    def __init__(self, capabilities: Capabilities) -> None:
        self.state = OfferState.IDLE
        self.plan: MediaPlan | None = None
        self.holding = False
        self._capabilities = capabilities
        self._session_id = secrets.randbits(31)
        self._version = 0
        self._offer = b""
        self._before: Agreed | None = None  # what the call had when the offer was sent
        self._last = b""  # the last description sent, and whether it was on hold
        self._last_holding = False
        self._last_answered = b""

    @property
    def held(self) -> bool:
        """Whether either side has put the call on hold."""
        return self.holding or (self.plan is not None and not self.plan.sends)

    @property
    def _agreed(self) -> Agreed | None:
        return None if self.plan is None else Agreed(self.plan.protocol, self.plan.security)

    def offer(self, *, hold: bool | None = None) -> bytes:
        """Returns an offer, with the same content and version as long as nothing changes.

        Raises `LocalError` while an offer of this side is unanswered."""
        if self.state is OfferState.OFFERED:
            raise LocalError("an offer is already out")
        wanted = self.holding if hold is None else hold
        if not self._last or wanted != self._last_holding:
            self._version += 1
            self._last = make_offer(
                self._capabilities,
                session_id=self._session_id,
                version=self._version,
                direction="sendonly" if wanted else "sendrecv",
                agreed=self._agreed,
            )
        self.state, self._offer, self._before = OfferState.OFFERED, self._last, self._agreed
        self._last_holding, self._last_answered = wanted, b""
        return self._offer

    def preview(self, body: bytes) -> MediaPlan | None:
        """Returns the plan of an answer in a provisional response, which another fork may still replace.
        None: the same as before. Raises `MalformedSdp`."""
        if self.state is not OfferState.OFFERED or body == self._last_answered:
            return None
        self.plan = accept(body, self._offer, agreed=self._before, reaches=self._capabilities.reaches)
        self._last_answered = body
        return self.plan

    def settle(self, body: bytes) -> MediaPlan | None:
        """Takes the final answer to the offer; b"" stands for the answer that a provisional response brought.
        None: nothing new. Raises `MalformedSdp`; the offer is then withdrawn."""
        if self.state is not OfferState.OFFERED:
            return None
        try:
            if not body and not self._last_answered:
                raise MalformedSdp("no answer to the offer")
            plan = self.preview(body) if body else None
        except MalformedSdp:
            self.withdraw()
            raise
        self.state = OfferState.IDLE
        self.holding = self._last_holding
        return plan

    def reopen(self) -> None:
        """Waits for an answer again, because another fork answers the settled offer."""
        self.state = OfferState.OFFERED

    def withdraw(self) -> None:
        """Withdraws the offer, which was refused or will not be answered; the plan stays as it was."""
        if self.state is OfferState.OFFERED:
            self.state = OfferState.IDLE
            self._last = b""  # the next offer differs from the refused one: a version of its own

    def respond(self, offer: bytes) -> bytes:
        """Answers an offer of the far end. Raises `MalformedSdp` (the old plan stays), `LocalError` on
        glare."""
        if self.state is OfferState.OFFERED:
            raise LocalError("their offer crosses ours")
        body, plan = answer(
            offer,
            self._capabilities,
            session_id=self._session_id,
            version=self._version + 1,
            direction="sendonly" if self.holding else "sendrecv",
            agreed=self._agreed,
        )
        self._version += 1
        self.plan = plan
        # An answer may be narrower than the capabilities, so it is never repeated as an offer.
        self._last = b""
        return body
