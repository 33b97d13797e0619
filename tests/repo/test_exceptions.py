"""Where any exception at all is caught: at the boundary of a task or a thread, around somebody else's code,
in the HTTP middleware. Everywhere else what is caught has a name."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
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
    "mediaserver/telemetry/logging.py:LineHandler.emit": "the `str` of a field: who logs must not fail",
    "pipeline/errors.py:boundary.__exit__": "a task, and somebody else's code: logged, and goes no further",
    "pipeline/errors.py:contained.__exit__": "an engine or an agent: what it raises becomes an `EngineError`",
    "pipeline/stt/fallback.py:FallbackListening._attempt": "a recogniser, for every frame: `contained` logs",
    "pipeline/stt/whisper/batching.py:DecodeQueue._pass": "a decoding thread: whoever waits is told",
    "pipeline/stt/whisper/process.py:reported": "a helper process of a model: the server is told",
    "pipeline/tts/espeak_library.py:EspeakLibrary._received": "a callback of C, which no exception may cross",
    "pipeline/tts/subprocess_server.py:VoiceService._outcome": "a helper process: the server is told",
}
"""Every place, and what it is the boundary of."""


def broad_places(source: str, path: str) -> Iterator[str]:
    """The functions of a module in which everything is caught, as "path:Class.function"."""
    tree = ast.parse(source)
    yield from (f"{path}:{name}" for name in _inside(tree, (), _aliases(tree)))


def _aliases(tree: ast.AST) -> Mapping[str, str]:
    """What a module calls by other names: by the new one, the old one."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found |= {each.asname: each.name for each in node.names if each.asname}
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name | ast.Attribute):
            found |= {ast.unparse(target): _last(node.value) for target in node.targets}
    return found


def _inside(node: ast.AST, names: tuple[str, ...], aliases: Mapping[str, str]) -> Iterator[str]:
    if _is_broad(node, aliases) or (names[-1:] == ("__exit__",) and _judges_all(node, aliases)):
        yield ".".join(names)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        names = (*names, node.name)
    for child in ast.iter_child_nodes(node):
        yield from _inside(child, names, aliases)


def _is_broad(node: ast.AST, aliases: Mapping[str, str]) -> bool:
    if isinstance(node, ast.ExceptHandler):
        return node.type is None or _names_all(node.type, aliases)
    if isinstance(node, ast.Call) and aliases.get(_last(node.func), _last(node.func)) == "suppress":
        return any(_names_all(argument, aliases) for argument in node.args)
    return False


def _judges_all(node: ast.AST, aliases: Mapping[str, str]) -> bool:
    """Whether the end of a `with` asks if what ended its block is any exception at all."""
    return (
        isinstance(node, ast.Call)
        and ast.unparse(node.func) == "isinstance"
        and _names_all(node.args[1], aliases)
    )


def _names_all(kind: ast.expr, aliases: Mapping[str, str]) -> bool:
    kinds = map(_last, getattr(kind, "elts", (kind,)))
    return any(aliases.get(each, each) in BROAD for each in kinds)


def _last(name: ast.expr) -> str:
    return ast.unparse(name).split(".")[-1]


def found() -> set[str]:
    """Every place of the product."""
    sources = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    assert len(sources) > 300
    return {
        place
        for path in sources
        for place in broad_places(path.read_text(), path.relative_to(ROOT).as_posix())
    }


def test_everything_is_caught_in_few_places_and_each_is_listed() -> None:
    assert sorted(found() ^ ALLOWED.keys()) == []  # nor does the list tell of a place that is gone
    assert len(ALLOWED) <= LIMIT


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
        "from contextlib import suppress as quiet\n    with quiet(Exception): go()",
        "anything = Exception\n    try: go()\n    except anything: pass",
    ],
)
def test_no_spelling_is_overlooked(block: str) -> None:
    assert list(broad_places(f"class A:\n  def b(self):\n    {block}", "a.py")) == ["a.py:A.b"]


@pytest.mark.parametrize(
    "block", ["try: go()\n    except (OSError, ValueError): pass", "with suppress(OSError): go()"]
)
def test_what_has_a_name_may_be_caught_anywhere(block: str) -> None:
    assert list(broad_places(f"class A:\n  def b(self):\n    {block}", "a.py")) == []
