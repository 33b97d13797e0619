"""What the sans-IO stack tells about its calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from sip.sdp.media_plan import MediaPlan
from sip.states import HangupCause
from sip.transaction.hop import Hop

if TYPE_CHECKING:
    from sip.dialog.invite import Invite
    from sip.dialog.uas import IncomingInvite

Side = Literal["local", "remote"]


@dataclass(frozen=True, slots=True)
class InviteReceived:
    """A new call was admitted and waits for a decision."""

    invite: IncomingInvite
    trunk_id: str
    source: Hop


@dataclass(frozen=True, slots=True)
class InviteProgressed:
    """The far end said 101 to 199. `early_media`: it has described media to be heard before the answer."""

    invite: Invite
    status: int
    early_media: bool


@dataclass(frozen=True, slots=True)
class InviteAnswered:
    """The call is up: their 2xx came, or ours left."""

    invite: Invite
    status: int = 200


@dataclass(frozen=True, slots=True)
class MediaAgreed:
    """An offer was answered: the first time, or a change of address, codec or hold."""

    invite: Invite
    plan: MediaPlan


@dataclass(frozen=True, slots=True)
class ChangeFinished:
    """Our hold or resume was answered. `status` 200 to 299: it holds."""

    invite: Invite
    status: int


@dataclass(frozen=True, slots=True)
class DigitsReceived:
    """DTMF in a SIP INFO."""

    invite: Invite
    digit: str


@dataclass(frozen=True, slots=True)
class InviteEnded:
    """The call is over; exactly once, the last event of its invite. `status` is the SIP code that ended it:
    the final response to the INVITE, or 200 for a BYE. `definite`: the far end gave a final response to our
    INVITE, whichever side had given up by then."""

    invite: Invite
    cause: HangupCause
    status: int
    by: Side
    retry_after_s: int | None = None
    definite: bool = False


@dataclass(frozen=True, slots=True)
class AddressRefused:
    """Something of the call was not sent, because `address` is closed to its trunk. `first`: for the first
    time in the call. The only event that may follow `InviteEnded`: the BYE may be what was not sent. So it
    names the call (`name` in logs, `call_id` of SIP) and does not keep it."""

    name: str
    call_id: str
    address: str
    first: bool


Event = (
    InviteReceived
    | InviteProgressed
    | InviteAnswered
    | MediaAgreed
    | ChangeFinished
    | DigitsReceived
    | InviteEnded
    | AddressRefused
)
