"""The packages import one way only, carry the names they must, and share no top-level name with another."""

from __future__ import annotations

import ast
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from pipeline.kernel_cache import SOURCES
from tests.support.paths import ROOT

OURS = ("pipeline", "sip", "mediaserver", "api")
DISTRIBUTION = "openline-mediaserver"

# Engines that live at an address or in a process of their own.
ENGINE_SOCKETS = ("pipeline/net/", "pipeline/stt/openai.py", "pipeline/stt/whisper/")

# What the media plane reads and writes by itself, for every room: its `step` has no socket.
PLANE_SOCKETS = tuple(
    f"pipeline/plane/{name}.py"
    for name in ("address", "drive/contract", "drive/on_loop", "drive/on_thread", "drive/plane")
)

# What a package may never import, and the modules in it that are excepted (by prefix).
FORBIDDEN: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "pipeline": (
        ("aiohttp", "aiortc", "socket", "sip", "mediaserver", "api"),
        ENGINE_SOCKETS + PLANE_SOCKETS,
    ),
    "sip": (("aiohttp", "aiortc", "mediaserver", "api"), ()),
    "mediaserver": (("api",), ("mediaserver/__main__.py",)),
    "api": (("aiortc", "sip", "pipeline"), ()),
}


def imported(path: Path) -> set[str]:
    """The names in the imports of a file; of `from a import b` both `a` and `a.b`, which may be a module."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
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


def test_kernels_and_their_constants_are_in_the_folders_that_name_the_cache() -> None:
    """What is compiled into a kernel from elsewhere could change and the kernel stay as it was."""
    folders = {f"pipeline.{folder.name}" for folder in SOURCES}
    without_constants = {"pipeline.errors", "pipeline.kernel_cache"}
    wrong = []
    for path in sorted(path for package in OURS for path in (ROOT / package).rglob("*.py")):
        names = imported(path)
        if "numba" not in names or path.name == "compiled.py":
            continue
        ours = {name for name in names if name.startswith("pipeline.")}
        strange = {
            name
            for name in ours
            if not any(f"{name}.".startswith(f"{ok}.") for ok in folders | without_constants)
        }
        if path.parent not in SOURCES or strange:
            wrong.append(f"{path.relative_to(ROOT)} {sorted(strange)}")
    assert wrong == []


def import_graph() -> dict[str, set[str]]:
    """The modules of our packages, and which of them each names in an import, `TYPE_CHECKING` or not."""
    paths = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for package in OURS
        for path in (ROOT / package).rglob("*.py")
    }
    return {module: imported(path) & paths.keys() - {module} for module, path in paths.items()}


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The sets of modules that import each other, whatever the number of steps."""

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        waiting = [start]
        while waiting:
            new = graph[waiting.pop()] - found
            found |= new
            waiting += new
        return found

    beyond = {module: reached(module) for module in graph}
    found = {
        tuple(sorted(other for other in beyond[module] if module in beyond[other]))
        for module in graph
        if module in beyond[module]
    }
    return [list(circle) for circle in sorted(found)]


def test_circles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set()}
    assert circles(graph) == [["a", "b", "c"]]
    assert circles({"a": {"b"}, "b": set()}) == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert circles(import_graph()) == []


@pytest.mark.parametrize("package", ["sip"])
def test_no_import_is_for_the_type_checker_only(package: str) -> None:
    wrong = [
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / package).rglob("*.py"))
        if "TYPE_CHECKING" in path.read_text()
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
