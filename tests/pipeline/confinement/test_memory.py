"""How much memory is left, by what the kernel shows of a container."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from pipeline.confinement import memory

MB = 1 << 20


def groups(directory: Path, own: str, files: dict[str, str]) -> list[int]:
    """What is left by `own` (/proc/self/cgroup) and `files` below /sys/fs/cgroup."""
    (directory / "own").write_text(own)
    for name, content in files.items():
        path = directory / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return list(memory._container_mb(directory / "own", directory / "cgroup"))


def test_a_control_group_and_those_around_it(tmp_path: Path) -> None:
    files = {
        "memory.max": "max\n",
        "system.slice/memory.max": f"{1024 * MB}\n",
        "system.slice/memory.current": f"{900 * MB}\n",
        "system.slice/mediaserver.service/memory.max": f"{2048 * MB}\n",
        "system.slice/mediaserver.service/memory.current": f"{500 * MB}\n",
    }
    assert groups(tmp_path, "0::/system.slice/mediaserver.service\n", files) == [1548, 124]


def test_a_control_group_of_the_first_version(tmp_path: Path) -> None:
    files = {
        "memory/docker/a1/memory.limit_in_bytes": f"{1024 * MB}\n",
        "memory/docker/a1/memory.usage_in_bytes": f"{300 * MB}\n",
    }
    assert groups(tmp_path, "4:memory:/docker/a1\n3:cpu:/\n0::/\n", files) == [724]


def test_no_control_group_bounds_nothing(tmp_path: Path) -> None:
    assert groups(tmp_path, "0::/\n", {}) == []


def test_a_limit_of_the_process_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def limited(number: int) -> tuple[int, int]:
        return (2 * MB, 2 * MB) if number == resource.RLIMIT_DATA else (resource.RLIM_INFINITY,) * 2

    assert memory.free_mb(own=False) > 2
    monkeypatch.setattr("resource.getrlimit", limited)
    assert memory.free_mb(own=False) == 2
    assert memory.free_mb(own=True) == 0  # this process holds more than that already
    assert memory.too_few_addresses() == ""


def test_few_addresses_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda number: (1024 * MB, 1024 * MB))
    assert "limited to 1024 MB" in memory.too_few_addresses()
