"""A caller over SIP who begins a number with keys and says the rest of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np

from tests.support.http.models import fake_models
from tests.support.node.node import (
    ASKING_NUMBER,
    asking_agent,
    only_report,
    running,
    write_site,
)
from tests.support.sip.raw_call import RawCall
from tests.support.speech.media import speech_like

QUESTION = "Your code?"
QUIET = np.zeros(8000, np.int16)


async def test_two_keys_and_two_spoken_digits_are_four(tmp_path: Path) -> None:
    site = write_site(tmp_path, more=asking_agent(QUESTION))
    digits = 'expect = { kinds = ["digits"], digits = 4 }\ncollect = "code"'
    before, agent = site.path.read_text().rsplit("[[agent]]", 1)
    agent = agent.replace('expect = { kinds = ["yes_no"] }', digits)
    site.path.write_text(f"{before}[[agent]]{agent}")
    with fake_models() as (recognizer, _):
        recognizer.answer = "one one"
        async with running(site) as (_, client), RawCall(site.sip, ASKING_NUMBER) as call:
            await call.answered()
            await call.play(np.concatenate([QUIET, QUIET]))
            for key in (4, 7):
                call.key(key)
                await asyncio.sleep(0.3)
            await call.play(np.concatenate([QUIET, speech_like(6000), QUIET, QUIET]))
            call.reply(await call.asked("BYE"))
            report = await only_report(client)
    said = [(entry["role"], entry["text"]) for entry in report["transcript"]]
    assert said == [("agent", QUESTION), ("caller", "one one"), ("agent", "Goodbye.")]
    assert report["analysis"]["answers"] == {"code": "4711"}
