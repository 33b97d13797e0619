"""Log lines: constant messages, facts in fields, one line each, nothing of a caller in the text.

A message never changes, so that it can be counted and alerted on; whatever varies (the call's id, a cause, a
number) is given as `extra={...}`. Fields that would tell who was called or what was said are masked here, at
the one place that every line passes; `MASKED_FIELDS` is the list.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, TextIO

MASKED_FIELDS = frozenset(
    {
        "authorization",
        "caller_id",
        "digits",
        "key",
        "local_number",
        "number",
        "password",
        "phone_number",
        "remote_number",
        "secret",
        "text",
        "token",
        "transcript",
    }
)
"""Fields whose value is masked: a phone number keeps its last two digits, anything else only its length."""

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_PHONE_NUMBER = re.compile(r"\+?\d{7,15}")
_NOISY_LIBRARIES = ("aiohttp.access", "numba", "faster_whisper", "asyncio")


def configure(*, level: str = "info", as_json: bool = True, stream: TextIO | None = None) -> None:
    """Sends every log line of the process to `stream` (standard error), as JSON objects or as plain text."""
    sink = logging.StreamHandler(stream or sys.stderr)
    sink.setFormatter(JsonLines() if as_json else PlainLines())
    root = logging.getLogger()
    root.handlers[:] = [sink]
    root.setLevel(level.upper())
    for name in _NOISY_LIBRARIES:
        logging.getLogger(name).setLevel(logging.WARNING)


def mask(name: str, value: Any) -> Any:
    """`value` as it may be written for field `name`."""
    if name not in MASKED_FIELDS or value in (None, ""):
        return value
    text = str(value)
    if _PHONE_NUMBER.fullmatch(text):
        return f"…{text[-2:]}"
    return f"({len(text)} characters)"


def mask_numbers(text: str) -> str:
    """`text` (a traceback, an error of a library) with everything that looks like a phone number masked."""
    return _PHONE_NUMBER.sub(lambda found: f"…{found.group()[-2:]}", text)


def fields(record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
    """The `extra` fields of a record, masked."""
    for name, value in vars(record).items():
        if name not in _STANDARD and not name.startswith("_"):
            yield name, mask(name, value)


class JsonLines(logging.Formatter):
    """One JSON object a line: time (UTC, ISO 8601), level, logger, message, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter.format`."""
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update(fields(record))
        if record.exc_info:
            line["error"] = mask_numbers(self.formatException(record.exc_info))
        return json.dumps(line, default=str, ensure_ascii=False)


class PlainLines(logging.Formatter):
    """For a terminal: time, level, message, then `field=value` pairs."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter.format`."""
        pairs = "".join(f" {name}={value}" for name, value in fields(record))
        line = f"{_time(record)[11:23]} {record.levelname.lower():<7} {record.getMessage()}{pairs}"
        if record.exc_info:
            line += "\n" + mask_numbers(self.formatException(record.exc_info))
        return line


def _time(record: logging.LogRecord) -> str:
    when = datetime.fromtimestamp(record.created, UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
