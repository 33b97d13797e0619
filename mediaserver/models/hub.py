"""Fetches model weights ahead of time: `mediaserver models get`. Nothing is ever fetched during a call.

The transfer is huggingface_hub's (resumed where it broke off, retried, any hub that speaks its protocol).
This module compares every file with the hash that the hub lists for it, and puts a directory under its name
only when it is complete."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Final

from huggingface_hub import HfApi, hf_hub_download
from huggingface_hub.errors import (  # type: ignore[attr-defined]
    HfHubHTTPError,
    HFValidationError,
    HTTPError,  # of whichever HTTP library the installed version uses
)

from mediaserver.models.files import Fetched, ModelError, settle
from pipeline.engines.local_weights import read_sha256


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model by a short name: the hub's repository and the files (patterns) that an engine needs."""

    repository: str
    files: tuple[str, ...]
    purpose: str


_WHISPER: Final = ("config.json", "model.bin", "preprocessor_config.json", "tokenizer.json", "vocabulary.*")

KNOWN: Final[Mapping[str, KnownModel]] = {
    **{
        f"whisper-{size}": KnownModel(
            f"Systran/faster-whisper-{size}", _WHISPER, "speech-to-text: engine faster-whisper"
        )
        for size in ("tiny", "base", "small", "medium", "large-v3", "tiny.en", "base.en", "small.en")
    },
    "kokoro": KnownModel(
        "hexgrad/Kokoro-82M",
        ("config.json", "kokoro-v1_0.pth", "voices/*.pt"),
        "text-to-speech: engine kokoro",
    ),
}
"""Names for `get`; "owner/repository" is taken too, with all of its files."""


@dataclass(frozen=True, slots=True)
class _File:
    """A file of a repository, as the hub lists it. `sha256`: of large files; for small ones the hub has the
    git hash."""

    path: str
    size: int
    sha256: str
    git_sha1: str


def get(name: str, into: Path, *, revision: str = "main", hub: str | None = None) -> Fetched:
    """Fetches the model `name` to `into`/`name`, replacing an older one once all of it is there.

    `hub`: its address (default: huggingface_hub's, which reads HF_ENDPOINT; HF_TOKEN is the token). Raises
    `ModelError`: unknown, not reachable, no such repository or revision, a file that is not what was listed,
    a full disk. What was fetched before a failure is kept, and the next `get` goes on from there."""
    model = known(name)
    directory = into / name.replace("/", "--")
    part = directory.with_name(f".{directory.name}.part")
    try:
        commit, files = _listing(model, revision, hub)
        part.mkdir(parents=True, exist_ok=True)
        for file in files:
            _fetch(model.repository, file, commit, part, hub=hub)
        fetched = Fetched(
            repository=model.repository,
            revision=commit,
            directory=directory,
            files={file.path: file.sha256 or read_sha256(part / file.path) for file in files},
        )
        settle(part, fetched)
    except HFValidationError as error:
        raise ModelError(f"{name}: {error}") from error
    except HfHubHTTPError as error:
        raise ModelError(f"{model.repository}: the hub refused: {_first_line(error)}") from error
    except (HTTPError, OSError) as error:
        raise ModelError(f"{model.repository}: {_first_line(error)}") from error
    return fetched


def known(name: str) -> KnownModel:
    """Returns the model called `name`. Raises `ModelError` with the known names."""
    if name in KNOWN:
        return KNOWN[name]
    if name.count("/") == 1 and not name.startswith("/"):
        return KnownModel(name, ("*",), "")
    raise ModelError(f"no model is called {name!r}; there are {', '.join(KNOWN)}, and owner/repository")


def _listing(model: KnownModel, revision: str, hub: str | None) -> tuple[str, list[_File]]:
    info = HfApi(endpoint=hub).model_info(model.repository, revision=revision, files_metadata=True)
    files = [
        _File(each.rfilename, each.size or 0, each.lfs.sha256 if each.lfs else "", each.blob_id or "")
        for each in info.siblings or ()
        if any(fnmatch(each.rfilename, pattern) for pattern in model.files)
    ]
    if not files or info.sha is None:
        raise ModelError(f"{model.repository}: holds none of {', '.join(model.files)}")
    for file in files:
        path = PurePosixPath(file.path)
        if path.is_absolute() or ".." in path.parts:
            raise ModelError(f"{model.repository}: lists a file outside itself: {file.path}")
    return info.sha, files


def _fetch(repository: str, file: _File, commit: str, part: Path, *, hub: str | None) -> None:
    path = part / file.path
    if path.is_file() and _is_as_listed(path, file):
        return
    hf_hub_download(repository, file.path, revision=commit, local_dir=part, endpoint=hub)
    if not _is_as_listed(path, file):
        path.unlink()
        raise ModelError(f"{repository}: {file.path} is not what the hub lists (wrong hash); fetch it again")


def _is_as_listed(path: Path, file: _File) -> bool:
    if path.stat().st_size != file.size:
        return False
    if file.sha256:
        return read_sha256(path) == file.sha256
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest() == file.git_sha1


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
