"""The caller in one call: says the next sentence when the agent is done, now and then talks over it, and
notes the moments of both voices.

Sans-IO: frames in, frames out, moments come with them, in seconds of one clock. A moment is that of a packet:
of ours when it was handed to the wire, of the agent's when it was read. Where there was voice in them the
server's own detector says (`pipeline.audio.vad`), for both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import numpy as np

from mediaserver.benchmark.own_voice import copied_from
from mediaserver.benchmark.sayings import Saying
from pipeline.audio import FRAME_MS, Pcm, frame_samples
from pipeline.audio.vad import EnergyVad

PAUSE_S: Final = 1.0
"""Silence after which the agent is taken to be done: a voice's pauses between sentences are shorter."""

GREETING_S: Final = 3.0
"""Who has not greeted by then waits for the caller."""

PATIENCE_S: Final = 10.0
"""An answer that has not begun by then is missed."""

MISSED_AT_MOST: Final = 3
"""In a row: the caller gives up."""

INTERRUPT_AFTER_S: Final = 0.8
"""How long the caller listens to an answer that it talks over."""

QUIET_S: Final = 0.2
"""How long the agent must have been silent where the caller's sentence ends, to have given way."""

OVERLAP_S: Final = 1.0
"""A voice that was there when the caller ended and is there for so long afterwards is an agent that talks
over the caller; an echo is over by then."""

JUDGED_FRAMES: Final = 15
"""How much of a voice is compared with what the caller has said."""

ECHO_MOST_MS: Final = 3000
"""No line sends a voice back later: what is alike then is like by chance."""

_HANG_FRAMES: Final = 10


class Floor(Enum):
    """What the caller is doing."""

    LISTENING = "listening"
    TALKING = "talking"
    WAITING = "waiting"
    JUDGING = "judging"  # a voice has begun: the agent's, or our own come back?
    HEARING_OUT = "hearing out"  # an answer that it will interrupt


class Fate(Enum):
    """What became of a turn."""

    ANSWERED = "answered"
    MISSED = "missed"  # no voice within `PATIENCE_S`
    TALKED_OVER = "talked over"  # the agent spoke on, or began before the caller had ended
    CUT_SHORT = "cut short"  # the call ended first


@dataclass(slots=True)
class CallerTurn:
    """One sentence of the caller's, and what came back. `begun_s`, `ended_s`: our first and last packet with
    voice; `answered_s`: the agent's first one after that. `interrupts`: said over the agent on purpose; then
    `stopped_s` is the agent's last packet with voice, None where it did not give way. `echo_ms`: after how
    long our own voice came back, None where it did not."""

    said: str
    interrupts: bool
    begun_s: float = 0.0
    ended_s: float = 0.0
    answered_s: float | None = None
    stopped_s: float | None = None
    fate: Fate = Fate.CUT_SHORT
    echo_ms: float | None = None

    @property
    def voice_to_voice_ms(self) -> float | None:
        """What the caller waits for an answer."""
        return None if self.answered_s is None else (self.answered_s - self.ended_s) * 1000

    @property
    def barge_in_ms(self) -> float | None:
        """From our first voice to the agent's last."""
        return None if self.stopped_s is None else (self.stopped_s - self.begun_s) * 1000


@dataclass(slots=True)
class ReceivedAudio:
    """What came, packet by packet: `gaps_s` between two that follow each other without a loss or a pause of
    the sender's. `first_voice_s`: the agent's first packet with voice, None before it."""

    gaps_s: list[float] = field(default_factory=list)
    frames: int = 0
    concealed: int = 0
    first_voice_s: float | None = None


class CallingParty:
    """One party of a call (a `pipeline.leg.LegListener` and `AudioSource`). `done` is called once, when
    `turns` turns are over or the caller gives up; every `barge_every`th turn interrupts, 0: none."""

    def __init__(
        self,
        sayings: Sequence[Saying],
        rate_hz: int,
        *,
        turns: int,
        barge_every: int = 0,
        done: Callable[[], None] = lambda: None,
    ) -> None:
        self.turns: list[CallerTurn] = []
        self.heard = ReceivedAudio()
        self._sayings = sayings
        self._rate_hz = rate_hz
        self._wanted = turns
        self._barge_every = barge_every
        self._done: Callable[[], None] | None = done
        self._owes_interruption = False
        self._silence: Pcm = np.zeros(frame_samples(rate_hz), np.int16)
        self._floor = Floor.LISTENING
        self._since_s = -1.0  # when the call began
        self._saying: Saying | None = None
        self._frame = 0
        self._clip_s = 0.0  # when the first frame of what is said left
        self._vad = EnergyVad(rate_hz)
        self._recent: deque[Pcm] = deque(maxlen=JUDGED_FRAMES)
        self._judged: list[Pcm] = []  # of the voice that began at `_began_s`
        self._began_s = 0.0
        self._position = -1
        self._arrived_s = 0.0
        self._follows = False  # whether the last frame was one that came
        self._onset_s: float | None = None  # of the run of voiced frames that goes on
        self._run = 0  # frames since then
        self._voice_s = 0.0  # the agent's last packet with voice
        self._overlaps = False
        self._missed = 0

    # What is said (`AudioSource`) ---------------------------------------------------------------------------

    def read(self) -> Pcm | None:
        """The next frame: silence is sent too, as a telephone does."""
        if self._saying is None:
            return self._silence
        frame: Pcm = self._saying.frames[self._frame]
        return frame

    def sent(self, now: float) -> None:
        """The frame last read has left at `now`; what the caller does next is decided here, every 20 ms."""
        if self._since_s < 0:
            self._since_s = now
        if self._saying is not None:
            self._said(self._saying, now)
        _STEPS[self._floor](self, now)

    def on_ready(self, wake: Callable[[], None] | None) -> None:
        """There is always a frame: nobody need be woken."""

    # What is heard (`LegListener`) --------------------------------------------------------------------------

    def audio_received(self, frame: Pcm, position: int, now: float, *, concealed: bool) -> None:
        """One frame of the far end's."""
        self._count(frame, position, now, concealed=concealed)
        was_active = self._vad.active
        verdict = self._vad.push(frame)
        self._recent.append(frame.copy())
        if verdict.voiced:
            self._onset_s = now if self._onset_s is None else self._onset_s
            self._voice_s = now
        self._run += 1
        if self._floor is Floor.JUDGING:
            self._judge(frame)
        elif self._floor is Floor.WAITING:
            self._await(now, rises=verdict.active and not was_active)
        if verdict.active and self.heard.first_voice_s is None:
            self.heard.first_voice_s = self._onset_s
        if not verdict.voiced and not verdict.active:
            self._onset_s, self._run = None, 0

    def digit_received(self, digit: str, now: float) -> None:
        """Keys are not the benchmark's."""

    def leg_ended(self, reason: str, now: float) -> None:
        """No more turns: the one under way was cut short."""
        if self._floor is Floor.JUDGING:
            self._decide()
        self._finish()

    # Within -------------------------------------------------------------------------------------------------

    def _count(self, frame: Pcm, position: int, now: float, *, concealed: bool) -> None:
        heard, skipped = self.heard, position - self._position
        heard.frames += 1
        heard.concealed += int(concealed)
        if self._follows and skipped == 0 and not concealed and now > self._arrived_s:
            heard.gaps_s.append(now - self._arrived_s)
        if self._position >= 0 and skipped > 0:  # a pause of the sender's: nobody spoke
            for _ in range(min(skipped // len(frame), _HANG_FRAMES)):
                self._vad.push(self._silence)
            if not self._vad.active:
                self._onset_s, self._run = None, 0
        self._position = position + len(frame)
        self._arrived_s = now
        self._follows = not concealed

    def _said(self, saying: Saying, now: float) -> None:
        turn = self.turns[-1]
        if self._frame == 0:
            self._clip_s = now
        if self._frame == saying.first:
            turn.begun_s = now
        if self._frame == saying.last:
            self._ended(turn, now)
        self._frame += 1
        if self._frame == len(saying.frames):
            self._saying = None

    def _ended(self, turn: CallerTurn, now: float) -> None:
        """The last voiced frame has left."""
        turn.ended_s = now
        self._floor = Floor.WAITING
        speaks = self._speaks(now)
        self._overlaps = speaks
        if turn.interrupts and not speaks:
            turn.stopped_s = self._voice_s
            if turn.stopped_s < turn.begun_s:  # it was done by itself
                turn.interrupts, turn.stopped_s = False, None
        if speaks:
            turn.echo_ms = self._echo_ms(list(self._recent), now - len(self._recent) * FRAME_MS / 1000)

    def _await(self, now: float, *, rises: bool) -> None:
        """A frame came while an answer is waited for."""
        turn = self.turns[-1]
        if rises:
            self._overlaps = False
            self._floor = Floor.JUDGING
            self._began_s = self._onset_s or now
            self._judged = list(self._recent)[-self._run :]
        elif self._overlaps and not self._vad.active:
            self._overlaps = False
        elif self._overlaps and now - turn.ended_s > OVERLAP_S and turn.echo_ms is None:
            self._over(Fate.TALKED_OVER)

    def _judge(self, frame: Pcm) -> None:
        """The voice that has begun, once there is enough of it or it is over."""
        self._judged.append(frame.copy())
        if len(self._judged) >= JUDGED_FRAMES or not self._vad.active:
            self._decide()

    def _decide(self) -> None:
        turn, onset_s = self.turns[-1], self._began_s
        echo_ms = self._echo_ms(self._judged, onset_s)
        if echo_ms is not None:
            turn.echo_ms, self._floor = echo_ms, Floor.WAITING
            return
        if onset_s <= turn.ended_s:
            self._over(Fate.TALKED_OVER)
            return
        turn.answered_s = onset_s
        self._over(Fate.ANSWERED)

    def _echo_ms(self, frames: Sequence[Pcm], from_s: float) -> float | None:
        """How late our own voice is, if that is what was heard from the moment `from_s` on."""
        said = self._sayings[(len(self.turns) - 1) % len(self._sayings)].samples
        at = copied_from(said, np.concatenate(frames))
        if at is None:
            return None
        late_ms = (from_s - self._clip_s - at / self._rate_hz) * 1000
        return late_ms if late_ms < ECHO_MOST_MS else None

    def _speaks(self, now: float) -> bool:
        return self._vad.active and now - self._voice_s <= QUIET_S

    def _over(self, fate: Fate) -> None:
        """The turn is."""
        self.turns[-1].fate = fate
        self._missed = self._missed + 1 if fate is Fate.MISSED else 0
        if len(self.turns) >= self._wanted or self._missed >= MISSED_AT_MOST:
            self._finish()
        due = self._barge_every and (len(self.turns) + 1) % self._barge_every == 0
        self._owes_interruption = self._owes_interruption or bool(due)
        wants = self._owes_interruption and fate is not Fate.MISSED
        self._floor = Floor.HEARING_OUT if wants else Floor.LISTENING

    def _finish(self) -> None:
        done, self._done = self._done, None
        if done is not None:
            done()

    # What each frame sent may change ------------------------------------------------------------------------

    def _listen(self, now: float) -> None:
        """The caller's turn, a moment after the agent is done, or where it says nothing at all."""
        silent_s = now - max(self._voice_s, self._since_s)
        if self._saying is None and silent_s > (PAUSE_S if self._voice_s else GREETING_S):
            self._take_floor(interrupts=False)

    def _hear_out(self, now: float) -> None:
        turn = self.turns[-1]
        heard_s = now - (turn.answered_s or turn.ended_s)
        if self._speaks(now) and heard_s > INTERRUPT_AFTER_S and self._saying is None:
            self._owes_interruption = False
            self._take_floor(interrupts=True)
        else:
            self._listen(now)

    def _wait(self, now: float) -> None:
        if now - self.turns[-1].ended_s > PATIENCE_S:
            self._over(Fate.MISSED)

    def _talk(self, now: float) -> None:
        """The last voiced frame decides."""

    def _settle(self, now: float) -> None:
        """Packets decide; those of a sender that suppresses silence do not come."""
        if now - self._arrived_s > QUIET_S:
            self._decide()

    def _take_floor(self, *, interrupts: bool) -> None:
        if self._done is None:
            return
        self._saying = self._sayings[len(self.turns) % len(self._sayings)]
        self._frame = 0
        self._floor = Floor.TALKING
        self.turns.append(CallerTurn(self._saying.name, interrupts))


_STEPS: Final[Mapping[Floor, Callable[[CallingParty, float], None]]] = {
    Floor.LISTENING: CallingParty._listen,
    Floor.TALKING: CallingParty._talk,
    Floor.WAITING: CallingParty._wait,
    Floor.JUDGING: CallingParty._settle,
    Floor.HEARING_OUT: CallingParty._hear_out,
}
