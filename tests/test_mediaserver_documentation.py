"""What the pages show of a configuration can be configured."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from mediaserver.settings import AgentSettings
from pipeline import registry

PAGES = sorted((Path(__file__).parents[1] / "docs").glob("*.md"))
AGENT = {"id": "2f1c1a34-6f3e-4f0e-9a63-0d8f2f0f7a11", "company": "acme"}
SCRIPT = {"start": "bye", "step": [{"id": "bye", "say": "Goodbye.", "action": "hang_up"}]}
LLM = {"base_url": "http://127.0.0.1:9100/v1", "model": "any", "prompt": "You are kind."}


def blocks() -> Iterator[Any]:
    """Every agent that a page shows, or a part of one."""
    for page in PAGES:
        for place, block in enumerate(page.read_text(encoding="utf-8").split("```toml\n")[1:]):
            shown = tomllib.loads(block.split("```")[0])["agent"]
            for agent in shown if isinstance(shown, list) else [shown]:
                yield pytest.param(agent, id=f"{page.stem}-{place}")


@pytest.mark.parametrize("shown", list(blocks()))
def test_what_a_page_shows_of_an_agent_is_valid(shown: Mapping[str, Any]) -> None:
    mind = {"llm": LLM | shown["llm"]} if "llm" in shown else {"script": shown.get("script", SCRIPT)}
    environment = {name: "a secret" for name in re.findall(r"env:(\w+)", str(shown))}
    agent = AgentSettings.model_validate({**AGENT, **shown, **mind}, context={"environment": environment})
    for kind, chain in (("stt", agent.stt.chain), ("tts", agent.tts.chain)):
        for engine in chain:
            registry.load(kind, engine.engine, engine.options)


def test_pages_show_agents() -> None:
    assert len(list(blocks())) > 10
