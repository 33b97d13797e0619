"""A caller over SIP who says what the records must not have: transcript, turns, analysis, webhooks, log,
database and recording of the call."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.audio import wav
from pipeline.media.silencing import LEFT, RIGHT, silence
from tests.support.http.models import fake_models
from tests.support.http.webhooks import Receiver, receiver
from tests.support.node.node import (
    ASKING_NUMBER,
    Site,
    asking_agent,
    only_report,
    rows_of,
    running,
    write_site,
)
from tests.support.sip.raw_call import RawCall
from tests.support.speech.media import speech_like
from tests.support.waiting import until

CARD = "4111 1111 1111 1111"
MAIL = "bo@example.com"
SAID = f"my card is {CARD} and my mail is {MAIL}"
KEPT = "my card is [card] and my mail is [email]"
QUIET = np.zeros(8000, np.int16)
HOOK = '[[company.webhook]]\nurl = "URL"\nsecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"\n'
REDACTION = '[agent.redaction]\nkinds = ["card", "email", "phone"]\ncountry = "US"\n'


def site_with(path: Path, hook: Receiver, redaction: str) -> Site:
    site = write_site(path, more=asking_agent("How can I help?"))
    before, agent = site.path.read_text().rsplit("[[agent]]", 1)
    free = 'expect = { kinds = ["free"] }\ncollect = "wish"'
    agent = agent.replace('expect = { kinds = ["yes_no"] }', free)
    agent = agent.replace("[agent.script]", f"{redaction}[agent.script]")
    site.path.write_text(f"{before}[[agent]]{agent}")
    site.reach_this_machine()
    return site.change(
        '[[company]]\nid = "other"', HOOK.replace("URL", hook.url) + '[[company]]\nid = "other"'
    )


async def called(site: Site, hook: Receiver) -> dict[str, Any]:
    """The report of a call in which the caller said it, once every event was told."""
    async with running(site) as (_, client), RawCall(site.sip, ASKING_NUMBER) as call:
        await call.answered()
        await call.play(np.concatenate([QUIET, QUIET, speech_like(8000), QUIET, QUIET]))
        call.reply(await call.asked("BYE"))
        report = await only_report(client)
        await until(lambda: "recording.completed" in json.dumps([text for _, text in hook.requests]))
    return report


@pytest.mark.parametrize("redaction", [REDACTION, ""])
async def test_what_is_redacted_stands_nowhere_and_is_not_heard(
    tmp_path: Path, redaction: str, caplog: pytest.LogCaptureFixture
) -> None:
    with fake_models() as (recognizer, _):
        recognizer.answer = SAID
        async with receiver() as hook:
            site = site_with(tmp_path, hook, redaction)
            report = await called(site, hook)
    [line] = [line for line in report["transcript"] if line["role"] == "caller"]
    told = json.dumps([text for _, text in hook.requests])
    rows = await rows_of(site, "SELECT transcript, turns, analysis FROM calls")
    bodies = await rows_of(site, "SELECT body FROM outbox")
    everywhere = " ".join([json.dumps(report), told, json.dumps(rows), json.dumps(bodies), caplog.text])
    path = site.data_dir / "recordings" / f"{report['callTaskId']}.wav"
    sound, rate_hz = await asyncio.to_thread(wav.read_channels, path)
    heard = sound[LEFT][line["startMs"] * rate_hz // 1000 : line["endMs"] * rate_hz // 1000]
    assert len(heard) > 0
    assert np.abs(sound[RIGHT]).max() > 1000, "the agent is heard"
    if redaction:
        assert (line["text"], report["analysis"]["answers"]) == (KEPT, {"wish": KEPT})
        assert CARD not in everywhere
        assert MAIL not in everywhere
        assert "bo example com" not in everywhere
        assert not heard.any()
    else:
        assert line["text"] == SAID
        assert np.abs(heard).max() > 1000


def test_only_the_words_are_silent(tmp_path: Path) -> None:
    path = tmp_path / "call.wav"
    wav.write(path, np.full((2, 16_000), 1000, np.int16), 8000)
    silence(path, [(LEFT, 500, 700), (RIGHT, 1900, 9000)])
    sound, _ = wav.read_channels(path)
    silent = [np.flatnonzero(channel == 0) for channel in sound]
    assert (silent[LEFT][0], silent[LEFT][-1]) == (380 * 8, 820 * 8 - 1)
    assert (silent[RIGHT][0], silent[RIGHT][-1]) == (1780 * 8, 15_999)
