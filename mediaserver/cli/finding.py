"""What `mediaserver doctor` says of one thing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. `ok` False: something is missing, and `text` says what to do."""

    name: str
    ok: bool
    text: str

    def __str__(self) -> str:
        return f"{'ok     ' if self.ok else 'missing'}  {self.name}: {self.text}"
