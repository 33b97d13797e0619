"""Admits requests outside any dialog, and refuses those that are not supported."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from sip.dialog.ua_core import ALLOW, ALLOWED_METHODS, REPLACES, SUPPORTED_TAGS
from sip.dialog.usage import InviteSettings
from sip.message.body import SDP
from sip.message.message import Request, Response, response_to
from sip.transaction.hop import Hop

HeaderLines = tuple[tuple[str, str], ...]

KNOWN_METHODS = frozenset(
    {*ALLOWED_METHODS, "REGISTER", "SUBSCRIBE", "NOTIFY", "MESSAGE", "REFER", "PUBLISH"}
)
"""Methods that exist: unsupported ones are answered 405, any other method 501 (RFC 3261 8.2.1)."""

_URI_SCHEMES = ("sip", "sips", "tel")
_WITHIN_ONLY = ("BYE", "PRACK", "UPDATE", "INFO", "NOTIFY")


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that came over a trunk, and the trunk's settings for calls. `called`: the number that an
    INVITE is for, "" for that of its Request-URI; `user`: who sent it, "" where that is the trunk's peer."""

    trunk_id: str
    settings: InviteSettings
    called: str = ""
    user: str = ""


@dataclass(frozen=True, slots=True)
class Refused:
    """A refused request, answered statelessly."""

    status: int
    headers: HeaderLines = ()


@dataclass(frozen=True, slots=True)
class RefusedRequest:
    """A request from `source` that is answered without a transaction: its bytes as `received`, None where
    the transport proves the sender, and those of the answer as `sent`."""

    status: int
    source: Hop
    received: int | None
    sent: int


Answers = Callable[[RefusedRequest, float], bool]
"""Decides, at a time, whether a refused request is answered."""

CAPABLE = Refused(200, (("Allow", ALLOW), ("Accept", SDP), ("Supported", ", ".join(sorted(SUPPORTED_TAGS)))))
"""The answer to OPTIONS outside any dialog: the capabilities of this server."""


class Gate(Protocol):
    """Decides on every request outside a dialog; on the hot path of an attack."""

    def admit(self, request: Request, source: Hop, now: float) -> Admitted | Refused:
        """Whether the sender of `request` is a trunk and, for an INVITE, whether the call is taken."""


class AdmissionControl(Gate, Protocol):
    """The gate of an endpoint, which also limits load."""

    undecided: Callable[[], int]
    """Counts the calls that were offered to the application and that it has not taken yet."""

    def busy(self) -> int:
        """Returns the seconds after which a new request may be sent again; 0: now."""

    def full(self) -> int:
        """Returns the seconds after which a new call may be offered again, as the calls are at their limit;
        0: now."""

    def of_a_trunk(self, host: str) -> bool:
        """Whether the address `host` belongs to a trunk."""

    def silent(self, source: Hop, now: float, nonce: str) -> bool:
        """Whether a request from `source` outside any dialog gets no answer; asked before it is parsed.
        `nonce`: of the challenge that it answers, "" without one."""

    def answers(self, refused: RefusedRequest, now: float) -> bool:
        """Whether a refused request is answered; counts it."""


def unknown_method(request: Request) -> Refused | None:
    """Refuses an unsupported method: 501 or 405; None for a supported one."""
    if request.method not in KNOWN_METHODS:
        return Refused(501, (("Allow", ALLOW),))
    within = request.method == "REFER" and request.to.tag is not None  # the call's trunk decides
    if request.method not in ALLOWED_METHODS and not within:
        return Refused(405, (("Allow", ALLOW),))
    return None


def unanswerable(request: Request, admitted: Admitted, *, replaces: bool) -> Refused | None:
    """Refuses a request outside any dialog that asks for something unsupported (RFC 3261 8.2.2); None where
    all is supported. `replaces`: it takes the place of a call. Where the trunk lets calls be replaced, one
    that names another is refused."""
    if request.uri.scheme not in _URI_SCHEMES:
        return Refused(416)
    refused = unsupported(request, besides=REPLACES if admitted.settings.accept_refer else "")
    named = request.headers.get_all("Replaces") if admitted.settings.accept_refer else []
    if len(named) > 1 or (named and request.method != "INVITE"):
        return Refused(400)  # RFC 3891 3
    if refused is None and ((named and not replaces) or request.method in _WITHIN_ONLY):
        return Refused(481)
    return refused


def unsupported(request: Request, *, besides: str = "") -> Refused | None:
    """Refuses a request that requires an unsupported extension (420); None where all are supported, or are
    what is supported `besides`."""
    missing = sorted(request.require - SUPPORTED_TAGS - {besides})
    return Refused(420, (("Unsupported", ", ".join(missing)),)) if missing else None


def refusal(request: Request, refused: Refused, secret: bytes) -> Response:
    """Makes the response without a transaction: a retransmitted request gets the same, tag included (RFC 3261
    8.2.7)."""
    seed = f"{request.headers.get('Call-ID')} {request.headers.get('From')} {request.via}"
    tag = hashlib.blake2b(seed.encode("utf-8", "replace"), key=secret, digest_size=8).hexdigest()
    return response_to(request, refused.status, to_tag=tag, headers=refused.headers)
