"""Hypothesis strategies for hostile SIP and SDP: raw bytes, damaged messages, and messages put together from
fragments that parsers trip over. Used by the tests in samples and by `python -m bench fuzz` at length."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from tests.support.hostile.torture import MESSAGES
from tests.support.speech.interop import OFFERS

_SEEDS = tuple(data for data, _ in MESSAGES.values())
_OFFERS = tuple(OFFERS.values())

_SPLINTERS = (
    b"\r\n", b"\r\n\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b"\r\n ", b'"', b"<", b">", b";", b",", b":",
    b"@", b"=", b"%", b"%00", b"%4", b"*", b"\\", b"SIP/2.0", b"sip:", b"sips:", b"tel:", b";tag=", b";lr",
    b";rport=", b"[", b"]", b"[::1]", b"0", b"-1", b"4294967296", b"9" * 400, b"\xff", b"\xed\xa0\x80",
    "٣".encode(), b"l: 5", b"Content-Length: 999999999", b"CSeq: 1 BYE", b"Via: SIP/2.0/UDP a;branch=z9hG4bK",
    b"a=rtpmap:0 x/y/z", b"m=audio 1 RTP/AVP 0", b"m=", b"c=IN IP6 ::", b"a=rtcp:", b"a=ptime:999999999999",
    b"v=0",
)  # fmt: skip

_HEADER_VALUES = (
    b"<sip:a@b>;tag=1", b"sip:a@b", b"*", b"", b'"x" <sip:c@[::1]:5060;lr>;q=0.1, <tel:+1>', b"1 INVITE",
    b"SIP/2.0/UDP host:5060;branch=z9hG4bKa;rport", b"0", b"70", b"application/sdp", b"100rel, timer",
    b"Digest realm=\"r\", nonce=\"n\", qop=\"auth\"", b"1800;refresher=uac", b'"unbalanced',
)  # fmt: skip

_HEADER_NAMES = (
    b"Via", b"v", b"From", b"f", b"To", b"t", b"Call-ID", b"i", b"CSeq", b"Contact", b"m", b"Route",
    b"Record-Route", b"Max-Forwards", b"Content-Length", b"l", b"Content-Type", b"c", b"Expires",
    b"Session-Expires", b"Supported", b"X", b"Authorization", b"WWW-Authenticate",
)  # fmt: skip

_START_LINES = (
    b"INVITE sip:a@b SIP/2.0", b"BYE sip:a@b;lr SIP/2.0", b"OPTIONS sips:[::1] SIP/2.0", b"ACK tel:1 SIP/2.0",
    b"SIP/2.0 200 OK", b"SIP/2.0 180", b"X y:z SIP/2.0", b"INVITE sip:a@b SIP/9.9", b"",
)  # fmt: skip

_MANDATORY = (
    b"Via: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bKf;rport", b"From: <sip:a@b>;tag=1", b"To: <sip:a@b>",
    b"Call-ID: fuzz", b"CSeq: 7 INVITE",
)  # fmt: skip


def _damage(data: bytes, changes: Sequence[tuple[int, int, bytes]]) -> bytes:
    """`data` with pieces cut out and splinters put in, each (place, length cut, put in)."""
    for place, length, splinter in changes:
        start = place % (len(data) + 1)
        data = data[:start] + splinter + data[start + length :]
    return data


def _changes() -> st.SearchStrategy[list[tuple[int, int, bytes]]]:
    # Mostly small wounds: a message with a piece missing is refused at its first line, and proves little.
    splinter = st.one_of(st.sampled_from(_SPLINTERS), st.just(b""), st.binary(max_size=4))
    cut = st.sampled_from((0, 0, 0, 1, 1, 2, 3, 20, 200))
    return st.lists(st.tuples(st.integers(0, 5000), cut, splinter), min_size=1, max_size=3)


def damaged(seeds: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """One of `seeds` with a few places broken."""
    return st.builds(_damage, st.sampled_from(list(seeds)), _changes())


def assembled() -> st.SearchStrategy[bytes]:
    """Plausible lines in an implausible choice and order, often after those that no message is without."""
    names, values = st.sampled_from(_HEADER_NAMES), st.sampled_from(_HEADER_VALUES)
    line = st.builds(lambda name, value: name + b": " + value, names, values)
    return st.builds(
        lambda start, needed, lines, body: b"\r\n".join([start, *needed, *lines]) + b"\r\n\r\n" + body,
        st.sampled_from(_START_LINES),
        st.sampled_from((_MANDATORY, _MANDATORY, ())),
        st.lists(line, max_size=6),
        st.binary(max_size=40),
    )


def datagrams() -> st.SearchStrategy[bytes]:
    """What anybody may send to a SIP port."""
    return st.one_of(st.binary(max_size=400), damaged(_SEEDS), assembled())


def streams() -> st.SearchStrategy[list[bytes]]:
    """What anybody may send over a connection, in the pieces in which it arrives."""
    whole = st.lists(st.one_of(datagrams(), st.sampled_from(_SEEDS), st.just(b"\r\n\r\n")), max_size=4)
    return st.builds(
        _pieces, st.builds(b"".join, whole), st.lists(st.integers(1, 900), min_size=1, max_size=40)
    )


def offers() -> st.SearchStrategy[bytes]:
    """What anybody may send as a session description."""
    return st.one_of(
        st.binary(max_size=300), damaged(_OFFERS), damaged([b"v=0\r\n" + b"m=audio 1 RTP/AVP 0\r\n" * 3])
    )


def _pieces(data: bytes, sizes: list[int]) -> list[bytes]:
    pieces: list[bytes] = []
    for size in sizes:
        pieces.append(data[:size])
        data = data[size:]
    return [*pieces, data]
