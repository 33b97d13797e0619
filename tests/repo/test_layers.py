"""The packages import one way only, carry the names they must, and share no top-level name with another."""

from __future__ import annotations

import ast
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.support.paths import ROOT

OURS = ("pipeline", "sip", "mediaserver", "api")
DISTRIBUTION = "openline-mediaserver"

# Engines that live at an address or in a process of their own.
ENGINE_SOCKETS = ("pipeline/net/", "pipeline/stt/openai.py", "pipeline/stt/whisper/")

# What a package may never import, and the modules in it that are excepted (by prefix).
FORBIDDEN: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "pipeline": (
        ("aiohttp", "aiortc", "socket", "sip", "mediaserver", "api"),
        ("pipeline/net/", "pipeline/stt/openai.py", "pipeline/stt/whisper/"),
    ),
    "sip": (("aiohttp", "aiortc", "mediaserver", "api"), ()),
    "mediaserver": (("api",), ("mediaserver/__main__.py",)),
    "api": (("aiortc", "sip", "pipeline"), ()),
}


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module)
    return names


@pytest.mark.parametrize("package", OURS)
def test_imports_go_one_way(package: str) -> None:
    forbidden, excepted = FORBIDDEN[package]
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for name in imported(path)
        if name.split(".")[0] in forbidden
        and not path.relative_to(ROOT).as_posix().startswith(excepted or ("-",))
    ]
    assert wrong == []


def test_no_other_distribution_provides_our_names() -> None:
    provided = packages_distributions()
    for package in OURS:
        assert set(provided.get(package, [DISTRIBUTION])) == {DISTRIBUTION}


def test_folders_are_the_documented_ones() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages <= {*OURS, "bench"}
    for folder in (*OURS, "config", "bench", "tests", "docs", "examples"):
        assert (ROOT / folder).is_dir(), folder
