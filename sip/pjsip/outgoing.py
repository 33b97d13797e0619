"""Places a call whose INVITE session PJSIP has.

PJSIP makes the INVITE, answers challenges and 422, and acknowledges. Which target gets it, how long that may
stay silent, and what becomes of forks is `sip.pjsip.dialling`'s, as for every call `sip.dialog.uac`'s."""

from __future__ import annotations

from functools import partial

from sip.dialog.dialog import Dialog, DialogSetId
from sip.dialog.target_set import TargetSet
from sip.dialog.ua_core import Core
from sip.dialog.uac import Invitation
from sip.dialog.usage import InviteSettings, InviteState, InviteUsage
from sip.message.message import Request
from sip.pjsip.dialling import Dialling
from sip.pjsip.invite import PjsipInvite
from sip.pjsip.processes import Processes
from sip.sdp.negotiation import Capabilities
from sip.states import HangupCause


class OutgoingPjsipInvite(PjsipInvite):
    """A call that this side places."""

    def __init__(
        self,
        core: Core,
        settings: InviteSettings,
        invitation: Invitation,
        capabilities: Capabilities,
        *,
        processes: Processes,
    ) -> None:
        dialog_set = DialogSetId(invitation.call_id, core.token())
        super().__init__(InviteUsage(core, settings, dialog_set, outgoing=True), processes)
        self.usage.describe(capabilities)
        self._dialling = Dialling(self.usage, self._slot, self._asked, invitation)
        self.targets: TargetSet = self._dialling.targets

    def dial(self, now: float) -> None:
        """Has PJSIP send the INVITE to the first target."""
        self._dialling.begin(now, self)

    def hang_up(self, now: float, *, cause: HangupCause = HangupCause.NORMAL) -> None:
        """Has PJSIP cancel before the answer; later hangs up."""
        if self.usage.state is not InviteState.INVITING:
            super().hang_up(now, cause=cause)
        elif self._slot.goodbye is None:
            self._slot.goodbye = HangupCause.CANCELLED if cause is HangupCause.NORMAL else cause
            self._slot.command("hang_up")

    def address_refused(self, address: str, now: float) -> None:
        """Notes that `address` is closed to the trunk; before ringing, the next target gets the INVITE."""
        if self.usage.state is InviteState.INVITING and not self._dialling.rings:
            self._dialling.unsent = True
            self.usage.refusals.note(address)
        else:
            super().address_refused(address, now)

    def closing(self, now: float) -> None:
        """Closes the call's dialogs, because it is over."""
        super().closing(now)
        self._dialling.close(now)

    def invite_of_pjsip(self, request: Request, now: float) -> None:
        """Sends the INVITE to the current target; the first starts the timer of `ring_timeout_s`."""
        if not self._dialling.begun:
            rang_out = partial(self.hang_up, cause=HangupCause.NO_ANSWER)
            self.usage.arm("ring", now + self.usage.settings.ring_timeout_s, rang_out)
        self._dialling.send(request, now)

    def cancel_of_pjsip(self, now: float) -> None:
        """Cancels the INVITE of the current target."""
        self._dialling.cancel(now)

    def dialog_of(self, request: Request) -> Dialog | None:
        """Returns the fork that a request of PJSIP is for."""
        return self._dialling.dialog_of(request)

    def refused_by_pjsip(self, verb: str, now: float) -> None:
        """Ends a call that PJSIP does not place; nothing has left."""
        super().refused_by_pjsip(verb, now)
        if verb == "dial":
            self._slot.process = None
            self._dialling.give_up(HangupCause.ENGINE_FAILED, now)

    def ended_at_pjsip(self, status: int, reason: str, now: float) -> None:
        """Ends a call that was refused, in a way to which PJSIP has no answer."""
        self._slot.process = None
        if self.usage.state is InviteState.INVITING:
            self._dialling.ended(now)
        else:
            super().ended_at_pjsip(status, reason, now)

    def crashed(self, reason: str, now: float) -> None:
        """Ends the call: whoever rings is told so, and nobody else is dialled."""
        super().crashed(reason, now)
        if self.usage.state is InviteState.INVITING:
            self._dialling.give_up(HangupCause.ENGINE_FAILED, now)
