"""A caller who says nothing, and a script that says what to do about it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from mediaserver.engine_pool.pool import AgentEngines, Engines
from mediaserver.settings import load
from mediaserver.wiring import agent_choice
from pipeline.agent import AgentContext
from pipeline.result import EndReason, SessionResult
from tests.support.http.models import fake_models
from tests.support.node.node import FAKE_ENGINES, write_site
from tests.support.speech.conversation import converse

AGENT = """
[[agent]]
id = "0e1de2a0-93a8-4a55-8f6c-9f5f3f5f1c11"
company = "acme"
trunk = "carrier"
{engines}
[agent.script]
start = "here"
[[agent.script.step]]
id = "here"
say = "Are you there?"
expect = {{ kinds = ["yes_no"] }}
silence = {{ SILENCE }}
nomatch = {{ next = "nobody" }}
next = "bye"
[[agent.script.step]]
id = "nobody"
say = "I will call later."
action = "hang_up"
disposition = "nobody_there"
[[agent.script.step]]
id = "bye"
say = "Good day."
action = "hang_up"
"""


def called(directory: Path, silence: str) -> SessionResult:
    """What comes of a call to somebody who says nothing."""
    site = write_site(directory, engines=FAKE_ENGINES, more=AGENT.replace("SILENCE", silence))
    with fake_models():
        agent_engines = asyncio.run(_agent_engines(site.path))
    agent = agent_engines.agent.join(AgentContext("call", "en", "", {}))
    return converse(agent, settings=agent_engines.session, phrases=agent_engines.phrases)[0]


async def _agent_engines(path: Path) -> AgentEngines:
    engines = Engines([agent_choice(load(path).agents[-1])])
    await engines.start()
    agent_engines = engines.agent_engines("0e1de2a0-93a8-4a55-8f6c-9f5f3f5f1c11")
    await engines.close()
    return agent_engines


def words(result: SessionResult) -> list[str]:
    return [entry.text for entry in result.transcript]


def test_after_the_last_silence_the_script_goes_where_it_says(tmp_path: Path) -> None:
    result = called(tmp_path, 'say = "Hello?", next = "nobody"')
    assert words(result) == ["Are you there?", "Hello?", "Hello?", "I will call later."]
    assert (result.reason, result.report.disposition) == (EndReason.AGENT, "nobody_there")


def test_as_often_as_the_script_says(tmp_path: Path) -> None:
    result = called(tmp_path, 'say = "Hello?", max = 5, next = "nobody"')
    assert words(result) == ["Are you there?", *["Hello?"] * 5, "I will call later."]


def test_nobody_is_hung_up_on_without_a_word(tmp_path: Path) -> None:
    result = called(tmp_path, 'say = "Hello?", max = 1')
    assert words(result) == ["Are you there?", "Hello?", "Goodbye."]
    assert result.report.disposition == "no_answer"


def test_a_script_that_goes_round_on_silence_ends_all_the_same(tmp_path: Path) -> None:
    result = called(tmp_path, 'say = "Hello?", max = 1, next = "here"')
    assert result.reason is EndReason.SILENCE
    assert words(result)[-1] == "Goodbye."
    assert len(words(result)) < 8
