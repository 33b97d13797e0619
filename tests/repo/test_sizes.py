"""The size limits of docs/design.md: function 40 lines, class 300, file 600, five positional parameters,
twenty files in a folder."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import ROOT

SOURCES = sorted(
    path
    for folder in ("pipeline", "sip", "mediaserver", "api", "bench", "examples")
    for path in (ROOT / folder).rglob("*.py")
)
FUNCTION_LINES, CLASS_LINES, FILE_LINES, POSITIONAL, FOLDER_FILES = 40, 300, 600, 5, 20

# Kernels and tables are excepted by name: a loop over samples and a transition table read better whole.
EXCEPTED_FILES = {
    "pipeline/audio/kernels.py": "numba kernels, one file so that warm() can name them all",
}
EXCEPTED_FUNCTIONS: dict[str, str] = {}
EXCEPTED_FOLDERS = {
    "pipeline/plane": "one compiled function in parts, each of which is inlined into the next",
}


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


def test_no_folder_holds_more_files_than_fit_on_a_page() -> None:
    tests = (path for path in (ROOT / "tests").rglob("*.py"))
    held = Counter(path.parent.relative_to(ROOT).as_posix() for path in (*SOURCES, *tests))
    assert {folder for folder, files in held.items() if files > FOLDER_FILES} <= set(EXCEPTED_FOLDERS)


@dataclass(frozen=True)
class Class:
    """A class with the full names of its bases."""

    node: ast.ClassDef
    bases: tuple[str, ...]


def classes_of(folder: Path, paths: Iterable[Path]) -> dict[str, Class]:
    """The classes of `paths`, which lie in `folder`, by full name."""
    found: dict[str, Class] = {}
    for path in paths:
        module = ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
        names: dict[str, str] = {}
        nodes = ast.walk(ast.parse(path.read_text()))
        for node in sorted(nodes, key=lambda node: isinstance(node, ast.ClassDef)):  # imports first
            if isinstance(node, ast.Import | ast.ImportFrom):
                source = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
                names |= {each.asname or each.name: f"{source}{each.name}" for each in node.names}
            elif isinstance(node, ast.ClassDef):  # a class within another one is known by its own name
                names[node.name] = f"{module}.{node.name}"
                bases = [ast.unparse(base).partition("[")[0].rpartition(".") for base in node.bases]
                full = (
                    f"{names.get(of, of)}.{name}" if of else names.get(name, name) for of, _, name in bases
                )
                found[names[node.name]] = Class(node, tuple(full))
    return found


def with_bases(classes: Mapping[str, Class], name: str) -> set[str]:
    """The class `name` and all above it. KeyError: one of them should be in `classes`, and is not."""
    ours = {each.partition(".")[0] for each in classes}
    bases = [base for base in classes[name].bases if base.partition(".")[0] in ours]
    return {name}.union(*(with_bases(classes, base) for base in bases))


def lines_with_bases(classes: Mapping[str, Class]) -> dict[str, int]:
    return {name: sum(lines(classes[each].node) for each in with_bases(classes, name)) for name in classes}


def test_no_class_outgrows_its_limit_with_its_bases() -> None:
    sizes = lines_with_bases(classes_of(ROOT, SOURCES))
    assert {name: size for name, size in sizes.items() if size > CLASS_LINES} == {}


def test_the_bases_of_a_class_are_found_in_other_modules(tmp_path: Path) -> None:
    sources = {
        "one/base.py": "class Base:\n    a = 1\n    b = 2\n\nclass Middle(Base):\n    c = 3\n",
        "two/__init__.py": "class Base:\n    a = 1\n",
        "two/leaf.py": "import one.base as first\nfrom one.base import Middle as M\nfrom two import Base\n\n"
        "class Leaf(M, first.Base, Generic[T]):\n    d = 4\n\nclass Other(Base):\n    pass\n",
    }
    for name, text in sources.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    sizes = lines_with_bases(classes_of(tmp_path, [tmp_path / name for name in sources]))
    own = {"one.base.Base": 3, "one.base.Middle": 2, "two.Base": 2, "two.leaf.Leaf": 2, "two.leaf.Other": 2}
    assert sizes == own | {"one.base.Middle": 5, "two.leaf.Leaf": 7, "two.leaf.Other": 4}


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
