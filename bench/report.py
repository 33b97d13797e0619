"""Shows and saves the results of benchmarks: a table, a JSON file, a picture, and the machine."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from matplotlib import pyplot
from rich.console import Console
from rich.table import Table

pyplot.switch_backend("Agg")  # draws to files, without a display

RESULTS: Final = Path(__file__).parent / "results"
_PACKAGES: Final = ("numpy", "numba", "aiohttp", "aiortc", "av", "scipy", "soxr", "webrtcvad-wheels")


def machine() -> dict[str, Any]:
    """Returns what the figures depend on, without names of hosts or people."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.release().split('-')[0]} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Prints a table on the terminal; the first column is text, the others are figures."""
    table = Table(title=title, caption=_caption())
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    Console().print(table)


def save(name: str, figures: Mapping[str, Any], *, folder: Path = RESULTS) -> Path:
    """Writes NAME.json in `folder`: the figures with date and machine."""
    path = _path(name, "json", folder)
    whole = {"benchmark": name, "date": _now(), "machine": machine(), **figures}
    path.write_text(json.dumps(whole, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def lines(
    name: str,
    title: str,
    x: Sequence[float],
    series: Mapping[str, Sequence[float]],
    *,
    labels: tuple[str, str],
) -> Path:
    """Draws results/NAME.png: curves over one axis; `labels` are those of the axes."""
    figure, axes = pyplot.subplots(figsize=(8, 4.5))
    for label, values in series.items():
        axes.plot(x, values, marker="o", markersize=3, label=label)
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    axes.set_title(f"{title}\n{_caption()}", fontsize=9)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    path = _path(name, "png")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return path


def _path(name: str, suffix: str, folder: Path = RESULTS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}.{suffix}"


def _caption() -> str:
    about = machine()
    return f"{about['cpu']}, {about['cores']} cores, Python {about['python']}, {_now()[:10]}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _cell(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else str(value)


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    models = (line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name"))
    return next(models, platform.machine())


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
