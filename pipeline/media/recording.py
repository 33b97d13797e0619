"""Records calls in stereo, caller left and agent right, with one writing thread for all calls.

Both channels share the call's clock: sample 0 is the moment at which the recording was opened. The agent's
frames are placed at the time at which they were sent, without gaps unless more than `_SLACK_MS` apart. The
caller's frames are placed by their position on the far end's media clock, which the first packet maps to the
call's clock: packets that arrive 5 and 35 ms apart are still 20 ms apart in the file. The mapping is made
anew when a packet is too early for it (the first packet was late) or a second late (the far end restarted its
clock).

A frame costs an array assignment on the loop. Blocks go to the writing thread once the caller was heard
beyond them, or when one channel is more than a second ahead of the other. The thread also opens and closes
the files. A call never waits for the disk: when the disk is too slow, blocks are dropped, counted and
replaced by silence. The header is updated every few seconds, so that a crash leaves a valid file.
Audio that the disk refuses is lost, while the file stays valid, and the recording goes on at the right time
once the disk has room."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import struct
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO, Final, Literal

import numpy as np
import numpy.typing as npt

from pipeline.audio import Pcm, frame_samples
from pipeline.errors import LocalError, RecordingError
from pipeline.plane.incoming import Frames, Told
from pipeline.plane.outgoing import Left

log = logging.getLogger(__name__)

Block = npt.NDArray[np.int16]
"""Stereo PCM, shape (samples, 2): left the caller, right the agent."""

BLOCK_S: Final = 0.2
"""Length of a block, in seconds."""

MAX_WAITING: Final = 3000
"""Most blocks of all calls together that wait for the disk: 6 s of 100 calls, 20 MB at 8 kHz."""

CLOSE_S: Final = 15.0
"""Longest wait for the disk at the end of a call or of the server, in seconds."""

GATHER_S: Final = 0.1
"""Time for which the thread lets blocks gather: to wake it for each takes longer than to write it."""

RESUME_S: Final = 2.0
"""Longest wait of `RecordingWriter.resume` for the existing file, in seconds."""

_HELD: Final = 7
"""Blocks in memory at the most: one channel may be six of them ahead of the other before audio is lost."""

_BEHIND_MS: Final = 200
"""How far the agent's frames may be told behind the caller's: what was said is told before what was heard
later."""

_SLACK_MS: Final = 60
_HEADER_EVERY: Final = 24  # blocks
_HEADER_BYTES: Final = 44
_NS: Final = 1e9
_CALLER: Final = 0
_AGENT: Final = 1


class Recording:
    """One call's recording. Made by `RecordingWriter.open`; all methods run on the event loop."""

    __slots__ = (
        "_behind",
        "_blocks",
        "_caller_base",
        "_closed",
        "_due",
        "_loop",
        "_lost",
        "_n",
        "_next",
        "_next_at",
        "_samples",
        "_slack",
        "_start",
        "_started_at",
        "_writer",
        "done",
        "muted",
        "path",
        "rate_hz",
    )  # fmt: skip

    def __init__(self, writer: RecordingWriter, path: Path, *, rate_hz: int, now: float) -> None:
        self.path = path
        self.rate_hz = rate_hz
        self.muted = False
        """Whether frames are dropped: the file has silence in their place."""
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[Path] = self._loop.create_future()
        self._writer = writer
        self._started_at = now
        self._n = frame_samples(rate_hz)
        self._slack = rate_hz * _SLACK_MS // 1000
        self._behind = rate_hz * _BEHIND_MS // 1000
        self._samples = int(rate_hz * BLOCK_S)
        self._start = 0  # position of the first block on the call's clock
        self._blocks: deque[Block] = deque()
        self._caller_base: int | None = None
        self._next_at = [0, 0]  # each channel's next position on the call's clock
        self._lost = 0
        self._due = self._closed = False

    @property
    def lost_blocks(self) -> int:
        """The number of blocks dropped because the disk was too slow; they are silence in the file."""
        return self._lost

    def caller(self, frame: Pcm, position: int, now: float) -> None:
        """Records a frame of the far end at `position` of its media clock, which arrived at loop time
        `now`."""
        if self.muted:
            return
        base = self._caller_base
        arrived = round((now - self._started_at) * self.rate_hz) - self._n
        if base is None or not -self._slack <= arrived - base - position <= self.rate_hz:
            base = self._caller_base = arrived - position
        self._put(frame[np.newaxis], base + position, _CALLER)

    def caller_frames(self, frames: Frames, told: Sequence[Told]) -> None:
        """Records frames of the far end, as `caller` does each."""
        if self.muted:
            return
        slack, rate_hz, n = self._slack, self.rate_hz, self._n
        first, at = 0, 0  # the run of frames that are put down in one piece, and where
        for index, (position, arrived_ns, _, _, _) in enumerate(told):
            base = self._caller_base
            arrived = round((arrived_ns / _NS - self._started_at) * rate_hz) - n
            if base is None or not -slack <= arrived - base - position <= rate_hz:
                base = self._caller_base = arrived - position
            if index > first and base + position != at + (index - first) * n:
                self._put(frames[first:index], at, _CALLER)
                first = index
            if index == first:
                at = base + position
        self._put(frames[first:], at, _CALLER)

    def agent_frames(self, frames: Frames, told: Sequence[Left]) -> None:
        """Records frames of the agent, as `agent` does each."""
        if self.muted:
            return
        first, at = 0, 0
        following = self._next_at[_AGENT]
        for index, (sent_ns, _) in enumerate(told):
            due = round((sent_ns / _NS - self._started_at) * self.rate_hz)
            begins = due if due - following > self._slack else following
            if index > first and begins != following:
                self._put(frames[first:index], at, _AGENT)
                first = index
            if index == first:
                begins = at = max(begins, self._start)
            following = begins + self._n
        self._put(frames[first:], at, _AGENT)

    def agent(self, frame: Pcm, now: float) -> None:
        """Records a frame of the agent, which was sent at loop time `now`."""
        if self.muted:
            return
        at = round((now - self._started_at) * self.rate_hz)
        following = self._next_at[_AGENT]
        self._put(frame[np.newaxis], at if at - following > self._slack else following, _AGENT)

    def _put(self, frames: Frames, at: int, channel: int) -> None:
        """Puts frames that follow each other to `at`; of those before the block, each to its beginning."""
        while len(frames) > 1 and at < self._start:
            self._put(frames[:1], at, channel)
            frames, at = frames[1:], at + self._n
        at, size = max(at, self._start), frames.size
        self._next_at[channel] = max(self._next_at[channel], at + size)
        while at + size - self._start > _HELD * self._samples:
            self._flush()
        self._lay(frames.reshape(-1), at - self._start, channel)
        if not self._due and self._is_due():
            self._due = True
            self._loop.call_soon(
                self._flush_due
            )  # what the agent said meanwhile may be told in this turn of the loop

    def _is_due(self) -> bool:
        heard_to = self._next_at[_CALLER] - self._behind
        return bool(self._blocks) and self._start + self._samples <= heard_to and not self._closed

    def _flush_due(self) -> None:
        self._due = False
        while self._is_due():
            self._flush()

    def _lay(self, samples: Pcm, offset: int, channel: int) -> None:
        """Writes samples into the blocks from `offset` on."""
        number, offset = divmod(offset, self._samples)
        while samples.size:
            while number >= len(self._blocks):
                self._blocks.append(np.zeros((self._samples, 2), np.int16))
            part = samples[: self._samples - offset]
            self._blocks[number][offset : offset + part.size, channel] = part
            samples, number, offset = samples[part.size :], number + 1, 0

    def _flush(self) -> None:
        """Hands the first block to the writer."""
        block = self._blocks.popleft() if self._blocks else np.zeros((self._samples, 2), np.int16)
        if not self._writer.take(self, block):
            self._lost += 1
        self._start += self._samples

    def end(self, now: float | None = None) -> None:
        """Hands the rest of the audio to the writer; later calls have no effect. `now`: loop time of the
        call's end, up to which the file is filled with silence."""
        if self._closed:
            return
        self._closed = True
        end = max(self._next_at)
        if now is not None:
            end = max(end, round((now - self._started_at) * self.rate_hz))
        while end - self._start > _HELD * self._samples:
            self._flush()
        self._writer.finish(self, self._rest(max(0, end - self._start)))

    def _rest(self, samples: int) -> Sequence[Block]:
        """All that is in memory, as blocks of so many samples together."""
        size = self._samples
        while len(self._blocks) * size < samples:
            self._blocks.append(np.zeros((size, 2), np.int16))
        blocks, self._blocks = self._blocks, deque()
        return [block[: samples - at * size] for at, block in enumerate(blocks) if at * size < samples]

    async def close(self, now: float | None = None) -> Path:
        """Calls `end`, waits until the file is complete and returns its path; later calls return the same
        path. Raises `RecordingError` if the disk refused a part, or takes longer than `CLOSE_S`: its `path`
        holds the rest, None where there is none."""
        self.end(now)
        try:
            async with asyncio.timeout(CLOSE_S):
                return await asyncio.shield(self.done)
        except TimeoutError:
            raise RecordingError(self.path.name, "the disk does not answer", self.path) from None


class RecordingWriter:
    """The thread that writes all recordings of the process. `start` before the first `open`; `close` at the
    end, when every recording is closed."""

    def __init__(self, *, max_waiting: int = MAX_WAITING) -> None:
        self._queue: SimpleQueue[tuple[Recording, Block | int | _WavFile, bool] | None] = SimpleQueue()
        self._max_waiting = max_waiting
        self._put = 0  # written by the loop only
        self._taken = 0  # written by the thread only
        self._skipped: dict[Recording, int] = {}
        self._under_way: dict[Path, asyncio.Future[Path]] = {}
        self._files: dict[Recording, _WavFile] = {}  # the thread's
        self._awaited = threading.Event()  # a file is to be opened or closed
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts the thread; call it on the event loop. A second call does nothing."""
        if self._thread is None:
            self._loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._run, name="recordings", daemon=True)
            self._thread.start()

    def open(self, path: Path, *, rate_hz: int, now: float) -> Recording:
        """Begins a new recording in `path` (16-bit WAV; an existing file is replaced), whose clock begins at
        loop time `now`. `Recording.close` reports a path that cannot be written. Raises `LocalError` before
        `start`."""
        recording = Recording(self, path, rate_hz=rate_hz, now=now)
        self._begin(recording, _WavFile(path, rate_hz))
        return recording

    async def resume(self, path: Path, *, rate_hz: int, now: float) -> Recording:
        """Continues the closed recording in `path`, which must have the same rate. `now`: loop time at which
        the existing audio begins; the time between its end and new audio is silence. Raises OSError
        (TimeoutError after `RESUME_S`), and `LocalError` before `start`."""
        async with asyncio.timeout(RESUME_S):
            if path in self._under_way:  # the thread has not yet written the end of that recording
                await asyncio.wait({self._under_way[path]})
            size = (await asyncio.to_thread(path.stat)).st_size
        file = _WavFile(path, rate_hz, append_at=max(0, size - _HEADER_BYTES) // 4 * 4)
        recording = Recording(self, path, rate_hz=rate_hz, now=now + file.samples / rate_hz)
        self._begin(recording, file)
        return recording

    def _begin(self, recording: Recording, file: _WavFile) -> None:
        if self._thread is None:
            raise LocalError("the recording writer was not started")
        self._under_way[recording.path] = recording.done
        recording.done.add_done_callback(lambda done: self._under_way.pop(recording.path, None))
        self._queue.put((recording, file, False))
        self._awaited.set()

    async def close(self) -> None:
        """Ends the thread once all queued audio is written; waits `CLOSE_S` for the disk at most."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._queue.put(None)
            self._awaited.set()
            await asyncio.to_thread(thread.join, CLOSE_S)
            if thread.is_alive():
                log.error("recordings are not written to their end: the disk does not answer")

    # Called by `Recording`, on the event loop -----------------------------------------------------------

    def take(self, recording: Recording, block: Block) -> bool:
        """Queues a block; False: the disk is too slow, and silence replaces the block."""
        if self._put - self._taken >= self._max_waiting:
            self._skipped[recording] = self._skipped.get(recording, 0) + len(block)
            return False
        self._send_skipped(recording)
        self._send(recording, block, last=False)
        return True

    def finish(self, recording: Recording, blocks: Sequence[Block]) -> None:
        """Queues the last blocks of a recording, which are never dropped, and closes the file after them."""
        self._send_skipped(recording)
        *before, last = blocks or (0,)
        for block in before:
            self._send(recording, block, last=False)
        self._send(recording, last, last=True)
        self._awaited.set()

    def _send_skipped(self, recording: Recording) -> None:
        skipped = self._skipped.pop(recording, 0)
        if skipped:
            self._send(recording, skipped, last=False)

    def _send(self, recording: Recording, block: Block | int, *, last: bool) -> None:
        self._put += 1
        self._queue.put((recording, block, last))

    # On the writing thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            recording, block, last = item
            if isinstance(block, _WavFile):
                self._files[recording] = block
                block.open()
            else:
                self._append(recording, block, last=last)
            if self._queue.empty():
                self._awaited.wait(GATHER_S)
                self._awaited.clear()

    def _append(self, recording: Recording, block: Block | int, *, last: bool) -> None:
        file = self._files[recording]
        file.append(block)
        self._taken += 1
        if last:
            file.close()
            del self._files[recording]
            self._tell(recording, file.failure())

    def _tell(self, recording: Recording, error: RecordingError | None) -> None:
        if self._loop is None or self._loop.is_closed():
            return
        try:
            self._loop.call_soon_threadsafe(_settle, recording, error)
        except RuntimeError:
            log.warning("recording finished after the loop", extra={"path": str(recording.path)})


def _settle(recording: Recording, error: RecordingError | None) -> None:
    if recording.done.done():
        return
    if error is None:
        recording.done.set_result(recording.path)
    else:
        recording.done.set_exception(error)


def _private(path: str, flags: int) -> int:
    """Opens a file with mode 0600, whatever the umask and the mode of an existing file."""
    file = os.open(path, flags, 0o600)
    if os.fstat(file).st_mode & 0o077:
        with suppress(OSError):  # a file system without modes takes recordings too
            os.fchmod(file, 0o600)
    return file


class _WavFile:
    """A growing WAV file. `append_at`: bytes of audio in an existing file after which to go on; -1: a new
    file. Audio that an OSError refuses becomes silence before the next audio; `error`: the first OSError."""

    __slots__ = ("_append", "_blocks", "_bytes", "_file", "_path", "_rate_hz", "_refused", "error")

    def __init__(self, path: Path, rate_hz: int, *, append_at: int = -1) -> None:
        self.error: OSError | None = None
        self._path = path
        self._rate_hz = rate_hz
        self._append = append_at >= 0
        self._bytes = max(append_at, 0)
        self._refused = 0  # bytes that became silence
        self._blocks = 0
        self._file: BinaryIO | None = None

    def open(self) -> None:
        """Creates or opens the file; after a failure `append` tries again and records the error."""
        with suppress(OSError):
            self._patch(self._opened())

    @property
    def samples(self) -> int:
        """Number of samples written for each channel."""
        return self._bytes // 4

    def append(self, block: Block | int) -> None:
        """Appends samples, or a number of silent ones."""
        data = bytes(block * 4) if isinstance(block, int) else block.data.cast("B")
        at, again = self._bytes + self._refused, self._refused > 0
        try:
            file = self._opened()
            file.seek(_HEADER_BYTES + at)  # refused audio becomes a hole, which reads as silence
            _write_all(file, data)
            self._bytes, self._refused = at + len(data), 0
            self._blocks += 1
            if again or self._blocks % _HEADER_EVERY == 0:
                self._patch(file)
        except OSError as error:
            self._refuse(error, at, at + len(data))

    def _refuse(self, error: OSError, start: int, end: int) -> None:
        """Notes that the bytes from `start` to `end` were not, or only in part, written."""
        if not self._refused:
            log.error(
                "recording cannot be written", extra={"recording": self._path.name, "reason": str(error)}
            )
        self.error = self.error or error
        if self._file is not None:
            with suppress(OSError):
                written = (self._file.tell() - _HEADER_BYTES) // 4 * 4
                self._bytes = max(self._bytes, written if start < written <= end else 0)
        self._refused = end - self._bytes
        self._cut()

    def close(self) -> None:
        """Updates the header and closes the file; removes a file to which no audio could be written."""
        self._cut()
        if self._file is None:
            return
        with suppress(OSError):
            if self.error and not self.samples and stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
                self._path.unlink()
        with suppress(OSError):
            self._file.close()

    def failure(self) -> RecordingError | None:
        """The error to be raised by `Recording.close`, None where the disk took all audio."""
        if self.error is None:
            return None
        return RecordingError(self._path.name, str(self.error), self._path if self._bytes else None)

    def _opened(self) -> BinaryIO:
        if self._file is None:
            mode: Literal["r+b", "wb"] = "r+b" if self._append else "wb"
            self._file = open(self._path, mode, buffering=0, opener=_private)  # noqa: SIM115
        return self._file

    def _cut(self) -> None:
        """Updates the header and truncates the file to the audio that was written in full."""
        if self._file is None:
            return
        try:
            self._patch(self._file)
            self._file.truncate(_HEADER_BYTES + self._bytes)
        except OSError as error:
            self.error = self.error or error

    def _patch(self, file: BinaryIO) -> None:
        file.seek(0)
        _write_all(file, self._header())

    def _header(self) -> bytes:
        """The 44-byte header: RIFF/WAVE, PCM, two channels of 16 bits."""
        data = min(self._bytes, 0xFFFFFFFF - _HEADER_BYTES)
        riff = struct.pack("<4sI4s", b"RIFF", data + _HEADER_BYTES - 8, b"WAVE")
        form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 2, self._rate_hz, self._rate_hz * 4, 4, 16)
        return riff + form + struct.pack("<4sI", b"data", data)


def _write_all(file: BinaryIO, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]
