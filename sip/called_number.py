"""Finds the number that an INVITE is for.

A carrier that calls an address writes the called number into the Request-URI. A registrar writes the contact
there that a trunk has registered (RFC 3261 16.5), the same for every number of the account: the called number
then stands in P-Called-Party-ID (RFC 7315), in the To of the caller, or in a header field of the carrier's
own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sip.errors import MalformedMessage
from sip.message.headers import NameAddr, split_list
from sip.message.message import Request

CALLED_NUMBER_HEADERS = ("P-Called-Party-ID", "X-DID", "X-Called-Number", "To")
"""Header fields that name the called number, the most telling first."""


def called_numbers(
    request: Request, account: str, headers: Iterable[str] = CALLED_NUMBER_HEADERS
) -> tuple[str, ...]:
    """Returns the numbers that `request` may be for, the likeliest first, without their parameters.

    That is the number of the Request-URI, unless it is the trunk's `account` or empty: then those of
    `headers` come before it."""
    number = request.uri.number
    if number not in ("", account):
        return (number,)
    named = (each for name in headers for value in request.headers.get_all(name) for each in _numbers(value))
    return tuple(dict.fromkeys(each for each in (*named, number) if each not in ("", account))) or (number,)


def _numbers(value: str) -> Iterator[str]:
    """Yields the numbers of addresses, or of what a carrier's own header has instead of an address."""
    try:
        parts = split_list(value)
    except MalformedMessage:
        return
    for part in parts:
        try:
            yield NameAddr.parse(part).uri.number
        except MalformedMessage:
            yield part.partition(";")[0].partition("@")[0].strip()
