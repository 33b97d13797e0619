"""Does the plane notice what `EnergyVad` and `EchoGate` notice, and wake Python for nothing else?"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from bench.support.codecs import ulaw
from bench.support.stepped_stream import SteppedStream
from pipeline.audio import Pcm, frame_samples, kernels
from pipeline.audio.echo_gate import EchoGate
from pipeline.audio.vad import EnergyVad
from pipeline.plane.incoming import Attention, Frames, Told
from pipeline.plane.rows import HEARD, Note
from pipeline.session.audio_input import IDLE_FRAMES, VAD, AudioInput, Sound
from sip.rtp.packet import RtpPacket
from tests.support.speech.conversation import FakeStt
from tests.support.speech.media import SSRC, RecordingListener, feed, packets, plan, speech_like

RATE = 8000
N = frame_samples(RATE)
TICK_S = 0.005
BEGIN_S = 10.0


def frames_of(samples: Pcm) -> list[bytes]:
    octets = ulaw(samples)
    return [octets[at : at + N] for at in range(0, len(octets), N)]


def line_noise(samples: int, level: float, seed: int = 1) -> Pcm:
    return np.random.default_rng(seed).normal(0, level, samples).astype(np.int16)


def talk() -> Pcm:
    """A second of a quiet line, a second of voice, two seconds of a quiet line, and a click in it."""
    said = np.concatenate((np.zeros(RATE, np.int16), speech_like(RATE), np.zeros(2 * RATE, np.int16)))
    said = said + line_noise(len(said), 12)
    said[3 * RATE : 3 * RATE + 20] = 9000
    return said.astype(np.int16)


class Hearing(RecordingListener):
    """A listener that takes many frames at once. `wakes`: how many frames there were each time."""

    def __init__(self) -> None:
        super().__init__()
        self.line: Attention | None = None
        self.told: list[Told] = []
        self.kept: list[Pcm] = []
        self.wakes: list[int] = []

    def line_connected(self, line: Attention | None) -> None:
        self.line = line
        if line is not None:
            line.follow()
            line.detect(VAD)
            line.attend(IDLE_FRAMES)

    def frames_received(self, frames: Frames, told: Sequence[Told]) -> None:
        self.wakes.append(len(told))
        self.told += told
        self.kept += [frame.copy() for frame in frames]

    @property
    def notes(self) -> list[int]:
        return [note for _, _, _, note, _ in self.told]


def listening() -> tuple[SteppedStream, Hearing]:
    stream = SteppedStream(plan(), rate_hz=RATE, now=BEGIN_S)
    stream.listener = hearing = Hearing()
    return stream, hearing


def hear(stream: SteppedStream, said: Pcm, *, lost: Sequence[int] = ()) -> None:
    for number, packet in enumerate(packets(frames_of(said))):
        if number not in lost:
            feed(stream, packet, BEGIN_S + number * 0.02)
        stream.due(BEGIN_S + number * 0.02 + TICK_S)


def test_voice_is_noticed_in_the_frames_in_which_the_detector_notices_it() -> None:
    stream, hearing = listening()
    hear(stream, talk(), lost=(30, 80))
    vad, expected = EnergyVad(RATE, VAD), []
    for frame in hearing.kept:
        verdict = vad.push(frame)
        expected.append(Note.JUDGED | (verdict.voiced and Note.VOICED) | (verdict.active and Note.ACTIVE))
    assert hearing.notes == expected
    assert any(note & Note.ACTIVE for note in expected)
    levels = [level for *_, note, level in hearing.told if note & Note.VOICED]
    heard = zip(hearing.kept, expected, strict=True)
    assert levels == [kernels.rms_dbfs(frame) for frame, note in heard if note & Note.VOICED]


def test_a_voice_is_told_at_once_and_silence_after_a_while() -> None:
    stream, hearing = listening()
    hear(stream, talk())
    notes, first = hearing.notes, 0
    for count in hearing.wakes:
        block, before = notes[first : first + count], notes[first - 1] if first else 0
        first += count
        stirs = [at for at, note in enumerate(block) if note & (Note.VOICED | Note.ACTIVE)]
        assert stirs in ([], [count - 1])  # nothing of a voice waits for what comes after it
        assert count <= IDLE_FRAMES
        if not stirs and count < IDLE_FRAMES:
            assert before & Note.ACTIVE or first % HEARD in (0, count)  # its end, or that of the ring
    silent = sum(not note & (Note.VOICED | Note.ACTIVE) for note in notes)
    assert hearing.wakes.count(IDLE_FRAMES) >= silent // IDLE_FRAMES - 3


def test_silence_is_told_with_what_else_there_is_and_a_voice_at_once() -> None:
    stream, hearing = listening()
    urgent = []
    for number, packet in enumerate(packets(frames_of(talk()))):
        before = hearing.notes
        feed(stream, packet, BEGIN_S + number * 0.02)
        told = hearing.notes[len(before) :]
        if told:
            active = [*before[-1:], *told]
            changed = any((one ^ other) & Note.ACTIVE for one, other in pairwise(active))
            stirred = any(note & (Note.VOICED | Note.ACTIVE) for note in told)
            assert stream.urgent == (changed or stirred)
            urgent.append(stream.urgent)
        stream.due(BEGIN_S + number * 0.02 + TICK_S)
    assert set(urgent) == {False, True}


def test_of_a_long_voice_only_its_ends_are_told_at_once_where_that_is_enough() -> None:
    stream, hearing = listening()
    assert hearing.line is not None
    hearing.line.attend(IDLE_FRAMES, -60.0)
    hear(stream, talk())
    at_end = np.cumsum(hearing.wakes)
    changes = [
        at for at in range(1, len(hearing.notes)) if (hearing.notes[at] ^ hearing.notes[at - 1]) & Note.ACTIVE
    ]
    assert len(changes) >= 2
    assert {at + 1 for at in changes} <= set(at_end.tolist())
    assert len(hearing.wakes) < len(hearing.notes) / 5


def test_a_key_is_told_at_once_and_its_tone_is_no_voice() -> None:
    stream, hearing = listening()
    said = packets(frames_of(talk()))
    for number in range(20):
        feed(stream, said[number], BEGIN_S + number * 0.02)
    feed(
        stream,
        RtpPacket(101, said[20].sequence, said[20].timestamp, SSRC, bytes((5, 10, 0, 160))),
        BEGIN_S + 0.4,
    )
    assert hearing.digits == ["5"]
    assert len(hearing.told) == 20
    for number in range(20, 120):
        later = said[number]
        feed(
            stream,
            RtpPacket(0, later.sequence + 1, later.timestamp, SSRC, later.payload),
            BEGIN_S + number * 0.02,
        )
    masked = [at for at, note in enumerate(hearing.notes) if note & Note.MASKED]
    assert masked == list(range(20, 28))


def test_silence_that_was_not_told_yet_is_there_when_it_is_asked_for() -> None:
    stream, hearing = listening()
    hear(stream, talk()[: (IDLE_FRAMES + 3) * N])
    assert len(hearing.told) == IDLE_FRAMES
    assert hearing.line is not None
    hearing.line.catch_up()
    assert len(hearing.told) == IDLE_FRAMES + 3
    stream.listener = None
    assert hearing.line is None


@pytest.mark.parametrize("delay_ms", [60, 180])
def test_the_echo_gate_of_the_plane_is_that_of_python(delay_ms: int) -> None:
    stream, hearing = listening()
    agent = speech_like(4 * RATE)
    echo = np.zeros(5 * RATE, np.int16)
    at = RATE * delay_ms // 1000
    echo[at : at + len(agent)] = agent // 8
    echo[3 * RATE : 3 * RATE + RATE // 2] += speech_like(RATE // 2)[::-1]  # both speak
    echo += line_noise(len(echo), 4)
    gate, expected, waiting = EchoGate(RATE), [], agent.reshape(-1, N)
    heard = 0
    for number, packet in enumerate(packets(frames_of(echo))):
        now = BEGIN_S + number * 0.02
        if len(waiting) and stream.outgoing.room:
            stream.outgoing.say([waiting[0]])
            waiting = waiting[1:]
        feed(stream, packet, now)
        assert hearing.line is not None
        hearing.line.catch_up()
        for frame, (_, arrived_ns, *_) in zip(hearing.kept[heard:], hearing.told[heard:], strict=True):
            expected.append(gate.is_echo(frame, arrived_ns / 1e9))
        heard = len(hearing.kept)
        stream.due(now + TICK_S)
        frames, left = stream.outgoing.departed()
        for frame, (sent_ns, audible) in zip(frames, left, strict=True):
            assert bool(audible) == (kernels.peak(frame) > 60)
            gate.played(frame, sent_ns / 1e9)
    assert [bool(note & Note.ECHO) for note in hearing.notes] == expected
    assert sum(expected) > 80
    assert not all(expected[150:175])


def test_what_the_plane_noticed_makes_the_sounds_that_frames_one_by_one_make() -> None:
    stream, hearing = listening()
    hear(stream, talk(), lost=(30, 80))
    one, many = (AudioInput(FakeStt(), rate_hz=RATE, language="en", sustained_ms=240) for _ in range(2))
    expected: list[tuple[Sound, float]] = []
    for frame, (position, arrived_ns, made_up, _, _) in zip(hearing.kept, hearing.told, strict=True):
        sound = one.push(frame, position, arrived_ns / 1e9, concealed=bool(made_up))
        if sound is not None:
            expected.append((sound, arrived_ns / 1e9))
    sounds: list[tuple[Sound, float]] = []
    first = 0
    for count in hearing.wakes:
        block = slice(first, first + count)
        many.take(
            np.stack(hearing.kept[block]), hearing.told[block], lambda sound, now: sounds.append((sound, now))
        )
        first += count
    assert sounds == expected
    assert {sound for sound, _ in sounds} == {Sound.STARTED, Sound.SUSTAINED, Sound.STOPPED}
    assert many.recent().tolist() == one.recent().tolist()
    assert (many.silence_ms, many.voiced_samples) == (one.silence_ms, one.voiced_samples)
    assert many.utterance_times() == one.utterance_times()
