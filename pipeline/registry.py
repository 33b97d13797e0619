"""Finds engines by name: installed ones through entry points, a program's own through `register`, anybody's
class as "module:Class".

A distribution offers an engine with an entry point in one of the groups of `GROUPS`. Its object is a function
that takes the engine's settings as a mapping, returns the engine, and raises `EngineMissing` or
ValueError."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoints, entry_points
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from pipeline.errors import EngineMissing, LocalError, kind_of

Factory: TypeAlias = Callable[[Mapping[str, Any]], Any]

GROUPS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "stt": "mediaserver.speech_to_text",
        "tts": "mediaserver.text_to_speech",
        "agent": "mediaserver.agents",
        "scorer": "mediaserver.end_of_turn_scorers",
    }
)
"""The entry-point group of each kind of engine."""

_MISTAKES: Final = (
    TypeError, LookupError, AttributeError, NameError, ImportError, OSError, RuntimeError, ArithmeticError,
    AssertionError,
)  # fmt: skip
"""What somebody's class raises besides the exceptions that it may."""

_ASKED: Final[Mapping[str, str]] = MappingProxyType(
    {"stt": "listen", "tts": "speak", "agent": "join", "scorer": "p_eot"}
)
"""What an engine of each kind has at least."""

_registered: dict[tuple[str, str], Factory] = {}


def register(kind: str, name: str, factory: Factory) -> None:
    """Registers `factory` as the engine `name` of `kind`, in preference to an installed engine of that name.
    Raises `LocalError` for an unknown kind."""
    _group(kind)
    _registered[kind, name] = factory


def unregister(kind: str, name: str) -> None:
    """Takes back `register`; an unknown name is no error."""
    _registered.pop((kind, name), None)


def known(kind: str) -> tuple[str, ...]:
    """Gives the names that `load` accepts for `kind`, sorted. Raises `LocalError` for an unknown kind."""
    installed = {entry.name for entry in _installed(_group(kind))}
    return tuple(sorted(installed | {name for other, name in _registered if other == kind}))


def load(kind: str, name: str, settings: Mapping[str, Any]) -> Any:
    """Makes the engine `name` of `kind` of `GROUPS` from `settings`, without starting it.

    A name such as "my_package.ears:Ears" is that class, or a function, of an importable module. Raises
    `EngineMissing` for an unknown name (the message lists the known ones), an engine whose libraries are not
    installed or a class that cannot be made, ValueError for settings that the engine refuses, `LocalError`
    for an unknown kind.
    """
    factory = _factory(kind, name)
    if not is_class(name):
        return factory(settings)
    try:
        engine = factory(settings)
    except _MISTAKES as error:
        raise EngineMissing(f"engine {name!r} cannot be made: {_place(error)}") from error
    if not callable(getattr(engine, _ASKED[kind], None)):
        raise EngineMissing(f"engine {name!r} is no {kind} engine: it has no {_ASKED[kind]}()")
    return engine


def _factory(kind: str, name: str) -> Factory:
    group = _group(kind)
    if (kind, name) in _registered:
        return _registered[kind, name]
    if is_class(name):
        return _class(name)
    for entry in _installed(group).select(name=name):
        try:
            factory: Factory = entry.load()
        except ImportError as error:
            raise EngineMissing(f"engine {name!r} is installed but cannot be imported: {error}") from error
        return factory
    raise EngineMissing(f"no {kind} engine is called {name!r}; known: {', '.join(known(kind)) or 'none'}")


def is_class(name: str) -> bool:
    """Whether `name` is that of a class in a module ("module:Class")."""
    module, colon, path = name.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), *path.split(".")))


def _class(name: str) -> Factory:
    module, _, path = name.partition(":")
    try:
        found: Any = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise EngineMissing(f"engine {name!r} cannot be imported: {error}") from error
    except (*_MISTAKES, ValueError, SyntaxError) as error:
        raise EngineMissing(f"engine {name!r} cannot be imported: {_place(error)}") from error
    factory: Factory = getattr(found, "from_settings", found)
    return factory


def _place(error: Exception) -> str:
    """The kind of an exception of somebody's engine, and where it was raised. The texts of most kinds may
    quote options."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    text = f" ({error})" if isinstance(error, TypeError | NameError | AttributeError) else ""
    return f"{kind_of(error)}{text} at {frame.filename}, line {frame.lineno}"


@cache  # each look reads the metadata of every distribution: 10 ms
def _installed(group: str) -> EntryPoints:
    return entry_points(group=group)


def _group(kind: str) -> str:
    try:
        return GROUPS[kind]
    except KeyError:
        raise LocalError(f"no kind of engine {kind!r}; there are {', '.join(GROUPS)}") from None
