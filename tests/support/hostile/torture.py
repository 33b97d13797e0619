"""The messages of RFC 4475 (torture/*.dat, in the RFC's order) and what is right to do with each.

mpart01 carries other binary bytes than the RFC's certificate; dblreq's second message must never be seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().with_name("torture")


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the parser and a user agent must do.

    `error`: the code of the MalformedMessage that `parse` raises, None where it gives a message. `statuses`:
    the final responses that are right for a user agent that knows the sender; empty: it must not answer.
    `may_be_silent`: no answer at all is right too. A server that refuses strangers may use its refusal in
    place of any status of a well-formed request. `datagram_only`: on a stream the message has no end.
    """

    section: str
    error: int | None = None
    statuses: frozenset[int] = frozenset()
    may_be_silent: bool = False
    datagram_only: bool = False
    is_response: bool = False

    @property
    def valid(self) -> bool:
        """Whether `parse` gives a message."""
        return self.error is None


def _request(section: str, *statuses: int, datagram_only: bool = False) -> Expectation:
    return Expectation(section, statuses=frozenset(statuses), datagram_only=datagram_only)


def _bad(
    section: str, code: int = 400, *, may_be_silent: bool = False, datagram_only: bool = False
) -> Expectation:
    statuses = frozenset((code,))
    return Expectation(section, code, statuses, may_be_silent=may_be_silent, datagram_only=datagram_only)


def _response(section: str, error: int | None = None) -> Expectation:
    return Expectation(section, error, may_be_silent=True, is_response=True)


# An INVITE may be taken (200), refused for its media (488), its number or its sender.
_INVITE = (200, 403, 404, 480, 488, 603)
_OPTIONS = (200, 403, 404)
_REGISTER = (403, 404, 405, 501)
_OTHER = (403, 404, 405, 415, 501)

_EXPECTATIONS: Mapping[str, Expectation] = {
    "wsinv": _request("3.1.1.1", *_INVITE),
    "intmeth": _request("3.1.1.2", *_OTHER),
    "esc01": _request("3.1.1.3", *_INVITE),
    "escnull": _request("3.1.1.4", *_REGISTER),
    "esc02": _request("3.1.1.5", *_OTHER),
    "lwsdisp": _request("3.1.1.6", *_OPTIONS),
    "longreq": _request("3.1.1.7", *_INVITE),
    "dblreq": _request("3.1.1.8", *_REGISTER, datagram_only=True),
    "semiuri": _request("3.1.1.9", *_OPTIONS),
    "transports": _request("3.1.1.10", *_OPTIONS),
    "mpart01": _request("3.1.1.11", *_OTHER),
    "unreason": _response("3.1.1.12"),
    "noreason": _response("3.1.1.13"),
    "badinv01": _bad("3.1.2.1", may_be_silent=True),  # its only Via cannot be read
    "clerr": _bad("3.1.2.2", datagram_only=True),
    "ncl": _bad("3.1.2.3"),
    "scalar02": _bad("3.1.2.4"),
    "scalarlg": _response("3.1.2.5", 400),
    "quotbal": _bad("3.1.2.6"),
    "ltgtruri": _bad("3.1.2.7"),
    "lwsruri": _bad("3.1.2.8"),
    "lwsstart": _bad("3.1.2.9"),
    "trws": _bad("3.1.2.10"),
    "escruri": _bad("3.1.2.11"),
    "baddate": _request("3.1.2.12", *_INVITE),
    "regbadct": _bad("3.1.2.13"),
    "badaspec": _request("3.1.2.14", *_OPTIONS),
    "baddn": _request("3.1.2.15", *_OPTIONS),
    "badvers": _bad("3.1.2.16", 505),
    "mismatch01": _bad("3.1.2.17"),
    "mismatch02": _bad("3.1.2.18"),
    "bigcode": _response("3.1.2.19", 400),
    "badbranch": _request("3.2.1", *_OPTIONS),
    "insuf": _bad("3.3.1", may_be_silent=True),  # neither From, To nor Call-ID to answer with
    "unkscm": _request("3.3.2", 416, 403, 404),
    "novelsc": _request("3.3.3", 416, 403, 404),
    "unksm2": _request("3.3.4", *_REGISTER),
    "bext01": _request("3.3.5", 420, 403, 404),
    "invut": _request("3.3.6", 415, 403, 404),
    "regaut01": _request("3.3.7", *_REGISTER, 401),
    "multi01": _bad("3.3.8", may_be_silent=True),
    "mcl01": _bad("3.3.9"),
    "bcast": _response("3.3.10"),
    "zeromf": _request("3.3.11", *_OPTIONS, 483),
    "cparam01": _request("3.3.12", *_REGISTER),
    "cparam02": _request("3.3.13", *_REGISTER),
    "regescrt": _request("3.3.14", *_REGISTER),
    "sdp01": _request("3.3.15", *_INVITE, 406),
    "inv2543": _request("3.4.1", *_INVITE, datagram_only=True),
}

MESSAGES: Mapping[str, tuple[bytes, Expectation]] = {
    name: ((FOLDER / f"{name}.dat").read_bytes(), expectation) for name, expectation in _EXPECTATIONS.items()
}
"""Every message by its name in the RFC, with what is expected."""
