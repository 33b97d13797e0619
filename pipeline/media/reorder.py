"""Puts RTP packets in sequence order, with a bounded wait for missing ones.

A jitter buffer delays every packet, so that late packets are still in time. A recogniser needs packets in
order and no even spacing: the packet that is next in order passes at once, and only packets behind a gap
wait, for `patience_ms` at most. Sequence arithmetic, the window for misordered packets and the restart after
a jump are those of RFC 3550, appendix A.1.

    if reorder.push(sequence, timestamp, payload, now):
        play(payload)                       # the usual case, without an allocation or a copy
    if reorder.pending:
        for item in reorder.take(now):      # Packet and Gap items that are now in order
            ...
    # and once reorder.due_at() has passed without a packet:
    for item in reorder.take(now): ...
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, TypeAlias

_MODULO: Final = 1 << 16
_MAX_DROPOUT: Final = 3000  # RFC 3550 A.1 (MAX_DROPOUT): a larger jump ahead is a restart
_MAX_MISORDER: Final = 100  # RFC 3550 A.1 (MAX_MISORDER): a packet less far behind is an old one

Payload: TypeAlias = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Packet:
    """A packet that waits for an earlier one. `arrived`: loop time of the arrival."""

    sequence: int
    timestamp: int
    payload: bytes
    arrived: float


@dataclass(frozen=True, slots=True)
class Gap:
    """A gap of `lost` packets from number `sequence` on, which are no longer waited for.

    `next_timestamp`: RTP timestamp of the packet after the gap (the next item taken), which gives the gap's
    length on the media clock for any packetisation time.
    """

    sequence: int
    lost: int
    next_timestamp: int


@dataclass(slots=True)
class ReorderStats:
    """Running counts of one stream's packets. A packet that comes after its `Gap` counts as `lost` and as
    `late`."""

    lost: int = 0
    late: int = 0
    duplicates: int = 0
    reordered: int = 0
    restarts: int = 0


class Reorder:
    """Puts the packets of one stream in order. Call `reset` when the SSRC changes.

    `patience_ms`: longest wait for a missing packet, from the arrival of the first packet behind the gap.
    `capacity`: most packets that wait; a further one ends the wait. Raises ValueError for values out of
    range."""

    __slots__ = (
        "_capacity",
        "_given_up",
        "_held",
        "_next",
        "_patience_s",
        "_probation",
        "_ready",
        "_restart",
        "pending",
        "stats",
    )

    def __init__(self, *, patience_ms: int = 40, capacity: int = 32) -> None:
        if patience_ms < 0 or not 1 <= capacity <= _MAX_DROPOUT:
            raise ValueError(f"patience_ms={patience_ms}, capacity={capacity}: out of range")
        self._patience_s = patience_ms / 1000
        self._capacity = capacity
        self.stats = ReorderStats()
        self.reset()

    def reset(self) -> None:
        """Begins a new stream (a new SSRC): the next packet is its first. Counts in `stats` go on."""
        self._next = -1
        self._restart = -1  # the number that confirms a restart (bad_seq of RFC 3550)
        self._probation: Packet | None = None
        self._held: dict[int, Packet] = {}
        self._ready: deque[Packet | Gap] = deque()
        self._given_up: deque[int] = deque(maxlen=_MAX_MISORDER)
        self.pending = 0

    def push(self, sequence: int, timestamp: int, payload: Payload, now: float) -> bool:
        """Takes a packet that arrived at loop time `now`. True: the packet is next in order; use `payload`
        now. False: a copy of the packet waits, or the packet was dropped. After either, call `take` while
        `pending` is not 0. `payload` may be a view of a buffer that is used again."""
        if sequence == self._next:
            self._next = (sequence + 1) & 0xFFFF
            return True
        return self._out_of_order(sequence, timestamp, payload, now)

    def due_at(self) -> float | None:
        """Loop time at which `take` gives an item even if no packet comes; None: no packet waits."""
        if self._ready:
            return 0.0
        if not self._held:
            return None
        return min(packet.arrived for packet in self._held.values()) + self._patience_s

    def take(self, now: float) -> list[Packet | Gap]:
        """Takes the items that are in order at loop time `now`: packets, and gaps whose wait is over."""
        items = list(self._ready)
        self._ready.clear()
        while self._held:
            packet = self._held.pop(self._next, None)
            if packet is None:
                due = self.due_at()
                if len(self._held) < self._capacity and due is not None and now < due:
                    break
                items.append(self._give_up())
                continue
            items.append(packet)
            self._next = (packet.sequence + 1) & 0xFFFF
        self.pending = len(self._held)
        return items

    def _out_of_order(self, sequence: int, timestamp: int, payload: Payload, now: float) -> bool:
        if self._next < 0:
            self._next = (sequence + 1) & 0xFFFF
            return True
        ahead = (sequence - self._next) & 0xFFFF
        if ahead < _MAX_DROPOUT:
            self._hold(Packet(sequence, timestamp, bytes(payload), now))
        elif ahead >= _MODULO - _MAX_MISORDER:
            self._too_old(sequence)
        else:
            self._jumped(Packet(sequence, timestamp, bytes(payload), now))
        return False

    def _hold(self, packet: Packet) -> None:
        if packet.sequence in self._held:
            self.stats.duplicates += 1
            return
        self.stats.reordered += 1
        self._held[packet.sequence] = packet
        self.pending += 1

    def _too_old(self, sequence: int) -> None:
        if sequence in self._given_up:
            self._given_up.remove(sequence)
            self.stats.late += 1
        else:
            self.stats.duplicates += 1

    def _jumped(self, packet: Packet) -> None:
        """Restarts after a jump that the next sequence number confirms; a single stray packet is dropped."""
        if packet.sequence != self._restart or self._probation is None:
            self._restart = (packet.sequence + 1) & 0xFFFF
            self._probation = packet
            return
        self._ready.extend((*sorted(self._held.values(), key=self._distance), self._probation, packet))
        self._held.clear()
        self._given_up.clear()
        self._probation = None
        self._restart = -1
        self._next = (packet.sequence + 1) & 0xFFFF
        self.stats.restarts += 1
        self.pending = len(self._ready)

    def _give_up(self) -> Gap:
        follower = min(self._held.values(), key=self._distance)
        first, lost = self._next, self._distance(follower)
        self.stats.lost += lost
        self._given_up.extend((first + i) & 0xFFFF for i in range(max(0, lost - _MAX_MISORDER), lost))
        self._next = follower.sequence
        return Gap(first, lost, follower.timestamp)

    def _distance(self, packet: Packet) -> int:
        return (packet.sequence - self._next) & 0xFFFF
