"""`bench fuzz` at night: it leaves the published figures alone."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from click.testing import CliRunner

from bench import fuzz
from bench.report import RESULTS
from tests.support.paths import ROOT


def test_figures_go_where_they_are_asked_for(tmp_path: Path) -> None:
    published = (RESULTS / "fuzz.json").read_bytes()
    done = CliRunner().invoke(fuzz.main, ["--cases", "8", "--into", str(tmp_path / "nightly")])
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "nightly" / "fuzz.json").read_text())["cases"] == 8
    assert (RESULTS / "fuzz.json").read_bytes() == published


def test_a_nightly_run_writes_nothing_that_is_tracked() -> None:
    planned = ["make", "--dry-run", "nightly", "PART=fuzz", "HOURS=0.001"]
    lines = subprocess.run(planned, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    (line,) = [each for each in lines if "bench fuzz" in each]
    folder = line.split("--into ")[1].split()[0]
    ignored = ["git", "check-ignore", "--quiet", f"{folder}/fuzz.json"]
    assert subprocess.run(ignored, cwd=ROOT, check=False).returncode == 0
