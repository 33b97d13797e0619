"""Decodes strangers' audio files in a process of its own: one fork for each file, with limits that hold for C
code too.

A file can be made to be 10 KB and decode to a day, to ask for more memory than there is, to keep a parser
busy for ever, to name other files or addresses to read, or to break a codec. None of that may reach the
server. The server sends the limits, and descriptors of the file and of two sockets. On the first socket the
fork answers with a line of JSON and 16-bit samples at 16 kHz, or dies without an answer. On the second socket
this process reports how the fork ended: one octet, the signal's number, 0 for none.

The process forks for each file instead of being started for it: starting Python with PyAV takes 0.3 s of CPU,
a fork 5 ms. It has no threads, and ends with the server. It is confined as every process beside the server
(`pipeline.confinement.confinement`), and a fork may do no more than compute."""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import select
import signal
import socket
import wave
from collections import Counter
from collections.abc import Iterator
from typing import Any

import av
import av.error
import av.subtitles.stream  # PyAV imports it when it first opens a file, which is too late in a fork

from pipeline.confinement.confinement import DESCRIPTORS, Confinement, compute_only

RATE_HZ = 16_000

SLICE_CPU_S = 0.6
SLICE_S = 20.0
"""CPU seconds until the first sound, and for each such piece of it. Files need some milliseconds (Opus is
decoded 300 times faster than it sounds); bombs for parsers never get there, and 255 channels of silence do
not keep up."""

WALL_S = 20
"""The longest life of a fork, in seconds."""

BACKGROUND = 10
"""The niceness of work on files: calls come first."""

PLAYLISTS = frozenset({"hls", "applehttp", "dash", "concat", "concatf", "sdp", "rtsp", "rtp", "lavfi", "imf"})
"""Formats that are not audio but name other files or addresses."""


class Refusal(Exception):
    """The file is not decoded. `too_long`: because of its length."""

    def __init__(self, message: str, *, too_long: bool = False) -> None:
        super().__init__(message)
        self.too_long = too_long


def main() -> None:
    """Forks for each file until the server closes the socket on standard input."""
    control = socket.socket(fileno=0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for the server
    os.nice(BACKGROUND)
    ended, end = os.pipe()  # the end of a fork is read in turn with the server's messages
    os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(end, warn_on_full_buffer=False)
    statm = os.open("/proc/self/statm", os.O_RDONLY)
    Confinement(forks=True, descriptors=(ended, end, statm)).apply()
    _rehearse()
    control.send(b"ready")
    forks: dict[int, int] = {}
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(ended, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in poll.poll()}
        if ended in ready:
            os.read(ended, 4096)
            _bury(forks)
        if control.fileno() not in ready:
            continue
        message, descriptors, _, _ = socket.recv_fds(control, 4096, 3)
        if not message:
            return
        file, answer, told = descriptors
        in_use = int(os.pread(statm, 64, 0).split()[0]) * resource.getpagesize()
        pid = os.fork()
        if pid == 0:
            _be_alone((file, answer))
            _answer({**json.loads(message), "in_use": in_use}, file, answer)
            os._exit(0)
        forks[pid] = told
        os.close(file)
        os.close(answer)


def _be_alone(kept: tuple[int, int]) -> None:
    """Closes every descriptor of the fork except its two."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    begins = 3
    for descriptor in sorted(kept):
        os.closerange(begins, descriptor)
        begins = descriptor + 1
    os.closerange(begins, DESCRIPTORS)
    os.dup2(1, 0)  # in place of the socket of the server's messages


def _bury(forks: dict[int, int]) -> None:
    """Reports, for each fork that has ended, the signal that ended it, 0 for none. `forks`: sockets by
    process id."""
    while forks:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        told = forks.pop(pid)
        with contextlib.suppress(OSError):  # the server no longer waits for it
            os.write(told, bytes([os.WTERMSIG(status)]))
        os.close(told)


def _rehearse() -> None:
    """Decodes a file once, so that everything loaded on first use is loaded before the first fork."""
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(8000)
        written.writeframes(bytes(1600))
    file.seek(0)
    decode(file, {"audio_s": 1.0})
    signal.setitimer(signal.ITIMER_PROF, 0)


def _answer(limits: dict[str, Any], file: int, answer: int) -> None:
    """Answers with the file's samples, or the reason why there are none; in the fork."""
    opened = os.fdopen(file, "rb")
    confine(limits)
    try:
        with opened:
            samples, duration_ms = decode(opened, limits)
        head: dict[str, Any] = {"octets": len(samples), "duration_ms": duration_ms}
    except Refusal as refusal:
        samples, head = b"", {"error": str(refusal), "too_long": refusal.too_long}
    except MemoryError:
        samples, head = b"", {"error": "The audio file needs too much memory", "too_long": False}
    except (av.error.FFmpegError, ValueError, OSError, IndexError, OverflowError):
        samples, head = b"", {"error": "Invalid audio file", "too_long": False}
    rest = memoryview(json.dumps(head).encode() + b"\n" + samples)
    with contextlib.suppress(OSError):  # the server has gone, or no longer waits for it
        while rest:
            rest = rest[os.write(answer, rest) :]


def confine(limits: dict[str, Any]) -> None:
    """Limits the fork: at most `memory_mb` above the `in_use` memory, no new descriptor (so no file and no
    connection), no new process, nothing written to disk, and an end by CPU time and by the clock."""
    memory = limits["in_use"] + limits["memory_mb"] * 1024 * 1024
    for name, most in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 0),
    ):
        resource.setrlimit(name, (most, most))
    # SIGXCPU: at the hard limit it would be SIGKILL, which others send.
    resource.setrlimit(resource.RLIMIT_CPU, (limits["cpu_s"], limits["cpu_s"] + 1))
    # Their default action ends the process inside whatever C function it is in.
    signal.setitimer(signal.ITIMER_PROF, SLICE_CPU_S)
    signal.alarm(WALL_S)
    compute_only()


def decode(file: Any, limits: dict[str, Any]) -> tuple[bytes, float]:
    """Decodes the file's first audio stream; returns mono samples at 16 kHz, and the length in milliseconds
    before resampling.

    Raises `Refusal`, and whatever PyAV raises for a broken file."""
    with av.open(file, options={"protocol_whitelist": "none", "probesize": "1000000"}) as container:
        if not PLAYLISTS.isdisjoint(container.format.name.split(",")):
            raise Refusal("Invalid audio file: a playlist")
        if not container.streams.audio:
            raise Refusal("Invalid audio file: no audio in it")
        most_s: float = limits["audio_s"]
        if container.duration is not None and container.duration / av.time_base > most_s + 1:
            raise _too_long(most_s)
        octets, resampler = bytearray(), Resampler()
        heard: Counter[int] = Counter()  # samples by rate: whole numbers, so that 10 ms are 10 ms
        seconds, paid_s = 0.0, 0.0
        for frame in _frames(container):
            heard[frame.sample_rate] += frame.samples
            seconds = sum(count / rate_hz for rate_hz, count in heard.items())
            if seconds > most_s:
                raise _too_long(most_s)
            if seconds >= paid_s:
                signal.setitimer(signal.ITIMER_PROF, SLICE_CPU_S)
                paid_s = seconds + SLICE_S
            octets += resampler(frame)
        octets += resampler(None)
    if not seconds:
        raise Refusal("Invalid audio file: no audio in it")
    return bytes(octets), seconds * 1000


def _too_long(most_s: float) -> Refusal:
    return Refusal(f"Audio is longer than {most_s:g} seconds", too_long=True)


def _frames(container: Any) -> Iterator[Any]:
    """Yields decoded frames; a packet that cannot be decoded is skipped, as players do (a cut MP3 begins
    so)."""
    stream = container.streams.audio[0]
    stream.codec_context.thread_count = 1
    for packet in container.demux(stream):
        try:
            frames = packet.decode()
        except av.error.InvalidDataError:
            continue
        yield from (frame for frame in frames if frame.samples and frame.sample_rate > 0)


class Resampler:
    """Converts frames of any kind to mono at 16 kHz; a stream that changes its kind midway gets a new
    resampler."""

    def __init__(self) -> None:
        self._kind: tuple[Any, ...] = ()
        self._resampler: Any = None

    def __call__(self, frame: Any) -> bytes:
        """Returns the samples that `frame` completes; with None the remaining ones."""
        kind = () if frame is None else (frame.format.name, frame.layout.name, frame.sample_rate)
        done = b""
        if kind != self._kind:
            done = self._flushed()
            self._kind = kind
            self._resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE_HZ) if kind else None
        if frame is None:
            return done
        frame.pts = None  # a damaged file's times are wrong: samples follow each other
        return done + _octets(self._resampler.resample(frame))

    def _flushed(self) -> bytes:
        return b"" if self._resampler is None else _octets(self._resampler.resample(None))


def _octets(frames: Any) -> bytes:
    return b"".join(bytes(frame.planes[0])[: frame.samples * 2] for frame in frames)


if __name__ == "__main__":
    main()
