"""Who is at the other end: a network's tones, music, a machine and its beep, or a person."""

from __future__ import annotations

import numpy as np
import pytest

from bench.support.codecs import over_ulaw
from pipeline.call_progress.classifier import CallProgressClassifier, CallProgressKind
from tests.support.sip.callers import VOICES, at_level, spoken
from tests.support.speech.lines import RATE_HZ, Wave, cadence, music, quiet, tone

GREETINGS = (
    "Hello, you have reached the voice mail of John Baker. I am not here right now. Please leave a message.",
    "Hi, this is Susan. I can't come to the phone at the moment, so leave your name and I'll call you back.",
)
HELLOS = ("Hello?", "Yes, hello?", "Good morning, Baker here.", "Dental clinic, how can I help you?")


def heard(wave: Wave, line: CallProgressClassifier | None = None) -> dict[CallProgressKind, float]:
    """What is recognised over a line with some noise, and when first."""
    line = line or CallProgressClassifier(RATE_HZ)
    samples = over_ulaw(wave + np.random.default_rng(4).standard_normal(len(wave)) * 20)
    events: dict[CallProgressKind, float] = {}
    for start in range(0, len(samples) // 160 * 160, 160):
        event = line.push(samples[start : start + 160], start / RATE_HZ)
        if event is not None:
            events.setdefault(event.kind, event.at)
    return events


@pytest.mark.parametrize(
    ("hz", "on_off_s"),
    [
        pytest.param((440, 480), (2, 4), id="north-america"),
        pytest.param((425,), (1, 4), id="europe"),
        pytest.param((425,), (1.2, 4.6), id="saudi-arabia"),
        pytest.param((400, 450), (0.4, 0.2, 0.4, 2), id="united-kingdom"),
    ],
)
def test_it_rings(hz: tuple[float, ...], on_off_s: tuple[float, ...]) -> None:
    assert list(heard(cadence(hz, on_off_s))) == [CallProgressKind.RINGBACK]


@pytest.mark.parametrize(
    ("hz", "on_off_s", "kind"),
    [
        ((480, 620), (0.5, 0.5), CallProgressKind.BUSY),
        ((425,), (0.5, 0.5), CallProgressKind.BUSY),
        ((400,), (0.375, 0.375), CallProgressKind.BUSY),
        ((480, 620), (0.25, 0.25), CallProgressKind.CONGESTION),
        ((425,), (0.25, 0.25), CallProgressKind.CONGESTION),
        ((425,), (0.2, 0.2), CallProgressKind.CONGESTION),
    ],
)
def test_it_is_busy(hz: tuple[float, ...], on_off_s: tuple[float, ...], kind: CallProgressKind) -> None:
    assert list(heard(cadence(hz, on_off_s))) == [kind]


def test_the_special_information_tone() -> None:
    international = [tone((hz,), 0.33) for hz in (950, 1400, 1800)]
    american = [tone((985.2,), 0.38), tone((1370.6,), 0.276), tone((1776.7,), 0.38)]
    for tones in (international, american):
        assert list(heard(np.concatenate([quiet(0.3), *tones, quiet(1)]))) == [CallProgressKind.SIT]


@pytest.mark.parametrize("hz", [(350, 440), (425,)])
def test_a_dial_tone(hz: tuple[float, ...]) -> None:
    assert list(heard(np.concatenate([quiet(0.3), tone(hz, 4)])))[-1] is CallProgressKind.DIAL_TONE


@pytest.mark.parametrize("voice", VOICES)
@pytest.mark.parametrize(("hz", "beep_s"), [(1000, 0.4), (440, 0.5), (1400, 0.2)])
def test_a_machine_greets_and_beeps(voice: str, hz: float, beep_s: float) -> None:
    for greeting in spoken(GREETINGS, voice):
        said = np.concatenate([quiet(0.7), at_level(greeting, -20), quiet(0.6), tone((hz,), beep_s)])
        events = heard(np.concatenate([said, quiet(2)]))
        assert list(events)[:2] == [CallProgressKind.MACHINE, CallProgressKind.BEEP]
        assert events[CallProgressKind.MACHINE] < 4.5
        assert events[CallProgressKind.BEEP] == pytest.approx(len(said) / RATE_HZ, abs=0.1)


@pytest.mark.parametrize("voice", VOICES)
def test_a_person_says_hello_and_waits(voice: str) -> None:
    for hello in spoken(HELLOS, voice):
        said = np.concatenate([quiet(0.7), at_level(hello, -20)])
        events = heard(np.concatenate([said, quiet(1.5)]))
        assert list(events) == [CallProgressKind.HUMAN]
        assert events[CallProgressKind.HUMAN] < len(said) / RATE_HZ + 1.0


def test_a_machine_without_a_beep_ends() -> None:
    greeting = at_level(spoken(GREETINGS)[0], -20)
    events = heard(np.concatenate([quiet(0.5), greeting, quiet(4)]))
    assert list(events) == [CallProgressKind.MACHINE, CallProgressKind.MACHINE_ENDED]


@pytest.mark.parametrize(("beat_s", "seed"), [(0.5, 1), (1.0, 2), (0.25, 3)])
def test_hold_music(beat_s: float, seed: int) -> None:
    assert list(heard(np.concatenate([quiet(0.5), music(8, beat_s=beat_s, seed=seed)]))) == [
        CallProgressKind.MUSIC
    ]


def test_music_that_ends_in_a_voice() -> None:
    hello = at_level(spoken(HELLOS)[2], -20)
    events = heard(np.concatenate([quiet(0.5), music(6), quiet(0.8), hello, quiet(1.5)]))
    assert list(events) == [CallProgressKind.MUSIC, CallProgressKind.HUMAN]


def test_nobody_says_anything() -> None:
    assert heard(quiet(3)) == {CallProgressKind.QUIET: pytest.approx(2.0, abs=0.05)}


def test_what_rang_is_not_who_answered() -> None:
    line = CallProgressClassifier(RATE_HZ)
    assert list(heard(cadence((425,), (1, 4), times=1), line)) == [CallProgressKind.RINGBACK]
    line.answered()
    assert list(heard(np.concatenate([quiet(0.3), at_level(spoken(HELLOS)[0], -20), quiet(1)]), line)) == [
        CallProgressKind.HUMAN
    ]


def test_a_rate_that_no_leg_has() -> None:
    with pytest.raises(ValueError, match="rate_hz=11025"):
        CallProgressClassifier(11025)
