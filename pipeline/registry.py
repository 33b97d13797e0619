"""Engines by name: installed ones through entry points, a program's own through `register`.

A distribution offers an engine with an entry point in one of the groups of `GROUPS`, whose object is a
function of one mapping (the engine's settings) that returns the engine and raises `EngineMissing` or
ValueError."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import EntryPoints, entry_points
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from pipeline.errors import EngineMissing, LocalError

Factory: TypeAlias = Callable[[Mapping[str, Any]], Any]

GROUPS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "stt": "mediaserver.speech_to_text",
        "tts": "mediaserver.text_to_speech",
        "agent": "mediaserver.agents",
    }
)
"""The entry-point group of each kind of engine."""

_registered: dict[tuple[str, str], Factory] = {}


def register(kind: str, name: str, factory: Factory) -> None:
    """Makes the engine `factory` known as `name`, in preference to an installed engine of that name. Raises
    `LocalError`."""
    _group(kind)
    _registered[kind, name] = factory


def unregister(kind: str, name: str) -> None:
    """Forgets what `register` made known; an unknown name is no error."""
    _registered.pop((kind, name), None)


def known(kind: str) -> tuple[str, ...]:
    """The names that `load` accepts, sorted."""
    installed = {entry.name for entry in _installed(_group(kind))}
    return tuple(sorted(installed | {name for other, name in _registered if other == kind}))


def load(kind: str, name: str, settings: Mapping[str, Any]) -> Any:
    """The engine `name` of `kind` ("stt", "tts", "agent") made from `settings`; not started yet.

    Raises `EngineMissing` for a name nobody registered (the message lists the known ones) or an engine whose
    libraries are not installed, ValueError for settings the engine refuses, `LocalError` for an unknown kind.
    """
    return _factory(kind, name)(settings)


def _factory(kind: str, name: str) -> Factory:
    group = _group(kind)
    if (kind, name) in _registered:
        return _registered[kind, name]
    for entry in _installed(group).select(name=name):
        try:
            factory: Factory = entry.load()
        except ImportError as error:
            raise EngineMissing(f"engine {name!r} is installed but cannot be imported: {error}") from error
        return factory
    raise EngineMissing(f"no {kind} engine is called {name!r}; known: {', '.join(known(kind)) or 'none'}")


@cache  # each look reads the metadata of every distribution: 10 ms
def _installed(group: str) -> EntryPoints:
    return entry_points(group=group)


def _group(kind: str) -> str:
    try:
        return GROUPS[kind]
    except KeyError:
        raise LocalError(f"no kind of engine {kind!r}; there are {', '.join(GROUPS)}") from None
