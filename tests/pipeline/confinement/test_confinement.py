"""Processes that read what strangers sent: what somebody who takes one over can do from there."""

from __future__ import annotations

import asyncio
import ctypes
import ctypes.util
import json
import logging
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipeline.confinement import confined_process
from pipeline.confinement.confined_process import clean_environment, start_confined
from pipeline.confinement.confinement import NICE, lacking
from pipeline.confinement.system_calls import (
    ARCHITECTURES,
    CALLS,
    CLONE3,
    CONDITIONS,
    OF_COMPUTING,
    OF_FORKING,
)
from tests.support.kernels import WITHOUT_LANDLOCK
from tests.support.paths import ROOT

SECRET = "sk-of-the-server"
DEMO = ROOT / "config" / "demo.toml"

ours = pytest.mark.skipif(bool(lacking()), reason=f"this kernel has {'; '.join(lacking())}")


@pytest.fixture(autouse=True)
def without_granted_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """A confined process may read what PYTHONPATH names. Runners of tests put the folder there that they were
    started in: above the checkout, or above the temporary files of tests."""
    monkeypatch.delenv("PYTHONPATH", raising=False)


async def output_of(module: str, *arguments: str) -> str:
    process = await start_confined(module, *arguments)
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode()


FREE = (
    *("connect", "unix socket", "list a directory", "signal the server", "the server's environment"),
    *("by way of proc", "/etc/passwd"),
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A server's: settings, a model, two voices of which one is a link to a file elsewhere."""
    (tmp_path / "victim").write_text("settings")
    (tmp_path / "model.bin").write_text("weights")
    blob = tmp_path / "blob"
    blob.write_text("a voice elsewhere")
    voices = tmp_path / "voices"
    voices.mkdir()
    (voices / "plain").write_text("a voice")
    (voices / "linked").symlink_to(blob)
    return tmp_path


@pytest.fixture
async def found(directory: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a program that is confined as the helpers are achieves against this process and its files."""
    monkeypatch.setenv("LLM_KEY", SECRET)
    with socket.create_server(("127.0.0.1", 0)) as trap:
        wanted = asked(directory, trap.getsockname()[1])
        found: dict[str, Any] = json.loads(
            await output_of("tests.support.confined_probe", json.dumps(wanted))
        )
        trap.setblocking(False)
        with pytest.raises(BlockingIOError):
            trap.accept()
    assert sorted(os.listdir(directory)) == ["blob", "model.bin", "victim", "voices"]
    return found


def asked(directory: Path, port: int) -> dict[str, Any]:
    """What `confined_probe` is to try."""
    return {
        "read": [str(directory / "model.bin"), str(directory / "voices")],
        "names": ["plain", "linked"],
        "others": ["/etc/passwd", str(directory / "victim"), str(DEMO)],
        "port": port,
        "directory": str(directory),
        "server": os.getpid(),
    }


async def test_what_is_tried_would_succeed_without(directory: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as trap:
        wanted = asked(directory, trap.getsockname()[1]) | {"free": FREE}
        found = json.loads(await output_of("tests.support.confined_probe", json.dumps(wanted)))
    assert [name for name in FREE if not found[name].startswith("achieved")] == []


@ours
async def test_whoever_takes_over_a_process_reaches_nothing(found: dict[str, Any]) -> None:
    told = {name: found.pop(name) for name in ("granted", "granted beneath")}
    del found["environment"], found["status"], found["descriptors"]
    assert found.pop("a gigabyte") == "MemoryError"
    assert len(found) == 26
    assert {name: said for name, said in found.items() if said != "PermissionError"} == {}
    assert told["granted"] == ["achieved 'weights'"]
    assert told["granted beneath"] == ["achieved 'a voice elsewhere'", "achieved 'a voice'"]


@ours
async def test_the_kernel_says_so_and_nothing_is_inherited(found: dict[str, Any]) -> None:
    status = dict(re.findall(r"^(NoNewPrivs|Seccomp):\s+(\d+)$", found["status"], re.MULTILINE))
    assert status == {"NoNewPrivs": "1", "Seccomp": "2"}
    assert found["descriptors"] == [0, 1, 2]


async def test_the_environment_is_clean(found: dict[str, Any]) -> None:
    names = {line.partition("=")[0] for line in found["environment"].split("\0") if line}
    assert names <= {*confined_process.PASSED_ON, "PYTHONPATH", *clean_environment()}
    assert SECRET not in found["environment"]


@ours
@pytest.mark.parametrize("module", ["numpy", "numba", "onnxruntime", "ctranslate2", "av", "pocketsphinx"])
async def test_the_libraries_of_engines_load_inside(module: str) -> None:
    code = (
        "import importlib, sys\n"
        "from pipeline.confinement.confinement import Confinement\n"
        "Confinement(memory_mb=2048).apply()\n"
        f"importlib.import_module({module!r})\n"
        "print('loaded')\n"
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-c", code), env=clean_environment(), stdout=asyncio.subprocess.PIPE
    )
    assert (await process.communicate())[0].endswith(b"loaded\n")


async def test_a_process_with_threads_is_not_half_confined() -> None:
    code = (
        "import threading\n"
        "from pipeline.confinement.confinement import Confinement\n"
        "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "try:\n"
        "    Confinement().apply()\n"
        "except RuntimeError as error:\n"
        "    print(error)\n"
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-c", code), env=clean_environment(), stdout=asyncio.subprocess.PIPE
    )
    assert (await process.communicate())[0] == b"a process is confined before it starts threads\n"


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_the_numbers_of_the_system_calls_are_those_of_libseccomp(machine: str) -> None:
    name = ctypes.util.find_library("seccomp")
    if name is None:
        pytest.skip("libseccomp is not installed")
    column, architecture = ARCHITECTURES[machine]
    library = ctypes.CDLL(name)
    named = {
        **CALLS,
        **OF_FORKING,
        "clone3": CLONE3,
        **{name: each.numbers for name, each in CONDITIONS.items()},
    }
    numbers = {
        name: library.seccomp_syscall_resolve_name_arch(ctypes.c_uint32(architecture), name.encode())
        for name in named
    }
    assert {name: number if number >= 0 else None for name, number in numbers.items()} == {
        name: each[column] for name, each in named.items()
    }
    assert set(CALLS) >= OF_COMPUTING


LESS = """
import json, sys
from pipeline.confinement.confinement import Confinement, lacking
Confinement(memory_mb=512).apply()
import socket
try: socket.socket(); reached = True
except PermissionError: reached = False
print(json.dumps([lacking(), reached, open("/etc/passwd").read() != ""]))
"""


@ours
def test_on_a_kernel_without_landlock_the_rest_holds() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_LANDLOCK, "-P", "-c", LESS],
        env=clean_environment(), stdout=subprocess.PIPE, check=True, timeout=60,
    )  # fmt: skip
    lacks, reached, read = json.loads(done.stdout)
    assert [each.partition(",")[0] for each in lacks] == ["no Landlock"]
    assert (reached, read) == (False, True)


async def test_what_a_kernel_lacks_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(confined_process, "lacking", lambda: ("no Landlock, so files are open to it",))
    confined_process._tell_what_is_lacking.cache_clear()
    try:
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                process = await start_confined("this", stdout=asyncio.subprocess.DEVNULL)
                await process.communicate()
    finally:
        confined_process._tell_what_is_lacking.cache_clear()
    told = [record for record in caplog.records if record.message == "helper processes are less confined"]
    assert [record.__dict__["lacks"] for record in told] == ["no Landlock, so files are open to it"]


def test_bounds_do_not_rise_above_what_the_operator_set() -> None:
    code = (
        "import resource\n"
        "from pipeline.confinement.confinement import Confinement\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "Confinement().apply()\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_CORE))\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env=clean_environment(),
        stdout=subprocess.PIPE,
        check=True,
        timeout=60,
    )
    assert done.stdout == b"(64, 64) (0, 0)\n"


TRIAL = """
from pathlib import Path
from pipeline.stt.whisper import trial as whisper_trial

def tried(directory, window_s, compute_type):
    try:
        other = Path(directory).with_name("victim").read_text()
    except OSError as error:
        other = type(error).__name__
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    locks = [status[each].strip() for each in ("NoNewPrivs", "Seccomp")]
    nice = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[16])
    model = Path(directory, "model.bin").read_text()
    return {"nice": nice, "model": model, "other": other, "locks": locks}

whisper_trial.tried = tried
whisper_trial.main()
"""


@ours
async def test_a_trial_of_whisper_is_confined_and_steps_back(tmp_path: Path) -> None:
    """As the process that decodes for callers: it runs beside live calls when an agent is saved."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.bin").write_text("weights")
    (tmp_path / "victim").write_text("settings")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", TRIAL, str(model), "12", "int8"),
        stdout=subprocess.PIPE,
        env=clean_environment() | {"PYTHONPATH": str(DEMO.parent.parent)},
    )
    out, _ = await process.communicate()
    found = json.loads(out)
    assert (found["model"], found["other"]) == ("weights", "PermissionError")
    assert found["locks"] == ["1", "2"]
    assert found["nice"] == min(19, os.nice(0) + NICE)
