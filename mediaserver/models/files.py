"""Directories of fetched models: complete ones only, each with a manifest of its source."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from mediaserver.errors import MediaServerError

MANIFEST: Final = "mediaserver-model.json"
"""The file in a fetched directory with its source, and the hash of every file."""


class ModelError(MediaServerError):
    """A model cannot be fetched; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """A fetched model. `files`: SHA-256 by path."""

    repository: str
    revision: str
    directory: Path
    files: Mapping[str, str] = field(default_factory=dict)


def installed(into: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields the models in `into`: name of the directory, and its manifest."""
    for manifest in sorted(into.glob(f"*/{MANIFEST}")):
        yield manifest.parent.name, json.loads(manifest.read_text())


def settle(part: Path, fetched: Fetched) -> None:
    """Puts the complete directory `part` in its place, without files that another revision left in it."""
    shutil.rmtree(part / ".cache", ignore_errors=True)  # huggingface_hub's notes on what it was fetching
    for path in [each for each in part.rglob("*") if each.is_file()]:
        if path.relative_to(part).as_posix() not in fetched.files:
            path.unlink()
    manifest = {**asdict(fetched), "directory": fetched.directory.name}
    (part / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    old = part.with_name(f"{part.name}.old")
    if fetched.directory.exists():
        shutil.rmtree(old, ignore_errors=True)
        fetched.directory.rename(old)
    part.rename(fetched.directory)
    shutil.rmtree(old, ignore_errors=True)
