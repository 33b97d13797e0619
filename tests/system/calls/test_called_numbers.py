"""Which agent answers a call, by the number that the caller dialled: on a registered trunk, with what
carriers write behind numbers, by patterns, extensions and the time of day."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.http.api_site import OTHER_ADMIN_KEY, write_api_site
from tests.support.node.node import (
    INBOUND,
    KEY,
    OTHER_COMPANYS,
    OTHER_KEY,
    Node,
    Site,
    bearer,
    running,
    write_site,
)
from tests.support.sip.raw_call import RawCall
from tests.support.sip.registrar import Registrar
from tests.support.udp import bound
from tests.support.waiting import until

DESK = "+14155550101"
SCRIPT = {"start": "bye", "step": [{"id": "bye", "say": "Goodbye.", "action": "hang_up"}]}


async def answered_by(
    node: Node,
    site: Site,
    number: str,
    *,
    user: str = "",
    lines: Sequence[str] = (),
    key: str = KEY,
) -> str:
    """The agent that answers the call, "" where it is refused as one to nobody's number."""
    async with RawCall(site.sip, number, user=user, lines=lines) as caller:
        caller.invite()
        response = await caller.final()
        caller.take_tag(response)
        if response.status != 200:
            assert response.status == 404, response.status
            return ""
        caller.send(caller.request("ACK", cseq=1))
        await caller.hang_up()
    async with node.client.get("/api/v1/calls", headers=bearer(key)) as answer:
        return str((await answer.json())["calls"][0]["agentId"])


def registered_site(directory: Path, *, more: str = "") -> Site:
    """The site, its trunk registered and open to nobody else."""
    site = write_site(directory)
    listed = 'allow_from = ["127.0.0.1/32"]'
    return site.change(listed, f'username = "acme-line"\npassword = "secret"\nregister = true\n{more}')


@pytest.mark.parametrize(
    ("number", "lines"),
    [
        (DESK, ()),
        ("14155550101", ()),
        (f"{DESK};npdi;rn=+14155550000", ()),
        ("acme-line", (f"P-Called-Party-ID: <sip:{DESK}@carrier.example;user=phone>",)),
        ("+14155550000", (f"P-Called-Party-ID: <tel:{DESK}>",)),
        ("acme-line", ("X-DID: 14155550101",)),
    ],
)
async def test_a_registrar_calls_the_contact_and_the_dialled_numbers_agent_answers(
    tmp_path: Path, number: str, lines: Sequence[str]
) -> None:
    site = registered_site(tmp_path)
    async with bound(Registrar(), port=site.carrier) as carrier, running(site) as node:
        await until(lambda: node.server.endpoint.trunks["carrier"].registered)
        assert carrier.contacts[0].startswith(f"<sip:acme-line@127.0.0.1:{site.sip}")
        agent = await answered_by(node, site, number, user="acme-line", lines=lines)
    assert agent == INBOUND


async def test_a_header_field_of_the_carriers_own_can_name_the_number(tmp_path: Path) -> None:
    site = registered_site(tmp_path, more='called_number_headers = ["X-Ziel"]')
    async with bound(Registrar(), port=site.carrier), running(site) as node:
        await until(lambda: node.server.endpoint.trunks["carrier"].registered)
        lines = (f"X-Ziel: {DESK}",)
        assert await answered_by(node, site, "acme-line", user="acme-line", lines=lines) == INBOUND
        assert await answered_by(node, site, DESK, user="acme-line") == ""


async def test_without_a_registration_nobody_is_let_in(tmp_path: Path) -> None:
    site = registered_site(tmp_path)
    async with running(site), RawCall(site.sip, DESK, user="acme-line") as stranger:
        stranger.invite()
        assert (await stranger.final()).status == 401


@pytest.mark.parametrize(
    "user",
    [
        f"{DESK};npdi;rn=+14155550000",
        f"{DESK};verstat=TN-Validation-Passed",
        "+1-415-555-0101;phone-context=+1",
    ],
)
async def test_parameters_of_a_number_are_not_part_of_it(tmp_path: Path, user: str) -> None:
    site = write_site(tmp_path)
    async with running(site) as node:
        assert await answered_by(node, site, DESK, user=user) == INBOUND


# Companies that share a carrier's addresses ----------------------------------------------------------------

OTHERS_NUMBER = "+14155550102"
OTHERS = f"""
[[trunk]]
id = "others-line"
company = "other"
uri = "sip:127.0.0.1:9"
allow_from = ["127.0.0.0/8"]

[[agent]]
id = "{OTHER_COMPANYS[:-1]}9"
company = "other"
direction = "inbound"
trunk = "others-line"
phone_number = "{OTHERS_NUMBER}"
{{engines}}
[agent.script]
start = "bye"
step = [{{{{ id = "bye", say = "Goodbye.", action = "hang_up" }}}}]
"""


async def test_the_number_decides_between_companies_at_one_address(tmp_path: Path) -> None:
    site = write_site(tmp_path, more=OTHERS)
    async with running(site) as node:
        assert await answered_by(node, site, DESK) == INBOUND
        assert await answered_by(node, site, OTHERS_NUMBER, key=OTHER_KEY) == f"{OTHER_COMPANYS[:-1]}9"
        assert await answered_by(node, site, "+14155550103") == ""


async def managed(node: Node, path: str, body: Mapping[str, Any], key: str) -> int:
    """The status of making something over the API."""
    async with node.client.post(f"/api/v1{path}", json=body, headers=bearer(key)) as answer:
        return answer.status


async def test_nobody_takes_a_number_of_another_company(tmp_path: Path) -> None:
    """The operator has given `other` one number and made it a trunk at acme's carrier."""
    site = write_api_site(tmp_path).change(
        'name = "Other"', f'name = "Other"\ncaller_ids = ["{OTHERS_NUMBER}"]'
    )
    line = {"uri": "sip:127.0.0.1:9", "allowFrom": ["127.0.0.0/8"]}
    desk = {
        "direction": "inbound",
        "script": SCRIPT,
        "stt": {"engine": "test-ears"},
        "tts": {"engine": "test-voice"},
    }
    async with running(site) as node:
        async with node.client.post("/api/v1/trunks", json=line, headers=bearer(OTHER_ADMIN_KEY)) as answer:
            assert answer.status == 201, await answer.text()
            desk["trunk"] = (await answer.json())["id"]
        for number, status in ((DESK, 409), ("+14155550103", 409), (OTHERS_NUMBER, 201)):
            body = desk | {"phoneNumber": number}
            assert await managed(node, "/agents", body, OTHER_ADMIN_KEY) == status
        assert await answered_by(node, site, DESK) == INBOUND
        assert await answered_by(node, site, OTHERS_NUMBER, key=OTHER_KEY) != ""


# Numbers and patterns of an agent ---------------------------------------------------------------------------

NOT_NOW = f"{datetime.now(UTC) - timedelta(days=3):%a}".lower()
MANY = """
[[agent]]
id = "7b0f7e7e-4f5a-4b8e-9f43-5f0f2c3f9f3{number}"
company = "acme"
direction = "inbound"
trunk = "carrier"
{lines}
{{engines}}
[agent.script]
start = "bye"
step = [{{{{ id = "bye", say = "Goodbye.", action = "hang_up" }}}}]
"""
LINES = (
    'phone_numbers = ["+1415556*", "1001", "+14155550150-59"]',
    f'phone_number = "{DESK}"\nanswering_windows = ["{NOT_NOW} 00:00-24:00"]\ntime_zone = "UTC"',
    'phone_numbers = ["+14155550160"]\nanswering_windows = ["* 00:00-24:00"]',
    'phone_numbers = ["+14155550160"]',
    'phone_numbers = ["*"]',
)


async def test_ranges_extensions_hours_and_a_catch_all(tmp_path: Path) -> None:
    more = "".join(MANY.format(number=number, lines=lines) for number, lines in enumerate(LINES))
    site = write_site(tmp_path, more=more)
    called = {
        DESK: INBOUND,  # the other one answers on another day
        "+14155560199": "0",
        "1001": "0",
        "+14155550155": "0",
        "+14155550160": "2",  # it has hours, and this is one of them
        "+442079460000": "4",
        "reception": "4",
    }
    async with running(site) as node:
        answered = {number: await answered_by(node, site, number) for number in called}
    assert {number: agent if agent == INBOUND else agent[-1] for number, agent in answered.items()} == called
