"""The comparison of voice detectors: where a recording has voice, and what counts as found, late or false."""

from __future__ import annotations

import numpy as np

from bench.vad.__main__ import found, frames_wrong
from bench.vad.corpus import Recording, stretches
from bench.vad.page import table


def frames(*active: tuple[int, int], count: int = 100) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    verdicts = np.zeros(count, np.bool_)
    for begins, ends in active:
        verdicts[begins:ends] = True
    return verdicts


def test_stretches_of_voice_are_parted_by_pauses_of_200_ms() -> None:
    tone = (8000 * np.sin(np.arange(8 * 300))).astype(np.int16)
    short, long = np.zeros(8 * 150, np.int16), np.zeros(8 * 250, np.int16)
    samples = np.concatenate((long, tone, short, tone, long, tone, long))
    assert stretches(samples) == ((250, 1000), (1250, 1550))


def test_an_onset_is_found_by_the_first_frame_of_it_and_missed_without_one() -> None:
    voice = ((400, 800), (1200, 1400))
    assert found(frames((22, 42)), voice) == [60.0, None]
    assert found(frames((0, 100)), voice) == [0.0, 0.0]


def test_the_hang_over_after_a_stretch_is_no_false_voice() -> None:
    inside, missed, outside, false = frames_wrong(frames((22, 49), (80, 90)), ((400, 800),))
    assert (inside, missed) == (20, 2)
    assert outside == 100 - 30
    assert false == 10


def test_recordings_are_halved_by_their_names() -> None:
    halves = [Recording(f"{n}.wav", "one", np.zeros(1, np.int16), ()).tunes for n in range(200)]
    assert 70 < sum(halves) < 130


def test_a_table_has_a_row_for_each() -> None:
    assert table(("a", "b"), [("x", 1)]) == "| a | b |\n| --- | ---: |\n| x | 1 |"
