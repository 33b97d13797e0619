"""`mediaserver compile`: once after the installation, so that the first start need not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mediaserver.compile_kernels import COMPILATIONS
from pipeline import kernel_cache
from tests.support.node.node import REAL_ENGINES, Site, write_site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = write_site(tmp_path, engines=REAL_ENGINES, transport="tcp")
    made.data_dir.mkdir()
    return made


def mediaserver(*arguments: str | Path, **environment: str | Path) -> subprocess.CompletedProcess[str]:
    """With `environment` in the place of the cache that the tests share."""
    kept = {name: value for name, value in os.environ.items() if name != kernel_cache.VARIABLE}
    return subprocess.run(
        [sys.executable, "-m", "mediaserver", *map(str, arguments)],
        env=kept | {name: str(value) for name, value in environment.items()},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def test_what_the_installation_has_compiled_is_what_the_server_uses(site: Site, tmp_path: Path) -> None:
    """The user's cache is the one that the tests share. Nothing is compiled into `server.data_dir`."""
    place = tmp_path / "openline-mediaserver" / "kernels"
    place.parent.mkdir()
    place.symlink_to(kernel_cache.place())
    compiled = mediaserver("compile", XDG_CACHE_HOME=tmp_path)
    assert compiled.returncode == 0, compiled.stderr
    assert compiled.stdout == f"compiled: {kernel_cache.directory_in(place)}\n"
    checked = mediaserver("check", "--config", site.path, XDG_CACHE_HOME=tmp_path)
    assert checked.returncode == 0
    assert list(site.data_dir.iterdir()) == []


@pytest.mark.nightly("ci")
def test_without_an_installation_that_compiles_kernels_are_kept_with_the_data(
    site: Site, tmp_path: Path
) -> None:
    checked = mediaserver("check", "--config", site.path, XDG_CACHE_HOME=tmp_path / "none")
    assert (checked.returncode, checked.stderr) == (0, "")
    assert kernel_cache.directory_in(site.data_dir / "kernels").is_dir()
    assert not (tmp_path / "none").exists()


@pytest.mark.nightly("ci")
def test_a_log_says_how_far_the_compilation_is(tmp_path: Path) -> None:
    """With the first of them, and with each quarter; the second time there is nothing to say."""
    first, second = (mediaserver("compile", NUMBA_CACHE_DIR=tmp_path) for _ in range(2))
    told = re.findall(r"compiling, once on this machine: (\d+) of (\d+)\n", first.stderr)
    quarter = COMPILATIONS / 4
    done = [int(each) for each, _ in told]
    assert done[:4] == pytest.approx([1, quarter, 2 * quarter, 3 * quarter], abs=1)
    assert second.stderr == ""


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    place = tmp_path / "file" / "kernels"
    done = mediaserver("compile", NUMBA_CACHE_DIR=place)
    assert (done.returncode, done.stderr) == (1, f"{place}: cannot be written\n")
