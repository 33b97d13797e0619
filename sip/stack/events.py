"""Events of the sans-IO stack: a new call, and the events of calls."""

from __future__ import annotations

from dataclasses import dataclass

from sip.dialog.dialog import DialogSetId
from sip.dialog.events import Event
from sip.dialog.uas import IncomingInvite
from sip.transaction.hop import Hop


@dataclass(frozen=True, slots=True)
class InviteReceived:
    """A new call to the number `called` was admitted and waits for a decision."""

    invite: IncomingInvite
    trunk_id: str
    source: Hop
    called: str

    @property
    def dialog_set(self) -> DialogSetId:
        """Identifies the call, as in the events of `sip.dialog.events`."""
        return self.invite.usage.dialog_set


StackEvent = InviteReceived | Event
