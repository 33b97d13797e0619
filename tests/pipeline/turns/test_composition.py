"""The turn machine is composed of records: nothing is inherited, and no two files import each other."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.support.paths import ROOT

FILES = sorted((ROOT / "pipeline" / "turns").rglob("*.py"))
PLAIN_BASES = {"Enum", "Protocol"}


def module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imported(path: Path) -> set[str]:
    """Modules of the room that `path` imports, for the type checker only included."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return (names & {module(each) for each in FILES}) - {module(path)}


@pytest.mark.parametrize("path", FILES, ids=module)
def test_no_class_inherits_from_another(path: Path) -> None:
    classes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)]
    inherited = {node.name: [ast.unparse(base) for base in node.bases] for node in classes}
    assert {name: bases for name, bases in inherited.items() if not set(bases) <= PLAIN_BASES} == {}


def test_imports_go_one_way() -> None:
    graph = {module(path): imported(path) for path in FILES}
    order = list(TopologicalSorter(graph).static_order())  # raises `CycleError`
    assert order[-1] == "pipeline.turns.machine"
