"""The training scripts of the demo's recogniser, as far as they run without the training libraries."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from bench.micro_whisper.__main__ import main
from bench.micro_whisper.corpus import OUT_OF_VOCABULARY, WORDS, sentence, unseen
from bench.micro_whisper.data import RATE_HZ, Voices, over_the_line, shard, utterance
from bench.micro_whisper.extras import LazyModule
from bench.micro_whisper.train import load


def test_sentences_are_made_of_the_vocabulary() -> None:
    rng = random.Random(1)
    texts = [sentence(rng) for _ in range(2000)] + unseen(rng, 30)
    assert {word for text in texts for word in text.split()} == set(WORDS)
    assert all(set(text.split()) - set(WORDS) for text in OUT_OF_VOCABULARY)


@pytest.mark.parametrize("has_flite", [True, False])
def test_a_shard_holds_what_training_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_flite: bool
) -> None:
    if not has_flite:
        monkeypatch.setattr(shutil, "which", lambda name: None)
    voices = Voices()
    assert voices.has_flite == has_flite
    assert shard(voices, seed=3, count=12, path=tmp_path / "shard3.npz") == 12
    examples = load(tmp_path)
    assert len(examples) == 12
    for example in examples:
        frames = example.features.shape[1]
        assert example.features.shape[0] == 80
        assert 0 <= example.span[0] <= example.span[1] <= frames / 100
        assert set(example.text.split()) <= set(WORDS)
    assert any(example.text for example in examples)


def test_the_same_seed_makes_the_same_sentences() -> None:
    texts = []
    for _ in range(2):
        rng, noise, voices = random.Random(5), np.random.default_rng(5), Voices()
        texts.append([utterance(voices, rng, noise).text for _ in range(5)])
    assert texts[0] == texts[1]


def test_the_telephone_line_cuts_what_telephones_cut() -> None:
    time_s = np.arange(RATE_HZ) / RATE_HZ

    def passed(tone_hz: float) -> float:
        tone = (0.3 * np.sin(2 * np.pi * tone_hz * time_s)).astype(np.float32)
        return float(np.sqrt(np.mean(over_the_line(tone) ** 2) / np.mean(tone**2)))

    assert passed(1000) > 0.9
    assert passed(60) < 0.1
    assert passed(5000) < 0.1


@pytest.mark.parametrize("command", [[], ["data"], ["train"], ["evaluate"]])
def test_every_command_explains_itself(command: list[str]) -> None:
    result = CliRunner().invoke(main, [*command, "--help"])
    assert result.exit_code == 0
    assert "Usage" in result.output


def test_an_absent_library_says_what_to_install() -> None:
    absent = LazyModule("no_such_library")
    with pytest.raises(Exception, match=r"pip install .*torch"):
        _ = absent.tensor
