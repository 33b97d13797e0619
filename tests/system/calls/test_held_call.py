"""A caller who puts the agent on hold by re-INVITE: what is heard meanwhile is not theirs, and their silence
ends nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.node.node import (
    ASKING_NUMBER,
    asking_agent,
    only_report,
    running,
    write_site,
)
from tests.support.sip.raw_call import RawCall
from tests.support.speech.media import speech_like

QUESTION = "Are you well?"
QUIET = np.zeros(8000, np.int16)
VOICE = np.concatenate([speech_like(12_000), QUIET])


@asynccontextmanager
async def asked(directory: Path) -> AsyncIterator[tuple[Any, RawCall]]:
    """A call on which the agent has just asked its question; two seconds without audio would end it."""
    site = write_site(directory, more=asking_agent(QUESTION))
    site.change("ring_timeout_s", "media_timeout_s = 2\nring_timeout_s")
    async with running(site) as (_, client), RawCall(site.sip, ASKING_NUMBER) as call:
        await call.answered()
        await call.play(np.tile(QUIET, 2))
        yield client, call


async def reinvite(call: RawCall, direction: str) -> None:
    body = f"{call.offer}a={direction}\r\n"
    call.send(call.request("INVITE", "Content-Type: application/sdp", body=body))
    response = await call.final()
    assert response.status == 200
    call.send(call.request("ACK", cseq=response.cseq.number))


async def transcript(client: Any) -> list[tuple[str, str]]:
    report = await only_report(client)
    return [(entry["role"], entry["text"]) for entry in report["transcript"]]


async def test_what_is_heard_from_a_held_line_is_no_answer(tmp_path: Path) -> None:
    async with asked(tmp_path) as (client, call):
        await reinvite(call, "sendonly")
        await call.play(np.concatenate([VOICE, VOICE]))  # music, or people of theirs
        await reinvite(call, "sendrecv")
        await call.play(QUIET)
        await call.hang_up()
        assert await transcript(client) == [("agent", QUESTION)]


async def test_a_held_line_may_be_silent_and_goes_on_where_it_was(tmp_path: Path) -> None:
    async with asked(tmp_path) as (client, call):
        await reinvite(call, "sendonly")
        await asyncio.sleep(4.5)
        await reinvite(call, "sendrecv")
        await call.play(np.concatenate([QUIET, VOICE, QUIET]))
        call.reply(await call.asked("BYE"))
        assert await transcript(client) == [("agent", QUESTION), ("caller", "yes"), ("agent", "Goodbye.")]
