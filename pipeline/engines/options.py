"""Reads the settings of an engine or an agent as typed values, and collects every problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.errors import SettingsRefused

IGNORED = frozenset({"engine"})
"""Keys that are no option: a mapping may contain the key that chose the engine."""


class Options:
    """One table of settings. Read every key, then call `finish`, which raises `SettingsRefused` with all
    problems, unknown keys included. Readers give the default for a value that is wrong, so that one mistake
    does not hide the next."""

    __slots__ = ("_asked", "_path", "_table", "problems", "subject")

    def __init__(
        self,
        subject: str,
        table: Mapping[str, Any],
        *,
        path: str = "",
        problems: list[tuple[str, str]] | None = None,
    ) -> None:
        self.subject = subject
        self.problems: list[tuple[str, str]] = [] if problems is None else problems
        self._table = table
        self._path = path
        self._asked: set[str] = set(IGNORED)

    def wrong(self, key: str, reason: str) -> None:
        """Notes a problem with `key`."""
        self.problems.append((f"{self._path}{key}", reason))

    def has(self, key: str) -> bool:
        """Whether the table has the key."""
        return key in self._table

    def text(self, key: str, default: str = "", *, choices: Sequence[str] = ()) -> str:
        """Reads a string, one of `choices` where given."""
        value = self._get(key, default)
        if not isinstance(value, str):
            self.wrong(key, "must be a string")
            return default
        if choices and value not in choices and value != default:
            self.wrong(key, f"{value!r} is not one of {', '.join(choices)}")
            return default
        return value

    def integer(self, key: str, default: int, *, low: int, high: int) -> int:
        """Reads a whole number from `low` to `high`."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.wrong(key, f"must be a whole number from {low} to {high}")
            return default
        return value

    def number(self, key: str, default: float, *, low: float, high: float) -> float:
        """Reads a number from `low` to `high`."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            self.wrong(key, f"must be a number from {low:g} to {high:g}")
            return default
        return float(value)

    def flag(self, key: str, default: bool = False) -> bool:
        """Reads true or false; a problem and `default` for anything else."""
        value = self._get(key, default)
        if not isinstance(value, bool):
            self.wrong(key, "must be true or false")
            return default
        return value

    def texts(self, key: str, *, choices: Sequence[str] = ()) -> tuple[str, ...]:
        """Reads a list of strings, each one of `choices` where given; () for an absent key."""
        value = self._get(key, ())
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            self.wrong(key, "must be a list of strings")
            return ()
        for item in value:
            if choices and item not in choices:
                self.wrong(key, f"{item!r} is not one of {', '.join(choices)}")
        return tuple(item for item in value if not choices or item in choices)

    def table(self, key: str) -> Options:
        """Reads the table `key` of this one; finish it with `check_unknown`. An absent table reads as
        empty."""
        value = self._get(key, {})
        if not isinstance(value, Mapping):
            self.wrong(key, "must be a table")
            value = {}
        return Options(self.subject, value, path=f"{self._path}{key}.", problems=self.problems)

    def tables(self, key: str) -> list[Options]:
        """Reads a list of tables; finish each with `check_unknown`."""
        value = self._get(key, [])
        if not isinstance(value, list | tuple) or not all(isinstance(item, Mapping) for item in value):
            self.wrong(key, "must be a list of tables")
            value = []
        return [
            Options(self.subject, item, path=f"{self._path}{key}[{index}].", problems=self.problems)
            for index, item in enumerate(value)
        ]

    def names(self) -> tuple[str, ...]:
        """Every key written in this table, for tables whose keys are free."""
        return tuple(self._table)

    def check_unknown(self) -> None:
        """Notes a problem for every key that was not read."""
        for key in self._table:
            if key not in self._asked:
                self.wrong(key, f"unknown key; known are {', '.join(sorted(self._asked - IGNORED))}")

    def finish(self) -> None:
        """Raises `SettingsRefused` with all problems of this table and the tables in it, if there are any."""
        self.check_unknown()
        if self.problems:
            raise SettingsRefused(self.subject, self.problems)

    def _get(self, key: str, default: Any) -> Any:
        self._asked.add(key)
        return self._table.get(key, default)
