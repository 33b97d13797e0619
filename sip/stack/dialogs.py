"""The dialogs of an endpoint, and which sources may send requests within them.

Call-ID and tags name a dialog, they do not protect it: they stand in every message, in logs and in traces. A
request within a dialog is accepted if it comes from where the dialog's own requests go (its route set, the
far end's Contact), from the address or connection that carried its INVITE, or from the trunk's `allow_from`.
Addresses are compared, not ports: a NAT may give a peer another port at any time. Any other source is
answered 481, for right and wrong ids alike."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address

from sip.dialog.dialog import Dialog, DialogId, DialogSetId, DialogUser
from sip.dialog.invite import Signalled
from sip.egress import canonical
from sip.message.message import Request
from sip.stack.admission import Admitted, Gate, Refused
from sip.stack.counts import StackCounts
from sip.transaction.hop import Hop

Networks = Sequence[IPv4Network | IPv6Network]

NO_DIALOG = Refused(481)

REMEMBERED = 256
"""Dialogs that are over of which an INVITE with Replaces is told so."""


class Dialogs:
    """Finds the call to which a request within a dialog belongs. `addresses_of` returns the addresses of a
    host, None during a look-up."""

    def __init__(self, addresses_of: Callable[[str], Collection[str] | None], counts: StackCounts) -> None:
        self._counts = counts
        self._addresses_of = addresses_of
        self.admitted_as: Callable[[DialogSetId], Admitted | None] = lambda replaced: None
        """Returns over which trunk an INVITE comes that is to take the place of a call."""
        self._open: dict[DialogId, tuple[Dialog, DialogUser]] = {}
        self._over: dict[DialogId, tuple[Dialog, Networks]] = {}  # replaceable ones, the last `REMEMBERED`

    def __len__(self) -> int:
        return len(self._open)

    def open(self, dialog: Dialog, user: DialogUser) -> None:
        """Delivers requests within `dialog` to `user` from now on."""
        self._open[dialog.id] = dialog, user
        for host in dialog.hosts:
            self._addresses_of(host)  # looked up before the first request

    def close(self, dialog: DialogId) -> None:
        """Stops delivering requests within `dialog`; idempotent."""
        closed, user = self._open.pop(dialog, (None, None))
        if closed is None or user is None or _refusal(user, early_only=False) is None:
            return
        self._over[dialog] = closed, user.allow_from
        if len(self._over) > REMEMBERED:
            del self._over[next(iter(self._over))]

    def admit(
        self, request: Request, source: Hop, now: float, gate: Gate
    ) -> tuple[Admitted | Refused | None, DialogSetId | None]:
        """Returns whether a request outside any dialog is admitted: by `gate`, or because it may take the
        place of a call (RFC 3891 3), and of which. None while a name is looked up, as in `find`."""
        found = self._replaced(request) if request.method == "INVITE" else None
        speaks = found is not None and self._speaks_in(found[0], found[1], source)
        if speaks is None and not source.reliable:
            return None, None
        if found is None or not speaks:
            return gate.admit(request, source, now), None
        replaced = found[2]
        if isinstance(replaced, Refused):
            return replaced, None
        return self.admitted_as(replaced) or NO_DIALOG, replaced

    def _replaced(self, request: Request) -> tuple[Dialog, Networks, DialogSetId | Refused] | None:
        """Returns the dialog that a Replaces names, who may speak in it, and the call whose place the INVITE
        is to take, or its refusal. None: it names none on a trunk that takes such INVITEs."""
        values = request.headers.get_all("Replaces")
        named = named_by_replaces(values[0]) if len(values) == 1 else None
        if named is None:
            return None
        dialog_id, early_only = named
        dialog, user = self._open.get(dialog_id, (None, None))
        if dialog is None or user is None:
            over = self._over.get(dialog_id)
            return None if over is None else (*over, Refused(603))
        status = _refusal(user, early_only=early_only)
        if status is None:
            return None
        call = DialogSetId(dialog_id.call_id, dialog_id.local_tag)
        return dialog, user.allow_from, Refused(status) if status else call

    def has(self, replaces: str) -> bool:
        """Whether the value of a Replaces names a dialog that is open."""
        named = named_by_replaces(replaces)
        return named is not None and named[0] in self._open

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


def named_by_replaces(value: str) -> tuple[DialogId, bool] | None:
    """Returns the dialog that a Replaces names, and whether only an early one is meant; None for none."""
    call_id, *params = (each.strip() for each in value.split(";"))
    pairs = (each.partition("=") for each in params)
    tags = {name.strip().lower(): value.strip() for name, _, value in pairs}
    local, remote = tags.get("to-tag", ""), tags.get("from-tag", "")
    return (DialogId(call_id, local, remote), "early-only" in tags) if call_id and local and remote else None


def _refusal(user: DialogUser, *, early_only: bool) -> int | None:
    return user.usage.refuses_replacement(early_only=early_only) if isinstance(user, Signalled) else None


def _dialog_of(request: Request) -> DialogId:
    return DialogId(request.call_id, request.to.tag or "", request.from_.tag or "")
