"""What the sans-IO stack tells: that a call has come in, and what happens to calls."""

from __future__ import annotations

from dataclasses import dataclass

from sip.dialog.dialog import DialogSetId
from sip.dialog.events import Event
from sip.dialog.uas import IncomingInvite
from sip.transaction.hop import Hop


@dataclass(frozen=True, slots=True)
class InviteReceived:
    """A new call was admitted and waits for a decision."""

    invite: IncomingInvite
    trunk_id: str
    source: Hop

    @property
    def dialog_set(self) -> DialogSetId:
        """Names the call, as the events of `sip.dialog.events` do."""
        return self.invite.usage.dialog_set


StackEvent = InviteReceived | Event
