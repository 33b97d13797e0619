"""What a caller says to the agent's goodbye, on a call over SIP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

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

QUESTION = "Are you well?"
FAREWELL = "Thank you for telling us, and have a very nice day. We look forward to seeing you. Goodbye."
QUIET = np.zeros(8000, np.int16)
VOICE = speech_like(10_000)


async def report_of(directory: Path, answer: str, *, goes_on: bool) -> dict[str, Any]:
    """The report of a call whose caller says yes, and `answer` to the farewell; if the call then goes on,
    they hang up."""
    site = write_site(directory, more=asking_agent(QUESTION))
    site.change('"Goodbye."', f'"{FAREWELL}"')
    with fake_models() as (recognizer, _):
        async with running(site) as (_, client), RawCall(site.sip, ASKING_NUMBER) as call:
            await call.answered()
            await call.play(np.concatenate([QUIET, QUIET, VOICE, QUIET]))
            recognizer.answer = answer
            await call.play(np.concatenate([VOICE, QUIET, QUIET]))
            if goes_on:
                await call.hang_up()
            else:
                call.reply(await call.asked("BYE"))
            return await only_report(client)


def said(report: dict[str, Any]) -> list[tuple[str, str]]:
    return [(entry["role"], entry["text"]) for entry in report["transcript"]]


async def test_more_words_stop_the_farewell_and_the_script_asks_again(tmp_path: Path) -> None:
    report = await report_of(tmp_path, "wait there is something else", goes_on=True)
    words = said(report)
    assert words[:2] == [("agent", QUESTION), ("caller", "yes")]
    assert FAREWELL.startswith(words[2][1])
    assert words[3:] == [("caller", "wait there is something else"), ("agent", QUESTION)]
    assert report["endedBy"] == "remote"


@pytest.mark.parametrize("answer", ["thanks bye", "okay"])
async def test_a_goodbye_of_their_own_stops_nothing(tmp_path: Path, answer: str) -> None:
    report = await report_of(tmp_path, answer, goes_on=False)
    assert said(report)[:3] == [("agent", QUESTION), ("caller", "yes"), ("agent", FAREWELL)]
    assert report["endedBy"] == "local"
