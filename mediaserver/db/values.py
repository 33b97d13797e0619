"""Values as every database takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.net.untrusted import clean_text


def storable(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `values` with every text clean: SQLite refuses half a surrogate pair, PostgreSQL NUL as well,
    and text of a telephone network, a model or a visitor may hold either. A row is worth more than a
    character."""
    return {name: clean_text(value) if isinstance(value, str) else value for name, value in values.items()}
