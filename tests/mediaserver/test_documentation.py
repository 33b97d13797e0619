"""What the pages show of a configuration can be configured."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from mediaserver.calls.pre_call_tools import OBJECTED
from mediaserver.demo.speech import embedded, what_is_missing
from mediaserver.queue.cancel import COMPANY_REMOVED
from mediaserver.queue.decisions import Rule
from mediaserver.queue.history import RESTORED
from mediaserver.queue.ledger import NODE_LOST, NOT_DIALLED
from mediaserver.settings import AgentSettings
from pipeline import registry
from pipeline.result import EndReason
from sip.states import HangupCause
from tests.support.command_line import mediaserver
from tests.support.node.node import ServerProcess, Site, serving
from tests.support.paths import ROOT
from tests.support.ports import free_port

PAGES = sorted((ROOT / "docs").glob("*.md"))
AGENT = {"id": "2f1c1a34-6f3e-4f0e-9a63-0d8f2f0f7a11", "company": "acme"}
SCRIPT = {"start": "bye", "step": [{"id": "bye", "say": "Goodbye.", "action": "hang_up"}]}
LLM = {"base_url": "http://127.0.0.1:9100/v1", "model": "any", "prompt": "You are kind."}


def blocks() -> Iterator[Any]:
    """Every agent that a page shows, or a part of one."""
    for page in PAGES:
        for place, block in enumerate(page.read_text(encoding="utf-8").split("```toml\n")[1:]):
            shown = tomllib.loads(block.split("```")[0]).get("agent", [])
            for agent in shown if isinstance(shown, list) else [shown]:
                yield pytest.param(agent, id=f"{page.stem}-{place}")


def write_own_engines(package: Path) -> None:
    """Writes the modules that docs/engines.md shows."""
    page = (ROOT / "docs" / "engines.md").read_text(encoding="utf-8")
    shown = [block.split("```")[0] for block in page.split("```python\n")[1:]]
    package.mkdir()
    (package / "__init__.py").touch()
    for module, name in (("ears", "Ears"), ("mind", "Barista"), ("turns", "Patient")):
        (text,) = (block for block in shown if f"class {name}:" in block)
        (package / f"{module}.py").write_text(text)


@pytest.fixture(scope="module")
def own_engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The engines of one's own that docs/engines.md shows, where its examples name them."""
    folder = tmp_path_factory.mktemp("own_engines")
    write_own_engines(folder / "my_package")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield


@pytest.mark.usefixtures("own_engines")
@pytest.mark.parametrize("shown", list(blocks()))
def test_what_a_page_shows_of_an_agent_is_valid(shown: Mapping[str, Any]) -> None:
    mind: Mapping[str, Any] = {"script": shown.get("script", SCRIPT)}
    if "llm" in shown or "own" in shown:
        mind = {"llm": LLM | shown["llm"]} if "llm" in shown else {}
    environment = {name: "a secret" for name in re.findall(r"env:(\w+)", str(shown))}
    agent = AgentSettings.model_validate({**AGENT, **shown, **mind}, context={"environment": environment})
    for kind, chain in (("stt", agent.stt.chain), ("tts", agent.tts.chain)):
        for engine in chain:
            if engine.engine != "auto":
                registry.load(kind, engine.engine, engine.options)
    if agent.own is not None:
        registry.load("agent", agent.own.engine, agent.own.options)
    if registry.is_class(agent.session.turn_model):
        registry.load("scorer", agent.session.turn_model, {})


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        pytest.param(
            "stt",
            ("--engine", "my_package.ears:Ears", "--engine-options", '{"answer": "yes please"}'),
            marks=pytest.mark.nightly("ci"),
        ),
        ("agent", ("--engine", "my_package.mind:Barista", "--engine-says", "a coffee please")),
        pytest.param("scorer", ("--engine", "my_package.turns:Patient"), marks=pytest.mark.nightly("ci")),
    ],
)
def test_what_the_page_shows_of_engines_passes_their_suites(
    tmp_path: Path, kind: str, more: Sequence[str]
) -> None:
    write_own_engines(tmp_path / "my_package")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs",
         f"mediaserver.testing.{kind}", *more],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True,
        timeout=100, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout
    assert "passed" in run.stdout
    assert "skipped" not in run.stdout


def test_the_first_script_can_be_pasted_into_the_demo_configuration(tmp_path: Path) -> None:
    script = (ROOT / "docs" / "agents.md").read_text().split("```toml\n")[1].split("```")[0]
    path = tmp_path / "pasted.toml"
    path.write_text((ROOT / "config" / "demo.toml").read_text() + script)
    checked = mediaserver("check", "--config", path)
    assert (checked.returncode, checked.stdout) == (0, f"{path}: 1 companies, 1 trunks, 3 agents: ok\n")


@pytest.mark.timeout(300)
def test_the_call_that_the_readme_places_is_answered(tmp_path: Path) -> None:
    shown = (ROOT / "README.md").read_text()
    example, order = re.search(r"(examples/\S+\.py) 127\.0\.0\.1:5080", shown), shown.index("\ncurl -X POST")
    assert example is not None
    ports = {8080: free_port(), 5060: free_port(), 5080: free_port()}
    site = Site(tmp_path / "demo.toml", ports[8080], ports[5060], ports[5080], tmp_path / "var")
    demo = (ROOT / "config" / "demo.toml").read_text()
    demo = (embedded(demo) if what_is_missing() else demo).replace('"var"', f'"{tmp_path}/var"')
    site.path.write_text(on_other_ports(demo.replace("///var", f"///{tmp_path}/var"), ports))
    carrier = (sys.executable, str(ROOT / example[1]), f"127.0.0.1:{ports[5080]}")
    with serving(site) as server, subprocess.Popen(carrier, stdout=subprocess.PIPE) as phone:
        try:
            server.wait_ready(200)  # it compiles its kernels
            assert phone.stdout is not None
            phone.stdout.readline()
            command = on_other_ports(shown[order : shown.index("```", order)], ports)
            placed = subprocess.run(["sh", "-c", command], capture_output=True, check=True).stdout
            answered(server, json.loads(placed)["data"]["callTaskId"])
        finally:
            phone.terminate()


def on_other_ports(text: str, ports: Mapping[int, int]) -> str:
    return re.sub(r":(8080|5060|5080)\b", lambda found: f":{ports[int(found[1])]}", text)


def answered(server: ServerProcess, call_id: str) -> None:
    while True:  # until pytest's own limit
        _, call = server.get(f"/api/v1/calls/{call_id}", "demo-key")
        if call["answeredAt"] is not None:
            return
        assert call["endedAt"] is None, call["hangupCause"]
        time.sleep(0.1)


def test_pages_show_agents() -> None:
    assert len(list(blocks())) > 10


def test_operations_tells_what_to_do_about_every_cause() -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    table = page.partition("## Hang-up causes")[2].partition("\n## ")[0]
    told = {
        cause for row in table.splitlines() for cause in re.findall(r"`(\w+)`", row[1:].partition("|")[0])
    }
    own = {EndReason.SILENCE, EndReason.MAX_DURATION, EndReason.ENGINE_ERROR}
    refusals = {Rule.DIAL_PREFIX, Rule.DO_NOT_CALL, Rule.CALLER_ID, Rule.NOT_CONFIGURED}
    others = {NODE_LOST, RESTORED, COMPANY_REMOVED, OBJECTED, NOT_DIALLED, "server_error"}
    assert {str(each) for each in (*HangupCause, *own, *refusals, *others)} <= told
