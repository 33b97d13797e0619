"""A softphone that registers with the server: it calls agents, and agents call it."""

from __future__ import annotations

import asyncio
import io
import re
from pathlib import Path

import numpy as np
import pytest

from pipeline.audio import wav
from tests.support.node.node import (
    KEY,
    Site,
    bearer,
    only_report,
    place_call,
    reached,
    running,
    until_final,
    write_site,
)
from tests.support.sip.baresip import baresip
from tests.support.sip.raw_call import RawCall
from tests.support.speech.tones import loud_part, share_at, tone
from tests.support.waiting import until

pytestmark = pytest.mark.peer

PCMU = "PCMU/8000/1"
QUIET = np.zeros(8000 * 20, np.int16)


def phone_site(directory: Path) -> Site:
    """The site, its trunk a telephone's; the front desk is its extension 1001."""
    (directory / "phone").mkdir()
    site = write_site(directory)
    keys = 'username = "desk"\npassword = "secret"\naccept_register = true'
    site.change('allow_from = ["127.0.0.1/32"]', keys)
    return site.change('name = "Front desk"', 'name = "Front desk"\nphone_numbers = ["1001"]')


def account(site: Site, password: str = "secret") -> str:
    return f"<sip:desk@127.0.0.1:{site.sip};transport=udp>;auth_user=desk;auth_pass={password};regint=60"


async def test_a_registered_phone_calls_an_agent_by_its_extension(tmp_path: Path) -> None:
    site = phone_site(tmp_path)
    dial = f"/dial sip:1001@127.0.0.1:{site.sip}"
    async with running(site) as (server, client):
        phone = baresip(tmp_path / "phone", PCMU, QUIET, 8000, account=account(site), command=dial)
        async with phone:
            report = await only_report(client)
            await until(lambda: server.endpoint.trunks["carrier"].telephones)
    assert (report["status"], report["analysis"]["disposition"]) == ("COMPLETED", "greeted")
    assert report["phoneNumber"] == "desk"


async def test_an_agent_calls_a_registered_phone(tmp_path: Path) -> None:
    site = phone_site(tmp_path)
    phone = baresip(tmp_path / "phone", PCMU, QUIET, 8000, account=account(site))
    async with running(site) as (server, client), phone:
        await until(lambda: server.endpoint.trunks["carrier"].telephones)
        call_id = await place_call(client)
        await reached(client, call_id, "ANSWERED")
        async with client.post(f"/api/v1/calls/{call_id}/hangup", headers=bearer(KEY)):
            report = await until_final(client, call_id)
    assert report["status"] == "COMPLETED"


async def test_a_wrong_password_registers_nothing(tmp_path: Path) -> None:
    site = phone_site(tmp_path)
    async with running(site) as (server, _):
        async with RawCall(site.sip, "desk") as peer:
            peer.send(peer.request("REGISTER", "Expires: 60"))
            refused = await peer.final("REGISTER")
        assert refused.status == 401
        async with baresip(tmp_path / "phone", PCMU, QUIET, 8000, account=account(site, "guess")):
            await until(lambda: server.endpoint.stats.wrong_passwords > 0)
        assert not server.endpoint.trunks["carrier"].telephones


async def test_a_registered_phones_audio_is_protected_and_no_trace_shows_a_key(tmp_path: Path) -> None:
    site = phone_site(tmp_path).change("accept_register = true", 'accept_register = true\nsrtp = "sdes"')
    hum = tone(440, 20.0, 8000)
    phone = baresip(tmp_path / "phone", PCMU, hum, 8000, account=account(site), media="srtp-mand")
    async with running(site) as (server, client), phone:
        await until(lambda: server.endpoint.trunks["carrier"].telephones)
        call_id = await place_call(client)
        await reached(client, call_id, "ANSWERED")
        await asyncio.sleep(1.5)
        async with client.post(f"/api/v1/calls/{call_id}/hangup", headers=bearer(KEY)):
            report = await until_final(client, call_id)
        async with client.get(f"/api/v1/calls/{call_id}/trace", headers=bearer(KEY)) as told:
            trace = await told.text()
        async with client.get(f"/api/v1/calls/{call_id}/trace.pcap", headers=bearer(KEY)) as told:
            pcap = await told.read()
        async with client.get(f"/api/v1/calls/{call_id}/recording", headers=bearer(KEY)) as kept:
            sound, rate_hz = wav.read_channels(io.BytesIO(await kept.read()))
    assert share_at(loud_part(sound[0], rate_hz), rate_hz, 440) > 0.8
    assert report["sip"]["mediaEncryption"] == {"keys": "sdes", "suite": "AES_CM_128_HMAC_SHA1_80"}
    assert "inline:***" in trace
    assert set(re.findall(r"inline:(\S{3})", trace)) == {"***"}
    assert set(re.findall(rb"inline:(\S{3})", pcap)) == {b"***"}


async def test_a_phone_registers_from_where_scanners_would_be_banned(tmp_path: Path) -> None:
    """No address is spared: the challenge is no longer than what the telephone sent, or comes a moment
    later."""
    site = phone_site(tmp_path)
    site.add("[sip]", "never_ban = []")
    site.change(f"sip:127.0.0.1:{site.carrier}", "sip:192.0.2.1:5060")
    async with running(site) as (server, _):
        phone = baresip(tmp_path / "phone", PCMU, QUIET, 8000, account=account(site))
        async with phone:
            await until(lambda: server.endpoint.trunks["carrier"].telephones)
        assert (server.endpoint.stats.bans, server.endpoint.stats.banned) == (0, 0)
