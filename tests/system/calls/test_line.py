"""Machines that answer, over the wire: a PJSIP telephone with a greeting and a beep, and a carrier that says
before the answer why there will be none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mediaserver.errors import SettingsError
from mediaserver.settings import load
from mediaserver.wiring import session_settings
from pipeline.text.word_lists import OverlapKind, judge_overlap, word_lists
from sip.call import Call
from tests.support.node.node import (
    FAKE_ENGINES,
    KEY,
    NUMBER,
    Site,
    bearer,
    place_call,
    running,
    until_final,
    write_site,
)
from tests.support.sip.callers import at_level, spoken
from tests.support.sip.carrier import carrier
from tests.support.sip.softphone import SoftphoneProcess
from tests.support.speech.lines import RATE_HZ, Wave, quiet, tone
from tests.support.speech.tones import write_wav
from tests.support.waiting import until

CALLER = "0e1de2a0-93a8-4a55-8f6c-9f5f3f5f1c77"
MESSAGE = "Please call the clinic back."
AGENT = """
[[agent]]
id = "{id}"
company = "acme"
trunk = "carrier"
phone_number = "+14155550100"
{engines}
[agent.line]
answering_machine = "leave_message"
message = "{message}"
[agent.script]
start = "bye"
[[agent.script.step]]
id = "bye"
say = "Good morning. Goodbye."
action = "hang_up"
"""
ESPEAK = '[agent.tts]\nengine = "espeak-ng"\n[agent.stt]\nengine = "pocketsphinx"'


def site_of(directory: Path, carrier: int, engines: str = FAKE_ENGINES) -> Site:
    template = MESSAGE.replace("clinic", "{{{{place}}}}")
    site = write_site(directory, more=AGENT.format(id=CALLER, engines=engines, message=template))
    return site.send_to(carrier)


@pytest.fixture
def machine() -> Wave:
    """What the machine says, and its beep."""
    said = spoken(("Hello, this is the voice mail of John Baker. Please leave a message after the tone.",))[0]
    return np.concatenate([quiet(0.3), at_level(said, -18), quiet(0.6), tone((1000,), 0.4, 6000)])


@pytest.mark.peer
async def test_a_telephone_that_greets_and_beeps_gets_the_message_after_the_beep(
    tmp_path: Path, machine: Wave
) -> None:
    file = write_wav(tmp_path / "machine.wav", machine.astype(np.int16), RATE_HZ)
    (tmp_path / "phone").mkdir()
    async with (
        SoftphoneProcess(tmp_path / "phone", answer_after_s=0.1) as phone,
        running(site_of(tmp_path, phone.port, ESPEAK)) as (_, client),
    ):
        call_id = await place_call(client, CALLER, place="clinic")
        await phone.event("media", active=True)
        phone.do("play", line=0, file=str(file))
        call = await until_final(client, call_id, timeout_s=60)
    heard, rate_hz = phone.heard()
    loud = np.flatnonzero(np.abs(heard.astype(np.int32)) > 500) / rate_hz
    assert call["status"] == "COMPLETED"
    assert call["analysis"]["disposition"] == "message_left"
    assert call["analysis"]["line"] == "answering_machine"
    assert [entry["text"] for entry in call["transcript"]] == [MESSAGE]
    assert loud[0] >= len(machine) / RATE_HZ - 0.1  # nothing over the greeting, nor into the beep
    assert loud[-1] - loud[0] > 1.0  # and all of the message


async def test_a_call_without_what_its_message_names_is_refused(tmp_path: Path) -> None:
    async with running(site_of(tmp_path, 5999)) as (_, client):
        body = {"agentId": CALLER, "phoneNumber": NUMBER}
        path = "/api/v1/calls/outbound"
        async with client.post(path, json=body, headers=bearer(KEY)) as answer:
            assert answer.status == 400
            assert "place" in await answer.text()


class Announcement:
    """An `AudioSource` that says one thing, once."""

    def __init__(self, wave: Wave) -> None:
        self._frames = list(wave.astype(np.int16)[: len(wave) // 160 * 160].reshape(-1, 160))

    @property
    def over(self) -> bool:
        return not self._frames

    def read(self) -> Any:
        return self._frames.pop(0) if self._frames else None

    def sent(self, now: float) -> None: ...

    def on_ready(self, wake: Any) -> None: ...


def test_the_words_of_an_agent_are_added_to_lists_that_exist(tmp_path: Path) -> None:
    site = write_site(tmp_path, more=AGENT.format(id=CALLER, engines=FAKE_ENGINES, message=MESSAGE))
    text = site.path.read_text()
    site.path.write_text(text + '[agent.words]\nstops = ["whoa"]\n')
    session = session_settings(load(site.path).agents[-1])
    lists = word_lists(session.language, session.words)
    assert judge_overlap("whoa there", "en", lists).kind is OverlapKind.STOP
    site.path.write_text(text + '[agent.words]\nstopz = ["whoa"]\n')
    with pytest.raises(SettingsError, match="stopz"):
        load(site.path)


async def test_what_a_carrier_says_before_the_answer_is_on_the_record(tmp_path: Path) -> None:
    tones = [tone((hz,), 0.33) for hz in (950, 1400, 1800)]
    words = Announcement(np.concatenate([quiet(0.2), *tones, quiet(0.5)]))
    site = write_site(tmp_path, more=AGENT.format(id=CALLER, engines=FAKE_ENGINES, message=MESSAGE))

    async def says_why_not(call: Call) -> None:
        call.attach(None, words)
        await call.ring(early_media=True)
        await until(lambda: words.over)
        await call.reject(480)

    async with carrier(site, says_why_not), running(site) as (_, client):
        call = await until_final(client, await place_call(client, CALLER))
    assert call["status"] == "NO_ANSWER"
    assert call["analysis"]["line"] == "not_in_service"
