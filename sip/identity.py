"""Who calls, as an INVITE says it: asserted and displayed identity, privacy, diversions, verdict.

Sources: P-Asserted-Identity (RFC 3325), Remote-Party-ID (draft-ietf-sip-privacy-04), Privacy (RFC 3323),
Diversion (RFC 5806), History-Info (RFC 7044), `verstat` (3GPP TS 24.229 7.2A.20). What a sender writes in
these is untrusted text: broken fields are left out, and every text is bounded."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from sip.errors import MalformedMessage
from sip.message.headers import Headers, NameAddr, split_list
from sip.message.uri import Uri

ANONYMOUS: Final = "anonymous"
"""The number of a caller who withholds it."""

WITHHELD: Final = NameAddr(Uri("sip", ANONYMOUS, "anonymous.invalid"), "Anonymous")
"""The From of a call that withholds its number (RFC 3323 4.1.1.3)."""

TEXT_LIMIT: Final = 2048
"""Characters of one field that are told: an Identity (RFC 8224) has about a thousand."""

ASSERTED_IN: Final[Mapping[str, str]] = {"pai": "P-Asserted-Identity", "rpid": "Remote-Party-ID"}
"""The header field of a trunk's `identity` other than "from"."""

_PRIVATE = frozenset({"id", "user", "header"})
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]+")
_DIVERSIONS_LIMIT = 10


@dataclass(frozen=True, slots=True)
class Diversion:
    """A number that a call was diverted from, and why ("user-busy", "302"; "" where it is not told)."""

    number: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerIdentity:
    """Who calls. `number` is "anonymous" where it is withheld; `asserted`: the number is that of a network
    that vouches for it, not the caller's own From. `verstat`: the carrier's verdict on the caller's STIR
    signature, such as "TN-Validation-Passed". `diversions`: the number first called comes first."""

    number: str
    display_name: str = ""
    asserted: bool = False
    withheld: bool = False
    verstat: str = ""
    diversions: tuple[Diversion, ...] = ()


def caller_identity(headers: Headers, source: str = "from") -> CallerIdentity:
    """Returns who sent an INVITE with `headers`. `source`: the trunk's `identity`, where its number stands:
    "from", "pai" or "rpid", each with From behind it."""
    asserted = _asserted(headers, source)
    claimed = _addresses(headers, "From")
    address = next(iter(asserted or claimed), WITHHELD)
    withheld = _withheld(headers, address)
    places = (*asserted, *_addresses(headers, "P-Asserted-Identity"), *claimed)
    return CallerIdentity(
        number=ANONYMOUS if withheld else address.uri.number,
        display_name="" if withheld else readable(_display(address, claimed)),
        asserted=bool(asserted),
        withheld=withheld,
        verstat=next((found for each in places if (found := _verstat(each))), ""),
        diversions=tuple(_diversions(headers)),
    )


def identity_headers(source: str, caller: NameAddr, *, withheld: bool) -> dict[str, str]:
    """Returns the header fields that carry the `caller` of a call that is placed, beside its From."""
    fields = {"Privacy": "id"} if withheld else {}
    name = ASSERTED_IN.get(source)
    if name == "Remote-Party-ID":
        fields[name] = f"{caller};party=calling;screen=yes;privacy={'full' if withheld else 'off'}"
    elif name is not None:
        fields[name] = str(caller)
    return fields


def readable(text: str) -> str:
    """Returns a text of the far end without control characters, bounded, and as valid Unicode."""
    valid = text.encode("utf-8", "replace").decode()
    return _CONTROLS.sub(" ", valid).strip()[:TEXT_LIMIT]


def _asserted(headers: Headers, source: str) -> list[NameAddr]:
    name = ASSERTED_IN.get(source, "")
    found = _addresses(headers, name) if name else []
    return [each for each in found if (each.params.get("party") or "calling") == "calling"]


def _addresses(headers: Headers, name: str) -> list[NameAddr]:
    found = []
    for value in headers.get_all(name):
        try:
            found += NameAddr.parse_list([value])
        except MalformedMessage:
            continue
    return [each for each in found if each.uri.number]


def _display(address: NameAddr, claimed: list[NameAddr]) -> str:
    return address.display or next((each.display for each in claimed), "")


def _withheld(headers: Headers, address: NameAddr) -> bool:
    asked = {each.strip().lower() for value in headers.get_all("Privacy") for each in value.split(";")}
    masked = address.uri.number.lower() == ANONYMOUS or address.uri.host.lower() == "anonymous.invalid"
    return masked or bool(asked & _PRIVATE) or (address.params.get("privacy") or "off") not in ("off", "")


def _verstat(address: NameAddr) -> str:
    for params in (address.uri.number_params, address.uri.params, address.params):
        if found := params.get("verstat"):
            return readable(found)
    return ""


def _diversions(headers: Headers) -> Iterator[Diversion]:
    """Yields diversions from the first to the last. Diversion has the last one on top, History-Info the first
    one, and at its end the number that is called now."""
    diverted = _addresses(headers, "Diversion")[::-1]
    if diverted:
        for each in diverted[:_DIVERSIONS_LIMIT]:
            yield Diversion(each.uri.number, readable(each.params.get("reason") or ""))
        return
    for each in _addresses(headers, "History-Info")[:-1][:_DIVERSIONS_LIMIT]:
        yield Diversion(each.uri.number, _why(each))


def _why(entry: NameAddr) -> str:
    """Returns the cause in the escaped Reason of a History-Info entry, such as "302"."""
    reason = next((value for name, value in entry.uri.headers.items() if name.lower() == "reason"), "")
    found = re.search(r"cause\s*=\s*(\d{1,3})", reason)
    return found[1] if found is not None else ""


def told(headers: Headers, name: str) -> str:
    """Returns all values of a header field, as applications are told; "" without it."""
    return readable(", ".join(headers.get_all(name)))


def user_to_user(headers: Headers) -> str:
    """Returns the text of User-to-User (RFC 7433), decoded where it is hexadecimal text; else its value as it
    stands."""
    try:
        value = next(iter(split_list(headers.get("User-to-User") or "")), "")
    except MalformedMessage:
        return ""
    data, _, params = value.partition(";")
    if "encoding=hex" in params.replace(" ", "").lower():
        try:
            return readable(bytes.fromhex(data.strip()).decode())
        except ValueError:  # not hexadecimal, or not UTF-8
            return readable(data)
    return readable(data.strip().strip('"'))
