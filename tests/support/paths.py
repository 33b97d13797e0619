"""Where the repository's files are, for tests in any folder."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
SUPPORT: Final = ROOT / "tests" / "support"
