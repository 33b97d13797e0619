"""`mediaserver bench` as its user types it, against telephones that are none of ours, and our own server."""

from __future__ import annotations

import asyncio
import json
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from bench.call.bare import ENDPOINT_S
from bench.call.processes import bare
from pipeline.audio import Pcm
from tests.support.command_line import mediaserver
from tests.support.node.forked import Forked
from tests.support.node.node import KEY, REAL_ENGINES, serving, write_site
from tests.support.ports import free_port, free_rtp_ports
from tests.support.sip.baresip import baresip
from tests.support.sip.sipp import Sipp
from tests.support.speech.syllables import syllables
from tests.support.speech.tones import write_wav
from tests.support.waiting import until

pytestmark = [pytest.mark.peer, pytest.mark.timeout(240)]

RATE_HZ = 8000
LIMIT_S = 150


@dataclass(frozen=True)
class Done:
    """What the command printed and left behind."""

    status: int
    out: str
    err: str
    figures: Any = None


class Bench:
    """The command in a process of its own, which writes into `directory`."""

    def __init__(self, directory: Path, *arguments: str | Path) -> None:
        self._output, self._errors = directory / "output", directory / "errors"
        self.process = Forked(["bench", *map(str, arguments)], self._output, self._errors)

    async def told(self, words: str) -> None:
        """Waits until it has said so."""
        await until(lambda: words in self._errors.read_text() or self.process.poll() is not None, 60)
        assert self.process.poll() is None, "it ended"

    async def ended(self, figures: Path | None = None) -> Done:
        """Waits for its end."""
        try:
            status = await asyncio.to_thread(self.process.wait, LIMIT_S)
        finally:
            self.process.kill()
        errors = self._errors.read_text()
        assert "Traceback" not in errors, errors
        return Done(status, self._output.read_text(), errors, read(figures) if figures is not None else None)


def read(file: Path) -> Any:
    """The figures, None where there are none."""
    return json.loads(file.read_text()) if file.exists() else None


async def bench(directory: Path, *arguments: str | Path) -> Done:
    """The command, with its figures."""
    file = directory / "figures.json"
    return await Bench(directory, *arguments, "--json", file).ended(file)


@pytest.fixture
def sentence(tmp_path: Path) -> Path:
    """1.2 s of a voice, with half a second of silence before it."""
    lead = np.zeros(RATE_HZ // 2, np.int16)
    return write_wav(tmp_path / "sentence.wav", np.concatenate([lead, syllables(120, 1.2)]), RATE_HZ)


def to(port: int, user: str = "agent") -> tuple[str, str]:
    """Options that call a peer on this machine."""
    return "--to", f"sip:{user}@127.0.0.1:{port}"


# Telephones -----------------------------------------------------------------------------------------------

GREETING_S, FIRST_S, SECOND_S = 0.98, 1.5, 7.0
"""Of the peer's voice."""

PAUSE_S = 5.0
"""Between its parts, whatever it hears."""


def told_by_the_clock() -> Pcm:
    """What the peer says: it does not listen, so that what is measured of it follows from this recording."""
    pause = np.zeros(round(PAUSE_S * RATE_HZ), np.int16)
    said = [syllables(205, each) for each in (GREETING_S, FIRST_S, SECOND_S)]
    return np.concatenate([pause[: RATE_HZ // 2], said[0], pause, said[1], pause, said[2], pause, pause])


@pytest.mark.nightly("ci")
async def test_a_telephone_that_plays_a_recording_is_measured(tmp_path: Path, sentence: Path) -> None:
    """The pause of the caller's, the silence before its sentence and the sentence are taken off the peer's
    pause: the rest of it is what the caller waited."""
    (tmp_path / "phone").mkdir()
    plot = tmp_path / "plot.svg"
    async with baresip(tmp_path / "phone", "PCMU/8000/1", told_by_the_clock(), RATE_HZ, user="agent") as port:
        done = await bench(
            tmp_path, *to(port), "--speech", sentence, "--calls", "1", "--turns", "3", "--barge-every", "3",
            "--plot", plot,
        )  # fmt: skip
    assert done.status == 0, done.err
    (call,) = done.figures["each_call"]
    assert [turn["fate"] for turn in call["turns"]] == ["answered", "answered", "talked over"]
    assert [turn["interrupts"] for turn in call["turns"]] == [False, False, True]
    voice_s = done.figures["conditions"]["sentences"][0]["voice_ms"] / 1000
    expected_ms = 1000 * (PAUSE_S - 1.0 - 0.5 - voice_s)
    for turn in call["turns"][:2]:
        assert abs(turn["voice_to_voice_ms"] - expected_ms) < 300  # the peer's frames, and a busy machine
    turns, packets = done.figures["turns"], done.figures["packets"]
    assert (turns["interruptions"], turns["gave_way"]) == (1, 0)
    assert packets["received"] > 500
    assert packets["lost"] == 0
    assert packets["reported"]["calls"] == 1  # its RTCP is read
    assert done.figures["gap_ms"]["count"] > 400
    assert "voice to voice" in done.out
    assert "1 of 1 answered" in done.out
    assert ElementTree.parse(plot).getroot().tag.endswith("svg")


def echoing() -> tuple[str, ...]:
    """SIPp gives back what it hears, for as long as a test takes."""
    first = free_rtp_ports(4).partition("-")[0]
    return ("-rtp_echo", "-mi", "127.0.0.1", "-mp", first, "-timeout", "100s")


@pytest.mark.nightly("ci")
async def test_an_echo_is_not_taken_for_an_agent(tmp_path: Path, sentence: Path) -> None:
    async with Sipp("uas_echo", tmp_path, options=echoing()) as sipp:
        done = await bench(tmp_path, *to(sipp.port), "--speech", sentence, "--calls", "1", "--seconds", "12")
        await sipp.passed()  # it was hung up
    assert done.status == 1
    assert done.figures["turns"]["answered"] == 0
    assert done.figures["turns"]["echo_ms"]["count"] >= 1
    assert "our own voice" in done.err.splitlines()[-1]
    assert done.figures["packets"]["received"] > 100


async def test_an_answer_without_audio_is_told(tmp_path: Path, sentence: Path) -> None:
    async with Sipp("uas_echo", tmp_path, options=echoing()[1:]) as sipp:
        done = await bench(tmp_path, *to(sipp.port), "--speech", sentence, "--calls", "1", "--seconds", "3")
        await sipp.passed()
    assert done.status == 1
    assert "no audio came" in done.err.splitlines()[-1]


async def test_refusals_are_told_by_their_status_and_end_the_run(tmp_path: Path, sentence: Path) -> None:
    async with Sipp("uas_busy", tmp_path, calls=3) as sipp:
        done = await bench(
            tmp_path, *to(sipp.port), "--speech", sentence, "--calls", "9", "--concurrent", "1", "--rate", "9"
        )
        await sipp.passed()
    assert done.status == 1
    assert done.figures["calls"] == {
        "placed": 3, "answered": 0, "hung_up_by_far_end": 0, "failed": {"486 Busy Here": 3}
    }  # fmt: skip
    assert done.err.splitlines()[-1].endswith("3 of 3 calls not answered: 3 × 486 Busy Here")
    assert done.out == ""


async def test_a_challenge_is_answered(
    tmp_path: Path, sentence: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_PASSWORD", "secret")
    async with Sipp("uas_digest", tmp_path, options=("-timeout", "100s")) as sipp:
        options = ("--speech", sentence, "--calls", "1", "--seconds", "2", "--username", "acme")
        done = await bench(tmp_path, *to(sipp.port), *options)
        await sipp.passed()
    assert done.figures["calls"]["answered"] == 1


@pytest.mark.nightly("ci")
async def test_nobody_at_the_address(tmp_path: Path, sentence: Path) -> None:
    done = await bench(tmp_path, *to(free_port()), "--speech", sentence, "--calls", "1")
    assert done.status == 1
    assert done.err.splitlines()[-1].endswith("1 of 1 calls not answered: 1 × unreachable")


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        *(pytest.param(each, marks=pytest.mark.nightly("ci")) for each in (signal.SIGHUP, signal.SIGTERM)),
    ],
)
async def test_ctrl_c_hangs_up_and_shows_what_there_is(
    tmp_path: Path, sentence: Path, number: signal.Signals
) -> None:
    async with Sipp("uas_echo", tmp_path, options=echoing()) as sipp:
        running = Bench(tmp_path, *to(sipp.port), "--speech", sentence, "--calls", "5", "--concurrent", "1")
        await running.told("answered after")
        await asyncio.sleep(1)
        running.process.send_signal(number)
        done = await running.ended()
        await sipp.passed()
    assert done.status == 130
    assert "hanging up" in done.err
    assert "1 of 1 answered" in done.out


async def test_ctrl_c_while_it_rings_cancels(tmp_path: Path, sentence: Path) -> None:
    async with Sipp("uas_rings", tmp_path) as sipp:
        running = Bench(tmp_path, *to(sipp.port), "--speech", sentence, "--calls", "5", "--concurrent", "1")
        await running.told("calling")
        await asyncio.sleep(2)
        running.process.send_signal(signal.SIGINT)
        done = await running.ended()
        await sipp.passed()
    assert done.status == 130


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "either --to"),
        (("--to", "sip:a@127.0.0.1", "--agent", "x", "--config", "y"), "either --to"),
        (("--agent", "x"), "either --to"),
        (("--to", "sip:+14155550101@198.51.100.7"), "--yes"),
        (("--to", "sip:600@127.0.0.1"), "--yes"),
        (("--to", "sip:0112@127.0.0.1", "--yes"), "emergency"),
        (("--to", "sip:a@127.0.0.1", "--speech", "/etc/hostname"), "/etc/hostname: not a PCM WAV file"),
        (("--to", "sip:a@127.0.0.1", "--speech", "/nowhere.wav"), "/nowhere.wav: no such file"),
        (("--to", "sip:a@127.0.0.1", "--plot", "a.png"), "ends in .svg"),
        (("--to", "sip:a@127.0.0.1", "--json", "/nowhere/a.json"), "no folder /nowhere"),
    ],
)
def test_bad_input_is_told_in_a_line(arguments: tuple[str, ...], reason: str) -> None:
    done = mediaserver("bench", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert reason in line


async def test_an_agent_that_answers_after_half_a_second(tmp_path: Path, sentence: Path) -> None:
    """The bare agent of the call benchmark, which has no detector in common with what measures it. Its tone
    is no voice to ours for longer than a second: it cannot be talked over."""
    with bare(tmp_path) as agent:
        options = ("--speech", sentence, "--calls", "2", "--turns", "4", "--barge-every", "0")
        done = await bench(tmp_path, *to(agent.address[1]), *options)
    assert done.status == 0, done.err
    turns = [turn for call in done.figures["each_call"] for turn in call["turns"]]
    assert [turn["fate"] for turn in turns] == ["answered"] * 8
    assert min(turn["voice_to_voice_ms"] for turn in turns) > 1000 * ENDPOINT_S - 25
    assert done.figures["voice_to_voice_ms"]["p50"] < 1000 * ENDPOINT_S + 150  # 501 where nothing else runs


# Our own agents -------------------------------------------------------------------------------------------

ASKS = """
[[agent]]
id = "7b0f7e7e-4f5a-4b8e-9f43-5f0f2c3f9f99"
company = "acme"
name = "Asks on"
trunk = "carrier"
phone_number = "+14155550109"
greeting = "Hello {{{{name}}}}, this is a survey."
{engines}
[agent.script]
start = "ask"
[[agent.script.step]]
id = "ask"
say = "Would you like to go on with it?"
expect = {{ kinds = ["yes_no"] }}
nomatch = {{ say = "I did not get that. Would you like to go on?", max = 20, next = "bye" }}
silence = {{ say = "Are you there? Would you like to go on?", max = 20, next = "bye" }}
next = "ask"
[[agent.script.step]]
id = "bye"
say = "Goodbye."
action = "hang_up"
"""
"""An outbound agent."""

ASKED = ASKS.replace('trunk = "carrier"', 'direction = "inbound"\ntrunk = "carrier"').replace(
    "{{{{name}}}}, ", ""
)


@pytest.mark.nightly("ci")
async def test_ones_own_agent_is_called_in_a_node_of_its_own(tmp_path: Path, sentence: Path) -> None:
    """An outbound agent with a variable, in a configuration whose server does not run; nothing of the
    configuration's own is touched."""
    site = write_site(tmp_path, engines=REAL_ENGINES, more=ASKS)
    options = ("--speech", sentence, "--calls", "2", "--turns", "2", "--barge-every", "2")
    done = await bench(tmp_path, "--agent", "Asks on", "--config", site.path, "--var", "name=Bo", *options)
    assert done.status == 0, done.err
    assert done.figures["calls"]["answered"] == 2
    assert done.figures["turns"]["answered"] >= 3
    assert done.figures["first_voice_ms"]["count"] == 2
    assert done.figures["packets"]["lost"] == 0
    assert done.figures["conditions"]["agent"].endswith("99")
    assert not (site.data_dir / "mediaserver.db").exists()
    assert not (site.data_dir / "recordings").exists()


@pytest.mark.nightly("ci")
async def test_ctrl_c_while_the_node_starts_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    site = write_site(tmp_path, engines=REAL_ENGINES, more=ASKED)
    running = Bench(tmp_path, "--agent", "Asks on", "--config", site.path)
    await running.told("starting a node")
    await asyncio.sleep(1)
    running.process.send_signal(signal.SIGINT)
    done = await running.ended()
    assert done.status == 130
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("agent", "reason"),
    [("Asks on", "--var NAME=VALUE for name"), ("nobody", "agent: no 'nobody'")],
)
def test_an_agent_that_cannot_be_called(tmp_path: Path, agent: str, reason: str) -> None:
    site = write_site(tmp_path, engines=REAL_ENGINES, more=ASKS)
    done = mediaserver("bench", "--agent", agent, "--config", site.path)
    assert done.returncode == 2
    assert reason in done.stderr.splitlines()[-1]


@pytest.mark.nightly("ci")
async def test_the_server_measures_the_same_turns(tmp_path: Path, sentence: Path) -> None:
    """Two programs with a clock each: they may differ by what lies between, not by a turn."""
    site = write_site(tmp_path, engines=REAL_ENGINES, more=ASKED)
    with serving(site) as server:
        server.wait_ready()
        done = await bench(
            tmp_path, *to(site.sip, "+14155550109"), "--yes", "--speech", sentence, "--calls", "1",
            "--turns", "4", "--barge-every", "0",
        )  # fmt: skip
        (summary,) = server.get("/api/v1/calls", KEY)[1]["calls"]
        report = server.get(f"/api/v1/calls/{summary['callTaskId']}", KEY)[1]
    assert done.status == 0, done.err
    ours = [turn["voice_to_voice_ms"] for turn in done.figures["each_call"][0]["turns"]]
    theirs = [turn["latency"]["voiceToVoiceMs"] for turn in report["turns"] if turn["latency"] is not None]
    assert len(ours) == len(theirs) == 4
    # The server counts to its first packet, the caller to the first with voice, which is of the next.
    assert all(-20 < our_ms - their_ms < 100 for our_ms, their_ms in zip(ours, theirs, strict=True))
