"""Engines that run: started once, told of when they do not, guarded for calls and for files apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mediaserver.engine_pool.choice import EngineChoice
from mediaserver.engine_pool.running import Purpose, RunningEngines
from pipeline.net.egress import EgressPolicy
from tests.support.http.models import Ears, Voice

EARS = EngineChoice("stt", "ears", {})
VOICE = EngineChoice("tts", "voice", {})


class Makes:
    """Makes engines; those of `lacking` lack a file."""

    def __init__(self, *lacking: str) -> None:
        self.lacking = set(lacking)
        self.made: list[str] = []

    def load(self, kind: str, name: str, options: Mapping[str, Any]) -> Any:
        self.made.append(name)
        if name in self.lacking:
            return Ears(missing="model.bin is not there")
        return Ears() if kind == "stt" else Voice()


async def test_an_engine_that_fails_is_told_of_until_it_starts() -> None:
    makes = Makes("ears")
    running = RunningEngines(makes.load, EgressPolicy())
    await running.start([EARS, VOICE, VOICE])
    assert running.of([EARS, VOICE]) == [VOICE]
    assert running.missing == {EARS.identity: "ears: model.bin is not there"}
    makes.lacking.clear()
    await running.start([EARS, VOICE])
    assert (running.of([EARS, VOICE]), running.missing) == ([EARS, VOICE], {})
    assert sorted(makes.made) == ["ears", "ears", "voice"]


async def test_calls_and_files_have_a_guard_each_which_all_who_ask_share() -> None:
    running = RunningEngines(Makes().load, EgressPolicy())
    await running.start([EARS])
    (ears,), (again,) = running.ears([EARS], Purpose.CALLS), running.ears([EARS], Purpose.CALLS)
    assert ears.engine is again.engine
    assert len(running.health()) == 1
    running.ears([EARS], Purpose.FILES)
    assert len(running.health()) == 2


async def test_what_nobody_uses_is_closed_with_its_guard() -> None:
    running = RunningEngines(Makes().load, EgressPolicy())
    await running.start([EARS, VOICE])
    running.ears([EARS], Purpose.CALLS)
    running.voices([VOICE], Purpose.CALLS)
    await running.keep({VOICE.identity})
    assert running.of([EARS, VOICE]) == [VOICE]
    assert len(running.health()) == 1
