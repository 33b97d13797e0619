"""The dashboard in a real browser, over calls made by SIP: what it shows, plays, finds, and never runs."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from tests.support.http.models import fake_models
from tests.support.node.node import (
    ASKING_NUMBER,
    KEY,
    NUMBER,
    OTHER_KEY,
    OUTBOUND,
    Client,
    asking_agent,
    bearer,
    running,
    until_final,
    write_site,
)
from tests.support.sip.raw_call import RawCall
from tests.support.speech.media import speech_like
from tests.support.webrtc.chromium import Page, chromium

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180), pytest.mark.asyncio(loop_scope="module")]

EVIL = (
    "<img src=x onerror=pwned()>",
    "<script>pwned()</script>",
    "\"'><svg/onload=pwned()>",
    "javascript:pwned()",
    "</bdi><iframe srcdoc='<script>parent.pwned()</script>'></iframe>",
    "\u202egnp.exe{{constructor.constructor('pwned()')()}}",
)
"""What a stranger writes as a name, says, and has in header fields."""

ALL_EVIL = " ".join(EVIL)
QUIET = np.zeros(8000, np.int16)
CALLER = '"<img src=x onerror=pwned()>" <sip:+14155550199@127.0.0.1>'
HEADER = "X-Note: <script>pwned()</script>"

TEXT = "document.body.innerText"
STEPS = "[...document.querySelectorAll('.rung > span:first-child')].map(each => each.textContent)"
RAN = "typeof window.pwned_by !== 'undefined'"
FOREIGN = "document.querySelectorAll('main img, main script, main iframe, [onerror], [onload]').length"
HEARD = """
(async () => {
  const context = new AudioContext();
  const source = context.createMediaElementSource(document.getElementById('voice'));
  const meter = context.createAnalyser();
  source.connect(meter);
  meter.connect(context.destination);
  const levels = new Float32Array(meter.fftSize);
  window.loudest = 0;
  setInterval(() => {
    meter.getFloatTimeDomainData(levels);
    window.loudest = Math.max(window.loudest, ...levels);
  }, 50);
})()
"""
ENTER = """(() => {
  document.getElementById('key').value = 'KEY';
  document.querySelector('#door button').click();
})()"""


@dataclass
class World:
    """A server with a call that was answered and one that failed, and a browser."""

    client: Client
    page: Page
    port: int
    talked: dict[str, Any]
    failed: dict[str, Any]

    def url(self, path: str) -> str:
        return str(self.client.make_url("/")).rstrip("/") + path

    async def enter(self, path: str) -> None:
        """Opens a page with the company's key."""
        await self.page.open(self.url("/dashboard"))
        await self.page.run(f"sessionStorage.setItem('openline.key', '{KEY}')")
        await self.page.open(self.url(path))

    async def answered_calls(self) -> list[dict[str, Any]]:
        async with self.client.get("/api/v1/calls?status=ANSWERED", headers=bearer(KEY)) as listed:
            rows: list[dict[str, Any]] = (await listed.json())["calls"]
            return rows

    async def call_page(self, call: dict[str, Any], fragment: str = "") -> None:
        await self.page.call("Page.navigate", url="about:blank")
        await self.enter(f"/dashboard/calls/{call['callTaskId']}{fragment}")
        await self.page.until("document.getElementById('outcome').textContent !== ''")


async def talk(client: Client, port: int) -> dict[str, Any]:
    """The report of a call by a stranger who speaks once; the recogniser hears the corpus."""
    async with RawCall(port, ASKING_NUMBER, caller=CALLER, lines=(HEADER,)) as call:
        await call.answered()
        await call.play(np.concatenate([QUIET, QUIET, speech_like(8000), QUIET, QUIET]))
        call.reply(await call.asked("BYE"))
    async with client.get("/api/v1/calls", headers=bearer(KEY)) as listed:
        [row] = (await listed.json())["calls"]
    report: dict[str, Any] = await until_final(client, row["callTaskId"])
    return report


async def fail(client: Client) -> dict[str, Any]:
    """The report of a call that no carrier takes, to somebody with an evil name."""
    body = {
        "agentId": OUTBOUND,
        "phoneNumber": NUMBER,
        "promptVariables": {"name": ALL_EVIL},
        "metadata": {EVIL[0]: EVIL[1]},
    }
    async with client.post("/api/v1/calls/outbound", json=body, headers=bearer(KEY)) as answer:
        placed = await answer.json()
        assert answer.status == 200, placed
    report: dict[str, Any] = await until_final(client, placed["data"]["callTaskId"], timeout_s=45)
    return report


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    site = write_site(
        tmp_path_factory.mktemp("dashboard"), more=asking_agent("How can I help?"), transport="tcp"
    )
    before, agent = site.path.read_text().rsplit("[[agent]]", 1)
    free = 'expect = { kinds = ["free"] }\ncollect = "wish"'
    agent = agent.replace('expect = { kinds = ["yes_no"] }', free)
    site.path.write_text(f"{before}[[agent]]{agent}")
    with fake_models() as (recognizer, _):
        recognizer.answer = ALL_EVIL
        async with running(site) as (_, client), chromium() as page:
            talked = await talk(client, site.sip)
            await page.call("Page.enable")
            script = "window.pwned = () => { window.pwned_by = 1; }; window.alert = window.pwned;"
            await page.call("Page.addScriptToEvaluateOnNewDocument", source=script)
            yield World(client, page, site.sip, talked, await fail(client))


async def test_a_key_is_asked_for_kept_in_the_tab_and_refused_in_words(world: World) -> None:
    page = world.page
    await page.open(world.url("/dashboard"))
    assert "stays in this browser tab" in " ".join(str(await page.run(TEXT)).split())
    await page.run(ENTER.replace("KEY", "nobodys-key"))
    await page.until("document.getElementById('refused').textContent === 'Invalid API key'")
    await page.run(ENTER.replace("KEY", KEY))
    await page.until("document.querySelectorAll('#rows tr').length === 2")
    assert await page.run("localStorage.length + document.cookie.length") == 0
    page.log.clear()  # the refusal is an error of the network
    await page.run("document.getElementById('leave').click()")
    await page.until("document.getElementById('door')?.hidden === false")


async def test_a_call_tells_what_was_said_heard_and_signalled(world: World, tmp_path: Path) -> None:
    page = world.page
    page.log.clear()
    await world.call_page(world.talked)
    await page.until("document.querySelector('.wave path.up') !== null")
    told = await page.run(TEXT)
    assert "the agent hung up" in told
    assert "How can I help?" in told
    assert "+14155550199" in told
    steps = await page.run(
        "[...document.querySelectorAll('.rung > span:first-child')].map(each => each.textContent)"
    )
    assert steps[0] == "INVITE"
    assert "BYE" in steps
    message = await page.run("document.getElementById('message').innerText")
    assert "Received" in message
    assert "X-Note: <script>pwned()</script>" in message
    [turn] = [turn for turn in world.talked["turns"] if turn["latency"]]
    stack = await page.run("document.querySelector('.stack').getAttribute('aria-label')")
    for part in ("silence waited for", "recogniser", "agent", "voice", "network"):
        assert part in stack
    total = turn["latency"]["voiceToVoiceMs"]
    shown = f"{total / 1000:.2f} s" if total >= 1000 else f"{math.floor(total + 0.5)} ms"
    assert stack.startswith(f"Turn {turn['turn']}, {shown}")
    states = await page.run("[...document.querySelectorAll('.states button')].map(each => each.dataset.s)")
    assert {"speaking", "hearing", "pause"} <= set(states)
    for width, dark in ((1440, False), (1440, True), (390, False), (390, True)):
        await page.picture(tmp_path / f"{width}-{dark}.png", width=width, height=900, dark=dark)
        assert await page.run("document.scrollingElement.scrollWidth <= innerWidth"), (width, dark)
    assert page.log == [], "what the policy refuses is an error on the console"


async def test_the_recording_plays_from_where_one_clicks(world: World) -> None:
    page = world.page
    await world.call_page(world.talked)
    await page.until("document.getElementById('voice').readyState >= 2")
    await page.run(HEARD)
    [line] = [line for line in world.talked["transcript"] if line["text"] == "How can I help?"]
    whole = await page.run("Number(document.querySelector('.wave .track').getAttribute('aria-valuemax'))")
    part = line["startMs"] / 1000 / whole
    script = f"""(() => {{
      const track = document.querySelector('.wave .track');
      track.scrollIntoView({{ block: 'center' }});
      document.getElementById('axis').parentElement.scrollLeft = 0; // from under the names of the lanes
      const box = track.getBoundingClientRect();
      return [box.left + box.width * {part}, box.top + box.height / 2];
    }})()"""
    x, y = await page.run(script)
    for kind in ("mousePressed", "mouseReleased"):
        await page.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
    await page.until("!document.getElementById('voice').paused")
    began = await page.run("document.getElementById('voice').currentTime")
    assert began == pytest.approx(line["startMs"] / 1000, abs=0.5)
    await page.until(f"document.getElementById('voice').currentTime > {began} + 0.3")
    await page.until("window.loudest > 0.05")
    await page.run("document.getElementById('play').click()")
    await page.until("document.getElementById('voice').paused")
    await page.run("document.querySelector('.wave .track').focus()")
    before = await page.run("Number(document.querySelector('.wave .track').getAttribute('aria-valuenow'))")
    for kind in ("keyDown", "keyUp"):
        await page.call("Input.dispatchKeyEvent", type=kind, key="Home", code="Home")
        await page.call("Input.dispatchKeyEvent", type=kind, key="ArrowRight", code="ArrowRight")
    after = await page.run("Number(document.querySelector('.wave .track').getAttribute('aria-valuenow'))")
    assert before > 0
    assert after == 1.0


async def test_a_link_leads_to_a_moment(world: World) -> None:
    await world.call_page(world.talked, "#t=1.2")
    assert await world.page.run("document.getElementById('now').textContent") == "0:01.2"
    await world.page.until("document.getElementById('voice').readyState >= 2")
    await world.page.run("document.getElementById('play').click()")
    await world.page.until("document.getElementById('voice').currentTime > 1.2")
    await world.page.run("document.getElementById('play').click()")


async def test_a_failed_call_says_why_in_one_sentence(world: World) -> None:
    await world.call_page(world.failed)
    outcome = await world.page.run("document.getElementById('outcome').textContent")
    assert outcome.startswith("It failed before anybody answered: the carrier could not be reached")
    assert await world.page.run("document.querySelectorAll('#rungs button').length") > 0
    assert await world.page.run("document.getElementById('timeline').hidden") is True


async def test_nothing_that_strangers_write_is_run(world: World) -> None:
    page = world.page
    page.log.clear()
    for call, shown in ((world.talked, EVIL[1]), (world.failed, ALL_EVIL)):
        await world.call_page(call)
        for tab in ("t1", "t2", "t4"):
            await page.run(f"document.getElementById('{tab}').click()")
        assert shown in await page.run("document.body.textContent")
        assert await page.run(FOREIGN) == 0
        assert await page.run(RAN) is False
    await world.enter("/dashboard")
    await page.until("document.querySelectorAll('#rows tr').length === 2")
    assert EVIL[0] in await page.run("document.getElementById('rows').textContent")
    assert (await page.run(FOREIGN), await page.run(RAN)) == (0, False)
    assert page.log == []


async def test_a_search_stands_in_the_address(world: World, tmp_path: Path) -> None:
    page = world.page
    await world.enter("/dashboard")
    await page.until("document.querySelectorAll('#rows tr').length === 2")
    await page.run("""(() => {
      document.querySelector('[name=name]').value = 'onerror';
      document.querySelector('[name=status]').value = 'FAILED';
      document.querySelector('[name=minDurationMs]').value = '0';
      document.getElementById('filters').requestSubmit();
    })()""")
    await page.until("document.querySelectorAll('#rows tr').length === 1")
    assert await page.run("location.search") == "?name=onerror&status=FAILED&minDurationMs=0"
    await page.open(await page.run("location.href"))
    await page.until("document.querySelectorAll('#rows tr').length === 1")
    assert "could not be reached" in await page.run("document.getElementById('rows').textContent")
    assert await page.run("document.querySelector('[name=name]').value") == "onerror"
    await page.open(world.url("/dashboard?phoneNumber=nobody"))
    await page.until("document.getElementById('problem').textContent === 'Invalid phone number format'")
    for width in (390, 1440):
        await page.picture(tmp_path / f"list-{width}.png", width=width, height=800)
        assert await page.run("document.scrollingElement.scrollWidth <= innerWidth"), width


async def test_another_companys_call_is_not_there(world: World) -> None:
    await world.page.open(world.url("/dashboard"))
    await world.page.run(f"sessionStorage.setItem('openline.key', '{OTHER_KEY}')")
    await world.page.open(world.url(f"/dashboard/calls/{world.talked['callTaskId']}"))
    await world.page.until(
        "document.getElementById('problem').textContent.startsWith('There is no such call')"
    )


async def test_the_policy_has_no_way_in(world: World) -> None:
    for path in ("/dashboard", "/dashboard/calls/x", "/static/dashboard/call.js"):
        async with world.client.get(path) as answer:
            policy = answer.headers["Content-Security-Policy"]
            assert (answer.status, "unsafe" in policy) == (200, False)
            assert "default-src 'none'" in policy
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
    async with world.client.get("/static/dashboard/nothing.js") as answer:
        assert answer.status == 404


async def test_a_live_call_is_followed_and_hung_up(world: World) -> None:
    page = world.page
    async with RawCall(world.port, ASKING_NUMBER) as call:
        await call.answered()
        async with asyncio.timeout(30):
            while not (rows := await world.answered_calls()):
                await asyncio.sleep(0.05)
        [row] = rows
        await world.call_page(row)
        await page.until("document.getElementById('outcome').textContent === 'They are talking.'")
        await page.until("document.getElementById('transcript').textContent.includes('How can I help?')")
        await page.run("document.getElementById('hangup').click()")
        call.reply(await call.asked("BYE"))
    await page.until("document.getElementById('outcome').textContent.startsWith('It was answered')")
    assert await page.run("document.getElementById('hangup').hidden") is True
