"""Turns the caller's 20 ms frames into voice activity and into an utterance for the recogniser.

`AudioInput.push` runs for every frame of every call, on the event loop: one VAD step, one copy into the
pre-roll, a few integer comparisons. Times are kept as sample positions on the far end's media clock, so that
lost packets and silence suppression do not shorten a pause.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum, auto
from typing import Final

from pipeline.audio import FRAME_MS, Pcm, frame_samples
from pipeline.audio.background_speech import Foreground
from pipeline.audio.dtmf import TONE_MS, DtmfDetector
from pipeline.audio.other_vads import MakeVoiceDetector
from pipeline.audio.vad import VERDICTS, EnergyVad, VadFrame, VadSettings
from pipeline.net.untrusted import clean_text
from pipeline.plane.incoming import ANY, NO_LINE, STIRRING, Attention, Frames, Told
from pipeline.plane.rows import Note
from pipeline.session.kept_audio import KeptAudio
from pipeline.speech import Expected, Hypothesis, SpeechToText

PREROLL_MS: Final = 300
"""Length of the audio before the detected voice that the recogniser gets too: soft beginnings ("f", "h") lie
up to 200 ms before the first voiced frame."""

VAD: Final = VadSettings(hang_ms=100)
"""Voice detection with a shorter hang-over than the default, since turn-taking has end-point times of its
own."""

OWN_FRAMES: Final = 4
"""Most frames of echo that are counted: three voiced frames without echo after that are the caller's voice
again."""

_MURMUR_FRAMES: Final = 12  # background speech is reported every 240 ms

QUIET_LINE_S: Final = 0.2
"""Time without a frame that counts as silence: the sender suppresses silence or is gone. The delay of late
packets and the wait for a lost one stay below this time."""


IDLE_FRAMES: Final = 16
"""Frames of silence after which a line that listens by itself tells of them: 320 ms, a third of what its ring
holds."""

OPEN_FRAMES: Final = 5
"""The same while an utterance is recognised; of a loud voice too, whose end is told at once."""

_NS: Final = 1e9
_JUDGED, _ECHO, _MASKED = int(Note.JUDGED), int(Note.ECHO), int(Note.MASKED)  # `&` of an `IntFlag` is slow
_VOICED: Final = int(Note.VOICED)
_LOOKED_AT: Final = STIRRING | _JUDGED
_SPEECH: Final = int(Note.ACTIVE) | _JUDGED
_BESIDE_SPEECH: Final = _SPEECH | _ECHO | _MASKED


class Sound(Enum):
    """A change in the caller's voice that one frame brought."""

    STARTED = auto()
    STOPPED = auto()
    SUSTAINED = auto()  # the voice has lasted for `sustained_ms`; given for every voiced frame from then on
    MURMURED = auto()  # background speech, or sound as quiet as rejected noise; given every twelfth frame


def _silent_until(told: Sequence[Told], first: int) -> int:
    """Where the silence that begins at frame `first` ends; `first`: there is none."""
    while first < len(told) and told[first][3] & _LOOKED_AT == _JUDGED:
        first += 1
    return first


def _speech_until(told: Sequence[Told], first: int, foreground: Foreground, *, over_agent: bool) -> int:
    """Where the caller's loud voice that goes on at frame `first` ends, told to `foreground`; `first`: there
    is none."""
    while first < len(told):
        _, _, made_up, note, level_dbov = told[first]
        level = level_dbov if note & _VOICED else None
        if made_up or note & _BESIDE_SPEECH != _SPEECH or (level or 0.0) < foreground.loud_dbov:
            break
        foreground.is_behind(level, over_agent=over_agent)
        first += 1
    return first


def _clean(heard: Hypothesis) -> Hypothesis:
    words = tuple(replace(word, text=clean_text(word.text)) for word in heard.words)
    return replace(heard, text=clean_text(heard.text), words=words)


class _Own:
    """The agent's echo lately: `frames` of it, at most `OWN_FRAMES`."""

    __slots__ = ("frames",)

    def __init__(self) -> None:
        self.frames = 0

    def pass_over(self, told: Sequence[Told]) -> None:
        """Takes frames without a voice."""
        for _, _, _, note, _ in told:
            self.frames = min(self.frames + 1, OWN_FRAMES) if note & _ECHO else 0

    def is_callers(self, verdict: VadFrame, *, echo: bool) -> bool:
        """Whether the voice is the caller's: neither during an echo of the agent nor in the three voiced
        frames after an echo, since the echo gate misses single frames."""
        if echo:
            self.frames = min(self.frames + 1, OWN_FRAMES)
        elif not verdict.active:
            self.frames = 0
        elif verdict.voiced:
            self.frames -= 1
        return verdict.active and self.frames < 2


class AudioInput:
    """Detects the voice of one caller and feeds the recogniser. `open` and `close` bound an utterance: its
    audio goes to the recogniser frame by frame, the pre-roll first.

    `rate_hz`: of all frames. `sustained_ms`: length of a voice from which frames give `Sound.SUSTAINED`.
    `kept_ms`: length of the audio that `recent` gives, at least `PREROLL_MS`. `vad`: makes the voice
    detector. `line`: that which detects the voice itself. `active`: the caller speaks. `alert`: each frame of
    a voice is wanted at once; otherwise the ends of a voice and what may be background, the rest later."""

    __slots__ = (
        "_foreground", "_heard_from", "_idle", "_kept", "_masked_until", "_murmurs", "_n", "_own", "_run",
        "_started_at", "_stt", "_sustained", "_tones", "_utterance_voiced", "_vad", "_voiced_end", "_wanted",
        "active", "alert", "language", "line", "over_agent", "rate_hz", "voiced_samples",
    )  # fmt: skip

    def __init__(
        self,
        stt: SpeechToText,
        *,
        rate_hz: int,
        language: str,
        sustained_ms: int,
        kept_ms: int = PREROLL_MS,
        vad: MakeVoiceDetector = EnergyVad,
    ) -> None:
        self.rate_hz, self.language = rate_hz, language
        self.over_agent, self.voiced_samples = False, 0  # the agent speaks; in the whole call
        self._stt, self._n = stt, frame_samples(rate_hz)
        self._vad = vad(rate_hz, VAD)
        self._kept, self._own = KeptAudio(rate_hz, kept_ms // FRAME_MS), _Own()
        self._murmurs = 0  # frames of background since the last `Sound.MURMURED`
        self.line: Attention = NO_LINE
        self._idle = IDLE_FRAMES
        self._wanted: tuple[int, float] | None = None  # of the line
        self.active, self.alert = False, True
        self._voiced_end = 0  # position after the last voiced frame
        self._started_at = 0  # position of the utterance's first voice
        self._heard_from = 0  # position of the first sample the recogniser got
        self._sustained = rate_hz * sustained_ms // 1000
        self._run = self._utterance_voiced = 0  # voiced samples since the voice began, and before
        self._masked_until, self._tones = 0, DtmfDetector(rate_hz)
        self._foreground = Foreground()

    def hear_by(self, line: Attention, *, idle_frames: int = IDLE_FRAMES) -> None:
        """Takes frames by `take` from `line`, which detects voice and tells of silence after `idle_frames`;
        `NO_LINE`: by `push`."""
        self.line, self._idle = line, idle_frames
        line.detect(VAD)
        self._wanted = None
        self.attend()

    # Per frame ------------------------------------------------------------------------------------------

    def push(
        self, frame: Pcm, position: int, now: float, *, concealed: bool = False, echo: bool = False
    ) -> Sound | None:
        """Takes one frame from the far end and returns the change that it brought, None for most frames.
        `concealed`: the frame replaces a lost one. `echo`: the frame is the echo of the agent's voice."""
        self._kept.add(frame, position, now, echo=echo)
        if position < self._masked_until:
            self._skip_tone(frame)
            return None
        verdict = self._vad.push(frame)
        behind = not echo and self._foreground.is_background(
            frame, voiced=verdict.voiced, over_agent=self.over_agent
        )
        return self._judge(verdict, position, concealed=concealed, echo=echo, behind=behind)

    def take(self, frames: Frames, told: Sequence[Told], heard: Callable[[Sound, float], None]) -> None:
        """Takes frames in which the line has looked for voice and echo; `heard` gets each change with the
        time of its frame. Frames before the line began to look are left out."""
        first = 0
        while first < len(told):
            last = self._alike_until(told, first)
            if last > first:
                sound, at_ns = self._take_alike(frames[first:last], told[first:last])
            else:
                last, at_ns = first + 1, told[first][1]
                sound = self._taken(frames[first], told[first])
            if sound is not None:
                heard(sound, at_ns / _NS)
            first = last
        self.attend()

    def attend(self) -> None:
        """Tells the line what is wanted of it, where that has changed; `take` does so after its frames."""
        frames = self._idle if self._kept.listening is None else min(OPEN_FRAMES, self._idle)
        wanted = frames, ANY if self.alert else self._foreground.loud_dbov
        if wanted != self._wanted:
            self._wanted = wanted
            self.line.attend(*wanted)

    def _taken(self, frame: Pcm, told: Told) -> Sound | None:
        position, arrived_ns, made_up, note, level_dbov = told
        if not note & _JUDGED:
            return None
        echo, verdict = bool(note & _ECHO), VERDICTS[note & 3]
        self._kept.add(frame, position, arrived_ns / _NS, echo=echo)
        if note & _MASKED or position < self._masked_until:
            self._skip_tone(frame)
            return None
        level = level_dbov if verdict.voiced else None
        behind = not echo and self._foreground.is_behind(level, over_agent=self.over_agent)
        return self._judge(verdict, position, concealed=bool(made_up), echo=echo, behind=behind)

    def _alike_until(self, told: Sequence[Told], first: int) -> int:
        """Where the silence ends that begins at frame `first`, or the voice of which nobody waits for each
        frame; `first`: neither begins there."""
        if not self.active:
            return _silent_until(told, first)
        if self.alert or self._own.frames or told[first][0] < self._masked_until:
            return first
        return _speech_until(told, first, self._foreground, over_agent=self.over_agent)

    def _take_alike(self, frames: Frames, told: Sequence[Told]) -> tuple[Sound | None, int]:
        """Takes frames that are alike, which change nothing but the clock, the length of the voice and what
        is kept; the change that they brought, and when in nanoseconds."""
        self._kept.add_all(frames, told)
        if not self.active:
            self._own.pass_over(told)
            self._foreground.pass_over(sum(not note & _ECHO for _, _, _, note, _ in told))
            return None, 0
        voiced = [each for each in told if each[3] & _VOICED]
        missing = -(-(self._sustained - self._run - self._utterance_voiced) // self._n)
        self._run += self._n * len(voiced)
        self._voiced_end = voiced[-1][0] + self._n if voiced else self._voiced_end
        lasting = voiced[max(0, missing - 1) :]
        return (Sound.SUSTAINED, lasting[0][1]) if lasting else (None, 0)

    def _judge(
        self, verdict: VadFrame, position: int, *, concealed: bool, echo: bool, behind: bool
    ) -> Sound | None:
        if behind:
            self._kept.set_behind()
            echo = True
        active = self._own.is_callers(verdict, echo=echo) if echo or self._own.frames else verdict.active
        sound = None
        if active is not self.active:
            sound = self._start(position) if active else self._stop()
        if verdict.voiced and not concealed and not echo:
            self._voiced_end = self._kept.end
            if sound is None and self.active:
                self._run += self._n
                if self._run + self._utterance_voiced >= self._sustained:
                    return Sound.SUSTAINED
        return self._murmur() if behind and sound is None else sound

    def _murmur(self) -> Sound | None:
        self._murmurs = (self._murmurs + 1) % _MURMUR_FRAMES
        return Sound.MURMURED if self._murmurs == 0 and not self.active else None

    def _skip_tone(self, frame: Pcm) -> None:
        self._tones.push(frame)
        if self._tones.tone_present:  # a key held down
            self._mask(max(self._masked_until, self._kept.end + 3 * self._n))

    def _mask(self, until: int) -> None:
        self._masked_until = until
        self.line.mask(until)

    def _start(self, position: int) -> Sound:
        self.active = True
        self._run = 3 * self._n  # the frames that the voice detector took to decide
        if self._kept.listening is None:
            self._started_at = max(0, position - 2 * self._n)
        return Sound.STARTED

    def _stop(self) -> Sound:
        self.active = False
        self.voiced_samples += self._run
        if self._kept.listening is not None:
            self._utterance_voiced += self._run
        self._run = 0
        return Sound.STOPPED

    def fall_silent(self) -> Sound | None:
        """Ends the voice under way when frames stop arriving. Returns None if there was no voice."""
        self.line.catch_up()
        return self._stop() if self.active else None

    def reject_as_noise(self, seconds: float) -> None:
        """Takes the last `seconds` of sound for noise: the voice is set to have ended before that sound, and
        sound as quiet is background from now on."""
        first = -round(seconds * self.rate_hz)
        self._foreground.reject_as_noise(self.recent()[first:], self._n)
        self._voiced_end = max(self._started_at, self._kept.end + first)
        self._own.frames = OWN_FRAMES
        self._run += first
        self.fall_silent()
        self._utterance_voiced = max(0, self._utterance_voiced)

    def accept_speech(self) -> None:
        """Takes back `reject_as_noise`, since the recogniser found words in that sound."""
        self._foreground.accept_speech()

    def believe(self, words: str) -> None:
        """Learns the caller's level from the utterance if its `words`, which the agent answers, are not
        empty."""
        if words:
            self._foreground.believe()

    def mask(self) -> None:
        """Notes that a digit was keyed: sound within `TONE_MS` is its tone, not the caller's voice."""
        self.line.catch_up()
        self._tones.reset()
        self._mask(self._kept.end + self.rate_hz * TONE_MS // 1000)

    # Recognition of one utterance -----------------------------------------------------------------------

    def open(self, expected: Expected | None) -> None:
        """Opens an utterance that begins `PREROLL_MS` in the past; no effect on one that is open. Raises
        `EngineError`."""
        if self._kept.listening is not None:
            return
        frames = self._kept.last(PREROLL_MS // FRAME_MS)
        listening = self._stt.listen(rate_hz=self.rate_hz, language=self.language, expected=expected)
        for frame in frames:
            listening.push(frame)
        self._kept.listening = listening
        self._heard_from = self._kept.end - len(frames) * self._n
        self._utterance_voiced = 0
        if not self.active:
            self._started_at = self._kept.end

    def close(self) -> None:
        """Ends the utterance and frees its recognition."""
        listening, self._kept.listening = self._kept.listening, None
        self._utterance_voiced = 0
        if listening is not None:
            listening.close()
            self.attend()

    @property
    def is_open(self) -> bool:
        """Whether an utterance is being recognised."""
        return self._kept.listening is not None

    def partial(self) -> str:
        """The recogniser's interim text, "" where it gives none."""
        self.line.catch_up()
        return "" if self._kept.listening is None else clean_text(self._kept.listening.partial())

    async def decode(self) -> Hypothesis:
        """Recognises the utterance so far. Raises `EngineError`."""
        self.line.catch_up()
        if self._kept.listening is None:
            return Hypothesis("")
        return _clean(await self._kept.listening.result())

    def recent(self) -> Pcm:
        """The far end's last `kept_ms`, int16 at `rate_hz`, with silence for the agent's echo."""
        self.line.catch_up()
        return self._kept.samples()

    def callers_own(self, *, noisy: bool) -> Pcm:
        """The audio of `recent` with silence for background speech. Empty on a `noisy` line on which the
        caller's voice does not stand out, since that audio may end with the sentence of another person."""
        self.line.catch_up()
        if noisy and not self._foreground.stands_out:
            return self._kept.silence[:0]
        return self._kept.callers_own()

    @property
    def silence_ms(self) -> int:
        """Milliseconds since the last voiced sample, on the media clock."""
        self.line.catch_up()
        return (self._kept.end - self._voiced_end) * 1000 // self.rate_hz

    @property
    def last_frame_at(self) -> float:
        """Loop time at which the last frame arrived."""
        self.line.catch_up()
        return self._kept.last_at

    @property
    def run_ms(self) -> int:
        """Milliseconds of voice since the last `Sound.STARTED`."""
        return self._run * 1000 // self.rate_hz

    @property
    def voiced_ms(self) -> int:
        """Milliseconds of voice in the utterance so far."""
        return (self._utterance_voiced + self._run) * 1000 // self.rate_hz

    @property
    def may_have_begun(self) -> bool:
        """Whether the last frame was voiced while the voice detector has not decided on a beginning of
        speech."""
        self.line.catch_up()
        return not self.active and self._voiced_end == self._kept.end

    def silent_since(self) -> float:
        """Loop time of the last voiced sample, free of network jitter."""
        return self._kept.clock.time_of(self._voiced_end)

    def heard_until(self, now: float) -> float:
        """Loop time, free of network jitter, of the last sample received; `now` after `QUIET_LINE_S` without
        a frame. A late or lost packet is no silence yet."""
        self.line.catch_up()
        waited_s = now - self._kept.last_at
        return now if waited_s > QUIET_LINE_S else self._kept.clock.time_of(self._kept.end)

    def utterance_times(self) -> tuple[float, float, float]:
        """Loop times of the utterance's first voiced sample, its last, and the first sample the recogniser
        got."""
        time_of = self._kept.clock.time_of
        return time_of(self._started_at), time_of(self._voiced_end), time_of(self._heard_from)
