"""The files of a Whisper model, without the engine: `mediaserver models` needs no more."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pipeline.errors import EngineMissing

_FILES: Final = ("model.bin", "config.json", "tokenizer.json")
_VOCABULARIES: Final = ("vocabulary.json", "vocabulary.txt")


def check_model(directory: Path) -> None:
    """Checks the files of a model's directory. Raises `EngineMissing`, which names the missing ones.

    Without the check the library would download: the model when the directory does not exist, another model's
    tokenizer when tokenizer.json is missing.
    """
    if not directory.is_dir():
        raise EngineMissing(
            f"no Whisper model: {directory} is not a directory (a CTranslate2 model goes there)"
        )
    missing = [name for name in _FILES if not (directory / name).is_file()]
    if not any((directory / name).is_file() for name in _VOCABULARIES):
        missing.append(_VOCABULARIES[0])
    if missing:
        raise EngineMissing(f"the Whisper model in {directory} lacks {', '.join(missing)}")
