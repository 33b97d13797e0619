"""What a carrier says about a call reaches its agent, its record and the webhooks, and what may go to a
carrier: identity, chosen header fields, reasons."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sip.message.message import Request
from tests.support.http.webhooks import receiver
from tests.support.node.node import (
    KEY,
    NUMBER,
    OUTBOUND,
    Client,
    Site,
    bearer,
    running,
    until_final,
    write_site,
)
from tests.support.sip.raw_call import RawCall
from tests.support.sip.raw_carrier import RawCarrier, raw_carrier, says
from tests.support.waiting import until

DESK = "+14155550101"


def trunk_with(site: Site, lines: str) -> Site:
    """The site, with more keys of its trunk."""
    return site.add('[[trunk]]\nid = "carrier"', lines)


async def only_call(client: Client) -> str:
    async with client.get("/api/v1/calls", headers=bearer(KEY)) as listed:
        (row,) = (await listed.json())["calls"]
    return str(row["callTaskId"])


NOTHING = {
    "headers": {},
    "displayName": "",
    "asserted": False,
    "withheld": False,
    "verstat": "",
    "diversions": [],
    "userToUser": "",
    "reasons": [],
    "mediaEncryption": {"keys": "none", "suite": None},
    "passedOver": [],
}
"""What a record says of SIP where nothing was said."""

INVITE_LINES = (
    'P-Asserted-Identity: "Ann Lee" <sip:+14155550188;verstat=TN-Validation-Passed@carrier.example>',
    "Diversion: <sip:+14155550199@carrier.example>;reason=user-busy",
    "X-Account: north",
    "X-Tier: gold",
    "X-Secret: not for you",
    "User-to-User: 706c65617365;encoding=hex",
)


async def test_an_invites_identity_and_chosen_fields_are_told(tmp_path: Path) -> None:
    site = trunk_with(
        write_site(tmp_path),
        'identity = "pai"\npass_headers = ["X-Tier"]\nheaders = { "X-Account" = "account" }\n'
        "caller_variables = true",
    )
    said = "Welcome {{caller_name}}, {{account}}, {{X-Tier}}, {{user_to_user}}."
    site.change('greeting = "Welcome."', f'greeting = "{said}"').reach_this_machine()
    async with receiver() as hooks:
        hook = f'[[company.webhook]]\nurl = "{hooks.url}"\nsecret = "whsec_c2VjcmV0LXNlY3JldA=="'
        site.change('[[company]]\nid = "other"', f'{hook}\n[[company]]\nid = "other"')
        async with running(site) as (_, client), RawCall(site.sip, DESK, lines=INVITE_LINES) as caller:
            await caller.answered()
            call_id = await only_call(client)
            caller.reply(await caller.asked("BYE"))
            report = await until_final(client, call_id)
            await until(lambda: any('"call.completed"' in text for _, text in hooks.requests))
    sip = {
        "headers": {"X-Tier": "gold", "X-Account": "north"},
        "displayName": "Ann Lee",
        "asserted": True,
        "verstat": "TN-Validation-Passed",
        "diversions": [{"number": "+14155550199", "reason": "user-busy"}],
        "userToUser": "please",
    }
    assert report["sip"] == NOTHING | sip
    assert report["phoneNumber"] == "+14155550188"
    assert report["transcript"][0]["text"].startswith("Welcome Ann Lee, north, gold, please.")
    assert report["promptVariables"]["diverted_from"] == "+14155550199"
    events = [json.loads(text) for _, text in hooks.requests]
    told = {each["type"]: each["data"].get("sip") for each in events}
    plain = {"mediaEncryption": NOTHING["mediaEncryption"]}
    assert (told["call.ringing"], told["call.completed"]) == (sip, sip | plain)
    assert "not for you" not in json.dumps([report, events])


async def test_a_withheld_number_is_told_nobody(tmp_path: Path) -> None:
    site = trunk_with(write_site(tmp_path), 'identity = "pai"\ncaller_variables = true')
    lines = ("P-Asserted-Identity: <sip:+14155550188@carrier.example>", "Privacy: id")
    masked = '"Anonymous" <sip:anonymous@anonymous.invalid>'
    async with running(site) as (_, client):
        async with RawCall(site.sip, DESK, caller=masked, lines=lines) as caller:
            await caller.answered()
            call_id = await only_call(client)
            await caller.hang_up()
        report = await until_final(client, call_id)
    assert (report["phoneNumber"], report["sip"]["withheld"]) == ("anonymous", True)
    assert "14155550188" not in json.dumps(report)
    assert report["promptVariables"]["caller_number"] == ""


async def test_the_callers_reason_is_in_the_record(tmp_path: Path) -> None:
    site = write_site(tmp_path)
    reason = 'Reason: Q.850;cause=31;text="Normal, unspecified", SIP;cause=200;text="elsewhere"'
    async with running(site) as (_, client):
        async with RawCall(site.sip, DESK) as caller:
            await caller.answered()
            call_id = await only_call(client)
            caller.send(caller.request("BYE", reason))
            assert (await caller.final("BYE")).status == 200
        report = await until_final(client, call_id)
    assert report["sip"]["reasons"] == [
        {"protocol": "Q.850", "cause": 31, "text": "Normal, unspecified"},
        {"protocol": "SIP", "cause": 200, "text": "elsewhere"},
    ]


# What goes to a carrier ------------------------------------------------------------------------------------


async def placed(client: Client, **more: Any) -> tuple[int, Any]:
    body = {"agentId": OUTBOUND, "phoneNumber": NUMBER, "promptVariables": {"name": "Bo"}, **more}
    async with client.post("/api/v1/calls/outbound", json=body, headers=bearer(KEY)) as answer:
        return answer.status, await answer.json()


async def invited(carrier: RawCarrier) -> Request:
    """The INVITE that has come, refused as busy with a reason."""
    await until(lambda: "INVITE" in carrier.methods())
    invite = carrier.seen[0]
    carrier.answer(invite, 486, lines=['Reason: Q.850;cause=17;text="User busy"'])
    return invite


async def test_fields_of_a_request_and_variables_go_out_and_are_told(tmp_path: Path) -> None:
    site = trunk_with(write_site(tmp_path), 'send_headers = { "X-Customer" = "name", "X-Empty" = "none" }')
    sent = {"X-Order": "7, or 8", "User-to-User": "3034;encoding=hex"}
    variables = {"name": "Bo\r\nVia: SIP/2.0/UDP evil"}
    async with running(site) as (_, client), raw_carrier(site.carrier, says(487)) as carrier:
        status, answer = await placed(client, headers=sent, promptVariables=variables)
        assert status == 200, answer
        invite = await invited(carrier)
        report = await until_final(client, answer["data"]["callTaskId"])
    assert {name: invite.header(name) for name in sent} == sent
    assert invite.header("X-Customer") == "Bo Via: SIP/2.0/UDP evil"
    assert invite.header("X-Empty") is None
    assert len(invite.vias) == 1
    assert report["sip"] == NOTHING | {
        "headers": {"X-Customer": "Bo Via: SIP/2.0/UDP evil", **sent},
        "reasons": [{"protocol": "Q.850", "cause": 17, "text": "User busy"}],
    }
    assert report["status"] == "BUSY"


REFUSED: tuple[Mapping[str, str], ...] = (
    {"From": "<sip:x@h>"},
    {"P-Asserted-Identity": "<sip:+1@h>"},
    {"Route": "<sip:h;lr>"},
    {"Subject": "hello"},
    {"X-A": "b\r\nVia: c"},
    {"X-A": "b\nc"},
    {"X A": "b"},
    {"X-A:": "b"},
    {"": "b"},
    {"X-A": "b" * 2049},
    {f"X-{number}": "a" for number in range(21)},
)


async def test_fields_that_may_not_go_out_are_refused(tmp_path: Path) -> None:
    async with running(write_site(tmp_path)) as (_, client):
        for headers in REFUSED:
            status, answer = await placed(client, headers=headers)
            assert (status, "headers" in answer["error"]) == (400, True), (headers, answer)
        batch = {"agentId": OUTBOUND, "calls": [{"phoneNumber": NUMBER}], "headers": {"X-A": "b"}}
        async with client.post("/api/v1/calls/outbound", json=batch, headers=bearer(KEY)) as answered:
            assert answered.status == 400


@pytest.mark.parametrize(
    ("keys", "sender", "fields"),
    [
        ('identity = "pai"\ncaller_name = "Acme, Inc"', '"Acme, Inc" <sip:+14155550100@', {
            "P-Asserted-Identity": '"Acme, Inc" <sip:+14155550100@127.0.0.1>', "Privacy": None}),
        ('identity = "pai"\nwithhold_number = true', '"Anonymous" <sip:anonymous@anonymous.invalid>', {
            "P-Asserted-Identity": "<sip:+14155550100@127.0.0.1>", "Privacy": "id"}),
        ('identity = "rpid"', "<sip:+14155550100@", {
            "Remote-Party-ID": "<sip:+14155550100@127.0.0.1>;party=calling;screen=yes;privacy=off"}),
        ("withhold_number = true", '"Anonymous" <sip:anonymous@anonymous.invalid>', {
            "P-Asserted-Identity": None, "Privacy": "id"}),
    ],
)  # fmt: skip
async def test_our_number_goes_where_the_trunk_says(
    tmp_path: Path, keys: str, sender: str, fields: Mapping[str, str | None]
) -> None:
    site = trunk_with(write_site(tmp_path), keys)
    async with running(site) as (_, client), raw_carrier(site.carrier, says(487)) as carrier:
        await placed(client)
        invite = await invited(carrier)
        assert (invite.header("From") or "").startswith(sender)
        assert {name: invite.header(name) for name in fields} == fields
        if "withhold" in keys:
            assert "14155550100" not in f"{invite.header('From')}{invite.header('Contact')}"


TRANSFER = """action = "transfer"
target = "sales"
"""
HURRIED = """say = "Goodbye."
action = "hang_up"
disposition = "greeted"
"""
SIGNED = "eyJhbGciOiJFUzI1NiJ9.eyJvcmlnIjp7InRuIjoiMSJ9fQ.c2ln;info=<https://certs.example/1>;alg=ES256"


async def test_a_transfer_passes_on_what_the_trunk_names(tmp_path: Path) -> None:
    """The caller's STIR signature, its user-to-user data and a field under another name."""
    passed = (
        'headers = { "Identity" = "identity", "User-to-User" = "uui", "X-Account" = "account" }\n'
        'send_headers = { "Identity" = "identity", "User-to-User" = "uui", "X-Customer" = "account" }'
    )
    site = trunk_with(write_site(tmp_path), passed).change(HURRIED, TRANSFER)
    site.change('name = "Front desk"', f'name = "Front desk"\ntransfer_targets = {{ sales = "{NUMBER}" }}')
    lines = (f"Identity: {SIGNED}", "User-to-User: 3034;encoding=hex", "X-Account: 7\t8")
    async with running(site) as (_, client), raw_carrier(site.carrier, says(487)) as carrier:
        async with RawCall(site.sip, DESK, lines=lines) as caller:
            await caller.answered()
            invite = await invited(carrier)
            call_id = await only_call(client)
            await caller.hang_up()
        await until_final(client, call_id)
    assert invite.header("Identity") == SIGNED
    assert invite.header("User-to-User") == "3034;encoding=hex"
    assert invite.header("X-Customer") == "7 8"
    assert invite.header("X-Account") is None
