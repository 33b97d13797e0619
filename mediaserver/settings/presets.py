"""Presets: the options of one service's engines by name (`preset = "deepgram"`), as data in config/presets.

A preset's file has a table for each kind of engine that the service offers: `stt`, `tts`, `llm`, `realtime`.
Values of a preset may name keys of the agent's table in braces (`"https://{resource}.openai.azure.com"`),
which `needs` lists with what each is. What stands beside `preset` in the agent's table replaces the preset's
values.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationInfo

from pipeline.engines.tables import resolve_env

_PLACE: Final = re.compile(r"\{([a-z_]{1,40})\}")


def preset_names(kind: str) -> tuple[str, ...]:
    """Gives the names of the presets for `kind` ("stt", "tts", "llm", "realtime"), sorted."""
    return tuple(sorted(name for name, tables in _PRESETS.items() if kind in tables))


def with_preset(kind: str, table: Any, info: ValidationInfo) -> Any:
    """The table of an engine with its preset filled in; other tables, and what is no table, unchanged. Raises
    ValueError for an unknown preset, and for a key that the preset needs."""
    if not isinstance(table, Mapping):
        return table
    filled = dict(table)
    if isinstance(filled.get("fallback"), list | tuple):
        filled["fallback"] = [with_preset(kind, each, info) for each in filled["fallback"]]
    name = filled.pop("preset", None)
    if name is None:
        return filled
    known = preset_names(kind)
    if name not in known:
        raise ValueError(f"preset: no {kind} preset is called {name!r}; there are {', '.join(known)}")
    preset = dict(_PRESETS[name][kind])
    needs: Mapping[str, str] = preset.pop("needs", {})
    values = {**preset.pop("usual", {}), **filled}
    for key, what in needs.items():
        if key not in values:
            raise ValueError(f"{key}: missing; preset {name!r} needs it: {what}")
    used: set[str] = set()
    options = {key: _filled_in(value, values, used, info) for key, value in preset.items()}
    own = {key: value for key, value in filled.items() if key not in used}
    return _merged(options, own)


def _filled_in(value: Any, values: Mapping[str, Any], used: set[str], info: ValidationInfo) -> Any:
    """A value of a preset with the values of the agent's table in its places."""
    if isinstance(value, Mapping):
        return {key: _filled_in(inner, values, used, info) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled_in(inner, values, used, info) for inner in value]
    if not isinstance(value, str):
        return value

    def place(match: re.Match[str]) -> str:
        if match[1] not in values:
            return match[0]
        used.add(match[1])
        try:
            return str(resolve_env(values[match[1]], info))
        except ValueError as error:
            raise ValueError(f"{match[1]}: {error}") from error

    return _PLACE.sub(place, value)


def _merged(options: dict[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(options)
    for key, value in own.items():
        before = merged.get(key)
        both = isinstance(before, dict) and isinstance(value, Mapping)
        merged[key] = {**before, **value} if both and before is not None else value
    return merged


def _read() -> Mapping[str, Mapping[str, Any]]:
    return {path.stem: tomllib.loads(path.read_text()) for path in sorted(_folder().glob("*.toml"))}


def _folder() -> Path:
    """The folder of the presets, in the installed package or in the checkout."""
    installed = Path(str(files("mediaserver"))) / "config" / "presets"
    return installed if installed.exists() else installed.parents[2] / "config" / "presets"


_PRESETS: Final = _read()
