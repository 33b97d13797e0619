"""Events of the sans-IO stack: a new call, and the events of calls."""

from __future__ import annotations

from dataclasses import dataclass

from sip.dialog.dialog import DialogSetId
from sip.dialog.events import Event
from sip.dialog.invite import Offered
from sip.stack.admission import Admitted
from sip.transaction.hop import Hop


@dataclass(frozen=True, slots=True)
class InviteReceived:
    """A new call was admitted and waits for a decision. `replaces`: the call whose place it is to take."""

    invite: Offered
    admitted: Admitted
    source: Hop
    replaces: DialogSetId | None = None

    @property
    def called(self) -> str:
        """The number that the call is for."""
        return self.admitted.called or self.invite.transaction.request.uri.number

    @property
    def dialog_set(self) -> DialogSetId:
        """Identifies the call, as in the events of `sip.dialog.events`."""
        return self.invite.usage.dialog_set


StackEvent = InviteReceived | Event
