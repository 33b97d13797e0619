"""Where the far end's audio comes from, when its SDP does not say (NAT): symmetric RTP.

Anybody may send to our port, so one packet proves nothing. A source proves itself by packets of one SSRC and
one payload type, with numbers and timestamps that go on as the time does. While the source that we send to
is heard, no other counts; once it has been silent for `SILENT_S`, the next that proves itself takes its
place. A source on the host that the SDP names, or that the signalling comes from, needs few packets; a
stranger needs more, a longer silence, and waits while one of those is about to prove itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from pipeline.plane.address import Address
from sip.rtp.packet import HEADER, payload_span, sequence_delta, timestamp_delta

SILENT_S: Final = 1.0
"""For so long the source that we send to is silent before another may take its place."""

STRANGE_SILENT_S: Final = 5.0
"""The same for a source on no host that we know of: most who fall silent suppress silence."""

NEAR_PACKETS: Final = 3
STRANGE_PACKETS: Final = 5
STRANGE_S: Final = 0.2
"""For so long, and with so many packets, a source on no host that we know of speaks before it is believed."""

MOST_SOURCES: Final = 8
"""Sources that may be proving themselves: a bound for a flood."""

_MOST_KEPT: Final = 64
_SLACK_S: Final = 0.2  # of timestamps against arrivals: jitter, and packets that waited for a route
_GAP: Final = 16  # numbers that may be missing between two packets


@dataclass(slots=True)
class _Source:
    """One that is proving itself. `at`: the latest packet's arrival; `kept`: its packets with their
    arrivals."""

    ssrc: int
    payload_type: int
    sequence: int
    timestamp: int
    first_timestamp: int
    first_at: float
    at: float
    counted: int = 1
    kept: list[tuple[bytes, float]] = field(default_factory=list)


class Latch:
    """The judgement on packets from elsewhere, of one stream. Sans-IO: `now` is their arrival in seconds."""

    def __init__(self) -> None:
        self._near: frozenset[str] = frozenset()
        self._avoided: tuple[Address | None, float] = (None, 0.0)
        self._sources: dict[Address, _Source] = {}

    def aim(self, hosts: frozenset[str], *, left: Address | None, now: float) -> None:
        """The SDP names another address: `hosts` are the ones that it and the signalling name. The packets of
        the one that was `left` may still be under way."""
        self._near = hosts
        self._avoided = (left, now + SILENT_S)
        self._sources.clear()

    def judge(
        self, data: bytes, address: Address, now: float, *, clock_hz: int, heard_at: float
    ) -> list[tuple[bytes, float]]:
        """Takes a packet, from an address that may be sent to, of an agreed payload type, with clock
        `clock_hz` (0: it is no audio); `heard_at`: when the source that we send to was last heard. The
        packets with which `address` has now proved itself, and their arrivals; empty, while it has not."""
        if now - heard_at <= SILENT_S:
            self._sources.clear()
            return []
        if not self._counts(data, address, now, heard_at):
            return []
        source = self._sources.get(address)
        if clock_hz == 0:  # a key, comfort noise: heard with the audio around it
            if source is not None and len(source.kept) < _MOST_KEPT:
                source.kept.append((data, now))
            return []
        if source is None or not _goes_on(source, data, now, clock_hz):
            source = self._begin(data, address, now)
        source.kept.append((data, now))
        del source.kept[:-_MOST_KEPT]
        if not self._is_proved(source, address, now):
            return []
        self._sources.clear()
        return source.kept

    def _counts(self, data: bytes, address: Address, now: float, heard_at: float) -> bool:
        """Whether the packet may prove anything."""
        if address == self._avoided[0] and now < self._avoided[1]:
            return False
        if address[0] not in self._near and now - heard_at <= STRANGE_SILENT_S:
            return False
        return payload_span(data, len(data)) is not None

    def _begin(self, data: bytes, address: Address, now: float) -> _Source:
        if address not in self._sources and len(self._sources) >= MOST_SOURCES:
            far = [each for each in self._sources if each[0] not in self._near] or list(self._sources)
            del self._sources[min(far, key=lambda each: self._sources[each].at)]
        _, second, sequence, timestamp, ssrc = HEADER.unpack_from(data)
        source = _Source(ssrc, second & 0x7F, sequence, timestamp, timestamp, now, now)
        self._sources[address] = source
        return source

    def _is_proved(self, source: _Source, address: Address, now: float) -> bool:
        if address[0] in self._near:
            return source.counted >= NEAR_PACKETS
        if source.counted < STRANGE_PACKETS or now - source.first_at < STRANGE_S:
            return False
        return not any(
            each[0] in self._near and now - other.at < STRANGE_S for each, other in self._sources.items()
        )


def _goes_on(source: _Source, data: bytes, now: float, clock_hz: int) -> bool:
    """Whether the packet may be of the stream whose packets came before, which takes note of it."""
    _, second, sequence, timestamp, ssrc = HEADER.unpack_from(data)
    if ssrc != source.ssrc or second & 0x7F != source.payload_type:
        return False
    ahead = sequence_delta(sequence, source.sequence)
    if -_GAP < ahead <= 0:
        source.at = now
        return True  # a double, or one that was overtaken: proves nothing, and does no harm
    since_s = timestamp_delta(timestamp, source.first_timestamp) / clock_hz
    if ahead > _GAP or timestamp_delta(timestamp, source.timestamp) <= 0:
        return False
    if abs(since_s - (now - source.first_at)) > _SLACK_S:
        return False
    source.sequence, source.timestamp, source.at = sequence, timestamp, now
    source.counted += 1
    return True
