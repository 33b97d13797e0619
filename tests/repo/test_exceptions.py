"""Where any exception at all is caught: at the boundary of a task or a thread, around somebody else's code,
in the HTTP middleware. Everywhere else what is caught has a name."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final = ("api", "mediaserver", "pipeline", "sip")
BROAD: Final = frozenset({"Exception", "BaseException"})
LIMIT: Final = 10

ALLOWED: Final = {
    "api/http/errors.py:answer_errors": "the HTTP middleware: a request that breaks is answered with 500",
    "mediaserver/db/sqlite.py:_failure_of": "the writing thread: whoever waits for the work is told",
    "mediaserver/logging.py:LineHandler.emit": "the `str` of a field that is logged: who logs must not fail",
    "pipeline/errors.py:catching": "a helper process, a callback of C, a frame's path: see `CATCHING`",
    "pipeline/errors.py:boundary": "a task, and somebody else's code: logged, and goes no further",
    "pipeline/errors.py:contained": "an engine or an agent: whatever it raises becomes an `EngineError`",
    "pipeline/stt/whisper/batching.py:DecodeQueue._pass": "a decoding thread: whoever waits is told",
}
"""Every place, and what it is the boundary of."""

CATCHING: Final = {
    "pipeline/stt/fallback.py:FallbackListening.partial": "a recogniser, a few times a second; see `push`",
    "pipeline/stt/fallback.py:FallbackListening.push": "a recogniser, for every frame",
    "pipeline/stt/whisper/process.py:_decoded": "the loop of a thread of a helper process",
    "pipeline/stt/whisper/process.py:main": "a helper process that loads its model",
    "pipeline/stt/whisper/trial.py:tried": "a helper process that tries its model",
    "pipeline/tts/espeak_library.py:EspeakLibrary._received": "a callback of C in a helper process",
    "pipeline/tts/subprocess_server.py:VoiceService.run": "the loop of a helper process",
}
"""Where `pipeline.errors.catching` stops everything without a line in the log, and whose boundary it is."""


def broad_places(source: str, path: str) -> Iterator[str]:
    """The functions of a module in which everything is caught, as "path:Class.function"."""
    yield from (f"{path}:{name}" for name in _inside(ast.parse(source), (), _is_broad))


def catching_places(source: str, path: str) -> Iterator[str]:
    """The functions of a module that call `catching`, as "path:Class.function"."""
    yield from (f"{path}:{name}" for name in _inside(ast.parse(source), (), _is_catching))


def _inside(node: ast.AST, names: tuple[str, ...], is_wanted: Callable[[ast.AST], bool]) -> Iterator[str]:
    if is_wanted(node):
        yield ".".join(names)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        names = (*names, node.name)
    for child in ast.iter_child_nodes(node):
        yield from _inside(child, names, is_wanted)


def _is_catching(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in {"catching", "errors.catching"}


def _is_broad(node: ast.AST) -> bool:
    if isinstance(node, ast.ExceptHandler):
        return node.type is None or _names_all(node.type)
    if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "suppress":
        return any(_names_all(argument) for argument in node.args)
    return False


def _names_all(kind: ast.expr) -> bool:
    return any(ast.unparse(each).split(".")[-1] in BROAD for each in getattr(kind, "elts", (kind,)))


def found(places: Callable[[str, str], Iterator[str]]) -> set[str]:
    """Every place of the product that `places` finds in a module."""
    sources = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    assert len(sources) > 300
    return {
        place for path in sources for place in places(path.read_text(), path.relative_to(ROOT).as_posix())
    }


def test_everything_is_caught_in_few_places_and_each_is_listed() -> None:
    assert (
        sorted(found(broad_places) ^ ALLOWED.keys()) == []
    )  # nor does the list tell of a place that is gone
    assert len(ALLOWED) <= LIMIT


def test_nothing_is_stopped_without_a_line_in_the_log_but_where_it_is_listed() -> None:
    assert sorted(found(catching_places) ^ CATCHING.keys()) == []


@pytest.mark.parametrize(
    "block",
    [
        "try: go()\n    except Exception: pass",
        "try: go()\n    except BaseException as error: raise",
        "try: go()\n    except: pass",
        "try: go()\n    except (OSError, Exception): pass",
        "try: go()\n    except builtins.Exception: pass",
        "with contextlib.suppress(Exception): go()",
        "with suppress(OSError, BaseException): go()",
    ],
)
def test_no_spelling_is_overlooked(block: str) -> None:
    assert list(broad_places(f"class A:\n  def b(self):\n    {block}", "a.py")) == ["a.py:A.b"]


@pytest.mark.parametrize(
    "block", ["try: go()\n    except (OSError, ValueError): pass", "with suppress(OSError): go()"]
)
def test_what_has_a_name_may_be_caught_anywhere(block: str) -> None:
    assert list(broad_places(f"class A:\n  def b(self):\n    {block}", "a.py")) == []
