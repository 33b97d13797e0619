"""SRTP and SRTCP (RFC 3711, RFC 7714) by libsrtp: the one inside pylibsrtp's wheel.

A session belongs to one direction of one stream. RTP is protected where it lies, by compiled code that calls
libsrtp by its address, at a row that the caller has entered; reports are Python's, with a session of their
own, so that no session is ever used by two threads. libsrtp keeps the window against replays and the
roll-over counter. What is not authentic is counted in the row (`forged`, `replayed`), and goes no further.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

import llvmlite.binding
import pylibsrtp
from pylibsrtp import Policy, Session, _binding

from pipeline.audio.compiled import compiled
from pipeline.plane.native import I64, LINE, U8, T
from pipeline.plane.srtp_suite import Master, Masters

_REPLAYS: Final = (9, 10)  # srtp_err_status_replay_fail, srtp_err_status_replay_old
_NO_KEY: Final = 13  # srtp_err_status_no_ctx
_NO_ADDRESS: Final = 0
_WINDOW: Final = 1024
"""Packets that may overtake one: what RFC 3711 3.3.2 asks for is 64, 20 s here."""

_library: Final = ctypes.CDLL(_binding.__file__)
for _name in ("srtp_protect", "srtp_unprotect"):
    llvmlite.binding.add_symbol(_name, ctypes.cast(getattr(_library, _name), ctypes.c_void_p).value)
_protect: Final = T.ExternalFunction("srtp_protect", T.int32(T.uintp, T.uintp, T.uintp))
_unprotect: Final = T.ExternalFunction("srtp_unprotect", T.int32(T.uintp, T.uintp, T.uintp))


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


@compiled(I64(LINE, I64, U8, I64), inner=True)
def _try(line: Any, opener: int, packet: Any, size: int) -> int:
    line.srtp_size[0] = size
    return int(_unprotect(T.uintp(opener), packet.ctypes.data, line.srtp_size.ctypes.data))


@compiled(I64(LINE, U8, I64), inner=True)
def _opened_by_either(line: Any, packet: Any, size: int) -> int:
    """The same as `opened`, with the key before, whose packets are under way still until the far end is heard
    with the new one."""
    for i in range(size):
        line.srtp_copy[i] = packet[i]
    status = _try(line, line.opener, packet, size)
    if status == 0:
        line.opener_before = _NO_ADDRESS
        return 0
    for i in range(size):  # GCM decrypts before it knows
        packet[i] = line.srtp_copy[i]
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
        status = _opened_by_either(line, packet, size)
    if status == 0:
        return int(line.srtp_size[0])
    if status in _REPLAYS:
        line.replayed += 1
    else:
        line.forged += 1
    return 0


def _session(master: Master, kind: int) -> Session:
    policy = Policy(key=master.secret, ssrc_type=kind, srtp_profile=master.suite.profile)
    policy.window_size = _WINDOW
    return Session(policy)


class _Direction:
    """The sessions of one master key: of RTP, for the plane, and of reports."""

    def __init__(self, master: Master, kind: int) -> None:
        self.master = master
        self._rtp, self._rtcp = _session(master, kind), _session(master, kind)
        self.address = int(_binding.ffi.cast("uintptr_t", self._rtp._srtp[0]))


class Sealer(_Direction):
    """Protects the RTCP of what is sent, and names the session by which the plane protects its RTP."""

    def __init__(self, master: Master) -> None:
        super().__init__(master, Policy.SSRC_ANY_OUTBOUND)

    def report(self, compound: bytes) -> bytes:
        """Returns a compound RTCP packet as SRTCP."""
        return bytes(self._rtcp.protect_rtcp(compound))


class Opener(_Direction):
    """Takes the protection off RTCP that comes, and names the session by which the plane does it for RTP."""

    def __init__(self, master: Master) -> None:
        super().__init__(master, Policy.SSRC_ANY_INBOUND)

    def report(self, data: bytes) -> bytes | None:
        """Returns an SRTCP packet as RTCP; None for one that is forged, replayed or damaged."""
        try:
            return bytes(self._rtcp.unprotect_rtcp(data))
        except (pylibsrtp.Error, ValueError):  # ValueError: longer than any report
            return None


_IN_USE: Final[set[Protection]] = set()
"""What rows name: it lives until a row names it no longer, whoever else has forgotten it."""


class Protection:
    """The keys of one stream, at its row. Whoever calls holds the row: what the row no longer names is freed
    then, and the plane cannot look at it."""

    def __init__(self) -> None:
        self.sealer: Sealer | None = None
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
        """Sends and hears with these keys from now on. A key that stays keeps its session: it must protect
        no packet number twice."""
        if self.sealer is None or self.sealer.master != masters.sent:
            self.sealer = Sealer(masters.sent)
        if self.opener is None or self.opener.master != masters.received:
            self._before, self.opener = self.opener, Opener(masters.received)
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
