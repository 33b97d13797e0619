"""Events of a call, emitted to the application; `dialog_set` identifies the call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from sip.dialog.dialog import DialogSetId
from sip.message.uri import Uri
from sip.reason import Reason
from sip.sdp.media_plan import MediaPlan
from sip.states import HangupCause

Side = Literal["local", "remote"]


@dataclass(frozen=True, slots=True)
class InviteProgressed:
    """The far end sent 101 to 199. `early_media`: the response carries SDP for media before the answer."""

    dialog_set: DialogSetId
    status: int
    early_media: bool


@dataclass(frozen=True, slots=True)
class InviteAnswered:
    """The call is up: the 2xx was received, or sent."""

    dialog_set: DialogSetId
    status: int = 200


@dataclass(frozen=True, slots=True)
class MediaAgreed:
    """Offer and answer are complete: the first time, or after a change of address, codec or hold."""

    dialog_set: DialogSetId
    plan: MediaPlan


@dataclass(frozen=True, slots=True)
class ChangeFinished:
    """A hold or resume by this side was answered. `status` 200 to 299: it took effect."""

    dialog_set: DialogSetId
    status: int


@dataclass(frozen=True, slots=True)
class DigitsReceived:
    """The far end sent a DTMF digit in a SIP INFO."""

    dialog_set: DialogSetId
    digit: str


@dataclass(frozen=True, slots=True)
class InviteEnded:
    """The call is over. Emitted exactly once, as the last event of its INVITE. `status` is the SIP code that
    ended the call: the final response to the INVITE, or 200 for a BYE. `definite`: the far end gave a final
    response to the INVITE of this side, whichever side had given up by then. `reasons`: those that
    the far end named. `elsewhere`: no server took the call and no phone can have rung, so that it may go over
    another trunk."""

    dialog_set: DialogSetId
    cause: HangupCause
    status: int
    by: Side
    retry_after_s: int | None = None
    definite: bool = False
    reasons: tuple[Reason, ...] = ()
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class AddressRefused:
    """A message or RTP of the call was not sent, because `address` is closed to its trunk. `first`: for the
    first time in the call. The only event that may follow `InviteEnded`, as the BYE may be the message not
    sent. `name` is the call's id in logs."""

    name: str
    dialog_set: DialogSetId
    address: str
    first: bool


class Move(Protocol):
    """A REFER of the far end that was accepted (`sip.dialog.move_request`). `to`: whom it names."""

    to: Uri

    @property
    def pending(self) -> bool:
        """Whether no final status has been told."""

    def tell(self, status: int, now: float) -> None:
        """Tells the far end how the call to `to` goes; a status of 200 and above is the last one."""


@dataclass(frozen=True, slots=True)
class MoveAsked:
    """The far end asks by REFER for a call to somebody else in its place."""

    dialog_set: DialogSetId
    move: Move


Event = (
    InviteProgressed
    | InviteAnswered
    | MediaAgreed
    | ChangeFinished
    | DigitsReceived
    | MoveAsked
    | InviteEnded
    | AddressRefused
)
