"""The call benchmark has calls and measures them: its shape, never its speed."""

from __future__ import annotations

import os
import random
import socket
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.call import report
from bench.call.caller import Mode, mulaw, speech
from bench.call.figures import loop_lag_ms, pacing
from bench.call.generator import Generator, Job
from bench.call.impaired_line import DTX_AFTER, ECHO_FRAMES, ImpairedLine, linear
from bench.call.phases import Phases, Plan, kept_up, paced
from bench.call.processes import floors, serving
from bench.call.server import LONG_SENTENCE, SENTENCE, VOICE_HZ, Voice
from bench.call.sip_line import Line, LineState
from bench.support.codecs import from_ulaw, over_ulaw
from mediaserver.benchmark.figures import percentiles
from pipeline.engines.guard import Guard, GuardedVoice
from tests.support.paths import ROOT

PLAN = Plan(
    calls=2, seconds=9.0, single_seconds=5.0, rates=(4,), rate_seconds=2.0, sweep=(2,), sweep_seconds=2.0
)


@pytest.mark.nightly("ci")
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_calls_are_had_with_the_server_and_with_the_bare_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    phases = Phases(PLAN)
    with serving(tmp_path) as server, floors(tmp_path) as floor:
        figures = phases.talk(server, 2, PLAN.seconds, beside=floor)
        always = phases.talk(server, 2, 2.0, mode=Mode.ALWAYS, beside=floor)
        impaired = phases.talk(server, 2, PLAN.seconds, mode=Mode.IMPAIRED, beside=floor)
        sweep = phases.sweep(server, floor)
        steps = phases.set_up(server)
        told = list(server.reports(2))
        warm_s = server.started_s
    beside = figures["bare"]
    whole: dict[str, Any] = {
        "one": figures,
        "many": figures,
        "many_always": always,
        "many_impaired": impaired,
    }
    phases_of = (figures, always, impaired, *sweep)
    for each in (*phases_of, *(phase[name] for phase in phases_of for name in report.FLOORS)):
        assert each["up_at_end"] == each["calls"] == 2
        assert each["packets"] > 100
        assert each["generator_lost"] == 0
        assert each["cpu_ms_per_call_second"] >= 0
    assert beside["voice_to_voice_ms"]["count"] >= 2
    assert impaired["voice_to_voice_ms"]["count"] >= 1
    assert impaired["server_lost"] > 0
    assert figures["voice_to_voice_ms"]["count"] >= 2
    assert figures["barge_in_ms"]["count"] >= 1
    assert figures["missed_turns"] == 0
    # Both ends measured the same turns: they differ by far less than one of them could be made up.
    assert figures["against_server_ms"]["count"] >= 1
    assert abs(figures["against_server_ms"]["p50"]) < 100
    assert figures["server_lost"] == 0
    assert [call["status"] for call in told] == ["COMPLETED", "COMPLETED"]
    assert steps[0]["calls"] == 8
    assert steps[0]["failed"] == 0
    whole |= {"sweep": sweep, "set_up": steps, "start_warm_s": warm_s}
    assert all(row[2] and row[-1] in ("met", "missed") for row in report.rows(whole))
    report.show(whole)


def test_a_phase_whose_calls_were_refused_has_missed_its_targets() -> None:
    refused = {
        "calls": 30,
        "up_at_end": 0,
        "cpu_ms_per_call_second": 0.1,
        "framework_ms": {"p50": 1, "p95": 1},
    }
    refused |= {"gap_ms": {"p99": 20.0}, "barge_in_ms": {"p95": 20.0}}
    phase = refused | {name: refused for name in report.FLOORS}
    phases = {name: phase for name in ("one", "many", "many_always", "many_impaired")}
    rows = report.rows(phases | {"set_up": [], "start_warm_s": 1.0})
    assert {row[-1] for row in rows[:8]} == {"missed"}
    assert rows[0][2] == "0.10, 30 calls not up"


def test_an_impaired_line_sends_no_silence_and_brings_the_agents_voice_back_lower() -> None:
    line, silence, voice = ImpairedLine(random.Random(1)), b"\xff" * 160, mulaw(np.full(160, 8000, np.int16))
    sent = [line.carry(silence) for _ in range(50)]
    assert sum(each is not None for each in sent) <= DTX_AFTER
    assert line.suppressed
    for _ in range(ECHO_FRAMES + 1):
        line.hear(voice)
    level = linear()[np.frombuffer(line.carry(silence) or silence, np.uint8)].max()
    assert 20 * np.log10(8000 / level) == pytest.approx(25, abs=1)
    line.hear(voice)
    both = linear()[np.frombuffer(line.carry(voice) or silence, np.uint8)].max()
    assert both == pytest.approx(8000 + level, rel=0.05)


def test_an_impaired_line_loses_and_delays_packets_and_keeps_their_order() -> None:
    line, voice = ImpairedLine(random.Random(3)), mulaw(np.full(160, 8000, np.int16))
    lost = sum(line.carry(voice) is None for _ in range(5000)) / 5000
    assert 0.01 < lost < 0.03
    due = [line.due_ns(number * 20_000_000) for number in range(1000)]
    assert due == sorted(due)
    late_ms = [(each - number * 20_000_000) / 1e6 for number, each in enumerate(due)]
    assert 0 <= min(late_ms) < 5
    assert 25 < max(late_ms) <= 30


def test_a_report_for_the_port_below_does_not_end_the_load() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(30)
        job = Job(server=server.getsockname(), called="+14155550101", first_number=1)
        with closing(Generator(job)) as generator:
            generator.call(time.time_ns())
            invite, address = server.recvfrom(65_536)
            server.sendto(b"\x81\xc8\x00\x06" + bytes(24), address)
            generator.run_until(time.time_ns() + 50_000_000)
            assert generator.count((LineState.CALLING,)) == 1
    assert invite.startswith(b"INVITE ")


@pytest.mark.parametrize("text", [SENTENCE, LONG_SENTENCE])
async def test_the_voice_of_the_bench_is_not_taken_for_one_without_an_end(text: str) -> None:
    """Else another voice speaks in its place, and what that costs is put down to the server."""
    voice = GuardedVoice(Voice(), Guard("tts", "bench"), last=True)
    samples = [chunk.samples async for chunk in voice.speak(text, language="en")]
    assert sum(each.size for each in samples) > VOICE_HZ


def test_the_callers_codec_is_the_one_that_the_server_understands() -> None:
    """Written twice, from the definition and as a kernel: no code may differ."""
    pcm = np.arange(-32768, 32768, dtype=np.int16)
    back, expected = from_ulaw(mulaw(pcm)), over_ulaw(pcm)
    furthest = np.abs(back.astype(np.int32) - expected).max()
    assert furthest <= 1024  # ties between two steps of the last segment
    assert np.mean(back == expected) > 0.95


def test_the_script_begins_loud_for_as_long_as_a_barge_in_takes_and_ends_without_a_step() -> None:
    frames = speech()
    assert all(len(frame) == 160 for frame in frames)
    assert b"\xff" * 160 not in frames[:12]
    assert frames[-1] != b"\xff" * 160
    assert frames[-1][-1] in (0xFF, 0x7F)


def test_percentiles_of_nothing_are_nothing_and_not_zero() -> None:
    assert percentiles([], 50, 99) == {"p50": None, "p99": None, "count": 0}
    assert percentiles([1.0, 2.0, 3.0], 50) == {"p50": 2.0, "count": 3}


def test_a_lost_packet_is_counted_and_its_gap_is_no_pacing() -> None:
    sent = [0, 20, 40, 80, 100]
    call = {"arrivals_ns": [ms * 1_000_000 for ms in sent], "sequences": [65_534, 65_535, 0, 2, 3]}
    figures = pacing([call])
    assert figures["generator_lost"] == 1
    assert figures["gap_ms"]["p100"] == 20.0


def test_the_loops_lateness_between_two_scrapes() -> None:
    def scrape(*counts: int) -> str:
        bounds = ("0.001", "0.01", "+Inf")
        return "\n".join(
            f'mediaserver_loop_lag_seconds_bucket{{le="{bound}"}} {count}.0'
            for bound, count in zip(bounds, counts, strict=True)
        )

    assert loop_lag_ms((scrape(10, 10, 10), scrape(60, 110, 110)), 0.5) == 1.0
    assert loop_lag_ms((scrape(10, 10, 10), scrape(60, 110, 110)), 0.75) == 5.5
    assert loop_lag_ms((scrape(1, 1, 1), scrape(1, 1, 1)), 0.99) is None


def test_a_call_that_is_refused_has_failed_and_is_acknowledged() -> None:
    line = Line(("127.0.0.1", 5060), ("127.0.0.1", 6000), call_id="a", caller="+1", called="+2")
    assert line.invite(("127.0.0.1", 7000), 1).startswith(b"INVITE sip:+2@127.0.0.1:5060 SIP/2.0\r\n")
    refused = (
        "SIP/2.0 503 Service Unavailable\r\nTo: <sip:+2@h>;tag=x\r\nCall-ID: a\r\nCSeq: 1 INVITE\r\n\r\n"
    )
    assert line.receive(refused, 2).startswith(b"ACK ")
    assert (line.state, line.reason) == (LineState.FAILED, "503")
    assert line.leave(3) == b""


def test_an_invite_without_an_answer_is_sent_again_and_given_up() -> None:
    line = Line(("127.0.0.1", 5060), ("127.0.0.1", 6000), call_id="a", caller="+1", called="+2")
    invite = line.invite(("127.0.0.1", 7000), 1)
    assert line.overdue(100_000_000) == b""
    assert line.overdue(600_000_000) == invite
    line.overdue(9_000_000_000)
    assert line.state is LineState.FAILED


def test_what_counts_as_kept_up_and_as_paced() -> None:
    step = {"failed": 0, "calls": 100, "set_up_ms": {"p95": 20.0}}
    assert kept_up(step)
    assert not kept_up(step | {"failed": 2})
    assert not kept_up(step | {"set_up_ms": {"p95": 1500.0}})
    assert paced({"up_at_end": 9, "calls": 9, "gap_from_20_ms_p99": 9.9})
    assert not paced({"up_at_end": 9, "calls": 9, "gap_from_20_ms_p99": 10.1})
    assert not paced({"up_at_end": 8, "calls": 9, "gap_from_20_ms_p99": 1.0})
