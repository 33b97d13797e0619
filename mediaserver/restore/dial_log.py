"""Records what this node dials in files beside the database: a line for each attempt, on disk before its
INVITE.

A database may lose rows (`mediaserver.queue.history`); from these files a node knows what it dialled all the
same. They belong to the machine and are no part of a copy of the database. One file a day, kept for
`KEPT_DAYS`; attempts that wait together share one fsync."""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from mediaserver.errors import LocalError
from mediaserver.queue.history import Note, Witness

T = TypeVar("T")

KEPT_DAYS = 30

CHUNK = 500
"""The most notes that are compared at a time."""

BLOCK_BYTES = 65_536

GONE = "gone"
"""The first word of a line with calls that the database has no row of, and that need no further
comparison."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """What a node keeps besides its notes: its id, an event that was in the database, the ids of other
    nodes."""

    node_id: str
    witness: Witness | None = None
    others: tuple[str, ...] = ()


class DialLog:
    """The notes in the files of `folder`. `open` comes first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._thread = ThreadPoolExecutor(1, "dial-log")
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None
        self._day = ""
        self._file = -1
        self._remembered: Remembered | None = None

    async def open(self) -> None:
        """Makes the folder, and an id for this node where it has none. Raises OSError."""
        self._remembered = await self._on_thread(self._open)

    @property
    def remembered(self) -> Remembered:
        """What the node keeps besides its notes. Raises `LocalError` before `open`."""
        if self._remembered is None:
            raise LocalError("the dial log is not open")
        return self._remembered

    async def close(self) -> None:
        """Writes what is waiting and closes the file."""
        if self._writing is not None:
            await asyncio.gather(self._writing, return_exceptions=True)
        await self._on_thread(self._close)
        self._thread.shutdown()

    async def note(self, note: Note) -> None:
        """Writes a note; returns when it is on disk, and only then may the INVITE leave. Raises OSError: it
        is not."""
        await self._put(f"{note.call_id} {note.epoch} {note.node} {note.at_ms}\n")

    async def note_gone(self, call_ids: Sequence[str]) -> None:
        """Writes that the database has no row of these calls. Raises OSError."""
        await self._put(" ".join([GONE, *call_ids]) + "\n")

    async def remember(self, witness: Witness | None, others: Sequence[str]) -> None:
        """Keeps an event and the nodes that were seen in the database. Raises OSError."""
        known = Remembered(self.remembered.node_id, witness, tuple(others))
        if known != self._remembered:
            self._remembered = known
            await self._on_thread(partial(self._keep, known))

    async def chunks(self) -> AsyncGenerator[tuple[list[Note], frozenset[str]], None]:
        """Yields the notes, the last ones first, at most `CHUNK` at a time, each time with the calls known to
        be gone."""
        gone: set[str] = set()
        lines = self._lines()
        while notes := await self._on_thread(partial(_next_notes, lines, gone)):
            yield notes, frozenset(gone)

    # One write for those that wait together -----------------------------------------------------------------

    async def _put(self, line: str) -> None:
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((line, written))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write(), name="dial log")
        await written

    async def _write(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            text = "".join(line for line, _ in batch)
            error: OSError | None = None
            try:
                await self._on_thread(partial(self._append, text))
            except OSError as failed:
                error = failed
            for _, written in batch:
                if written.done():
                    continue  # the caller was cancelled
                if error is None:
                    written.set_result(None)
                else:
                    written.set_exception(error)

    async def _on_thread(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)

    # On the thread ------------------------------------------------------------------------------------------

    def _open(self) -> Remembered:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            known = json.loads((self._folder / "node.json").read_text(encoding="utf-8"))
            seen = known["witness"]
            witness = Witness(int(seen[0]), str(seen[1])) if seen else None
            return Remembered(str(known["id"]), witness, tuple(map(str, known["others"])))
        except FileNotFoundError:
            made = Remembered(str(uuid.uuid4()))
            self._keep(made)
            return made
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise OSError(f"{self._folder}/node.json cannot be read: {error}") from error

    def _keep(self, known: Remembered) -> None:
        seen = [known.witness.position, known.witness.event_id] if known.witness is not None else None
        text = json.dumps({"id": known.node_id, "witness": seen, "others": known.others})
        path, new = self._folder / "node.json", self._folder / "node.json.new"
        with open(os.open(new, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        self._sync_folder()

    def _append(self, text: str) -> None:
        day = datetime.now(UTC).strftime("%Y-%m-%d")
        if day != self._day:
            self._begin(day)
        size = os.fstat(self._file).st_size
        try:
            self._write_all(text.encode())
            os.fdatasync(self._file)
        except OSError:
            os.ftruncate(self._file, size)  # half a line would spoil the next one
            raise

    def _begin(self, day: str) -> None:
        """Opens the file of the day, behind the cut line that a crash may have left."""
        self._close()
        path = self._folder / f"{day}.log"
        self._file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND, mode=0o600)
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            self._write_all(b"\n")
        self._sync_folder()
        self._day = day
        for old in self._days()[KEPT_DAYS:]:
            old.unlink(missing_ok=True)

    def _write_all(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._file, data) :]

    def _sync_folder(self) -> None:
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _days(self) -> list[Path]:
        """Returns the files, the last one first."""
        return sorted(self._folder.glob("[0-9]*-[0-9]*-[0-9]*.log"), reverse=True)

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file, self._day = -1, ""

    def _lines(self) -> Iterator[str]:
        """Yields every line, the last one first."""
        for path in self._days():
            yield from _backwards(path)


def _backwards(path: Path) -> Iterator[str]:
    with path.open("rb") as file:
        end, rest = file.seek(0, os.SEEK_END), b""
        while end:
            start = max(0, end - BLOCK_BYTES)
            file.seek(start)
            first, *lines = (file.read(end - start) + rest).split(b"\n")
            yield from (line.decode("utf-8", "replace") for line in reversed(lines))
            end, rest = start, first
        yield rest.decode("utf-8", "replace")


def _next_notes(lines: Iterator[str], gone: set[str]) -> list[Note]:
    """Returns the next notes, and adds calls that the lines between them call gone to `gone`: such a line
    comes before the call's own notes."""
    notes: list[Note] = []
    for line in lines:
        words = line.split(" ")
        if words[0] == GONE:
            gone.update(words[1:])
        elif (note := _note(words)) is not None:
            notes.append(note)
        if len(notes) == CHUNK:
            break
    return notes


def _note(words: Sequence[str]) -> Note | None:
    """Parses a line; None for one that a crash has cut, whose INVITE never left."""
    if len(words) != 4 or not (words[1].isdecimal() and words[3].isdecimal()):
        return None
    return Note(words[0], int(words[1]), words[2], int(words[3]))
