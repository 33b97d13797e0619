"""The processes of a running server: what the kernel says of them, and uploads while they are killed."""

from __future__ import annotations

import io
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from bench.support.processes import children, module_of
from pipeline.confinement.confined_process import clean_environment
from pipeline.confinement.confinement import lacking
from tests.support.node.node import REAL_ENGINES, SPEECH_KEY, ServerProcess, bearer, serving, write_site
from tests.support.speech.sounds import file_of, tone

SECRET = "sk-of-the-server"
READER = "mediaserver.speech.decoder_process"
PROGRAMS = {READER, "pipeline.tts.espeak_process", "pipeline.stt.sphinx.dictation_process"}

AUDIO = file_of(tone(8000, 1000), 8000)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    more = "\n[speech]\nupload_mb = 2\naudio_s = 60\n"
    site = write_site(tmp_path_factory.mktemp("confined"), engines=REAL_ENGINES, more=more)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LLM_KEY", SECRET)
        with serving(site) as process:
            process.wait_ready()
            yield process


def upload(server: ServerProcess, octets: bytes = AUDIO) -> int:
    """The status of an upload."""
    edge = "edge"
    body = io.BytesIO()
    body.write(f'--{edge}\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'.encode())
    body.write(octets + f"\r\n--{edge}--\r\n".encode())
    headers = {**bearer(SPEECH_KEY), "Content-Type": f"multipart/form-data; boundary={edge}"}
    request = Request(f"http://127.0.0.1:{server.site.http}/transcribe", body.getvalue(), headers)
    try:
        with urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except HTTPError as error:
        with error:
            return error.code


def programs(server: ServerProcess) -> dict[str, int]:
    """Process ids of what the server runs beside itself, by module."""
    found = {module_of(child): child for child in children(server.process.pid)}
    return {module: child for module, child in found.items() if module}


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_every_process_beside_the_server_is_confined(server: ServerProcess) -> None:
    assert upload(server) == 200  # free dictation starts with the first
    until(lambda: set(programs(server)) == PROGRAMS)
    for module, pid in programs(server).items():
        environment = Path(f"/proc/{pid}/environ").read_text()
        assert SECRET not in environment
        names = {line.partition("=")[0] for line in environment.split("\0") if line}
        assert names <= set(clean_environment()), module
        if not lacking():
            status = Path(f"/proc/{pid}/status").read_text()
            told = dict(re.findall(r"^(NoNewPrivs|Seccomp):\s+(\d+)$", status, re.MULTILINE))
            assert told == {"NoNewPrivs": "1", "Seccomp": "2"}, module
        limits = Path(f"/proc/{pid}/limits").read_text()
        assert re.search(r"Max core file size +0 +0 ", limits), module
        assert re.search(r"Max open files +\d{1,3} +\d{1,3} ", limits), module


def test_uploads_while_the_reader_is_killed_are_read(server: ServerProcess) -> None:
    killed = set()
    for _ in range(5):
        until(lambda: READER in programs(server))
        pid = programs(server)[READER]
        killed.add(pid)
        os.kill(pid, signal.SIGKILL)
        assert upload(server) == 200  # at once: the server may not know yet
    assert len(killed) == 5
