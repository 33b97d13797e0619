"""A real call in Arabic over the wire; a card number is said, a PIN keyed, and found nowhere after it."""

from __future__ import annotations

import asyncio
import logging
import wave
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.audio import Pcm
from pipeline.speech import Expected
from pipeline.text.redaction import MASK
from pipeline.tts.espeak import Espeak
from tests.support.http.models import Recognizer, Utterance, fake_models
from tests.support.node.node import KEY, Site, bearer, running, until_final, write_site
from tests.support.sip.raw_call import FRAME, SOUND, RawCall
from tests.support.speech.media import speech_like

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

LINE = "+14155550109"
GREETING = "السلام عليكم، معك عيادة النور."
SPOKEN_CARD = "أربعة واحد واحد واحد اثنان اثنان اثنان اثنان ثلاثة ثلاثة ثلاثة ثلاثة"
KEYED_PIN = "918273"
CARD = "411122223333"
CLINIC = f"""
[[agent]]
id = "7b0f7e7e-4f5a-4b8e-9f43-5f0f2c3f9f99"
company = "acme"
name = "Clinic"
direction = "inbound"
trunk = "carrier"
phone_number = "{LINE}"
language = "ar"
greeting = "{GREETING}"
[agent.stt]
engine = "test-ears"
fallback = []
[agent.tts]
engine = "espeak-ng"
[agent.script]
start = "card"
[[agent.script.step]]
id = "card"
say = "ما رقم بطاقتك؟"
expect = {{{{ digits = 12 }}}}
collect = "card"
mask = true
next = "pin"
[[agent.script.step]]
id = "pin"
say = "أدخل الرقم السري، ثم مربع."
expect = {{{{ kinds = ["digits"] }}}}
collect = "pin"
mask = true
next = "again"
[[agent.script.step]]
id = "again"
say = "هل من شيء آخر؟"
expect = {{{{ kinds = ["yes_no"] }}}}
collect = "more"
next = "bye"
[[agent.script.step]]
id = "bye"
say = "مع السلامة."
action = "hang_up"
disposition = "paid"
"""


@dataclass
class Plan(Recognizer):
    """Hears what is asked for."""

    languages: list[str] = field(default_factory=list)

    def listen(self, *, rate_hz: int, language: str, expected: Expected | None) -> Utterance:
        self.languages.append(language)
        yes_no = expected is not None and "yes_no" in expected.kinds
        return Utterance("لا" if yes_no else SPOKEN_CARD)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return write_site(tmp_path, more=CLINIC)


async def until_quiet(call: RawCall) -> Pcm:
    """What is heard until 1.2 s of silence follow it, from its first sound."""
    frames: list[Pcm] = []
    quiet = 0
    async with asyncio.timeout(30):
        while not frames or quiet < 60:
            await call.play(np.zeros(FRAME, np.int16))
            arrived = [frame for _, frame in call.heard()]
            loud = any(np.abs(frame.astype(np.int32)).max() > SOUND for frame in arrived)
            frames += arrived if loud or frames else []
            quiet = 0 if loud else quiet + 1
    return np.concatenate(frames)


async def espeak_s(text: str) -> float:
    voice = Espeak.from_settings({})
    await voice.start()
    try:
        samples = np.concatenate([chunk.samples async for chunk in voice.speak(text, language="ar")])
    finally:
        await voice.close()
    loud = np.flatnonzero(np.abs(samples.astype(np.int32)) > 500)
    return float(loud[-1] - loud[0]) / voice.rate_hz


def sounding_s(samples: Pcm) -> float:
    loud = np.flatnonzero(np.abs(samples.astype(np.int32)) > 500)
    return float(loud[-1] - loud[0]) / 8000


@dataclass
class Called:
    """What is left of the call."""

    report: dict[str, Any]
    greeting: Pcm
    recognizer: Plan
    data_dir: Path
    events: str


async def newest(client: Any) -> str:
    """The id of the call that came last."""
    async with client.get("/api/v1/calls", headers=bearer(KEY)) as answer:
        calls = (await answer.json())["calls"]
    return str(max(calls, key=lambda each: str(each["createdAt"]))["callTaskId"])


async def asked(client: Any) -> str:
    """What the agent said last."""
    async with client.get(f"/api/v1/calls/{await newest(client)}", headers=bearer(KEY)) as answer:
        transcript = (await answer.json())["transcript"]
    return next((entry["text"] for entry in reversed(transcript) if entry["role"] == "agent"), "")


async def converse(call: RawCall, client: Any) -> Pcm:
    """The caller's side, who answers what is asked; what the greeting sounded like."""
    await call.answered()
    greeting = await until_quiet(call)
    for _ in range(8):
        question = await asked(client)
        if "السلامة" in question:
            break
        if "السري" in question:
            for key in KEYED_PIN:
                call.key(int(key))
                await call.play(np.zeros(5 * FRAME, np.int16))
            call.key(11)
        else:
            await call.play(speech_like(8000))
        await until_quiet(call)
    await call.asked("BYE", patience_s=15)
    return greeting


@pytest.fixture
async def called(site: Site, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Called]:
    """A call that went as planned; another one where the machine stopped in the middle of it."""
    caplog.set_level(logging.DEBUG)
    recognizer, greeting = Plan(), np.zeros(0, np.int16)
    with fake_models(recognizer=recognizer):
        async with running(site) as (_, client):
            for _ in range(3):
                async with RawCall(site.sip, LINE) as call:
                    with suppress(TimeoutError):
                        greeting = await converse(call, client)
                        break
                    call.send(call.request("BYE"))
            report = await until_final(client, await newest(client))
        yield Called(report, greeting, recognizer, site.data_dir, caplog.text)


async def test_the_agent_speaks_arabic_on_the_wire_and_what_it_is_told_is_nowhere(called: Called) -> None:
    report = called.report
    assert report["analysis"]["disposition"] == "paid"
    assert set(called.recognizer.languages) == {"ar"}
    wanted = await espeak_s(f"{GREETING} ما رقم بطاقتك؟")
    assert sounding_s(called.greeting) == pytest.approx(wanted, rel=0.35)
    assert any(entry["text"].startswith("السلام عليكم") for entry in report["transcript"])

    assert report["analysis"]["answers"] == {"card": MASK, "pin": MASK, "more": "no"}
    assert {turn["userText"] for turn in report["turns"]} == {"", MASK, "لا"}
    assert {turn["keyed"] for turn in report["turns"]} == {"", MASK}
    assert_found_nowhere(called)
    assert_silenced(called)


def assert_found_nowhere(called: Called) -> None:
    """Not in what the API says, nor in what was logged, nor in any file; what is no secret is there."""
    files = {path: path.read_bytes() for path in called.data_dir.rglob("*") if path.is_file()}
    assert any("مع السلامة".encode() in data or b"\\u0645\\u0639 " in data for data in files.values())
    secrets = (CARD, KEYED_PIN, SPOKEN_CARD, "أربعة واحد")
    for secret in secrets:
        assert secret not in str(called.report)
        assert secret not in called.events
        for path, data in files.items():
            assert secret.encode() not in data, path
            assert secret.encode("unicode-escape") not in data, path


def assert_silenced(called: Called) -> None:
    """The recording has nothing where the number was said."""
    path = called.data_dir / "recordings" / f"{called.report['callTaskId']}.wav"
    with wave.open(str(path)) as file:
        frames = np.frombuffer(file.readframes(file.getnframes()), np.int16).reshape(-1, 2)
    hidden = next(entry for entry in called.report["transcript"] if entry["text"] == MASK)
    shown = next(entry for entry in called.report["transcript"] if entry["text"] == "لا")
    caller = np.abs(frames[:, 0].astype(np.int32))
    assert caller[hidden["startMs"] * 8 : hidden["endMs"] * 8].max() == 0
    assert caller[shown["startMs"] * 8 : shown["endMs"] * 8].max() > SOUND
