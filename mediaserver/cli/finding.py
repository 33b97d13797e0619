"""A finding of `mediaserver doctor`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `ok` False: something is missing, and `text` says what to do."""

    name: str
    ok: bool
    text: str

    def __str__(self) -> str:
        return f"{'ok     ' if self.ok else 'missing'}  {self.name}: {self.text}"
