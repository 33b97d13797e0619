"""Softphones in a browser: JsSIP over WebSocket registers, calls agents, and is called."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.audio import wav
from tests.peers.test_users import placed, signed, users_site
from tests.support.http.models import fake_models
from tests.support.node.node import (
    ASKING_NUMBER,
    KEY,
    Site,
    asking_agent,
    bearer,
    only_report,
    reached,
    running,
    until_final,
)
from tests.support.sip.raw_call import RawCall
from tests.support.speech.media import speech_like
from tests.support.speech.tones import write_wav
from tests.support.webrtc.chromium import Page
from tests.support.webrtc.softphone_page import softphone_page

pytestmark = pytest.mark.slow

DIGITS = 'expect = { kinds = ["digits"], digits = 4 }\ncollect = "code"'
SECOND = np.zeros(16_000, np.int16)


def spoken_site(directory: Path, question: str, expected: str = "") -> Site:
    """The site of users with an agent that asks; a recogniser that takes all speech for the same words."""
    site = users_site(directory, more=asking_agent(question))
    if expected:
        before, agent = site.path.read_text().rsplit("[[agent]]", 1)
        agent = agent.replace('expect = { kinds = ["yes_no"] }', expected)
        site.path.write_text(f"{before}[[agent]]{agent}")
    return site


def words(path: Path) -> Path:
    """What is said into the microphone: nothing, something, nothing."""
    write_wav(path, np.concatenate([*[SECOND] * 4, speech_like(32_000), *[SECOND] * 20]), 16_000)
    return path


async def registered(page: Page, client: Any) -> None:
    url = str(client.make_url("/sip")).replace("http:", "ws:")
    assert await page.run(f"phone('{url}', 'anna', 'anna-password', '127.0.0.1')") == "registered"


async def happened(page: Page, name: str) -> dict[str, Any]:
    told: dict[str, Any] = await page.until(f"events.find(each => each.event === {name!r})", timeout_s=30)
    return told


async def test_jssip_calls_an_agent_and_both_are_heard(tmp_path: Path) -> None:
    site = spoken_site(tmp_path, "Are you calling about an appointment?")
    with fake_models() as (recognizer, _):
        recognizer.answer = "yes"
        async with (
            running(site) as (_, client),
            softphone_page(microphone=words(tmp_path / "words.wav")) as page,
        ):
            await registered(page, client)
            await page.run(f"dial('sip:{ASKING_NUMBER}@127.0.0.1')")
            await happened(page, "confirmed")
            await page.until("loudest() > 0.05", timeout_s=20)
            ended = await happened(page, "ended")
            report = await only_report(client)
            url = f"/api/v1/calls/{report['callTaskId']}/recording"
            async with client.get(url, headers=bearer(KEY)) as kept:
                sound, _ = wav.read_channels(io.BytesIO(await kept.read()))
    assert ended["originator"] == "remote"
    assert (report["status"], report["phoneNumber"]) == ("COMPLETED", "user:anna")
    said = [(entry["role"], entry["text"]) for entry in report["transcript"]]
    assert said.index(("caller", "yes")) < said.index(("agent", "Goodbye."))
    assert np.abs(sound[0].astype(np.int32)).max() > 1000
    assert report["sip"]["mediaEncryption"]["keys"] == "dtls"


async def test_keys_of_a_browser_by_info_and_by_rtp(tmp_path: Path) -> None:
    site = spoken_site(tmp_path, "Your code?", DIGITS)
    write_wav(tmp_path / "quiet.wav", np.concatenate([SECOND] * 30), 16_000)
    async with (
        running(site) as (_, client),
        softphone_page(microphone=tmp_path / "quiet.wav") as page,
    ):
        await registered(page, client)
        await page.run(f"dial('sip:{ASKING_NUMBER}@127.0.0.1')")
        await happened(page, "confirmed")
        await page.until("loudest() > 0.05", timeout_s=20)
        await asyncio.sleep(1)
        for key, way in (("4", "INFO"), ("7", "INFO"), ("1", "RFC2833"), ("2", "RFC2833")):
            await page.run(f"session.sendDTMF('{key}', {{ transportType: '{way}' }}), 1")
            await asyncio.sleep(0.7)
        await happened(page, "ended")
        report = await only_report(client)
    assert report["analysis"]["answers"] == {"code": "4712"}


@pytest.mark.nightly("ci")
async def test_a_browser_and_a_telephone_ring_together_and_the_browser_answers(tmp_path: Path) -> None:
    site = users_site(tmp_path)
    async with (
        running(site) as (_, client),
        softphone_page() as page,
        RawCall(site.sip, "anna") as desk,
    ):
        await registered(page, client)
        assert (await signed(desk, "REGISTER", "anna", "anna-password")).status == 200
        told = await placed(client)
        rung = await desk.asked("INVITE")
        desk.reply(rung, 180)
        cancelled = await desk.asked("CANCEL")
        desk.reply(cancelled)
        desk.reply(rung, 487)
        await reached(client, told["callTaskId"], "ANSWERED")
        await page.until("loudest() > 0.05", timeout_s=20)
        session = await happened(page, "session")
        await page.run("session.terminate(), 1")
        report = await until_final(client, told["callTaskId"])
        await page.run("agent.stop(), 1")
    assert session == {"event": "session", "originator": "remote", "from": "+14155550100"}
    assert b"RTP/AVP" in rung.body
    assert (report["status"], report["endedBy"]) == ("COMPLETED", "remote")
    assert "Call completed elsewhere" in (cancelled.header("Reason") or "")
