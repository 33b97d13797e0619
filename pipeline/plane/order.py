"""Packets in sequence order, with a bounded wait for the missing ones.

A jitter buffer delays every packet so that the unlucky ones are still in time. The listener here is a
machine, which needs order and not smoothness: a packet that is next in order passes at once, at no cost, and
only when one is missing do its successors wait for it, `patience_ns` at the most. Sequence arithmetic, the
window for misordered packets and the restart after a jump are those of RFC 3550, appendix A.1.
"""

from __future__ import annotations

from typing import Any, Final

from pipeline.plane.native import BOOL, I64, LINE, ROWS, U8, VOID, native
from pipeline.plane.rows import GIVEN_UP, HELD, PROBATION

MAX_DROPOUT: Final = 3000  # this far ahead is still the same run of numbers
MAX_MISORDER: Final = 100  # this far behind is an old packet, not a restart
NONE: Final = -1


@native(VOID, ROWS, I64, called_by_python=True)
def forget_order(rows: Any, number: int) -> None:
    """Whatever comes next is the first packet; the counts go on."""
    line = rows.line[number]
    line.next = line.restart = -1
    line.held = line.probation = 0
    rows.given_up[number][:] = -1
    for slot in range(HELD + 1):
        rows.slots[number, slot].size = 0


@native(VOID, ROWS, I64, I64, U8, I64, I64, I64)
def _keep(rows: Any, number: int, slot: int, packet: Any, sequence: int, timestamp: int, at_ns: int) -> None:
    size = packet.shape[0]
    kept, octets = rows.slots[number, slot], rows.held[number, slot]
    kept.size, kept.sequence, kept.timestamp, kept.arrived_ns = size, sequence, timestamp, at_ns
    for i in range(size):
        octets[i] = packet[i]


@native(I64, ROWS, I64, I64)
def slot_of(rows: Any, number: int, sequence: int) -> int:
    """The slot in which the packet `sequence` waits; `NONE`: in none."""
    if rows.line[number].held:
        for slot in range(HELD):
            kept = rows.slots[number, slot]
            if kept.size and kept.sequence == sequence:
                return slot
    return NONE


@native(I64, ROWS, I64)
def _free(rows: Any, number: int) -> int:
    for slot in range(HELD):
        if rows.slots[number, slot].size == 0:
            return slot
    return NONE


@native(VOID, ROWS, I64, I64)
def _too_old(rows: Any, number: int, sequence: int) -> None:
    """One that was given up came after all, or a second time."""
    for i in range(GIVEN_UP):
        if rows.given_up[number, i] == sequence:
            rows.given_up[number, i] = -1
            rows.line[number].late += 1
            return


@native(BOOL, ROWS, I64, U8, I64, I64, I64)
def passes(rows: Any, number: int, packet: Any, sequence: int, timestamp: int, at_ns: int) -> bool:
    """Whether the packet is next in order. If not, it waits (a copy), is on probation, or is dropped."""
    line = rows.line[number]
    if line.next < 0 or sequence == line.next:
        line.next = (sequence + 1) & 0xFFFF
        return True
    ahead = (sequence - line.next) & 0xFFFF
    if ahead < MAX_DROPOUT:
        if slot_of(rows, number, sequence) == NONE:
            slot = _free(rows, number)
            if slot != NONE:
                _keep(rows, number, slot, packet, sequence, timestamp, at_ns)
                line.held += 1
    elif ahead >= 0x10000 - MAX_MISORDER:
        _too_old(rows, number, sequence)
    elif sequence != line.restart or rows.slots[number, PROBATION].size == 0:
        line.restart = (sequence + 1) & 0xFFFF
        _keep(rows, number, PROBATION, packet, sequence, timestamp, at_ns)
    else:
        line.probation = 1  # a jump is believed when the next number follows it; a single stray packet is not
    return False


@native(I64, ROWS, I64)
def nearest(rows: Any, number: int) -> int:
    """The slot of the waiting packet that comes first in order; `NONE`: nothing waits."""
    found, least = NONE, 0x10000
    next_ = rows.line[number].next
    for slot in range(HELD):
        kept = rows.slots[number, slot]
        if kept.size:
            ahead = (kept.sequence - next_) & 0xFFFF
            if ahead < least:
                found, least = slot, ahead
    return found


@native(BOOL, ROWS, I64, I64)
def is_given_up(rows: Any, number: int, now_ns: int) -> bool:
    """Whether what is missing before the waiting packets was waited for long enough."""
    line = rows.line[number]
    if line.held >= HELD:
        return True
    for slot in range(HELD):
        kept = rows.slots[number, slot]
        if kept.size and now_ns - kept.arrived_ns >= line.patience_ns:
            return True
    return False


@native(VOID, ROWS, I64, I64)
def give_up(rows: Any, number: int, sequence: int) -> None:
    """What is missing before `sequence` counts as lost."""
    line = rows.line[number]
    lost = (sequence - line.next) & 0xFFFF
    for i in range(max(0, lost - MAX_MISORDER), lost):
        rows.given_up[number, (line.given_up + i) % GIVEN_UP] = (line.next + i) & 0xFFFF
    line.given_up = (line.given_up + lost) % GIVEN_UP
    line.lost += lost
    line.next = sequence


@native(VOID, ROWS, I64, I64)
def take_out(rows: Any, number: int, slot: int) -> None:
    """The packet in `slot` has been played."""
    kept = rows.slots[number, slot]
    rows.line[number].next = (kept.sequence + 1) & 0xFFFF
    kept.size = 0
    if slot != PROBATION:
        rows.line[number].held -= 1


@native(VOID, LINE)
def jumped(line: Any) -> None:
    """The jump has been followed."""
    line.restart, line.probation = -1, 0
