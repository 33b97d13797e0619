"""Does the memory for streams that a plane has room for cost nothing until they are there?"""

from __future__ import annotations

import os

from pipeline.plane.rows import LINE, rows


def test_rows_for_more_than_the_memory_of_the_machine_may_be_reserved() -> None:
    """Else a process with many planes could not fork (ENOMEM)."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    count = 2 * memory // LINE.itemsize
    table = rows(count)
    table[count - 1]["fd"] = 7
    assert (len(table), table[0]["fd"], table[count - 1]["fd"]) == (count, 0, 7)
