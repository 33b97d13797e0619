"""Which engine has the INVITE session of a call: this stack, or PJSIP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sip.dialog.invite import Dialled, Offered, OfferedBy
from sip.dialog.ua_core import Core
from sip.dialog.uac import Invitation, OutgoingInvite
from sip.dialog.uas import IncomingInvite
from sip.dialog.usage import InviteSettings
from sip.pjsip.incoming import IncomingPjsipInvite
from sip.pjsip.outgoing import OutgoingPjsipInvite
from sip.pjsip.processes import Processes
from sip.sdp.negotiation import Capabilities
from sip.transaction.transaction import ServerTransaction


class Engines:
    """The engines of one endpoint; the trunk's settings name that of its calls."""

    def __init__(self) -> None:
        self.processes = Processes()

    def start(self, loop: asyncio.AbstractEventLoop, flush: Callable[[], None]) -> OfferedBy:
        """Notes on which loop to work; `flush` sends what the stack has to send. Returns what makes the calls
        of INVITEs that come."""
        self.processes.start(loop, flush)
        return self.incoming

    def prepare(self, settings: InviteSettings) -> None:
        """Starts a process in advance for the calls of a trunk that need one."""
        if settings.engine == "pjsua2":
            self.processes.warm()

    def incoming(self, core: Core, settings: InviteSettings, transaction: ServerTransaction) -> Offered:
        """Returns the call of an INVITE that was admitted."""
        if settings.engine == "pjsua2":
            return IncomingPjsipInvite(core, settings, transaction, processes=self.processes)
        return IncomingInvite(core, settings, transaction)

    def outgoing(
        self, core: Core, settings: InviteSettings, invitation: Invitation, capabilities: Capabilities
    ) -> Dialled:
        """Returns a call that is about to be dialled."""
        if settings.engine == "pjsua2":
            return OutgoingPjsipInvite(core, settings, invitation, capabilities, processes=self.processes)
        return OutgoingInvite(core, settings, invitation, capabilities)

    async def close(self) -> None:
        """Ends the processes of PJSIP."""
        await self.processes.close()
