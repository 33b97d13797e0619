"""The talk page with a person at the microphone: what no script expects is understood, and answered by voice.

The person is the announcer of Debian's asterisk-core-sounds-en-wav, at 8 kHz: one speaker, no caller.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from mediaserver.demo.persona import word_errors
from mediaserver.demo.run import FRONT_DESK_AGENT
from mediaserver.demo.speech import Speech
from mediaserver.demo.stage import Ports, write_config
from pipeline.audio import Pcm
from pipeline.audio.resample import resample
from pipeline.audio.wav import read
from pipeline.engines.local_weights import PIPER, WHISPER
from tests.peers.browsers.test_talk import BARE_MICROPHONE, LINES, PLAYED, PRESS, RECORD, STATE
from tests.support.node.node import Site, running
from tests.support.speech.local_speech import needs, whisper_tiny
from tests.support.speech.tones import write_wav
from tests.support.webrtc.chromium import chromium

SOUNDS = Path("/usr/share/asterisk/sounds/en_US_f_Allison")
UNEXPECTED = "weasels have eaten our phone system"
APOLOGY = "I am sorry, I have no answer to that."

UNHURRIED = """
[overload]
lag_ms = 0
backlog_ms = 0
set_up_ms = 0
"""
"""Whatever else the machine does: overload has tests of its own."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture
async def front_desk(tmp_path: Path) -> AsyncIterator[str]:
    """The page of the demo's front desk, as `make serve` has it with local speech."""
    for weights in (WHISPER, PIPER):
        needs(weights)
    ports = Ports.choose()
    path = write_config(tmp_path, ports, Speech.LOCAL)
    with path.open("a") as file:
        file.write(UNHURRIED)
    site = Site(path, ports.http, ports.sip, ports.callee, tmp_path / "var")
    async with running(site) as (_, client):
        yield str(client.make_url(f"/talk/{FRONT_DESK_AGENT}"))


def person(path: Path, *parts: float | str) -> Path:
    """Seconds of a quiet room and recordings of the announcer, one after the other, as a file at 16 kHz."""
    noise = np.random.default_rng(1)
    sounds = []
    for part in parts:
        if isinstance(part, str):
            samples, rate_hz = read(SOUNDS / part)
            sounds.append(resample(samples, rate_hz, 16000))
        else:
            sounds.append(noise.normal(0, 4, int(part * 16000)).astype(np.int16))
    return write_wav(path, np.concatenate(sounds), 16000)


@pytest.mark.nightly("ci")
async def test_a_person_says_what_no_script_expects_and_is_answered(front_desk: str, tmp_path: Path) -> None:
    voice = person(tmp_path / "mic.wav", 7.0, "tt-weasels.wav", 18.0, "demo-thanks.wav", 60.0)
    async with chromium(microphone=voice) as page:
        await page.open(front_desk)
        await page.run(BARE_MICROPHONE)
        await page.run(PRESS)
        await page.run(RECORD)
        await page.until(f"{STATE} === 'The agent hung up.'", timeout_s=90.0)
        said = await page.run(LINES)
        await page.picture(tmp_path / "talk.png", width=1280, height=800)
        played = np.frombuffer(base64.b64decode(await page.run(PLAYED)), np.int16)
    asked = next(place for place, (who, _) in enumerate(said) if who == "caller")
    assert word_errors(UNEXPECTED, said[asked][1])[0] <= 1, said
    assert said[asked + 1][0] == "agent"
    assert said[asked + 1][1].startswith(APOLOGY)
    assert said[-1] == ["agent", "Thank you for calling. Goodbye."]
    heard = await recognised(played)
    assert "no answer to that" in heard
    assert "make or cancel an appointment" in heard


async def recognised(samples: Pcm) -> str:
    """What Whisper makes of what the page played, at most 16 s at a time: the agent's answer among it."""
    recognizer = whisper_tiny()
    await recognizer.start()
    try:
        listening = recognizer.listen(rate_hz=16000, language="en", expected=None)
        listening.push(samples)
        return (await listening.result()).text
    finally:
        listening.close()
        await recognizer.close()
