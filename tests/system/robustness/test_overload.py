"""When a node begins nothing new: the judge, moment by moment; and a server that is really too busy."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from mediaserver.admission.overload import LOOKS, MOVES, Judge, Level, Limits, Look, State
from pipeline.audio import wav
from tests.support.http.api_site import WEB_KEY, write_api_site
from tests.support.node.node import OUTBOUND, REAL_ENGINES, SPEECH_KEY, Site, serving, write_site
from tests.support.sip.raw_call import RawCall
from tests.support.speech.tones import tone

LIMITS = Limits(lag_ms=10, backlog_ms=200, set_up_ms=2000, recovery_s=0.5)
STEP_S = 0.05

CALM, OVERLOADED, RECOVERING = State.CALM, State.OVERLOADED, State.RECOVERING


class Watched:
    """A judge, and a clock that moves with every look."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.detector = Judge(limits)
        self.now = 100.0

    def see(self, *looks: Look) -> list[State]:
        """The states after each look, repetitions left out."""
        states = []
        for look in looks:
            self.now += STEP_S
            states.append(self.detector.look(look, self.now))
        return [state for number, state in enumerate(states) if [*states[:number]][-1:] != [state]]


def lag(*values: float) -> Sequence[Look]:
    return [Look(lag_ms=value) for value in values]


def test_every_level_leads_somewhere_from_every_state() -> None:
    assert {state: set(moves) for state, moves in MOVES.items()} == {state: set(Level) for state in State}


def test_a_loop_that_stays_late_is_overloaded_and_one_pause_is_not() -> None:
    node = Watched()
    assert node.see(*lag(*[1] * 10, 400, 1, 1, 250, 1, 1)) == [CALM]
    assert node.see(*lag(*[15] * LOOKS)) == [CALM, OVERLOADED]
    assert not node.detector.takes_more


def test_it_takes_more_again_when_all_has_been_low_for_a_while() -> None:
    node = Watched()
    node.see(*lag(*[15] * LOOKS))
    assert node.see(*lag(*[7] * 20)) == [OVERLOADED]  # below the limit, and not below half of it
    assert node.see(*lag(*[2] * 8)) == [OVERLOADED, RECOVERING]
    assert node.see(*lag(*[7] * 4)) == [RECOVERING, OVERLOADED]  # too soon
    assert node.see(*lag(*[2] * 20)) == [OVERLOADED, RECOVERING, CALM]


@pytest.mark.parametrize("name", ["lag_ms", "backlog_ms", "set_up_ms"])
def test_each_figure_counts_by_its_own_limit(name: str) -> None:
    limit = getattr(LIMITS, name)
    over = [Look(**{name: limit * 1.01})] * LOOKS
    assert Watched().see(*over) == [CALM, OVERLOADED]
    assert Watched().see(*[Look(**{name: limit * 0.99})] * LOOKS) == [CALM]
    others = {"lag_ms": 10.0, "backlog_ms": 200.0, "set_up_ms": 2000.0} | {name: 0.0}
    assert Watched(Limits(**others)).see(*over) == [CALM]  # 0: whatever the figure


def test_a_process_that_has_just_started_is_late_with_everything() -> None:
    assert Watched().see(*lag(*[5000] * (LOOKS - 1))) == [CALM]


def test_figures_are_not_added_up() -> None:
    assert Watched().see(*[Look(lag_ms=9, backlog_ms=190, set_up_ms=1900)] * 20) == [CALM]


# At the outside ---------------------------------------------------------------------------------------------

FRONT_DESK = "+14155550109"
LONG_TALK = """
[[agent]]
id = "7b0f7e7e-4f5a-4b8e-9f43-5f0f2c3f9f77"
company = "acme"
name = "Talks long"
direction = "inbound"
trunk = "carrier"
phone_number = "+14155550109"
{engines}
[agent.script]
start = "ask"
[[agent.script.step]]
id = "ask"
say = "Are you there?"
expect = {{ kinds = ["yes_no"] }}
on = {{ yes = "ask", no = "ask" }}
silence = {{ say = "Are you there?", max = 20, next = "ask" }}
"""

STUTTER = """
import os, signal, sys, time
pid = int(sys.argv[1])
try:
    while True:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.15)
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.03)
except ProcessLookupError:
    pass
"""


@contextmanager
def too_busy(pid: int) -> Iterator[None]:
    """Somebody else has the processor, most of the time."""
    with subprocess.Popen([sys.executable, "-c", STUTTER, str(pid)]) as stutter:
        try:
            yield
        finally:
            stutter.kill()
            stutter.wait()
            os.kill(pid, signal.SIGCONT)


async def answer(site: Site) -> tuple[int, int]:
    """What one more caller is told, and how long to wait; who was taken hangs up."""
    async with RawCall(site.sip, FRONT_DESK) as caller:
        invite = caller.invite()
        final = await caller.final()
        caller.take_tag(final)
        if final.status == 200:
            caller.send(caller.request("ACK", cseq=1))
            await caller.hang_up()
        else:
            caller.send(invite)  # its answer was lost on the way
            assert (await caller.final()).to_bytes() == final.to_bytes()
        return final.status, int(final.header("Retry-After") or 0)


Body = dict[str, Any] | str | Callable[[], aiohttp.FormData]


async def got(site: Site, path: str, body: Body | None = None, key: str = "") -> tuple[int, int, Any]:
    """Status, how long to wait, and JSON or text. A body is JSON, SDP or what makes a form."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    content: dict[str, Any] = {}
    if isinstance(body, str):
        content, headers["Content-Type"] = {"data": body}, "application/sdp"
    elif body:
        content = {"data": body()} if callable(body) else {"json": body}
    async with (
        aiohttp.ClientSession(f"http://127.0.0.1:{site.http}") as session,
        session.request("POST" if body else "GET", path, headers=headers, **content) as answer,
    ):
        whole = await (answer.json() if answer.content_type == "application/json" else answer.text())
        return answer.status, int(answer.headers.get("Retry-After", 0)), whole


async def until(status: int, ask: Callable[[], Awaitable[tuple[Any, ...]]]) -> tuple[Any, ...]:
    """The first answer of that status."""
    while (found := await ask())[0] != status:
        await asyncio.sleep(0.05)
    return found


@pytest.mark.nightly("ci")
@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_server_that_is_too_busy_refuses_what_is_new_and_keeps_what_is_up(tmp_path: Path) -> None:
    site = write_site(tmp_path, engines=REAL_ENGINES, more=LONG_TALK)
    site.change("lag_ms = 0", "lag_ms = 40")
    speech = {"text": "Hello.", "format": "wav", "chunk_size": 100}
    with serving(site) as server:
        await asyncio.to_thread(server.wait_ready, 120.0)
        async with RawCall(site.sip, FRONT_DESK) as talker, asyncio.timeout(100):
            await talker.answered()
            with too_busy(server.process.pid):
                _, retry_after_s = await until(503, lambda: answer(site))
                assert retry_after_s > 0
                *_, ready = await until(503, lambda: got(site, "/readyz"))
                assert ready == {"ready": False, "missing": ["overloaded"]}
                found = await until(503, lambda: got(site, "/v1/text-to-speech/generate", speech))
                assert found[1] > 0
            await until(200, lambda: got(site, "/readyz"))
            await until(200, lambda: answer(site))
            talker.send(talker.request("OPTIONS"))
            assert (await talker.final("OPTIONS")).status == 200  # it is up, and never was anything else
            await talker.hang_up()
        log = server.log.read_text()
    assert "overloaded, nothing new is taken" in log
    assert "no longer overloaded" in log


def spoken() -> aiohttp.FormData:
    """A file to be understood."""
    form = aiohttp.FormData({"language": "en"})
    form.add_field("file", wav.encoded(tone(440, 0.5, 16_000), 16_000), filename="a.wav")
    return form


@pytest.mark.nightly("ci")
@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_browsers_and_files_are_refused_while_there_is_no_time(tmp_path: Path) -> None:
    """With 503 and Retry-After, and taken again afterwards; a participant token stays good."""
    site = write_api_site(tmp_path, engines=REAL_ENGINES)
    site.change("lag_ms = 0", "lag_ms = 40")
    wanted = {"agentId": OUTBOUND, "metadata": {"promptVariables": {"name": "Bo"}}}
    with serving(site) as server:
        await asyncio.to_thread(server.wait_ready, 120.0)
        _, _, told = await got(site, "/api/v1/web-calls/connect", wanted, WEB_KEY)
        token = told["participantToken"]
        asked: dict[str, Callable[[], Awaitable[tuple[int, int, Any]]]] = {
            "connect": lambda: got(site, "/api/v1/web-calls/connect", wanted, WEB_KEY),
            "a LiveKit client": lambda: got(site, f"/rtc/validate?access_token={token}"),
            "a WHIP client": lambda: got(site, "/rtc/whip", "v=0\r\n", token),
            "a file": lambda: got(site, "/transcribe", spoken, SPEECH_KEY),
        }
        with too_busy(server.process.pid):
            async with asyncio.timeout(100):
                for name, ask in asked.items():
                    _, retry_after_s, answered = await until(503, ask)
                    assert retry_after_s > 0, name
                    assert "overloaded" in str(answered), name
        async with asyncio.timeout(100):
            await until(200, asked["connect"])
            await until(200, asked["a LiveKit client"])
            await until(400, asked["a WHIP client"])  # the offer is none
            await until(200, asked["a file"])
