"""Tools that are asked before a call: what they get, what their answers fill, what their failure means."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from pydantic import SecretStr, ValidationError

from mediaserver.calls.pre_call_tools import VALUE_LIMIT, Briefing, brief, promised
from mediaserver.queue.records import Claim
from mediaserver.settings.tools import PreCallTool
from pipeline.net.egress import EgressPolicy
from pipeline.net.http import GuardedHttpClient
from tests.support.http.models import fake_models
from tests.support.node.node import NUMBER, bearer, place_call, running, until_final, write_site
from tests.support.webrtc.rooms import CALLS_KEY, NEEDY, join, write_web_site
from tests.support.webrtc.rtc import rtc_client
from tests.support.webrtc.web import served

LOOPBACK = ("127.0.0.0/8",)
BRIEFED = "e6d8e2a0-93a8-4a55-8f6c-9f5f3f5f1a04"

BRIEFED_AGENT = """
[[agent]]
id = "e6d8e2a0-93a8-4a55-8f6c-9f5f3f5f1a04"
company = "acme"
name = "Briefed"
trunk = "carrier"
phone_number = "+14155550100"
greeting = "Hello {{{{name}}}}, your plan is {{{{plan}}}}."
{engines}
[agent.script]
start = "bye"
[[agent.script.step]]
id = "bye"
say = "{{{{plan}}}}. Goodbye."
action = "hang_up"
[[agent.pre_call_tool]]
name = "crm"
url = "TOOL"
headers = {{ X-Key = "tool-secret" }}
timeout_s = 2
on_failure = "POLICY"
variables = {{ plan = "account.plan" }}
"""


class Crm:
    """A customer's tool. `answer` makes its response."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""
        self.answer: Callable[[], Awaitable[web.Response]] = self.gold

    async def gold(self) -> web.Response:
        """What it says by itself."""
        return web.json_response(
            {"account": {"plan": "gold", "balance": 12.5, "open": True}, "people": [{"name": "Bo"}]}
        )

    async def ask(self, request: web.Request) -> web.StreamResponse:
        """What the server calls."""
        self.asked.append(await request.json())
        self.headers.append(dict(request.headers))
        return await self.answer()


@asynccontextmanager
async def crm() -> AsyncIterator[Crm]:
    tool = Crm()
    app = web.Application()
    app.router.add_post("/lookup", tool.ask)
    async with served(app) as url:
        tool.url = f"{url}/lookup"
        yield tool


def tool(url: str, **changes: Any) -> PreCallTool:
    return PreCallTool.model_validate({"name": "crm", "url": url, "timeout_s": 0.5, **changes})


def claim(**changes: Any) -> Claim:
    values: dict[str, Any] = {
        "call_id": "call-1",
        "epoch": 1,
        "node": "n",
        "company_id": "acme",
        "agent_id": "agent-1",
        "trunk_id": "carrier",
        "phone_number": NUMBER,
        "dial_number": NUMBER,
        "webhook_id": "wh",
        "variables": {"customer": "4711"},
        "metadata": {},
        "is_test": False,
        **changes,
    }
    return Claim(**values)


async def briefed(*tools: PreCallTool, networks: tuple[str, ...] = LOOPBACK, **changes: Any) -> Briefing:
    async with GuardedHttpClient(EgressPolicy(networks)) as http:
        return await brief(http, tools, claim(**changes), direction="outbound")


async def test_an_answer_fills_the_variables_that_the_agent_names() -> None:
    wanted = {
        "plan": "account.plan",
        "balance": "account.balance",
        "is_open": "account.open",
        "first_name": "people.0.name",
    }
    async with crm() as asked:
        briefing = await briefed(
            tool(asked.url, variables=wanted, headers={"Authorization": SecretStr("Bearer x")})
        )
    assert briefing == Briefing(
        {"customer": "4711", "plan": "gold", "balance": "12.5", "is_open": "true", "first_name": "Bo"}
    )
    (subject,) = asked.asked
    assert subject == {
        "callTaskId": "call-1",
        "companyId": "acme",
        "agentId": "agent-1",
        "direction": "outbound",
        "phoneNumber": NUMBER,
        "promptVariables": {"customer": "4711"},
        "preCallVariables": {"customer": "4711"},
    }
    assert asked.headers[0]["Authorization"] == "Bearer x"
    assert asked.headers[0]["Content-Type"] == "application/json"
    assert asked.headers[0]["Idempotency-Key"]


async def test_a_web_call_has_variables_for_tools_only() -> None:
    async with crm() as asked:
        await briefed(tool(asked.url), metadata={"preCallVariables": {"ticket": 9}, "other": 1})
    assert asked.asked[0]["preCallVariables"] == {"ticket": 9}
    assert asked.asked[0]["promptVariables"] == {"customer": "4711"}


async def raw(body: bytes | str, status: int = 200) -> web.Response:
    """An answer of any kind."""
    return web.Response(body=body if isinstance(body, bytes) else body.encode(), status=status)


WRONG: dict[str, Callable[[], Awaitable[web.Response]]] = {
    "an error": lambda: raw("{}", 500),
    "a redirect": lambda: raw("", 302),
    "not JSON": lambda: raw("<html>"),
    "not UTF-8": lambda: raw(b"\xff\xfe\xfd"),
    "nothing": lambda: raw(""),
    "a list": lambda: raw("[]"),
    "no such field": lambda: raw('{"account": {}}'),
    "a field of another kind": lambda: raw('{"account": {"plan": {}}}'),
    "null": lambda: raw('{"account": {"plan": null}}'),
    "text where a table should be": lambda: raw('{"account": "plan"}'),
    "too long a value": lambda: raw(json.dumps({"account": {"plan": "x" * (VALUE_LIMIT + 1)}})),
    "too long an answer": lambda: raw(" " * 70_000),
    "brackets without end": lambda: raw("[" * 60_000),
}


@pytest.mark.parametrize("name", WRONG)
async def test_a_wrong_answer_is_a_failure_and_the_policy_says_what_it_means(name: str) -> None:
    wanted = {"plan": "account.plan"}
    async with crm() as asked:
        asked.answer = WRONG[name]
        goes_on = await briefed(tool(asked.url, variables=wanted))
        keeps = await briefed(tool(asked.url, variables=wanted), variables={"plan": "silver"})
        stops = await briefed(tool(asked.url, variables=wanted, on_failure="do_not_dial"))
    assert goes_on == Briefing({"customer": "4711", "plan": ""})
    assert keeps == Briefing({"plan": "silver"})  # what the request said is what there is
    assert stops.objection.startswith("pre-call tool crm: ")
    assert "x" * 100 not in stops.objection


async def test_a_tool_has_its_deadline_and_all_are_asked_at_once() -> None:
    everybody_there = asyncio.Barrier(2)

    async def together() -> web.Response:
        await everybody_there.wait()
        return web.json_response({"x": "1"})

    async def never() -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    async with crm() as first, crm() as second, crm() as dead:
        first.answer = second.answer = together
        dead.answer = never
        briefing = await briefed(
            tool(first.url, name="a", variables={"a": "x"}, timeout_s=10),
            tool(second.url, name="b", variables={"b": "x"}, timeout_s=10),
            tool(dead.url, name="c", on_failure="do_not_dial", timeout_s=0.2),
        )
    assert briefing.variables == {"customer": "4711", "a": "1", "b": "1"}
    assert briefing.objection == "pre-call tool c: no answer in time"


async def test_a_tool_inside_the_network_is_not_asked() -> None:
    async with crm() as asked:
        briefing = await briefed(tool(asked.url, on_failure="do_not_dial"), networks=())
    assert asked.asked == []
    assert briefing.objection == "pre-call tool crm: the address is not one that this server connects to"


async def test_a_tool_that_only_decides_needs_no_variables() -> None:
    async with crm() as asked:
        asked.answer = lambda: raw("", 204)
        assert (await briefed(tool(asked.url, on_failure="do_not_dial"))).objection == ""
        asked.answer = lambda: raw("", 403)
        objection = (await briefed(tool(asked.url, on_failure="do_not_dial"))).objection
    assert objection == "pre-call tool crm: answered 403"


def test_what_is_promised_is_known_before_anybody_is_asked() -> None:
    tools = [
        tool("http://a.example/", variables={"a": "x"}),
        tool("http://b.example/", variables={"b": "y.z"}),
    ]
    assert set(promised(tools)) == {"a", "b"}


@pytest.mark.parametrize(
    "changes",
    [
        {"url": "file:///etc/passwd"},
        {"url": "http://user:password@crm.example/"},
        {"timeout_s": 60},
        {"on_failure": "ignore"},
        {"variables": {"1x": "a"}},
        {"variables": {"a": ""}},
        {"variables": {"a": "b..c"}},
        {"headers": {"Host": "inside"}},
        {"headers": {"X Y": "z"}},
        {"headers": {"X": "a\r\nHost: inside"}},
        {"method": "GET"},
    ],
)
def test_settings_that_cannot_be_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        tool(**{"url": "http://crm.example/", **changes})


# In the server --------------------------------------------------------------------------------------------


async def placed(tmp_path: Path, url: str, policy: str) -> dict[str, Any]:
    """A call of the agent with the tool, to a carrier that is not there, at its end."""
    agent = BRIEFED_AGENT.replace("TOOL", url).replace("POLICY", policy)
    site = write_site(tmp_path, more=agent, transport="tcp")
    site.reach_this_machine()
    async with running(site) as (_, client):
        return await until_final(client, await place_call(client, BRIEFED))


async def test_a_call_is_dialled_with_what_the_tool_said(tmp_path: Path) -> None:
    async with crm() as asked:
        report = await placed(tmp_path, asked.url, "do_not_dial")
    assert report["promptVariables"] == {"name": "Bo", "plan": "gold"}
    assert report["dialedAt"] is not None
    assert report["hangupCause"] == "unreachable"
    assert asked.headers[0]["X-Key"] == "tool-secret"
    assert "tool-secret" not in json.dumps(report)


async def test_a_call_is_not_dialled_when_its_tool_fails_and_says_so(tmp_path: Path) -> None:
    async with crm() as asked:
        asked.answer = WRONG["an error"]
        report = await placed(tmp_path, asked.url, "do_not_dial")
    assert (report["status"], report["hangupCause"], report["dialedAt"]) == ("FAILED", "pre_call_tool", None)
    assert report["error"] == "pre-call tool crm: answered 500"


async def test_a_call_goes_on_without_a_tool_that_may_fail(tmp_path: Path) -> None:
    async with crm() as asked:
        asked.answer = WRONG["an error"]
        report = await placed(tmp_path, asked.url, "go_on")
    assert report["promptVariables"] == {"name": "Bo", "plan": ""}
    assert report["dialedAt"] is not None


WEB_TOOL = """
[[agent.pre_call_tool]]
name = "crm"
url = "TOOL"
timeout_s = 2
on_failure = "do_not_dial"
variables = { place = "account.plan" }
"""


async def web_call(tmp_path: Path, url: str) -> tuple[dict[str, Any], list[str]]:
    """A browser's call of an agent with a tool, at its end; and what was said in it."""
    site = write_web_site(tmp_path)
    text = site.path.read_text().replace("[server]\n", '[server]\nallow_networks = ["127.0.0.0/8"]\n', 1)
    site.path.write_text(text + WEB_TOOL.replace("TOOL", url))
    body = {"agentId": NEEDY, "metadata": {"preCallVariables": {"customer": 4711}, "shop": "north"}}
    with fake_models() as (_, voice):
        async with running(site) as (_, client), rtc_client() as rtc:
            headers = bearer(CALLS_KEY)
            async with client.post("/api/v1/web-calls/connect", json=body, headers=headers) as answer:
                assert answer.status == 200, await answer.text()
                ticket = await answer.json()
            await join(client, rtc, ticket["participantToken"])
            async with asyncio.timeout(30):
                while True:
                    async with client.get(f"/api/v1/calls/{ticket['roomName']}", headers=headers) as answer:
                        report: dict[str, Any] = await answer.json()
                    if report.get("endedAt"):
                        return report, voice.said
                    await asyncio.sleep(0.05)


async def test_a_browsers_call_begins_with_what_the_tool_said_of_its_pre_call_variables(
    tmp_path: Path,
) -> None:
    async with crm() as asked:
        report, said = await web_call(tmp_path, asked.url)
    (subject,) = asked.asked
    assert (subject["direction"], subject["preCallVariables"]) == ("web", {"customer": 4711})
    assert report["promptVariables"] == {"place": "gold"}
    assert report["status"] == "COMPLETED"
    assert "Goodbye from gold." in said


async def test_a_browsers_call_ends_with_the_reason_when_its_tool_fails(tmp_path: Path) -> None:
    async with crm() as asked:
        asked.answer = WRONG["an error"]
        report, said = await web_call(tmp_path, asked.url)
    assert (report["status"], report["hangupCause"]) == ("FAILED", "pre_call_tool")
    assert report["error"] == "pre-call tool crm: answered 500"
    assert not any(each.startswith("Goodbye from") for each in said)
