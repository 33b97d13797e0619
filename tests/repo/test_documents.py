"""The documents: links, names of tests and files lead somewhere, and paragraphs are short."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "bench" / "README.md"])
SENTENCES, WORDS = 3, 90


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def paragraphs(page: Path) -> Iterator[str]:
    """Prose and items of lists; no code, no headings, no rows of tables."""
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", without_code(page.read_text())):
        lines = [
            line for line in block.strip().splitlines() if not line.lstrip().startswith(("|", "#", "!["))
        ]
        if lines:
            yield " ".join(line.strip() for line in lines)


def sentences(paragraph: str) -> int:
    plain = re.sub(r"`[^`]*`|\((?:[^()]|\([^()]*\))*\)", "x", paragraph)
    return len(re.findall(r"[^\s.!?][.!?][\"”*)]*(?=\s+[A-Z`\[*0-9“\"]|\s*$)", plain))


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", without_code(page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    wrong = []
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text())):
        path, _, anchor = target.partition("#")
        if "://" in path:
            continue
        leads_to = page if not path else page.parent / path
        if not leads_to.exists() or (anchor and anchor not in anchors(leads_to)):
            wrong.append(target)
    assert wrong == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=name)
def test_python_files_that_a_page_names_are_there(page: Path) -> None:
    named = re.findall(
        r"[` (]((?:pipeline|sip|mediaserver|api|bench|tests|examples)/[\w/]+\.py)\b", page.read_text()
    )
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_tests_that_a_page_names_are_there() -> None:
    there = {
        node.name
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    for page in ("SECURITY.md", "CONTRIBUTING.md", "docs/rfcs.md"):
        named = re.findall(r"`(test_\w+)`", (ROOT / page).read_text())
        assert named, page
        assert [each for each in named if each not in there] == [], page


def test_every_row_of_an_rfc_names_a_test() -> None:
    text = (ROOT / "docs" / "rfcs.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line[:1] == "|"]
    assert rows[0] == ["document", "what of it", "tests"]
    assert len(rows) > 25
    for row in rows[2:]:
        assert len(row) == 3, row
        assert re.fullmatch(r"`test_\w+`(, `test_\w+`)*", row[2]), row[0]


def test_the_index_has_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert pages - set(re.findall(r"\]\((\w[\w-]*\.md)", index)) == set()


def test_the_hooks_are_the_checks_of_make() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    check = re.search(r"^check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert check is not None
    for tool in re.findall(r"\$\(BIN\)/(\S+(?: format| check)?)", check[1]):
        assert f".venv/bin/{tool}" in hooks, tool


def test_the_workflow_runs_what_decides_on_every_python_that_is_supported() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    supported = [each.split(" :: ")[-1] for each in project["classifiers"] if "Python :: 3." in each]
    assert re.findall(r"- run: (.*)", workflow) == [".ci/run", "make demo ARGS=--exit", ".ci/image"]
    assert re.findall(r'"(3\.\d+)"', workflow) == supported


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_paragraphs_are_short(page: Path) -> None:
    found = [(sentences(each), len(each.split()), each[:60]) for each in paragraphs(page)]
    assert [each for each in found if each[0] > SENTENCES or each[1] > WORDS] == []
