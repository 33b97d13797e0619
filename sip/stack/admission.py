"""Requests outside any dialog: who may make them, and which of them we understand."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from sip.dialog.ua_core import ALLOW, ALLOWED_METHODS, SUPPORTED_TAGS
from sip.dialog.usage import InviteSettings
from sip.message.body import SDP
from sip.message.message import Request, Response, response_to
from sip.transaction.hop import Hop

HeaderLines = tuple[tuple[str, str], ...]

KNOWN_METHODS = frozenset(
    {*ALLOWED_METHODS, "REGISTER", "SUBSCRIBE", "NOTIFY", "MESSAGE", "REFER", "PUBLISH"}
)
"""Methods that exist: what we do not do of them is 405, anything else 501 (RFC 3261 8.2.1)."""

_URI_SCHEMES = ("sip", "sips", "tel")
_WITHIN_ONLY = ("BYE", "PRACK", "UPDATE", "INFO")


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that comes over a trunk, and what calls are like there."""

    trunk_id: str
    settings: InviteSettings


@dataclass(frozen=True, slots=True)
class Refused:
    """A request that gets no further. It is answered without keeping anything of it."""

    status: int
    headers: HeaderLines = ()


CAPABLE = Refused(200, (("Allow", ALLOW), ("Accept", SDP), ("Supported", ", ".join(sorted(SUPPORTED_TAGS)))))
"""What OPTIONS outside any dialog is told: what we can do."""


class Gate(Protocol):
    """Who may do what; asked for every request outside a dialog, on the hot path of an attack."""

    def admit(self, request: Request, source: Hop, now: float) -> Admitted | Refused:
        """Whether the sender of `request` is one of ours and, for an INVITE, whether the call is taken."""


class AdmissionControl(Gate, Protocol):
    """The gate of an endpoint, which also says what there is time and room for."""

    undecided: Callable[[], int]
    """Calls that the application has been given and has not looked at."""

    def busy(self) -> int:
        """After how many seconds anything new may come, as there is no time for it now; 0: now."""

    def full(self) -> int:
        """After how many seconds a new call may be offered again, as all that may be are up; 0: now."""

    def of_a_trunk(self, host: str) -> bool:
        """Whether a trunk has this address."""


def unknown_method(request: Request) -> Refused | None:
    """What a method deserves that we do not do."""
    if request.method not in KNOWN_METHODS:
        return Refused(501, (("Allow", ALLOW),))
    if request.method not in ALLOWED_METHODS:
        return Refused(405, (("Allow", ALLOW),))
    return None


def unanswerable(request: Request) -> Refused | None:
    """What a request outside any dialog deserves that asks for what we have not got (RFC 3261 8.2.2)."""
    if request.uri.scheme not in _URI_SCHEMES:
        return Refused(416)
    refused = unsupported(request)
    if refused is None and request.method in _WITHIN_ONLY:
        return Refused(481)
    return refused


def unsupported(request: Request) -> Refused | None:
    """What a request deserves that requires an extension which we have not got."""
    missing = sorted(request.require - SUPPORTED_TAGS)
    return Refused(420, (("Unsupported", ", ".join(missing)),)) if missing else None


def refusal(request: Request, refused: Refused, secret: bytes) -> Response:
    """The response, without a transaction: a repeated request gets the same, tag and all (RFC 3261 8.2.7)."""
    seed = f"{request.headers.get('Call-ID')} {request.headers.get('From')} {request.via}"
    tag = hashlib.blake2b(seed.encode("utf-8", "replace"), key=secret, digest_size=8).hexdigest()
    return response_to(request, refused.status, to_tag=tag, headers=refused.headers)
