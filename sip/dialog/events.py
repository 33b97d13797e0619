"""What happens to a call, told to the application; `dialog_set` says to which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sip.dialog.dialog import DialogSetId
from sip.sdp.media_plan import MediaPlan
from sip.states import HangupCause

Side = Literal["local", "remote"]


@dataclass(frozen=True, slots=True)
class InviteProgressed:
    """The far end said 101 to 199. `early_media`: it has described media to be heard before the answer."""

    dialog_set: DialogSetId
    status: int
    early_media: bool


@dataclass(frozen=True, slots=True)
class InviteAnswered:
    """The call is up: their 2xx came, or ours left."""

    dialog_set: DialogSetId
    status: int = 200


@dataclass(frozen=True, slots=True)
class MediaAgreed:
    """An offer was answered: the first time, or a change of address, codec or hold."""

    dialog_set: DialogSetId
    plan: MediaPlan


@dataclass(frozen=True, slots=True)
class ChangeFinished:
    """Our hold or resume was answered. `status` 200 to 299: it holds."""

    dialog_set: DialogSetId
    status: int


@dataclass(frozen=True, slots=True)
class DigitsReceived:
    """DTMF in a SIP INFO."""

    dialog_set: DialogSetId
    digit: str


@dataclass(frozen=True, slots=True)
class InviteEnded:
    """The call is over; exactly once, the last event of its invite. `status` is the SIP code that ended it:
    the final response to the INVITE, or 200 for a BYE. `definite`: the far end gave a final response to our
    INVITE, whichever side had given up by then."""

    dialog_set: DialogSetId
    cause: HangupCause
    status: int
    by: Side
    retry_after_s: int | None = None
    definite: bool = False


@dataclass(frozen=True, slots=True)
class AddressRefused:
    """Something of the call was not sent, because `address` is closed to its trunk. `first`: for the first
    time in the call. The only event that may follow `InviteEnded`: the BYE may be what was not sent. `name`
    is the call's in logs."""

    name: str
    dialog_set: DialogSetId
    address: str
    first: bool


Event = (
    InviteProgressed
    | InviteAnswered
    | MediaAgreed
    | ChangeFinished
    | DigitsReceived
    | InviteEnded
    | AddressRefused
)
