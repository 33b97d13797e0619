"""The playout buffer: takes the agent's audio in pieces of any length and gives the leg frames of 20 ms.

The leg pulls a frame (`read`) and reports when the frame was sent (`sent`), so the audio heard is known to
the sample, and stopping is one synchronous step (`clear`). A task that pushes frames and sleeps offers
neither. Most frames have no event, so `sent` only compares a counter with the next frame number that has one:
an utterance's first frame, its end, or room for a waiting writer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from pipeline.audio import Pcm, frame_samples
from pipeline.audio.gain import LineVolume, Volume
from pipeline.errors import LocalError
from pipeline.media.line_feed import LineFeed, NoFeed
from pipeline.media.room import NEVER, Room
from pipeline.media.spool import Spool
from pipeline.media.utterance import Utterance
from pipeline.plane.incoming import Frames
from pipeline.plane.outgoing import Left, Outgoing
from pipeline.plane.rows import SAID
from pipeline.speech import SpokenWord

MAX_QUEUED_S: Final = 60.0
"""Most audio queued by a writer that waits for `room()`, in seconds: at 16 kHz 2 MB a call."""

REMEMBERED_S: Final = 2.0
"""Seconds of played audio that are kept, since `release` plays a word that was cut again: no word is
longer."""

_NS: Final = 1e9


@dataclass(frozen=True, slots=True)
class Heard:
    """The part of an utterance that the caller heard: its first `samples`, at the utterance's rate."""

    utterance: Utterance
    samples: int

    @property
    def text(self) -> str:
        """The words heard, separated by spaces."""
        return " ".join(word.text for word in self.utterance.heard(self.samples))


class PlayoutListener(Protocol):
    """The receiver of a playout's events, called on the event loop from within `sent`, `write` or `end`:
    every method returns at once and never raises."""

    def playout_filled(self) -> None:
        """Notes that the playout was empty and has audio; the leg is woken next."""

    def utterance_started(self, utterance: Utterance, now: float) -> None:
        """Notes that the utterance's first frame was handed to the wire at `now`."""

    def utterance_finished(self, utterance: Utterance, now: float) -> None:
        """Notes that the utterance's last frame was handed to the wire at `now`."""

    def playout_ran_out(self, now: float) -> None:
        """Notes that the playout is empty, whether or not an utterance is still being written."""


class Playout:
    """The `AudioSource` of a session: one writer, one reader, both on the event loop.

    `tap`: called, where set, with every sent frame and its loop time; `line_tap`: with those that left from a
    line. `volume`: the gain of the frames, for ducking. `frames`: those that are not known to have left."""

    __slots__ = (
        "_current", "_dry", "_feed", "_frame", "_held", "_last", "_listener", "_mark", "_open",
        "_room", "_sent", "_tail", "_waiting", "_wake", "_written",
        "frames", "line_tap", "rate_hz", "tap", "volume",
    )  # fmt: skip

    def __init__(self, rate_hz: int, listener: PlayoutListener | None = None) -> None:
        self.rate_hz = rate_hz
        self.tap: Callable[[Pcm, float], None] | None = None
        self.line_tap: Callable[[Frames, Sequence[Left]], None] | None = None
        self._frame = frame_samples(rate_hz)
        self._listener = listener
        self.frames = Spool(round(REMEMBERED_S * rate_hz) // self._frame)
        self._held, self._dry = False, True
        self.volume: Volume | LineVolume = Volume(rate_hz)
        self._feed: LineFeed | NoFeed = NoFeed()
        self._tail: Pcm = np.empty(0, np.int16)
        self._last: Pcm = self._tail
        self._wake: Callable[[], None] | None = None
        self._written, self._sent, self._mark = 0, 0, NEVER  # frames, of all utterances
        self._current: Utterance | None = None
        self._open: Utterance | None = None
        self._waiting: list[Utterance] = []
        self._room = Room()

    # Called by the leg (`AudioSource`) ----------------------------------------------------------------------

    def connect(self, line: Outgoing | None) -> None:
        """Frames leave by themselves from `line`, and `left` is called after some have; None: by `read` and
        `sent`. What waits is taken along."""
        self._withdraw()
        self._feed.close()
        self._feed = NoFeed() if line is None else LineFeed(line, self.frames)
        self.volume = Volume(self.rate_hz) if line is None else LineVolume(line)
        self._supply()

    def left(self) -> None:
        """Frames of the line have left."""
        self.catch_up()
        self._supply()

    def catch_up(self) -> None:
        """Counts the frames of the line that have left. The line tells of those that are marked."""
        while self.frames.waiting:
            frames, told = self._feed.departed(max(1, min(self._mark - self._sent, SAID)))
            if not told:
                return
            self._sent += len(told)
            if self.line_tap is not None:
                self.line_tap(frames, told)
            if self._sent >= self._mark:
                self._passed(told[-1][0] / _NS)

    def _supply(self) -> None:
        if not self._held:
            self._feed.feed()
            self._feed.tell_after(self._mark - self._sent)

    def _withdraw(self) -> None:  # what has left is counted
        self._feed.withdraw()
        self.catch_up()

    def read(self) -> Pcm | None:
        """Gives the next frame, or None for nothing to send."""
        if self.frames.waiting and not self._held:
            [frame] = self.frames.following(0, 1)
            self.frames.take(1)
            self._last = frame = frame if self.volume.full else self.volume.applied(frame)
            return frame
        self._dry = True
        return None

    def sent(self, now: float) -> None:
        """Notes that the leg sent the frame last read at loop time `now`."""
        self._sent = sent = self._sent + 1
        if self.tap is not None:
            self.tap(self._last, now)
        if sent >= self._mark:
            self._passed(now)

    def close(self) -> None:
        """Removes listener, tap and wake: no event follows."""
        self.connect(None)
        self._listener = self.tap = self.line_tap = self._wake = None

    def on_ready(self, wake: Callable[[], None] | None) -> None:
        """Sets `wake`, called when audio arrives after a `read` that gave None."""
        self._wake = wake

    # Called by the conversation -----------------------------------------------------------------------------

    def begin(self, *, interruptible: bool = True) -> Utterance:
        """Begins an utterance, heard after those before it. Raises `LocalError` while another is being
        written."""
        if self._open is not None:
            raise LocalError("an utterance is still being written")
        utterance = Utterance(rate_hz=self.rate_hz, interruptible=interruptible, first_frame=self._written)
        self._open = utterance
        if self._current is not None:
            self._waiting.append(utterance)
        self._current = self._current or utterance
        self._set_mark()
        return utterance

    def write(self, samples: Pcm, words: Sequence[SpokenWord] = ()) -> None:
        """Appends any number of int16 samples at `rate_hz` to the open utterance; they are copied. `words`:
        those that begin in these samples, timed from the start of the utterance's piece. Raises `LocalError`
        without an open utterance."""
        if self._open is None:
            raise LocalError("no utterance is being written")
        self._open.add(samples.shape[0], words)
        self._append(samples)

    def retract(self, samples: int) -> int:
        """Removes up to the last `samples` of the open utterance, as far as the leg has not read them, and
        returns the number removed. One frame stays, whose `sent` reports the end of the audio. Raises
        `LocalError` without an open utterance."""
        if self._open is None:
            raise LocalError("no utterance is being written")
        self.catch_up()
        tail: int = self._tail.shape[0]
        if samples < tail:
            return 0
        frames = max(0, min((samples - tail) // self._frame, self.frames.waiting - 1))
        frames = self._feed.take_back(frames)  # a word before them is not interrupted
        self.frames.drop(frames)
        self._tail, taken = self._tail[:0], tail + frames * self._frame
        self._written -= frames
        self._open.retract(taken)
        self._set_mark()
        return taken

    def interject(self, text: str, samples: Pcm, *, interruptible: bool = False) -> None:
        """Queues `samples` that say `text` after all other audio: inside the open utterance if there is one,
        else as an utterance of its own, `interruptible` or not."""
        if self._open is not None:
            self._open.interject(text, samples.shape[0])
            self._append(samples)
            return
        self.begin(interruptible=interruptible).begin_piece(text)
        self.write(samples)
        self.end()

    def end(self) -> None:
        """Completes the open utterance: its last frame is filled up with silence. Raises `LocalError` without
        one."""
        utterance = self._open
        if utterance is None:
            raise LocalError("no utterance is being written")
        if self._tail.shape[0]:
            self._append(np.zeros(self._frame - self._tail.shape[0], np.int16))
        self.catch_up()
        self._open, utterance.ended = None, True
        self._set_mark()
        if self._current is utterance and self._sent >= self._written:
            self._finish(utterance, utterance.last_sent_at)

    def clear(self) -> Heard | None:
        """Stops at once; what is queued is never heard. Says what was heard of the utterance under way,
        None if none had begun. The frame that the wire has is heard."""
        self._withdraw()
        heard = self.heard()
        self.frames.clear()
        self.volume.reset()
        self._tail, self._written = self._tail[:0], self._sent
        self._waiting.clear()
        self._current = self._open = None
        self._set_mark()
        self._room.give()
        return heard

    def hold(self) -> None:
        """Pauses the playout: queued and later audio waits for `release`."""
        self._held = True
        self._withdraw()

    def release(self, now: float) -> bool:
        """Resumes after `hold`, at the beginning of a word that was cut, with a fade-in; False where the
        playout was not held."""
        if not self._held:
            return False
        self._held = False
        heard = self.heard()
        if heard is not None:
            utterance = heard.utterance
            self._sent -= self.frames.put_back(-(-utterance.into_word(heard.samples) // self._frame))
            self._set_mark()
            utterance.went_on((self._sent - utterance.first_frame) * self._frame, now)
            self.volume.fade_in()
        self._rouse()
        return True

    def heard(self) -> Heard | None:
        """The part of the current utterance that was heard until now; None if no utterance has begun."""
        self.catch_up()
        utterance = self._current
        if utterance is None or utterance.started_at is None:
            return None
        return Heard(utterance, (self._sent - utterance.first_frame) * self._frame)

    @property
    def current(self) -> Utterance | None:
        """The utterance that the caller hears now or next, None where there is none."""
        self.catch_up()
        return self._current

    @property
    def is_filled(self) -> bool:
        """Whether a whole frame waits to be heard."""
        self.catch_up()
        return self.frames.waiting > 0

    @property
    def queued_samples(self) -> int:
        """Number of samples written and not yet read by the leg."""
        self.catch_up()
        return self.frames.waiting * self._frame + len(self._tail)

    async def room(self, max_queued_s: float = MAX_QUEUED_S) -> None:
        """Waits until at most `max_queued_s` seconds of audio are queued."""
        frames = int(max_queued_s * self.rate_hz) // self._frame
        while self.queued_samples >= (frames + 1) * self._frame:
            waiting = self._room.asked(self._written - frames)
            self._set_mark()
            await waiting

    # Events of utterances -----------------------------------------------------------------------------------

    def _append(self, more: Pcm) -> None:
        samples = np.concatenate((self._tail, more))
        cut, was_empty = samples.shape[0] // self._frame * self._frame, not self.frames.waiting
        self._tail = samples[cut:].copy()  # no view of the whole
        if not cut:
            return
        self.frames.extend(samples[:cut].reshape(-1, self._frame))
        self._written += cut // self._frame
        self._set_mark()
        if was_empty and self._listener is not None:
            self._listener.playout_filled()
        self._rouse()

    def _rouse(self) -> None:
        self._supply()
        if self._dry and self.frames.waiting and not self._held:
            self._dry = False
            if self._wake is not None:
                self._wake()

    def _set_mark(self) -> None:
        """Sets the next number of sent frames at which there is an event."""
        current = self._current
        if current is None:
            mark = NEVER
        elif current.started_at is None:
            mark = current.first_frame + 1
        else:
            mark = self._waiting[0].first_frame if self._waiting else self._written
        self._mark = min(mark, self._room.at)
        self._feed.tell_after(self._mark - self._sent)

    def _passed(self, now: float) -> None:
        if self._sent >= self._room.at:
            self._room.give()
        if self._current is not None:
            self._advance(self._current, now)
        self._set_mark()

    def _advance(self, utterance: Utterance, now: float) -> None:
        utterance.last_sent_at = now
        if utterance.started_at is None:
            utterance.started_at = now
            if self._listener is not None:
                self._listener.utterance_started(utterance, now)
        end = self._waiting[0].first_frame if self._waiting else self._written
        if self._sent < end or self._current is not utterance:
            return
        if utterance.ended:
            self._finish(utterance, now)
        elif self._listener is not None:
            self._listener.playout_ran_out(now)

    def _finish(self, utterance: Utterance, now: float | None) -> None:
        """Ends the current utterance; `now` None: the utterance had no frame, and there is no event."""
        self._current = self._waiting.pop(0) if self._waiting else None
        if self._current is None and not self.frames.waiting:
            self.frames.forget()  # no word of it can be cut any more
            self._last = self._tail
        self._set_mark()
        if self._listener is None or now is None:
            return
        self._listener.utterance_finished(utterance, now)
        if not self.frames.waiting and self._current is None:
            self._listener.playout_ran_out(now)
