"""The size limits of docs/design.md: function 40 lines, class 300, file 600, five positional parameters."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT

SOURCES = sorted(
    path
    for folder in ("pipeline", "sip", "mediaserver", "api", "bench", "examples")
    for path in (ROOT / folder).rglob("*.py")
)
FUNCTION_LINES, CLASS_LINES, FILE_LINES, POSITIONAL = 40, 300, 600, 5

# Kernels and tables are excepted by name: a loop over samples and a transition table read better whole.
EXCEPTED_FILES = {
    "pipeline/audio/kernels.py": "numba kernels, one file so that warm() can name them all",
}
EXCEPTED_FUNCTIONS: dict[str, str] = {}


def lines(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    """Lines from `def`/`class` to the end, the docstring not counted."""
    length = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    ):
        length -= (first.end_lineno or first.lineno) - first.lineno + 1
    return length


def too_large(path: Path) -> Iterator[str]:
    name = path.relative_to(ROOT).as_posix()
    text = path.read_text()
    if name in EXCEPTED_FILES:
        return
    if text.count("\n") > FILE_LINES:
        yield f"{name}: {text.count(chr(10))} lines in the file"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef) and lines(node) > CLASS_LINES:
            yield f"{name}:{node.lineno} class {node.name}: {lines(node)} lines"
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from too_large_function(name, node)


def too_large_function(name: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    if f"{name}:{node.name}" in EXCEPTED_FUNCTIONS:
        return
    if lines(node) > FUNCTION_LINES:
        yield f"{name}:{node.lineno} {node.name}: {lines(node)} lines"
    positional = [
        each.arg for each in (*node.args.posonlyargs, *node.args.args) if each.arg not in ("self", "cls")
    ]
    if len(positional) > POSITIONAL:
        yield f"{name}:{node.lineno} {node.name}: {len(positional)} positional parameters"


def test_nothing_outgrows_its_limit() -> None:
    assert [line for path in SOURCES for line in too_large(path)] == []


@pytest.mark.parametrize("package", ["sip"])
def test_no_class_outgrows_its_limit_with_its_bases(package: str) -> None:
    paths = [path for path in SOURCES if path.is_relative_to(ROOT / package)]
    nodes = [node for path in paths for node in ast.walk(ast.parse(path.read_text()))]
    classes = {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}

    def with_bases(node: ast.ClassDef) -> int:
        bases = [classes[base.id] for base in node.bases if isinstance(base, ast.Name) and base.id in classes]
        return lines(node) + sum(with_bases(base) for base in bases)

    assert {name: with_bases(node) for name, node in classes.items() if with_bases(node) > CLASS_LINES} == {}


def test_exceptions_are_still_needed() -> None:
    for name in EXCEPTED_FILES:
        assert (ROOT / name).exists(), name
    for name in EXCEPTED_FUNCTIONS:
        file, function = name.split(":")
        assert f"def {function}(" in (ROOT / file).read_text(), name


def test_no_imports_inside_functions() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{inner.lineno}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for inner in ast.walk(node)
        if isinstance(inner, ast.Import | ast.ImportFrom)
    ]
    assert found == []
