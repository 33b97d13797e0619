"""The dialogs of an endpoint, and which sources may send requests within them.

Call-ID and tags name a dialog, they do not protect it: they stand in every message, in logs and in traces. A
request within a dialog is accepted if it comes from where the dialog's own requests go (its route set, the
far end's Contact), from the address or connection that carried its INVITE, or from the trunk's `allow_from`.
Addresses are compared, not ports: a NAT may give a peer another port at any time. Any other source is
answered 481, for right and wrong ids alike."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address

from sip.dialog.dialog import Dialog, DialogId, DialogUser
from sip.egress import canonical
from sip.message.message import Request
from sip.stack.admission import Refused
from sip.stack.counts import StackCounts
from sip.transaction.hop import Hop

Networks = Sequence[IPv4Network | IPv6Network]

NO_DIALOG = Refused(481)


class Dialogs:
    """Finds the call to which a request within a dialog belongs. `addresses_of` returns the addresses of a
    host, None during a look-up."""

    def __init__(self, addresses_of: Callable[[str], Collection[str] | None], counts: StackCounts) -> None:
        self._counts = counts
        self._addresses_of = addresses_of
        self._open: dict[DialogId, tuple[Dialog, DialogUser]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def open(self, dialog: Dialog, user: DialogUser) -> None:
        """Delivers requests within `dialog` to `user` from now on."""
        self._open[dialog.id] = dialog, user
        for host in dialog.hosts:
            self._addresses_of(host)  # looked up before the first request

    def close(self, dialog: DialogId) -> None:
        """Stops delivering requests within `dialog`; idempotent."""
        self._open.pop(dialog, None)

    def find(self, request: Request, source: Hop) -> DialogUser | Refused | None:
        """Returns the user of the dialog that `request` is within, or the request's refusal. None while the
        name in a Contact is looked up: a request over UDP is retransmitted."""
        dialog, user = self._open.get(_dialog_of(request), (None, None))
        if dialog is None or user is None:
            return NO_DIALOG
        speaks = self._speaks_in(dialog, user.allow_from, source)
        if speaks is None and not source.reliable:
            return None
        return user if speaks else self.refuse()

    def refuse(self) -> Refused:
        """Counts and refuses a request from a source that may not send within the dialog."""
        self._counts.foreign += 1
        return NO_DIALOG

    def _speaks_in(self, dialog: Dialog, allow_from: Networks, source: Hop) -> bool | None:
        if carried(dialog.carrier, source) or listed(allow_from, source):
            return True
        found = [self._addresses_of(host) for host in dialog.hosts]
        if any(canonical(source.host) in each for each in found if each is not None):
            return True
        return None if None in found else False


def carried(carrier: Hop | None, source: Hop) -> bool:
    """Whether `source` is the address or the connection that carried an INVITE."""
    if carrier is None:
        return False
    same = source.reliable and source.connection == carrier.connection
    return same or canonical(source.host) == canonical(carrier.host)


def listed(allow_from: Networks, source: Hop) -> bool:
    """Whether `source` is in the trunk's `allow_from`."""
    address = ip_address(canonical(source.host))
    return any(address in network for network in allow_from)


def _dialog_of(request: Request) -> DialogId:
    return DialogId(request.call_id, request.to.tag or "", request.from_.tag or "")
