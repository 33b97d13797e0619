"""What an operator sees of calls: log lines, the metrics of their trunks, alert rules and the dashboard."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import pytest_asyncio
import yaml
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from mediaserver.telemetry.logging import JsonLines
from sip.call import Call
from tests.support.node.node import NUMBER, Client, Node, Site, place_call, running, until_final, write_site
from tests.support.paths import ROOT
from tests.support.sip.carrier import Carrier, carrier
from tests.support.sip.registrar import Registrar
from tests.support.udp import bound
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

BUSY, ODD = "busy", "odd"
INBOUND_NUMBER = "+14155550101"
OWN_LABELS = {"instance", "job"}
"""What Prometheus adds to every sample."""


async def treated(call: Call) -> None:
    """Busy and an unheard-of refusal in turn, then answers."""
    turn = TURNS.pop(0) if TURNS else ""
    if turn:
        await call.reject({BUSY: 486, ODD: 499}[turn])
        return
    await asyncio.sleep(0.3)
    await call.ring()
    await call.answer()
    await call.ended()


TURNS: list[str] = []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return write_site(tmp_path_factory.mktemp("observed"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def far(site: Site) -> AsyncIterator[Carrier]:
    async with carrier(site, treated) as side:
        yield side


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node(site: Site, far: Carrier) -> AsyncIterator[Node]:
    async with running(site) as made:
        made.server.metrics.watch_log(lambda: 0)  # as `mediaserver serve` does
        yield made


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[list[dict[str, Any]]]:
    """The log lines as an operator gets them."""
    lines: list[dict[str, Any]] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(json.loads(JsonLines().format(record)))

    handler = Lines()
    with caplog.at_level(logging.INFO, "mediaserver"):
        logging.getLogger("mediaserver").addHandler(handler)
        yield lines
        logging.getLogger("mediaserver").removeHandler(handler)


async def exposed(client: Client) -> str:
    async with client.get("/metrics") as answer:
        return await answer.text()


async def scraped(client: Client) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(await exposed(client))}


async def value(client: Client, sample: str, **labels: str) -> float:
    """The sum of the samples that have these labels."""
    families = await scraped(client)
    samples = [each for family in families.values() for each in family.samples if each.name == sample]
    return sum(each.value for each in samples if labels.items() <= each.labels.items())


def of_calls(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in lines if each["message"].startswith(("call ", "leg ", "inbound call "))]


async def test_an_answered_call_is_placed_answered_and_ended_in_the_log(
    node: Node, logged: list[dict[str, Any]]
) -> None:
    call_id = await place_call(node.client)
    await until_final(node.client, call_id)
    lines = of_calls(logged)
    assert [each["message"] for each in lines] == ["call placed", "call answered", "call ended"]
    assert {each["call_id"] for each in lines} == {call_id}
    placed, _, ended = lines
    assert (placed["direction"], placed["trunk"]) == ("outbound", "carrier")
    assert placed["phone_number"] == f"…{NUMBER[-2:]}"
    assert (ended["status"], ended["cause"], ended["sip_status"]) == ("COMPLETED", "normal", 200)
    assert ended["answered_ms"] > 0
    assert NUMBER[2:] not in json.dumps(logged)


async def test_a_refused_call_ends_with_its_reason(node: Node, logged: list[dict[str, Any]]) -> None:
    TURNS.append(BUSY)
    await until_final(node.client, await place_call(node.client))
    placed, ended = of_calls(logged)
    assert (placed["message"], ended["message"]) == ("call placed", "call ended")
    told = {name: ended[name] for name in ("status", "cause", "ended_by", "sip_status", "answered_ms")}
    assert told == {
        "status": "BUSY",
        "cause": "busy",
        "ended_by": "remote",
        "sip_status": 486,
        "answered_ms": 0,
    }


async def test_a_callers_call_is_received_answered_and_ended(
    node: Node, far: Carrier, logged: list[dict[str, Any]]
) -> None:
    call = await far.trunk.call(INBOUND_NUMBER, caller_id="+14155550177")
    await call.ended()
    await until(lambda: "call ended" in {each["message"] for each in logged})
    lines = of_calls(logged)
    assert [each["message"] for each in lines] == ["call received", "call answered", "call ended"]
    assert (lines[0]["direction"], lines[0]["phone_number"]) == ("inbound", "…77")


async def test_a_trunk_counts_its_final_codes_and_the_delay_until_it_rings(node: Node) -> None:
    def count(**labels: str) -> Any:
        return value(node.client, "mediaserver_trunk_calls_total", trunk="carrier", **labels)

    codes = [{"direction": "outbound", "code": code} for code in ("200", "486", "4xx")]
    before = [await count(**labels) for labels in codes]
    delays = await value(node.client, "mediaserver_trunk_post_dial_delay_seconds_count", trunk="carrier")
    delay_s = await value(node.client, "mediaserver_trunk_post_dial_delay_seconds_sum", trunk="carrier")
    for turn in (BUSY, ODD, ""):
        TURNS.extend([turn] if turn else [])
        await until_final(node.client, await place_call(node.client))
    assert [await count(**labels) for labels in codes] == [each + 1 for each in before]
    assert (
        await value(node.client, "mediaserver_trunk_post_dial_delay_seconds_count", trunk="carrier")
        == delays + 1
    )
    more_s = await value(node.client, "mediaserver_trunk_post_dial_delay_seconds_sum", trunk="carrier")
    assert more_s - delay_s >= 0.3


async def test_a_trunk_that_registers_says_whether_its_contact_is_held(tmp_path: Path) -> None:
    site = write_site(tmp_path)
    site.add('[[trunk]]\nid = "carrier"', 'username = "acme"\npassword = "pw"\nregister = true')
    async with running(site) as (_, client):
        assert 'mediaserver_trunk_registered{trunk="carrier"} 0.0' in await exposed(client)
    async with bound(Registrar(), port=site.carrier), running(site) as (server, client):
        await until(lambda: server.endpoint.trunks["carrier"].registered)
        assert 'mediaserver_trunk_registered{trunk="carrier"} 1.0' in await exposed(client)


async def test_the_sip_endpoint_tells_counts_from_what_is_there_now(node: Node) -> None:
    families = await scraped(node.client)
    kinds = {name: family.type for name, family in families.items() if name.startswith("mediaserver_sip")}
    assert kinds == {
        "mediaserver_sip_calls": "gauge",
        "mediaserver_sip_transactions": "gauge",
        "mediaserver_sip_dialogs": "gauge",
        "mediaserver_sip_rtp_ports_used": "gauge",
        "mediaserver_sip_messages": "counter",
        "mediaserver_sip_dropped": "counter",
        "mediaserver_sip_wrong_passwords": "counter",
    }
    assert await value(node.client, "mediaserver_sip_messages_total", way="sent") > 0


# Alert rules and the dashboard ------------------------------------------------------------------------------


def rules() -> list[str]:
    document = yaml.safe_load((ROOT / "config" / "prometheus" / "mediaserver.rules.yml").read_text())
    return [rule["expr"] for group in document["groups"] for rule in group["rules"]]


def queries() -> list[str]:
    board = json.loads((ROOT / "config" / "grafana" / "mediaserver.json").read_text())
    found = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    return [each.replace("$__rate_interval", "5m") for each in found]


def asked(expression: str) -> Iterator[tuple[str, set[str]]]:
    """The metrics that a PromQL expression asks for, each with the labels that it relies on."""
    selectors: list[Any] = []
    labels: set[str] = set()

    def visit(node: Any) -> None:
        match type(node).__name__:
            case "VectorSelector":
                selectors.append(node)
            case "MatrixSelector":
                selectors.append(node.vector_selector)
            case "AggregateExpr" if node.modifier is not None:
                labels.update(node.modifier.labels)

    promql_parser.walk(promql_parser.parse(expression), visit)
    for selector in dict.fromkeys(selectors):
        matched = {each.name for each in selector.matchers.matchers}
        yield selector.name, (matched | labels) - OWN_LABELS


@pytest.mark.parametrize("where", [rules, queries], ids=["alert rules", "dashboard"])
async def test_every_expression_asks_for_metrics_that_there_are(node: Node, where: Any) -> None:
    families = await scraped(node.client)
    samples = {each.name: set(each.labels) for family in families.values() for each in family.samples}
    named = {name + ending for name in families for ending in ("", "_total", "_bucket", "_count", "_sum")}
    expressions = where()
    assert len(expressions) > 10
    for expression in expressions:
        for metric, labels in asked(expression):
            assert metric in named | {"up"}, expression
            if metric in samples:
                assert labels <= samples[metric], expression


async def test_the_page_for_operators_names_metrics_that_there_are(node: Node) -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    families = await scraped(node.client)
    named = {name + ending for name in families for ending in ("", "_total")}
    told = set(re.findall(r"`(mediaserver_[a-z_]+)", page))
    assert len(told) > 5
    assert told <= named
