"""Our own voice, come back: recognised as such, and a real voice over it is not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from bench.support.codecs import over_ulaw
from pipeline.audio import frame_samples, kernels
from pipeline.audio.echo_gate import TAIL_S, EchoGate
from pipeline.audio.vad import EnergyVad, VadSettings
from tests.support.sip.callers import at_level, spoken

AGENT = (
    "Good morning, this is the appointment service of the dental clinic.",
    "Could you please tell me whether you can come, or whether you would prefer another day?",
    "Unfortunately the doctor is away that week, but her colleague could see you in the afternoon.",
)
CALLER = ("I have a question about the price of it, please.",)


@dataclass(frozen=True)
class Line:
    """What came of every frame: its voice was heard, and it was taken for echo."""

    voiced: npt.NDArray[np.bool_]
    echo: npt.NDArray[np.bool_]
    gate: EchoGate

    def longest_voice_ms(self) -> int:
        """The longest run of voiced frames that were not taken for echo."""
        run = longest = 0
        for voice in self.voiced & ~self.echo:
            run = run + 1 if voice else 0
            longest = max(longest, run)
        return longest * 20


def agent_words(rate_hz: int, voice: str = "en-us") -> npt.NDArray[np.float64]:
    pause = np.zeros(rate_hz // 4)
    said = [at_level(each, -20) for each in spoken(AGENT, voice, rate_hz=rate_hz)]
    return np.concatenate([part for each in said for part in (each, pause)])


def come_back(
    wave: npt.NDArray[np.float64], delay: int, loss_db: float, path: str
) -> npt.NDArray[np.float64]:
    """`wave` as the far end returns it, `delay` samples late: by a wire, dispersed as by a hybrid, or with
    the reverberation of a room."""
    if path == "hybrid":
        impulse = np.random.default_rng(5).standard_normal(48) * np.exp(-np.arange(48) / 10)
        wave = np.convolve(wave, impulse / np.sqrt((impulse**2).sum()))[: len(wave)]
    if path.startswith("room"):
        time_s = np.arange(2000) / 8000
        tail = np.random.default_rng(int(path[4:])).standard_normal(2000) * np.exp(-6.9 * time_s / 0.3)
        impulse = np.concatenate([[1.0], 0.6 * tail / np.sqrt((tail**2).sum())])
        wave = np.convolve(wave, impulse / np.sqrt((impulse**2).sum()))[: len(wave)]
    return np.concatenate([np.zeros(delay), wave])[: len(wave)] * 10 ** (-loss_db / 20)


def listen(played: npt.NDArray[np.float64], heard: npt.NDArray[np.float64], rate_hz: int) -> Line:
    """Plays one and hears the other, with packets that come up to 4 ms late."""
    random = np.random.default_rng(7)
    size = frame_samples(rate_hz)
    out, back = over_ulaw(played), over_ulaw(heard + random.standard_normal(len(heard)) * 18)
    gate, vad = EchoGate(rate_hz), EnergyVad(rate_hz, VadSettings(hang_ms=100))
    voiced, echo = [], []
    for start in range(0, len(out) // size * size, size):
        now = 1000 + start / rate_hz
        gate.played(out[start : start + size], now)
        voiced.append(vad.push(back[start : start + size]).voiced)
        echo.append(gate.is_echo(back[start : start + size], now + random.random() * 0.004))
    return Line(np.array(voiced), np.array(echo), gate)


@pytest.mark.parametrize("path", ["wire", "hybrid"])
@pytest.mark.parametrize(("delay_ms", "loss_db"), [(8, 12), (120, 12), (470, 12), (120, 20)])
def test_our_voice_alone_is_echo(path: str, delay_ms: int, loss_db: float) -> None:
    played = agent_words(8000)
    line = listen(played, come_back(played, 8 * delay_ms, loss_db, path), 8000)
    assert line.gate.delay_ms == pytest.approx(delay_ms, abs=10)
    assert (line.voiced & ~line.echo).sum() < 0.1 * line.voiced.sum()
    assert line.longest_voice_ms() < 350


@pytest.mark.parametrize("room", range(6))
def test_in_a_room_the_echo_is_learnt_once_and_not_lost_again(room: int) -> None:
    played = np.tile(agent_words(8000), 2)
    line = listen(played, come_back(played, 1600, 18, f"room{room}"), 8000)
    later = slice(100, None)
    assert (line.voiced & ~line.echo)[later].sum() < 0.1 * line.voiced[later].sum()


def test_our_voice_alone_is_echo_at_16_khz() -> None:
    played = agent_words(16000, "en-us+f3")
    line = listen(played, come_back(played, 16 * 90, 14, "hybrid"), 16000)
    assert (line.voiced & ~line.echo).sum() < 0.1 * line.voiced.sum()
    assert line.longest_voice_ms() < 350


def test_a_voice_without_an_echo_never_is() -> None:
    played = agent_words(8000)
    heard = np.zeros(len(played))
    for start_s in (1, 5, 9):
        said = at_level(spoken(CALLER, "en-gb")[0], -22)
        heard[start_s * 8000 :][: len(said)] = said
    line = listen(played, heard, 8000)
    assert line.voiced.sum() > 200
    assert not line.echo.any()
    assert line.gate.delay_ms is None


@pytest.mark.parametrize("loss_db", [12, 20])
def test_a_voice_over_the_echo_is_a_voice(loss_db: float) -> None:
    played = agent_words(8000)
    heard = come_back(played, 960, loss_db, "hybrid")
    said = at_level(spoken(CALLER, "en-gb")[0], -20)
    at = 6 * 8000
    heard[at : at + len(said)] += said
    line = listen(played, heard, 8000)
    both = slice(at // 160, (at + len(said)) // 160)
    assert line.echo[both].sum() < 0.25 * line.voiced[both].sum()


def test_while_the_agent_is_silent_nothing_is_echo() -> None:
    played = agent_words(8000)
    gate = EchoGate(8000)
    frames = over_ulaw(played)[: 160 * 200].reshape(-1, 160)
    for index, frame in enumerate(frames):
        gate.played(frame, index * 0.02)
        gate.is_echo(frame, index * 0.02)
    later = len(frames) * 0.02 + TAIL_S
    assert not any(gate.is_echo(frame, later + index * 0.02) for index, frame in enumerate(frames))


def test_the_lag_is_known_when_the_agent_speaks_again() -> None:
    frames = over_ulaw(agent_words(8000))[: 160 * 300].reshape(-1, 160)
    gate = EchoGate(8000)
    quiet = np.zeros(160, np.int16)

    def speak(start: float) -> list[bool]:
        echo = []
        for index, frame in enumerate(frames):
            gate.played(frame, start + index * 0.02)
            echo.append(gate.is_echo(frames[index - 5] // 6 if index >= 5 else quiet, start + index * 0.02))
        return echo

    first, again = speak(10.0), speak(40.0)
    assert again[:30].count(True) > first[:30].count(True)
    assert again[10:20].count(True) >= 9


def test_a_rate_that_no_leg_has() -> None:
    with pytest.raises(ValueError, match="rate_hz=11025"):
        EchoGate(11025)


def test_no_delay_is_searched_while_the_caller_is_silent() -> None:
    frames = over_ulaw(agent_words(8000))[: 160 * 300].reshape(-1, 160)
    gate, silence = EchoGate(8000), np.zeros(160, np.int16)
    for index, frame in enumerate(frames):
        gate.played(frame, index * 0.02)
        gate.is_echo(silence, index * 0.02)
    assert gate.searches == 0
    voice = over_ulaw(at_level(spoken(CALLER, "en-gb")[0], -22))[: 160 * 100].reshape(-1, 160)
    for index, frame in enumerate(voice, start=len(frames)):
        gate.played(frames[index % len(frames)], index * 0.02)
        gate.is_echo(frame, index * 0.02)
    spoken_over = gate.searches
    assert spoken_over == pytest.approx(len(voice) / 2, abs=10)
    for index, frame in enumerate(frames, start=len(frames) + len(voice)):
        gate.played(frame, index * 0.02)
        gate.is_echo(silence, index * 0.02)
    assert gate.searches - spoken_over <= kernels.ECHO_HANG // 2 + 1


def test_a_gate_takes_memory_once_the_agent_speaks_and_half_of_it_in_its_rings() -> None:
    def held() -> int:
        values = (getattr(gate, name, None) for name in EchoGate.__slots__)
        return sum(value.nbytes for value in values if isinstance(value, np.ndarray))

    gate, silence = EchoGate(8000), np.zeros(160, np.int16)
    for index in range(100):
        assert not gate.is_echo(silence, index * 0.02)
    assert held() < 1000
    gate.played(silence, 2.0)
    assert gate._rings.nbytes == 12 * 1024
