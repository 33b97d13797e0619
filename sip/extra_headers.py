"""Header fields that an application may add to an INVITE."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sip.errors import LocalError
from sip.message.headers import TOKEN

_OURS = frozenset(
    {"allow", "call-id", "contact", "content-length", "content-type", "cseq", "from", "max-forwards"}
    | {"min-se", "require", "route", "rseq", "session-expires", "supported", "to", "via"}
    | {"authorization", "proxy-authorization", "record-route", "proxy-require", "rack", "reason"}
    | {"user-agent", "replaces", "join", "refer-to", "path", "event", "content-encoding"}
    | {"content-disposition"}
)
_UNSENDABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")


def check_headers(headers: Mapping[str, str]) -> None:
    """Raises `LocalError` for header fields that no INVITE may be given: those of the stack itself, and what
    would break the message."""
    for name, value in headers.items():
        if not TOKEN.fullmatch(name) or name.lower() in _OURS or len(name) == 1:
            raise LocalError(f"header {name!r} cannot be added to a call")
        if _UNSENDABLE.search(value):
            raise LocalError(f"header {name!r} has a character that cannot be sent")
