"""SRTP and SRTCP (RFC 3711, RFC 7714) by libsrtp: the one inside pylibsrtp's wheel.

A session belongs to one direction of one stream. RTP is protected where it lies, by compiled code that calls
libsrtp by its address, at a row that the caller has entered; reports are Python's, with a session of their
own, so that no session is ever used by two threads. libsrtp keeps the window against replays and the
roll-over counter, in a context for each source (SSRC): of the sources of one key the latest `SOURCES` have
one, since libsrtp looks through all of them for each packet. What is not authentic is counted in the row
(`forged`, `replayed`), and goes no further.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Final

import llvmlite.binding
import numba
import numpy as np
import pylibsrtp
from pylibsrtp import Policy, Session, _binding

from pipeline.audio.compiled import compiled
from pipeline.plane.native import I64, LINE, U8, VOID, T, pointer_to
from pipeline.plane.srtp_sources import SOURCES, LatestSources
from pipeline.plane.srtp_suite import Master, Masters

_typeof: Final[Any] = numba.typeof
_REPLAYS: Final = (9, 10)  # srtp_err_status_replay_fail, srtp_err_status_replay_old
_NO_KEY: Final = 13  # srtp_err_status_no_ctx
_NO_ADDRESS: Final = 0
_WINDOW: Final = 1024
"""Packets that may overtake one: what RFC 3711 3.3.2 asks for is 64, 20 s here."""

_LITTLE: Final = sys.byteorder == "little"

OPENER: Final = np.dtype(
    [
        ("session", "i8"),  # of libsrtp, by its address
        ("kept", "i8"),  # one whose roll-over counter goes on where that of the key before was; 0: none
        ("met", "i8"),  # sources that it knows
        ("sources", "i8", (SOURCES,)),  # the latest first
    ],
    align=True,
)
"""What takes the protection off one direction of a stream; a row names it by its address."""

_OPENER: Final[Any] = _typeof(np.zeros(1, OPENER)).dtype

_library: Final = ctypes.CDLL(_binding.__file__)
for _name in ("srtp_protect", "srtp_unprotect", "srtp_remove_stream"):
    llvmlite.binding.add_symbol(_name, ctypes.cast(getattr(_library, _name), ctypes.c_void_p).value)
_protect: Final = T.ExternalFunction("srtp_protect", T.int32(T.uintp, T.uintp, T.uintp))
_unprotect: Final = T.ExternalFunction("srtp_unprotect", T.int32(T.uintp, T.uintp, T.uintp))
_remove: Final = T.ExternalFunction("srtp_remove_stream", T.int32(T.uintp, T.uint32))


_opener_at: Final[Any] = pointer_to(_OPENER)


@compiled(I64(LINE, U8, I64), inner=True)
def sealed(line: Any, packet: Any, size: int) -> int:
    """Encrypts the first `size` octets of `packet` in place. Its new size; 0: it must not leave."""
    if line.sealer == _NO_ADDRESS:
        return 0
    line.srtp_size[0] = size
    if _protect(T.uintp(line.sealer), packet.ctypes.data, line.srtp_size.ctypes.data) != 0:
        line.send_errors += 1
        return 0
    return int(line.srtp_size[0])


@compiled(I64(I64), inner=True)
def _in_network_order(ssrc: int) -> int:
    return (ssrc & 0xFF) << 24 | (ssrc & 0xFF00) << 8 | (ssrc >> 8) & 0xFF00 | ssrc >> 24 if _LITTLE else ssrc


@compiled(I64(U8), inner=True)
def _source_of(packet: Any) -> int:
    return int(I64(packet[8]) << 24 | I64(packet[9]) << 16 | I64(packet[10]) << 8 | I64(packet[11]))


@compiled(VOID(_OPENER, I64), inner=True)
def _meet(opener: Any, ssrc: int) -> None:
    """Puts the source of an authentic packet before all others. Of one too many the last is forgotten."""
    k = 0
    while k < opener.met and opener.sources[k] != ssrc:
        k += 1
    if k == SOURCES:
        k -= 1
        _remove(T.uintp(opener.session), T.uint32(_in_network_order(opener.sources[k])))
    elif k == opener.met:
        opener.met += 1
    while k > 0:
        opener.sources[k] = opener.sources[k - 1]
        k -= 1
    opener.sources[0] = ssrc


@compiled(I64(LINE, I64, U8, I64), inner=True)
def _unprotected(line: Any, session: int, packet: Any, size: int) -> int:
    line.srtp_size[0] = size
    return int(_unprotect(T.uintp(session), packet.ctypes.data, line.srtp_size.ctypes.data))


@compiled(I64(LINE, I64, U8, I64), inner=True)
def _try(line: Any, address: int, packet: Any, size: int) -> int:
    opener = _opener_at(address)
    status = _unprotected(line, opener.session, packet, size)
    if status == 0:
        _meet(opener, _source_of(packet))
    return int(status)


@compiled(VOID(LINE, U8, I64), inner=True)
def _restore(line: Any, packet: Any, size: int) -> None:
    for i in range(size):  # GCM decrypts before it knows
        packet[i] = line.srtp_copy[i]


@compiled(I64(LINE, U8, I64), inner=True)
def _opened_by_any(line: Any, packet: Any, size: int) -> int:
    """The same as `opened`, with the key before, whose packets are under way still until the far end is heard
    with the new one. Some far ends count the roll-overs of a new key from 0, others on (RFC 3711 3.3.1): what
    the first packet says holds."""
    for i in range(size):
        line.srtp_copy[i] = packet[i]
    opener = _opener_at(line.opener)
    status = found = _try(line, line.opener, packet, size)
    if found != 0 and opener.kept != _NO_ADDRESS:
        _restore(line, packet, size)
        found = _unprotected(line, opener.kept, packet, size)
        if found == 0:
            opener.session, opener.met = opener.kept, 0
            _meet(opener, _source_of(packet))
    if found == 0:
        line.opener_before = opener.kept = _NO_ADDRESS
        return 0
    _restore(line, packet, size)
    return 0 if _try(line, line.opener_before, packet, size) == 0 else int(status)


@compiled(I64(LINE, U8, I64), inner=True)
def opened(line: Any, packet: Any, size: int) -> int:
    """Decrypts the first `size` octets of `packet` in place. Their size then; 0: forged, replayed, or nobody
    knows the key yet."""
    if line.opener == _NO_ADDRESS:
        status = _NO_KEY
    elif line.opener_before == _NO_ADDRESS:
        status = _try(line, line.opener, packet, size)
    else:
        status = _opened_by_any(line, packet, size)
    if status == 0:
        return int(line.srtp_size[0])
    if status in _REPLAYS:
        line.replayed += 1
    else:
        line.forged += 1
    return 0


@compiled(VOID(I64, I64))
def _meet_at(opener: int, ssrc: int) -> None:
    """An authentic report is of the source `ssrc`."""
    _meet(_opener_at(opener), ssrc)


def _policy(master: Master, kind: int) -> Policy:
    policy = Policy(key=master.secret, ssrc_type=kind, srtp_profile=master.suite.profile)
    policy.window_size = _WINDOW
    return policy


def _session(master: Master, kind: int) -> Session:
    return Session(_policy(master, kind))


def _address_of(session: Session) -> int:
    return int(_binding.ffi.cast("uintptr_t", session._srtp[0]))


class Sealer:
    """Protects the RTCP of what is sent, and names the session by which the plane protects its RTP. `master`:
    the key of both."""

    def __init__(self, master: Master) -> None:
        self.master = master
        kind = Policy.SSRC_ANY_OUTBOUND
        self._rtp, self._rtcp = _session(master, kind), _session(master, kind)
        self.address = _address_of(self._rtp)

    def report(self, compound: bytes) -> bytes:
        """Returns a compound RTCP packet as SRTCP."""
        return bytes(self._rtcp.protect_rtcp(compound))


class Opener:
    """Takes the protection off RTCP that comes, and names what the plane does it by for RTP. `goes_on`: the
    source that is heard with the key before, and its roll-over counter."""

    def __init__(self, master: Master, *, goes_on: tuple[int, int] | None = None) -> None:
        self.master = master
        kind = Policy.SSRC_ANY_INBOUND
        self._rtp, self._rtcp = _session(master, kind), _session(master, kind)
        self._kept = None if goes_on is None else _going_on(master, *goes_on)
        self._goes_on = goes_on
        self._record = np.zeros(1, OPENER)
        self._record["session"] = _address_of(self._rtp)
        self._record["kept"] = _NO_ADDRESS if self._kept is None else _address_of(self._kept)
        self.address = int(self._record.ctypes.data)
        self._reporters = LatestSources()

    def rolled_over(self, ssrc: int) -> tuple[int, int] | None:
        """How often the numbers of the source have rolled over, as (ssrc, count); None: never. The caller
        holds the row."""
        count = ctypes.c_uint32()
        session = ctypes.c_void_p(int(self._record["session"][0]))
        known = _library.srtp_get_stream_roc(session, ctypes.c_uint32(ssrc), ctypes.byref(count)) == 0
        return self._goes_on if not known else (ssrc, count.value) if count.value else None

    def report(self, data: bytes) -> bytes | None:
        """Returns an SRTCP packet as RTCP; None for one that is forged, replayed or damaged."""
        try:
            opened = bytes(self._rtcp.unprotect_rtcp(data))
        except (pylibsrtp.Error, ValueError):  # ValueError: longer than any report
            return None
        self._reporters.meet(int.from_bytes(opened[4:8]), self._rtcp)
        return opened


class Lent:
    """Two sessions that somebody else has made, each for RTP and for reports. Whoever calls holds the rows
    that name them: the plane works with both."""

    def __init__(self, sent: Session, received: Session) -> None:
        self._sent, self._received = sent, received
        self._record = np.zeros(1, OPENER)
        self._record["session"] = _address_of(received)

    def seal(self, line: Any, tag_bytes: int) -> None:
        """The row's packets leave protected by the session alone from now on. `Lent` must live while the row
        is open."""
        line["encrypted"], line["sealer"], line["tag_bytes"] = 1, _address_of(self._sent), tag_bytes

    def open(self, line: Any) -> None:
        """What comes for the row is opened by the session alone from now on. `Lent` must live while the row
        is open."""
        line["encrypted"], line["opener"] = 1, int(self._record.ctypes.data)
        line["opener_before"] = _NO_ADDRESS

    def sealed_report(self, compound: bytes) -> bytes:
        """Returns a compound RTCP packet as SRTCP."""
        return bytes(self._sent.protect_rtcp(compound))

    def opened_report(self, data: bytes) -> bytes | None:
        """Returns an SRTCP packet as RTCP; None for one that is forged, replayed or damaged."""
        try:
            opened = bytes(self._received.unprotect_rtcp(data))
        except (pylibsrtp.Error, ValueError):  # ValueError: longer than any report
            return None
        _meet_at(int(self._record.ctypes.data), int.from_bytes(opened[4:8]))
        return opened


def _going_on(master: Master, ssrc: int, rolled_over: int) -> Session:
    session, policy = _session(master, Policy.SSRC_ANY_INBOUND), _policy(master, Policy.SSRC_SPECIFIC)
    policy.ssrc_value = ssrc
    session.add_stream(policy)
    address, count = ctypes.c_void_p(_address_of(session)), ctypes.c_uint32(rolled_over)
    _library.srtp_set_stream_roc(address, ctypes.c_uint32(ssrc), count)
    return session


_IN_USE: Final[set[Protection]] = set()
"""What rows name: it lives until a row names it no longer, whoever else has forgotten it."""


class Protection:
    """The keys of one stream, at its row. Whoever calls holds the row: what the row no longer names is freed
    then, and the plane cannot look at it."""

    def __init__(self) -> None:
        self.sealer: Sealer | None = None
        self._sealers: dict[Master, Sealer] = {}
        self.opener: Opener | None = None
        self._before: Opener | None = None

    @property
    def masters(self) -> Masters | None:
        """The keys in use, both ways; None: there are none yet."""
        if self.sealer is None or self.opener is None:
            return None
        return Masters(self.sealer.master, self.opener.master)

    def require(self, line: Any) -> None:
        """Nothing is sent or heard unprotected from now on, and nothing at all before there are keys."""
        line["encrypted"] = 1

    def use(self, line: Any, masters: Masters) -> None:
        """Sends and hears with these keys from now on. A key that stays, or that comes back (of two forks
        that answer in turn), keeps its session: it must protect no packet number twice."""
        if masters.sent not in self._sealers:
            self._sealers[masters.sent] = Sealer(masters.sent)
        self.sealer = self._sealers[masters.sent]
        if self.opener is None or self.opener.master != masters.received:
            ssrc, before = int(line["ssrc"]), self.opener
            goes_on = None if before is None or ssrc < 0 else before.rolled_over(ssrc)
            self._before, self.opener = before, Opener(masters.received, goes_on=goes_on)
            line["opener_before"] = _NO_ADDRESS if self._before is None else self._before.address
        line["sealer"], line["opener"] = self.sealer.address, self.opener.address
        line["tag_bytes"] = masters.sent.suite.tag_bytes
        self.require(line)
        _IN_USE.add(self)

    def drop(self, line: Any) -> None:
        """The row names no keys any more. It stays `encrypted`: whoever wants plain RTP says so."""
        line["sealer"] = line["opener"] = line["opener_before"] = _NO_ADDRESS
        line["tag_bytes"] = 0
        self.sealer = self.opener = self._before = None
        self._sealers.clear()
        _IN_USE.discard(self)

    def stop(self, line: Any) -> None:
        """The far end and this side have agreed on plain RTP."""
        self.drop(line)
        line["encrypted"] = 0

    def opened_report(self, data: bytes) -> bytes | None:
        """Returns an SRTCP packet as RTCP; None for one that is not authentic under the keys of now."""
        found = None if self.opener is None else self.opener.report(data)
        if found is None and self._before is not None:
            found = self._before.report(data)
        return found
