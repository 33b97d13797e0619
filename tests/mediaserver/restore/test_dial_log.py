"""The notes of what a node dialled: on disk before the INVITE, readable after whatever."""

from __future__ import annotations

import asyncio
import os
import resource
from pathlib import Path

import pytest

from mediaserver.queue.history import Note
from mediaserver.restore import dial_log
from mediaserver.restore.dial_log import DialLog


async def all_notes(log: DialLog) -> list[Note]:
    return [note async for notes, _ in log.chunks() for note in notes]


async def test_notes_are_read_from_the_last_one_whatever_a_crash_has_left(tmp_path: Path) -> None:
    log = DialLog(tmp_path / "dialled")
    await log.open()
    notes = [Note(f"call-{number}", number + 1, "node", number) for number in range(3000)]
    await asyncio.gather(*(log.note(each) for each in notes))
    await log.close()
    (path,) = (tmp_path / "dialled").glob("*.log")
    assert path.stat().st_size > dial_log.BLOCK_BYTES
    with path.open("ab") as file:
        file.write(b"call-9999 1 no")
    again = DialLog(tmp_path / "dialled")
    await again.open()
    assert again.remembered.node_id == log.remembered.node_id
    assert await all_notes(again) == notes[::-1]
    await again.note(Note("after", 1, "node", 1))
    assert (await all_notes(again))[0] == Note("after", 1, "node", 1)
    await again.close()


async def test_a_note_that_cannot_be_written_is_refused_and_spoils_no_other(tmp_path: Path) -> None:
    log = DialLog(tmp_path / "dialled")
    await log.open()
    await log.note(Note("before", 1, "node", 1))
    (path,) = (tmp_path / "dialled").glob("*.log")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 5, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            await log.note(Note("refused", 1, "node", 1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    await log.note(Note("after", 1, "node", 1))
    assert [note.call_id for note in await all_notes(log)] == ["after", "before"]
    await log.close()


async def test_a_note_is_on_disk_when_it_is_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", lambda file: synced.append(os.fstat(file).st_size))
    log = DialLog(tmp_path / "dialled")
    await log.open()
    await log.note(Note("one", 1, "node", 1))
    (path,) = (tmp_path / "dialled").glob("*.log")
    assert synced == [path.stat().st_size]
    await log.close()
