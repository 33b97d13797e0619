"""From what was measured to figures: arithmetic only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

Figures = dict[str, Any]


def percentiles(values: Iterable[float], *ranks: float) -> Figures:
    """By name (`p50`), with the count; None for no values."""
    known = np.fromiter(values, np.float64)
    found = np.percentile(known, ranks) if len(known) else [None] * len(ranks)
    named = {
        f"p{rank:g}": None if value is None else round(float(value), 3)
        for rank, value in zip(ranks, found, strict=True)
    }
    return named | {"count": len(known)}
