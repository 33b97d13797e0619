"""A caller over SIP who is told that a machine speaks, and asked whether the call may be recorded."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.audio import wav
from tests.support.http.models import fake_models
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

DISCLOSURE = "Acme's machine speaks."
CONSENT = "May we record?"
QUESTION = "Is it you?"
POLICY = f"""
[agent.policy]
disclosure = "{DISCLOSURE}"
recording_consent = "ask"
consent_question = "{CONSENT}"
"""
CALLER = "+14155550177"
QUIET = np.zeros(8000, np.int16)


def site_with(path: Path, policy: str) -> Site:
    site = write_site(path, more=asking_agent(QUESTION))
    before, agent = site.path.read_text().rsplit("[[agent]]", 1)
    agent = agent.replace("[agent.script]", f"{policy}[agent.script]").replace('"yes_no"', '"free"')
    site.path.write_text(f"{before}[[agent]]{agent}")
    return site


async def called(site: Site, *, answers: int) -> dict[str, Any]:
    """The report of a call in which the caller answers so many questions, then hangs up."""
    async with running(site) as (_, client), RawCall(site.sip, ASKING_NUMBER) as call:
        await call.answered()
        for _ in range(answers):
            await call.play(np.concatenate([QUIET, QUIET, QUIET[:4000], speech_like(6000), QUIET]))
        if answers:
            call.reply(await call.asked("BYE"))
        else:
            await call.play(np.concatenate([QUIET, QUIET]))
            await call.hang_up()
        return await only_report(client)


@pytest.mark.parametrize(
    ("said", "consent", "answers"),
    [("yes", "given", 2), ("no", "refused", 2), ("perhaps", "unanswered", 3), ("", "unanswered", 0)],
)
async def test_a_call_is_recorded_after_a_yes_and_else_not_at_all(
    tmp_path: Path, said: str, consent: str, answers: int
) -> None:
    site = site_with(tmp_path, POLICY)
    with fake_models() as (recognizer, _):
        recognizer.answer = said
        report = await called(site, answers=answers)
    spoken = [line["text"] for line in report["transcript"] if line["role"] == "agent"]
    assert spoken[0].startswith(DISCLOSURE)
    assert (CONSENT in " ".join(spoken), QUESTION in " ".join(spoken)) == (True, answers > 0)
    assert report["analysis"]["recordingConsent"] == consent
    kinds = {row["kind"] for row in await rows_of(site, "SELECT kind FROM outbox")}
    path = site.data_dir / "recordings" / f"{report['callTaskId']}.wav"
    kept = consent == "given"
    assert (report["recordingUrl"] is not None, path.exists(), "recording.completed" in kinds) == (kept,) * 3
    if kept:
        sound, rate_hz = await asyncio.to_thread(wav.read_channels, path)
        asked = next(line for line in report["transcript"] if line["role"] == "caller")
        own = next(line for line in report["transcript"] if QUESTION in line["text"])
        assert not sound[:, : asked["endMs"] * rate_hz // 1000].any(), "before the yes"
        assert np.abs(sound[1, own["startMs"] * rate_hz // 1000 :]).max() > 1000, "after the yes"


@pytest.mark.parametrize(
    "said", ["Stop calling me!", "No. And don't ever call me again.", "Take me off your list."]
)
async def test_who_answers_the_question_with_no_more_calls_is_never_called_again(
    tmp_path: Path, said: str
) -> None:
    site = site_with(tmp_path, POLICY)
    with fake_models() as (recognizer, _):
        recognizer.answer = said
        report = await called(site, answers=1)
    listed = await rows_of(site, "SELECT phone_number FROM do_not_call")
    assert [row["phone_number"] for row in listed] == [CALLER]
    spoken = [line["text"] for line in report["transcript"] if line["role"] == "agent"]
    assert (spoken[-1], report["endedBy"]) == ("You will not be called again. Goodbye.", "local")
    assert (report["analysis"]["recordingConsent"], report["recordingUrl"]) == ("refused", None)


async def test_without_the_question_a_call_is_recorded_from_its_beginning(tmp_path: Path) -> None:
    site = site_with(tmp_path, f'[agent.policy]\ndisclosure = "{DISCLOSURE}"\n')
    with fake_models():
        report = await called(site, answers=1)
    assert report["transcript"][0]["text"].startswith(DISCLOSURE)
    assert "recordingConsent" not in report["analysis"]
    assert report["recordingUrl"] is not None


async def test_a_question_is_to_be_asked(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="consent_question"):
        async with running(site_with(tmp_path, '[agent.policy]\nrecording_consent = "ask"\n')):
            pass
