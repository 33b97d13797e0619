"""Public docstrings say what a thing is for: five words or more, or a figure; none only points elsewhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT

SOURCES = sorted(
    path
    for folder in ("pipeline", "sip", "mediaserver", "api")
    for path in (ROOT / folder).rglob("*.py")
    if re.match(r"_(?!_)", path.name) is None
)
WORDS = 4

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

# "file:qualified name", and why its docstring may be short.
EXCEPTED: dict[str, str] = {}


def documented(node: ast.AST, name: str) -> Iterator[tuple[str, Documented]]:
    """The public modules, classes, functions and methods, also under an `if`; not functions in functions."""
    if isinstance(node, Documented):
        yield name, node
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from documented(child, name)
        elif not child.name.startswith("_"):
            yield from documented(child, f"{name}.{child.name}".lstrip("."))


def says_too_little(text: str) -> bool:
    """Whether a docstring is a bare reference, or of at most four words without a figure (a unit, a rate)."""
    return re.match(r"(As )?[Ss]ee\b", text) is not None or (
        len(text.split()) <= WORDS and re.search(r"\d", text) is None
    )


def poor(path: Path) -> Iterator[str]:
    """The public things of a file whose docstrings say too little."""
    file = path.relative_to(ROOT).as_posix()
    for name, node in documented(ast.parse(path.read_text()), ""):
        text = ast.get_docstring(node)
        if text is not None and says_too_little(text):
            yield f"{file}:{name}"


@pytest.mark.parametrize(
    ("text", "little"),
    [
        ("See `Tx.rows`.", True),
        ("See `Encoder`. All of it.", True),
        ("Whose it is.", True),
        ("Looks until cancelled.", True),
        ("24000 Hz.", False),
        ("Runs a statement and returns its rows.", False),
        ("Seed of the random source, any whole number.", False),
    ],
)
def test_what_says_too_little(text: str, little: bool) -> None:
    assert says_too_little(text) is little


def test_public_docstrings_say_what_a_thing_is_for() -> None:
    found = {each for path in SOURCES for each in poor(path)}
    assert found - EXCEPTED.keys() == set()
    assert EXCEPTED.keys() - found == set(), "excepted, and not short any more"
    assert all(EXCEPTED.values()), "an exception without a reason"
