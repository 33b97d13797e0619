"""Models in directories: what each is for, in which languages, and whether all of it is there.

`mediaserver models get` puts them there; a model that was copied there by hand is found too."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from mediaserver.models.files import MANIFEST
from pipeline.engines.local_weights import sha256_of
from pipeline.errors import EngineMissing
from pipeline.stt.whisper.weights import check_model

USUAL: Final = (Path("models"), Path("var/models"))
"""The directories in which models are looked for besides the server's data directory."""

WHISPER: Final = "faster-whisper"
PIPER: Final = "piper"

_ENGLISH_TOKENS: Final = 51864
"""Size of the vocabulary of Whisper's English models; the others have more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelHere:
    """A model in a directory. `engine`: "" for one that `engine = "auto"` does not know; `languages`: () for
    many; `file`: of a Piper voice; `source`, `revision`: where it was fetched from, "" unknown; `problem`:
    what is wrong with the model, "" where nothing is."""

    name: str
    directory: Path
    engine: str
    languages: tuple[str, ...] = ()
    file: Path | None = None
    source: str = ""
    revision: str = ""
    size: int = 0
    problem: str = ""

    def speaks(self, language: str) -> bool:
        """Whether the model knows `language` (a tag such as "en-GB")."""
        return not self.languages or language.lower().partition("-")[0] in self.languages


def places(data_dir: Path) -> tuple[Path, ...]:
    """Returns the directories in which a server looks for models, each once."""
    wanted = {path.resolve(): path for path in (*reversed(USUAL), data_dir / "models")}
    return tuple(reversed(wanted.values()))


def models_in(directories: Iterable[Path]) -> list[ModelHere]:
    """Returns every model in `directories`, with the files of fetched ones compared with their hashes. Reads
    files: not for the event loop."""
    return [found for place in directories for found in _models(place)]


def _models(place: Path) -> Iterator[ModelHere]:
    try:
        directories = sorted(each for each in place.iterdir() if each.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        yield _unread(place, error)
        return
    for directory in directories:
        name = directory.name
        if name.startswith(".") and name.endswith(".part"):
            yield _half(directory)
        elif not name.startswith(".") and not name.endswith(".old"):
            try:
                found = list(_model(directory))
            except (OSError, ValueError) as error:
                found = [_unread(directory, error)]
            yield from found


def _unread(directory: Path, error: OSError | ValueError) -> ModelHere:
    reason = error.strerror if isinstance(error, OSError) else type(error).__name__
    problem = f"{directory} cannot be read ({reason})"
    return ModelHere(name=directory.name, directory=directory, engine="", problem=problem)


def _half(directory: Path) -> ModelHere:
    name = directory.name.removeprefix(".").removesuffix(".part")
    problem = f"{directory} is half fetched: mediaserver models get {name}"
    return ModelHere(name=name, directory=directory, engine="", problem=problem)


def _model(directory: Path) -> Iterator[ModelHere]:
    manifest, unread = _manifest(directory)
    plain = ModelHere(
        name=directory.name,
        directory=directory,
        engine="",
        source=str(manifest.get("repository", "")),
        revision=str(manifest.get("revision", "")),
        problem=unread or _difference(directory, manifest),
    )
    voices = sorted(directory.glob("*.onnx.json"))
    if voices:
        yield from (_voice(plain, each) for each in voices)
    else:
        yield _whisper(plain) if _is_whisper(directory, plain.source) else plain


def _whisper(model: ModelHere) -> ModelHere:
    weights, problem = model.directory / "model.bin", model.problem
    try:
        check_model(model.directory)
    except EngineMissing as missing:
        problem = str(missing)
    return replace(
        model,
        engine=WHISPER,
        languages=("en",) if _knows_english_only(model.directory) else (),
        size=weights.stat().st_size if weights.is_file() else 0,
        problem=problem,
    )


def _voice(model: ModelHere, config: Path) -> ModelHere:
    file, problem = config.with_suffix(""), model.problem
    languages: tuple[str, ...] = ("?",)
    try:
        languages = (str(json.loads(config.read_text())["espeak"]["voice"]).lower().partition("-")[0],)
    except (OSError, KeyError, TypeError, ValueError) as error:
        problem = problem or f"{config} does not describe a voice ({type(error).__name__})"
    if not file.is_file():
        problem = f"the Piper voice in {model.directory} lacks {file.name}"
    return replace(model, engine=PIPER, languages=languages, file=file, problem=problem)


def _is_whisper(directory: Path, source: str) -> bool:
    if (directory / "model.bin").is_file() or "whisper" in source.lower():
        return True
    try:
        config = json.loads((directory / "config.json").read_text())
    except (OSError, ValueError):
        return False
    return isinstance(config, Mapping) and "suppress_ids_begin" in config


def _knows_english_only(directory: Path) -> bool:
    """Whether a Whisper model is English only, by the size of its vocabulary, as CTranslate2 tells."""
    try:
        lines, table = directory / "vocabulary.txt", directory / "vocabulary.json"
        if table.is_file():
            return len(json.loads(table.read_text())) <= _ENGLISH_TOKENS
        with lines.open("rb") as words:
            return sum(1 for _ in words) <= _ENGLISH_TOKENS
    except (OSError, ValueError, TypeError):
        return directory.name.endswith(".en")


def _manifest(directory: Path) -> tuple[Mapping[str, Any], str]:
    """Returns the manifest of a fetched model, and what is wrong with it."""
    path = directory / MANIFEST
    try:
        read = json.loads(path.read_text())
    except FileNotFoundError:
        return {}, ""
    except (OSError, ValueError) as error:
        return {}, f"{path} cannot be read ({type(error).__name__})"
    if isinstance(read, Mapping) and isinstance(read.get("files", {}), Mapping):
        return read, ""
    return {}, f"{path} is no manifest"


def _difference(directory: Path, manifest: Mapping[str, Any]) -> str:
    """Returns what is wrong with the first file that differs from what was fetched, "" where none does."""
    for name, digest in manifest.get("files", {}).items():
        try:
            if sha256_of(directory / name) != digest:
                return f"{directory / name} is not the file that was fetched: mediaserver models get again"
        except OSError as error:
            return f"{directory / name}: {error.strerror}: mediaserver models get again"
    return ""
