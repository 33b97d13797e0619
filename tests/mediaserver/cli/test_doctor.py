"""What `mediaserver doctor` finds, and what it tells to do."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mediaserver.cli.doctor import (
    clock_finding,
    engine_findings,
    examine,
    priority_finding,
    rooms_findings,
    rtp_finding,
    timers_late_ms,
)
from mediaserver.cli.finding import Finding
from mediaserver.settings import load
from mediaserver.wiring import missing_voice_detectors
from pipeline.confinement.confinement import lacking
from pipeline.plane.drive.priority import REAL_TIME
from tests.support.hostile.wild import wild_server
from tests.support.http.models import Recognizer, fake_models
from tests.support.kernels import WITHOUT_LANDLOCK
from tests.support.node.forked import run_forked
from tests.support.node.node import FAKE_ENGINES, MODEL_AGENT, REAL_ENGINES, write_site
from tests.support.paths import ROOT


def named(findings: list[Finding], name: str) -> list[Finding]:
    return [finding for finding in findings if finding.name == name]


async def punctual() -> list[float]:
    """Timers of a good machine."""
    return [0.1, 0.4, 1.2]


@pytest.mark.parametrize(("late_ms", "ok"), [([0.1, 0.4, 30.0], True), ([5.1, 6.0, 5.5], False)])
def test_late_timers_are_told(late_ms: list[float], ok: bool) -> None:
    finding = clock_finding(late_ms)
    assert (finding.name, finding.ok) == ("clock", ok)
    assert ("the machine is overloaded" in finding.text) is not ok


async def test_the_timers_of_this_machine_are_measured() -> None:
    assert len(await timers_late_ms()) == 25


async def test_a_machine_that_has_everything(tmp_path: Path) -> None:
    settings = load(write_site(tmp_path, engines=REAL_ENGINES).path)
    findings = await examine(settings, late_ms=punctual)
    of_the_machine = ("open files", "confinement")
    assert [each for each in findings if not each.ok and each.name not in of_the_machine] == []
    names = {finding.name for finding in findings}
    assert {"kernels", "http", "sip udp", "sip tcp", "rtp ports", "database", "clock", "disk"} <= names
    assert {"codec pcmu", "codec pcma", "codec g722", "codec opus"} <= names
    assert "agent Reminder" in names


async def test_pocketsphinx_is_said_to_listen_only_until_there_is_a_real_whisper(tmp_path: Path) -> None:
    findings = await engine_findings(load(write_site(tmp_path, engines=REAL_ENGINES).path))
    assert any("listens until there is a Whisper" in finding.text for finding in findings)


async def test_the_synthetic_model_is_said_to_know_no_people(tmp_path: Path) -> None:
    engines = FAKE_ENGINES.replace(
        '"test-ears"', '"test-ears"\nmodel = "package:mediaserver/demo/micro_whisper"'
    )
    with fake_models():
        findings = await engine_findings(load(write_site(tmp_path, engines=engines).path))
    assert any("183 words of synthetic voices" in finding.text for finding in findings)


async def test_files_that_nothing_here_understands_are_told(tmp_path: Path) -> None:
    settings = load(write_site(tmp_path, more='[speech]\nlanguage = "ar"\n').path)
    with fake_models():
        findings = await engine_findings(settings)
    (deaf,) = named(findings, "speech.stt")
    assert (deaf.ok, deaf.text.partition(":")[0]) == (
        False,
        "pocketsphinx understands English only, the language is ar",
    )


async def test_what_auto_became_for_files_is_told(tmp_path: Path) -> None:
    settings = load(write_site(tmp_path, more='[speech]\nstt = "auto"\ntts = "auto"\n').path)
    with fake_models():
        findings = await engine_findings(settings)
    told = [each.text for each in named(findings, "speech")]
    assert any(text.startswith("auto: ears for en (files): ") for text in told)
    assert any(text.startswith("auto: voice for en: ") for text in told)


async def test_a_missing_engine_is_told_with_what_to_do(tmp_path: Path) -> None:
    with fake_models(Recognizer(missing="no model.bin in /models: download one")):
        findings = await engine_findings(load(write_site(tmp_path, more=MODEL_AGENT).path))
    missing = named(findings, "agent Reminder")[0]
    assert (missing.ok, missing.text) == (False, "test-ears: no model.bin in /models: download one")
    first, *others = named(findings, "agent Modelled")
    assert "no-such-model" in first.text
    assert [each.ok for each in others if each.text.startswith("llm http://127.0.0.1:9/v1, model ")] == [
        False
    ]


async def test_a_voice_detector_that_is_not_installed_is_told_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "webrtcvad", None)
    site = write_site(tmp_path)
    site.change('name = "Reminder"', 'name = "Reminder"\nvad = "webrtcvad"')
    settings = load(site.path)
    install = "the voice detector 'webrtcvad' is not installed: pip install 'openline-mediaserver[webrtcvad]'"
    with fake_models():
        (finding, *_) = named(await engine_findings(settings), "agent Reminder")
    assert (finding.ok, finding.text) == (False, install)
    assert [reason for key, reason in missing_voice_detectors(settings) if key == "agent[0].vad"] == [install]


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        ("400 Bad Request", {"error": {"type": "BadRequestError"}}, "answered 400 (BadRequestError)"),
        ("404 Not Found", {"error": {"code": "model_not_found"}}, "answered 404 (model_not_found)"),
        ("200 OK", {"choices": [{"message": {"content": "Yes."}}]}, ""),
        ("200 OK", {"detail": "no"}, "something else"),
    ],
    ids=["tools-refused", "no-such-model", "well", "no-model"],
)
async def test_a_language_model_is_asked_a_question_with_a_tool_to_call(
    tmp_path: Path, status: str, body: dict[str, Any], told: str
) -> None:
    answer = f"HTTP/1.1 {status}\r\nConnection: close\r\n\r\n{json.dumps(body)}".encode()
    async with wild_server([answer]) as server:
        site = write_site(tmp_path, more=MODEL_AGENT.replace("http://127.0.0.1:9/v1", server.base_url))
        site.reach_this_machine()
        with fake_models():
            findings = await engine_findings(load(site.path))
    away = [finding.text for finding in findings if finding.text.startswith("llm ") and not finding.ok]
    assert [told in text for text in away] == ([True] if told else [])
    (asked,) = server.requests
    assert asked["messages"]
    assert asked["tools"]


async def test_ports_in_use(tmp_path: Path) -> None:
    site = write_site(tmp_path)
    with socket.socket() as http, socket.socket(type=socket.SOCK_DGRAM) as sip, fake_models():
        http.bind(("127.0.0.1", site.http))
        http.listen()
        sip.bind(("127.0.0.1", site.sip))
        findings = await examine(load(site.path))
    for name in ("http", "sip udp"):
        assert not named(findings, name)[0].ok
        assert "in use" in named(findings, name)[0].text
    assert named(findings, "sip tcp")[0].ok


def test_the_rooms_port_and_codec(tmp_path: Path) -> None:
    site = write_site(tmp_path)
    (told,) = rooms_findings(load(site.path))
    assert told.ok
    assert "no web calls" in told.text
    with socket.socket(type=socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        rooms = f"""
[rooms]
udp_ports = "{port}-{port}"
addresses = ["127.0.0.1"]
api_secret = "a-secret-of-thirty-two-characters"
"""
        settings = load(write_site(tmp_path, more=rooms).path)
        udp, opus = rooms_findings(settings)
        assert (udp.name, udp.ok, opus.name, opus.ok) == ("rooms udp", False, "rooms opus", True)
        assert "in use" in udp.text
    assert next(rooms_findings(settings)).ok


def test_a_secret_of_tokens_that_can_be_found_by_trying(tmp_path: Path) -> None:
    short, *others = rooms_findings(load(write_site(tmp_path, more='[rooms]\napi_secret = "hush"\n').path))
    assert (short.name, short.ok) == ("rooms secret", False)
    assert "has 4 characters" in short.text
    assert "hush" not in short.text
    assert "rooms secret" not in {each.name for each in others}


def test_too_few_rtp_ports_for_the_calls_allowed(tmp_path: Path) -> None:
    site = write_site(tmp_path)
    site.change("max_calls = 20", "max_calls = 500")
    finding = rtp_finding(load(site.path))
    assert not finding.ok
    assert "room for 40 calls" in finding.text


async def test_a_database_that_cannot_be_opened(tmp_path: Path) -> None:
    site = write_site(tmp_path)
    site.data_dir.mkdir()
    (site.data_dir / "mediaserver.db").write_bytes(b"this is no database, whatever its name says" * 100)
    with fake_models():
        findings = await examine(load(site.path))
    assert not named(findings, "database")[0].ok
    assert "server.database" in named(findings, "database")[0].text


def test_the_command_prints_a_line_for_each_thing(tmp_path: Path) -> None:
    site = write_site(tmp_path, engines=REAL_ENGINES)
    done = run_forked("doctor", "--config", site.path)
    lines = done.stdout.splitlines()
    assert done.returncode == int(any(line.startswith("missing") for line in lines))
    assert all(line.startswith(("ok ", "missing ")) for line in lines)
    assert len(lines) > 15
    assert "Traceback" not in done.stderr


@pytest.mark.nightly("ci")
@pytest.mark.skipif(bool(lacking()), reason=f"this kernel has {'; '.join(lacking())}")
def test_what_the_kernel_lacks_for_confinement_is_told(tmp_path: Path) -> None:
    site = write_site(tmp_path, engines=REAL_ENGINES)
    command = ("-m", "mediaserver", "doctor", "--config", str(site.path))
    for behind, begins in (
        ((), "ok       confinement: no_new_privs, seccomp, Landlock "),
        (("-c", WITHOUT_LANDLOCK), "missing  confinement: helper processes run with less of it: no Landlock"),
    ):
        done = subprocess.run(
            [sys.executable, *behind, *command], stdout=subprocess.PIPE, text=True, timeout=120, check=False
        )
        (told,) = [line for line in done.stdout.splitlines() if " confinement: " in line]
        assert told.startswith(begins)
        assert any(line.startswith("ok       agent Reminder: script") for line in done.stdout.splitlines())


@pytest.mark.parametrize(
    ("refused", "ok", "said"),
    [
        ((), True, "SCHED_RR"),
        (("sched_setscheduler",), True, "nice"),
        (("sched_setscheduler", "setpriority"), False, "ordinary"),
    ],
    ids=str,
)
def test_the_priority_of_the_media_threads_is_told(
    monkeypatch: pytest.MonkeyPatch, refused: tuple[str, ...], ok: bool, said: str
) -> None:
    def refuses(*_: object) -> None:
        raise PermissionError

    def allows(*_: object) -> None: ...

    for name in ("sched_setscheduler", "setpriority"):
        monkeypatch.setattr(os, name, refuses if name in refused else allows)
    finding = priority_finding()
    assert (finding.ok, finding.text.split(",")[0].split(":")[0]) == (ok, said)
    assert ("LimitRTPRIO" in finding.text) is bool(refused)


def test_the_unit_of_systemd_allows_what_the_media_threads_ask_for() -> None:
    unit = (ROOT / "config" / "systemd" / "mediaserver.service").read_text()
    limits = dict(line.split("=", 1) for line in unit.splitlines() if line.startswith("Limit"))
    assert int(limits["LimitRTPRIO"]) >= REAL_TIME


async def test_a_realtime_service_that_gives_no_session_is_told(tmp_path: Path) -> None:
    more = f'{MODEL_AGENT}[agent.realtime]\nurl = "ws://127.0.0.1:9/v1/realtime"\n'
    with fake_models():
        findings = await engine_findings(load(write_site(tmp_path, more=more).path))
    (told,) = [each for each in named(findings, "agent Modelled") if "ws://127.0.0.1:9" in each.text]
    assert (told.ok, told.text.partition(":")[0]) == (False, "realtime ws")
