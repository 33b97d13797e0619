"""Who supervised a call, in which roles, from when to when."""

from __future__ import annotations

from typing import Any, Final

MAX_SPANS: Final = 200
"""The most spans that are kept of a call; the audit log has all of them."""


class SupervisorLog:
    """The roles of the supervisors who really were in one call."""

    def __init__(self) -> None:
        self._there: dict[str, dict[str, Any]] = {}  # the span of each who is in the call
        self._spans: list[dict[str, Any]] = []

    @property
    def there(self) -> tuple[str, ...]:
        """The identities of those who are in the call."""
        return tuple(self._there)

    def change(self, who: str, role: str, at_ms: int) -> str:
        """Notes that `who` has `role` from now on, "" for who has left. Returns what that is called in the
        audit log, "" where nothing has changed."""
        before = self._there.get(who)
        if (before["role"] if before is not None else "") == role:
            return ""
        if before is not None:
            before["endMs"] = at_ms
        if not role:
            del self._there[who]
            return "supervisorLeft"
        self._there[who] = span = {"by": who, "role": role, "startMs": at_ms}
        if len(self._spans) < MAX_SPANS:
            self._spans.append(span)
        return "supervisorJoined" if before is None else "supervisorChanged"

    def data(self, end_ms: int) -> list[dict[str, Any]]:
        """Returns the spans as the call's analysis has them; those under way end at `end_ms`."""
        return [{**span, "endMs": span.get("endMs", end_ms)} for span in self._spans]
