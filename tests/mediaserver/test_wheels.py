"""What the distribution depends on has wheels for every Python and machine that it is said to run on."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tests.support.paths import ROOT

PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
WEIGHTS: Final = re.compile("voice|models")
MACHINES: Final = ("x86_64", "aarch64")

COMPILED: Final = {
    ("3.12", "x86_64"): {"pocketsphinx"},
    ("3.12", "aarch64"): {"pocketsphinx"},
    ("3.14", "x86_64"): {"pocketsphinx"},
    ("3.14", "aarch64"): {"pocketsphinx"},
}
"""What pip compiles there, with the system's compiler: the README says so."""


def requirements(python: str, machine: str) -> list[str]:
    """The requirements of the server with the extras `local` and `demo`, as far as they are for that machine.
    Weights, one file for all machines, are left out."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    environment = {"python_version": python, "platform_machine": machine}
    listed = [Requirement(each) for each in (*project["dependencies"], *extras["local"], *extras["demo"])]
    return [
        str(Requirement(f"{each.name}[{','.join(each.extras)}]{each.specifier}"))
        for each in listed
        if each.name != project["name"]
        and not WEIGHTS.search(each.name)
        and (each.marker is None or each.marker.evaluate(environment))
        and each.name not in COMPILED.get((python, machine), ())
    ]


def test_the_pythons_are_those_of_the_distribution() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    allowed = SpecifierSet(project["requires-python"])
    found = [f"3.{minor}" for minor in range(9, 20) if allowed.contains(f"3.{minor}.0")]
    assert tuple(found) == PYTHONS


@pytest.mark.nightly("ci")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("python", PYTHONS)
def test_every_requirement_has_a_wheel(tmp_path: Path, python: str, machine: str) -> None:
    tags = [
        f"manylinux{each}_{machine}"
        for each in ("2014", "_2_17", "_2_24", "_2_26", "_2_27", "_2_28", "_2_34")
    ]
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--only-binary=:all:"]
    command += ["--implementation", "cp", "--python-version", python, "--target", str(tmp_path)]
    command += [part for tag in tags for part in ("--platform", tag)]
    done = subprocess.run(
        [*command, *requirements(python, machine)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


LOCK: Final = (ROOT / "server.lock").read_text()


def test_the_lock_has_what_the_distribution_depends_on() -> None:
    locked: dict[str, list[str]] = {}
    for name, version in re.findall(r"^([a-z0-9._-]+)==([^ ]+)", LOCK, re.MULTILINE):
        locked.setdefault(name, []).append(version)
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    for requirement in map(Requirement, listed):
        versions = locked[canonicalize_name(requirement.name)]
        assert all(requirement.specifier.contains(each) for each in versions), requirement
    told = re.findall(r"^\| ([a-z0-9._-]+) \| ", (ROOT / "docs" / "licences.md").read_text(), re.MULTILINE)
    assert sorted(locked) == [each for each in told if each != "package"]


@pytest.mark.nightly("ci")
@pytest.mark.timeout(600)
def test_the_lock_installs_by_its_hashes_and_becomes_a_bill_of_materials() -> None:
    done = subprocess.run(["make", "sbom"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    bill = json.loads((ROOT / "var" / "sbom.json").read_text())
    found = {canonicalize_name(each["name"]): each for each in bill["components"]}
    assert set(re.findall(r"^([a-z0-9._-]+)==", LOCK, re.MULTILINE)) <= found.keys()
    assert found[canonicalize_name("aiohttp")]["licenses"]
