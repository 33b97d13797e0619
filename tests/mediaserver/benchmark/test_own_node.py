"""The node that is started for a benchmark: the agent as it is, and nothing that reaches anybody else."""

from __future__ import annotations

from pathlib import Path

import pytest

from mediaserver.benchmark.own_node import CannotTakeCalls, Order, check, settings_of
from mediaserver.settings import Settings, load
from tests.support.node.node import OUTBOUND, REAL_ENGINES, write_site

MORE = """
[[company.webhook]]
url = "http://127.0.0.1:9/hook"
secret = "whsec_ZGVtby13ZWJob29rLXNlY3JldC1vZi0zMi1ieXRlcyE="
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    site = write_site(tmp_path, engines=REAL_ENGINES)
    text = site.path.read_text()
    site.path.write_text(text.replace('scopes = ["speech"]\n', f'scopes = ["speech"]\n{MORE}', 1))
    return load(site.path)


def order(**changes: object) -> Order:
    fields = {"config": "my.toml", "agent_id": OUTBOUND, "data_dir": "/tmp/x", "http": 8088, "sip": 5088}
    return Order(**{**fields, **changes})  # type: ignore[arg-type]


def test_nothing_of_it_reaches_anybody_else(settings: Settings) -> None:
    assert settings.companies[0].webhooks
    node = settings_of(settings, order(calls=7))
    (company,) = node.companies
    assert (company.webhooks, company.keys, company.prefixes) == ((), (), ())
    (trunk,) = node.trunks
    assert (trunk.uri, [str(each) for each in trunk.allow_from]) == ("sip:127.0.0.1:9", ["127.0.0.1/32"])
    assert node.server.data_dir == "/tmp/x"
    assert node.server.database == ""
    assert node.server.http == "127.0.0.1:8088"
    assert (node.sip.udp, node.sip.tcp, node.sip.tls) == ("127.0.0.1:5088", None, None)
    assert node.rooms.api_secret is None
    assert node.sip.max_calls >= 7
    assert company.max_concurrent_calls >= 7


def test_an_outbound_agent_answers_with_the_variables_in_its_words(settings: Settings) -> None:
    with pytest.raises(CannotTakeCalls, match="--var NAME=VALUE for name"):
        check(settings_of(settings, order()).agents[0])
    (agent,) = settings_of(settings, order(variables={"name": "Bo"})).agents
    check(agent)
    before = settings.agent(OUTBOUND)
    assert before is not None
    assert (agent.direction, agent.phone_number) == ("inbound", before.phone_number)
    assert "Is this Bo?" in str(agent.script)
    assert (agent.stt, agent.tts, agent.session) == (before.stt, before.tts, before.session)


def test_an_agent_that_is_not_there(settings: Settings) -> None:
    with pytest.raises(CannotTakeCalls, match=r"my\.toml: agent: no 'x'"):
        settings_of(settings, order(agent_id="x"))
