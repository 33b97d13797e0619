"""Registers telephones (RFC 3261 section 10.3): one contact for each trunk that accepts a REGISTER.

Only a REGISTER with the trunk's digest credentials comes here. Its contact is bound to the address that it
came from: a telephone behind a NAT names one that nobody reaches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from sip.dialog.session_timer import delta_seconds
from sip.message.headers import NameAddr
from sip.message.message import Request
from sip.message.uri import Uri
from sip.stack.admission import Refused
from sip.transaction.hop import Hop

SHORTEST_S: Final = 60
LONGEST_S: Final = 600
"""Bounds of a binding's life in seconds: after a restart of the server telephones are back within the
longest."""


@dataclass(frozen=True, slots=True)
class Binding:
    """A telephone's contact and the hop that it is reached by, until `expires_at` on the loop's clock."""

    contact: Uri
    hop: Hop
    expires_at: float

    @property
    def target(self) -> Uri:
        """The URI of requests to the telephone: its contact, at the address that it registered from."""
        transport = None if self.hop.transport == "udp" else self.hop.transport
        params = {} if transport is None else {"transport": transport}
        return replace(self.contact, host=self.hop.host, port=self.hop.port, params=params, headers={})


def registered(
    request: Request, account: str, source: Hop, now: float, before: Binding | None
) -> tuple[Binding | None, Refused]:
    """Takes a REGISTER for `account` from `source`. Returns the binding from now on, and the answer: 200 with
    what is bound, or the refusal, which leaves the binding as it was."""
    contacts = request.contacts
    if request.to.uri.number != account:
        return before, Refused(403)
    if not contacts:
        return before, _bound(before, now)
    contact, wanted_s = contacts[0], _wanted_s(request, contacts[0])
    if wanted_s == 0:
        return None, _bound(None, now)
    if contact.uri.scheme not in ("sip", "sips"):  # "*" too, which is for removals
        return before, Refused(400)
    if wanted_s < SHORTEST_S:
        return before, Refused(423, (("Min-Expires", str(SHORTEST_S)),))
    binding = Binding(contact.uri, source, now + min(wanted_s, LONGEST_S))
    return binding, _bound(binding, now)


def _wanted_s(request: Request, contact: NameAddr) -> int:
    for value in (contact.params.get("expires"), request.header("Expires")):
        if (wanted_s := delta_seconds(value)) is not None:
            return wanted_s
    return LONGEST_S


def _bound(binding: Binding | None, now: float) -> Refused:
    if binding is None or binding.expires_at <= now:
        return Refused(200)
    return Refused(200, (("Contact", f"<{binding.contact}>;expires={int(binding.expires_at - now)}"),))
