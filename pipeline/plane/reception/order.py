"""Packets in sequence order, with a bounded wait for the missing ones.

A jitter buffer delays every packet so that the unlucky ones are still in time. The listener here is a
machine, which needs order and not smoothness: a packet that is next in order passes at once, at no cost, and
only when one is missing do its successors wait for it, `patience_ns` at the most. Sequence arithmetic, the
window for misordered packets and the restart after a jump are those of RFC 3550, appendix A.1.
"""

from __future__ import annotations

from typing import Any, Final

from pipeline.audio.compiled import compiled
from pipeline.plane.native import BOOL, I64, LINE, U8, VOID
from pipeline.plane.rows import GIVEN_UP, HELD, PROBATION

MAX_DROPOUT: Final = 3000  # this far ahead is still the same run of numbers
MAX_MISORDER: Final = 100  # this far behind is an old packet, not a restart
NONE: Final = -1


@compiled(VOID(LINE))
def forget_order(line: Any) -> None:
    """Whatever comes next is the first packet; the counts go on."""
    line.next = line.restart = -1
    line.held = line.probation = 0
    line.given_up_numbers[:] = -1
    for slot in range(HELD + 1):
        line.slots[slot].size = 0


@compiled(I64(U8), inner=True)
def sequence_of(packet: Any) -> int:
    """The number in a packet's header."""
    return int(I64(packet[2]) << 8 | I64(packet[3]))


@compiled(VOID(LINE, I64, U8, I64, I64), inner=True)
def _keep(line: Any, slot: int, packet: Any, timestamp: int, at_ns: int) -> None:
    size = packet.shape[0]
    kept, octets = line.slots[slot], line.held_octets[slot]
    kept.size, kept.sequence, kept.timestamp, kept.arrived_ns = size, sequence_of(packet), timestamp, at_ns
    for i in range(size):
        octets[i] = packet[i]


@compiled(I64(LINE, I64), inner=True)
def slot_of(line: Any, sequence: int) -> int:
    """The slot in which the packet `sequence` waits; `NONE`: in none."""
    if line.held:
        for slot in range(HELD):
            kept = line.slots[slot]
            if kept.size and kept.sequence == sequence:
                return slot
    return NONE


@compiled(I64(LINE), inner=True)
def _free(line: Any) -> int:
    for slot in range(HELD):
        if line.slots[slot].size == 0:
            return slot
    return NONE


@compiled(VOID(LINE, I64), inner=True)
def _too_old(line: Any, sequence: int) -> None:
    """One that was given up came after all, or a second time."""
    for i in range(GIVEN_UP):
        if line.given_up_numbers[i] == sequence:
            line.given_up_numbers[i] = -1
            line.late += 1
            return


@compiled(BOOL(LINE, U8, I64, I64, I64), inner=True)
def passes(line: Any, packet: Any, sequence: int, timestamp: int, at_ns: int) -> bool:
    """Whether the packet is next in order. If not, it waits (a copy), is on probation, or is dropped: the
    next one too may wait already, for room."""
    if line.next < 0 or (sequence == line.next and slot_of(line, sequence) == NONE):
        line.next = (sequence + 1) & 0xFFFF
        return True
    ahead = (sequence - line.next) & 0xFFFF
    if ahead < MAX_DROPOUT:
        if slot_of(line, sequence) == NONE:
            slot = _free(line)
            if slot != NONE:
                _keep(line, slot, packet, timestamp, at_ns)
                line.held += 1
    elif ahead >= 0x10000 - MAX_MISORDER:
        _too_old(line, sequence)
    elif sequence != line.restart or line.slots[PROBATION].size == 0:
        line.restart = (sequence + 1) & 0xFFFF
        _keep(line, PROBATION, packet, timestamp, at_ns)
    else:
        line.probation = 1  # a jump is believed when the next number follows it; a single stray packet is not
    return False


@compiled(I64(LINE), inner=True)
def nearest(line: Any) -> int:
    """The slot of the waiting packet that comes first in order; `NONE`: nothing waits."""
    found, least = NONE, 0x10000
    next_ = line.next
    for slot in range(HELD):
        kept = line.slots[slot]
        if kept.size and kept.sequence >= 0:
            ahead = (kept.sequence - next_) & 0xFFFF
            if ahead < least:
                found, least = slot, ahead
    return found


@compiled(BOOL(LINE, I64), inner=True)
def is_given_up(line: Any, now_ns: int) -> bool:
    """Whether what is missing before the waiting packets was waited for long enough."""
    if line.held >= HELD:
        return True
    for slot in range(HELD):
        kept = line.slots[slot]
        if kept.size and now_ns - kept.arrived_ns >= line.patience_ns:
            return True
    return False


@compiled(VOID(LINE, I64), inner=True)
def give_up(line: Any, sequence: int) -> None:
    """What is missing before `sequence` counts as lost."""
    lost = (sequence - line.next) & 0xFFFF
    for i in range(max(0, lost - MAX_MISORDER), lost):
        line.given_up_numbers[(line.given_up + i) % GIVEN_UP] = (line.next + i) & 0xFFFF
    line.given_up = (line.given_up + lost) % GIVEN_UP
    line.lost += lost
    line.next = sequence


@compiled(VOID(LINE, I64), inner=True)
def take_out(line: Any, slot: int) -> None:
    """The packet in `slot` has been played."""
    kept = line.slots[slot]
    line.next = (kept.sequence + 1) & 0xFFFF
    kept.size = 0
    line.held -= 1


@compiled(VOID(LINE), inner=True)
def renumber(line: Any) -> None:
    """What waits gets the numbers just before the packet on probation: nothing is missing of it any more."""
    count, before = line.held, line.slots[PROBATION].sequence
    for rank in range(count):
        line.slots[nearest(line)].sequence = rank - count
    for slot in range(HELD):
        kept = line.slots[slot]
        if kept.size:
            kept.sequence = (before + kept.sequence) & 0xFFFF
    line.next = (before - count) & 0xFFFF
    line.given_up_numbers[:] = -1


@compiled(VOID(LINE, U8, I64, I64), inner=True)
def jumped(line: Any, packet: Any, timestamp: int, at_ns: int) -> None:
    """The jump is followed: the packet on probation and the one that confirmed it wait like others. There is
    room for both."""
    proven = line.slots[PROBATION]
    octets = line.held_octets[PROBATION, : proven.size]
    _keep(line, _free(line), octets, proven.timestamp, proven.arrived_ns)
    _keep(line, _free(line), packet, timestamp, at_ns)
    line.held += 2
    proven.size = 0
    line.restart, line.probation = -1, 0
