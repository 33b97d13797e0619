"""Asks a caller's carrier to connect the caller itself (REFER), and waits for how that ends.

Two rungs of the transfer ladder: REFER to a number, and REFER to a person who is on the line already, whose
call with this server the carrier replaces (RFC 5589). A refusal of the REFER, or a redirection that nobody
followed, leads to the next rung: nobody has been called. Everything else ends the ladder, silence too, since
a person whose telephone may have rung is not called again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from sip.call import Call
from sip.dialog.referral import Referral, ReferralState
from sip.errors import LocalError
from sip.message.uri import Uri
from sip.states import cause_of

AFTER_BYE_S: Final = 5.0
"""Seconds after the caller's BYE in which the carrier may still tell how the transfer ended."""

BAD_SCHEME: Final = 416
UNKNOWN_METHOD: Final = frozenset({405, 501})


class Rung(StrEnum):
    """The rungs of the transfer ladder, in order."""

    REFER = "refer"
    REPLACES = "refer_replaces"
    BRIDGE = "bridge"


class Said(StrEnum):
    """What came of a rung, beside the causes for which a called person was not reached (`HangupCause`)."""

    ANSWERED = "answered"
    REFERRED = "referred"  # the carrier took the call and hung up without telling how it went on
    ABANDONED = "abandoned"  # the caller hung up first
    DECLINED = "declined"  # the person answered and did not take the call
    UNKNOWN = "unknown"  # nobody knows whether the person was called
    NOT_ALLOWED = "not_allowed"  # the far end does not list REFER in Allow
    REFUSED = "refused"
    REDIRECTED = "redirected"  # to a place that the carrier did not call


NEXT: Final = frozenset({Said.NOT_ALLOWED, Said.REFUSED, Said.REDIRECTED})
"""Results after which nobody has been called, so that the next rung may be tried."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One rung that was tried. `outcome`: of `Said`, or a hangup cause; `status`: its SIP code."""

    rung: Rung
    outcome: str
    status: int = 0

    @property
    def goes_on(self) -> bool:
        """Whether the next rung may be tried."""
        return self.outcome in NEXT

    @property
    def never_refers(self) -> bool:
        """Whether the far end does not know REFER, of whatever kind."""
        return self.outcome == Said.NOT_ALLOWED or (
            self.outcome == Said.REFUSED and self.status in UNKNOWN_METHOD
        )

    @property
    def served(self) -> bool:
        """Whether the carrier has the caller."""
        return self.outcome in (Said.ANSWERED, Said.REFERRED)


class CarrierReferral:
    """Refers `caller` to `uris` in turn, the next only where the carrier does not take the scheme of the one
    before; `run` once. `limit_s`: how long its outcome is waited for."""

    def __init__(self, caller: Call, uris: Sequence[Uri], *, rung: Rung, limit_s: float) -> None:
        self._caller = caller
        self._uris = uris
        self._rung = rung
        self._limit_s = limit_s
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._deadline = 0.0
        self._accepted = False
        self._gone = False

    async def run(self) -> Attempt:
        """Sends the REFER and returns what came of it."""
        if not self._caller.refers:
            return Attempt(self._rung, Said.NOT_ALLOWED)
        attempt = Attempt(self._rung, Said.REFUSED)
        for uri in self._uris:
            attempt = await self._ask(uri)
            if attempt.outcome != Said.REFUSED or attempt.status != BAD_SCHEME or self._gone:
                break
        return attempt

    def left(self, within_s: float = AFTER_BYE_S) -> None:
        """Notes that the far end has hung up: its last word is waited for `within_s` at most."""
        self._gone = True
        self._deadline = min(self._deadline, self._loop.time() + within_s)
        self._news.set()

    async def _ask(self, uri: Uri) -> Attempt:
        try:
            referral = self._caller.refer(uri, self._changed)
        except LocalError:  # the caller hung up in this moment
            return Attempt(self._rung, Said.ABANDONED)
        self._deadline = self._loop.time() + self._limit_s
        while self._waits(referral) and self._loop.time() < self._deadline:
            self._news.clear()
            try:
                async with asyncio.timeout_at(self._deadline):
                    await self._news.wait()
            except TimeoutError:
                continue
        return self._result(referral)

    def _waits(self, referral: Referral) -> bool:
        """Whether more may come: also a BYE, where the carrier accepted and then told nothing."""
        silent = referral.state is ReferralState.UNKNOWN and self._accepted and not self._gone
        return referral.pending or silent

    def _changed(self, referral: Referral, now: float) -> None:
        self._accepted = self._accepted or referral.state in (ReferralState.ACCEPTED, ReferralState.CONNECTED)
        self._news.set()

    def _result(self, referral: Referral) -> Attempt:
        status = referral.status
        match referral.state:
            case ReferralState.CONNECTED:
                outcome: str = Said.ANSWERED
            case ReferralState.REFUSED:
                outcome = Said.REFUSED
            case ReferralState.FAILED:
                outcome = Said.REDIRECTED if status < 400 else cause_of(status).value
            case _:
                outcome = Said.REFERRED if self._accepted else Said.ABANDONED
                outcome = outcome if self._gone else Said.UNKNOWN
        referral.abandon(self._loop.time())
        return Attempt(self._rung, outcome, status)
