"""Reads a datagram before it is parsed, to find its transaction and to refuse it cheaply.

Under overload a refusal must cost a fraction of what it refuses: a few regular expressions on the head here,
against parsing a message, its header fields, a transaction and a session description. `glance` reads what
every known peer writes and leaves any other message to the parser, which costs more to refuse with."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sip.transaction.hop import Hop

_FIELD = re.compile(
    rb"^(via|v|from|f|to|t|call-id|i|cseq)[ \t]*:[ \t]*([^\r\n]+)", re.IGNORECASE | re.MULTILINE
)
_LONG = {b"v": b"via", b"f": b"from", b"t": b"to", b"i": b"call-id"}
_WRITTEN = {b"via": b"Via", b"from": b"From", b"to": b"To", b"call-id": b"Call-ID", b"cseq": b"CSeq"}
_VIA = re.compile(
    rb"SIP/2\.0/UDP[ \t]+([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?((?:;[^,\"]*)?)", re.IGNORECASE
)
_BRANCH = re.compile(rb";[ \t]*branch=(z9hG4bK[^;,\s]+)", re.IGNORECASE)
_RPORT = re.compile(rb";[ \t]*rport(?=[;\s]|$)", re.IGNORECASE)
_TAG = re.compile(rb";[ \t]*tag[ \t]*=", re.IGNORECASE)
_NONCE = re.compile(
    rb"^authorization[ \t]*:[^\r\n]*[ ,\t]nonce[ \t]*=[ \t]*\"([0-9A-Fa-f.]{1,128})\"",
    re.IGNORECASE | re.MULTILINE,
)
_REPLACES = re.compile(rb"^replaces[ \t]*:[ \t]*([^\r\n]+)", re.IGNORECASE | re.MULTILINE)
_METHOD = re.compile(rb"[A-Z]+(?= )")


@dataclass(frozen=True, slots=True)
class Glance:
    """A request over UDP. `key` is that of its transaction in the stack; of a CANCEL or an ACK that of its
    INVITE. `outside`: the request belongs to no dialog."""

    method: str
    key: str
    outside: bool
    fields: tuple[tuple[bytes, bytes], ...]

    @property
    def topmost(self) -> int:
        """Position of the topmost Via among the fields, counted from 1."""
        return next(number for number, (name, _) in enumerate(self.fields, 1) if name == b"via")


def glance(data: bytes) -> Glance | None:
    """Reads a datagram; None for one that is no request, or that needs a parser."""
    method = _METHOD.match(data)
    head, ended, _ = data.partition(b"\r\n\r\n")
    if method is None or not ended or b"\n " in head or b"\n\t" in head:
        return None
    fields = tuple((_LONG.get(name.lower(), name.lower()), value) for name, value in _FIELD.findall(head))
    known = dict(reversed(fields))  # of several the first counts
    via = _VIA.match(known.get(b"via", b""))
    if via is None or len(known) < 5:
        return None
    branch = _BRANCH.search(via[3])
    if branch is None or known[b"cseq"].split()[-1] != method[0]:
        return None
    name = method[0].decode()
    of = "INVITE" if name in ("ACK", "CANCEL") else name
    port = int(via[2]) if via[2] else None
    key = f"{branch[1].decode('ascii', 'replace')} {via[1].strip(b'[]').decode().lower()}:{port} {of}"
    return Glance(name, key, _TAG.search(known[b"to"]) is None, fields)


def answered_nonce(head: bytes) -> str:
    """Returns the nonce of the challenge of this server that the header fields `head` answer, "" without
    one."""
    found = _NONCE.search(head)
    return found[1].decode() if found is not None else ""


def replaces_in(data: bytes) -> str:
    """Returns the value of the first Replaces in a datagram, "" without one."""
    found = _REPLACES.search(data.partition(b"\r\n\r\n")[0])
    return found[1].decode("utf-8", "replace") if found is not None else ""


def refusal(seen: Glance, source: Hop, *, retry_after_s: int, tag: str) -> tuple[bytes, Hop]:
    """Makes a 503 with Retry-After, and the hop that it goes to (RFC 3261 8.2.6, 18.2.2, RFC 3581). The same
    request gets the same response as long as `tag` is the same."""
    lines, place = [b"SIP/2.0 503 Service Unavailable"], source
    for name, value in seen.fields:
        copied = value
        if name == b"via" and len(lines) == seen.topmost:
            copied, place = _stamped(value, source)
        elif name == b"to":
            copied = value.rstrip() + b";tag=" + tag.encode()
        lines.append(_WRITTEN[name] + b": " + copied)
    lines += [b"Retry-After: %d" % retry_after_s, b"Content-Length: 0", b"", b""]
    return b"\r\n".join(lines), place


def _stamped(value: bytes, source: Hop) -> tuple[bytes, Hop]:
    via = _VIA.match(value)
    if via is None:
        raise AssertionError("a glance has a Via")
    host, port = source.host.encode(), source.port
    if _RPORT.search(via[3]):
        params = _RPORT.sub(b";received=%b;rport=%d" % (host, port), via[3], count=1)
        return value[: via.start(3)] + params + value[via.end(3) :], source
    place = Hop(source.transport, source.host, int(via[2]) if via[2] else 5060)
    if via[1].strip(b"[]").lower() == host:
        return value, place
    return value[: via.end(3)].rstrip() + b";received=" + host + value[via.end(3) :], place
