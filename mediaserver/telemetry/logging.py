"""Log lines: constant messages, facts in fields, one line each, nothing of a caller in the text.

A message never changes, so that it can be counted and alerted on; whatever varies (the call's id, a cause, a
number) is given as `extra={...}`. Fields that would tell who was called or what was said are masked here, at
the one place that every line passes; `MASKED_FIELDS` is the list. Of an exception there is where it was
raised and of which kind it is: the texts of foreign ones quote the values they are about. So do the lines of
libraries (aioice tells every client's address): they count from warnings on, with addresses and numbers
masked.

Nobody waits for who reads the log (`mediaserver.telemetry.line_writer`), and Python's own words go the same
way (`take_over`).
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import os
import re
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, cast

from mediaserver.errors import StoreError
from mediaserver.telemetry.line_writer import LineWriter
from pipeline.errors import EngineError

log = logging.getLogger(__name__)

REQUEST_ID: Final[ContextVar[str]] = ContextVar("request_id", default="")
"""The id of the HTTP request that is being handled; every line that is logged meanwhile carries it."""

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

_REASONS: Final = frozenset({"error", "reason"})
"""Fields with a reason: texts in which a telephone number may stand."""

_PLAIN: Final = (EngineError, StoreError)
"""Exceptions whose texts are for readers: they name a server, a file or a state."""

_DEPTH: Final = 40  # the last frames of a traceback: a recursion has a thousand

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_PHONE_NUMBER = re.compile(r"\+?\d{7,15}")
_PERSONAL = re.compile(
    r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
    r"|\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b"
    r"|(?<!\d)\d(?:[ -]?\d){12,18}(?!\d)"
    r"|\+?\d{7,15}"
)
"""E-mail addresses, IBANs, card numbers, telephone numbers."""

_ADDRESS = re.compile(
    r"(?<![\w.:])(?:(?:\d{1,3}\.){3}\d{1,3}|[0-9A-Fa-f]{0,4}:[0-9A-Fa-f:.]*[0-9A-Fa-f:])(?!\w)"
)
_OURS = ("api", "mediaserver", "pipeline", "sip")


STDERR: Final = 2


def configure(*, level: str = "info", as_json: bool = True, fd: int = STDERR) -> LineWriter:
    """Sends every log line of the process to the descriptor `fd`, as JSON objects or as plain text; returns
    the writer. Lines that wait at the end of the process are written then, as far as the reader takes
    them."""
    root = logging.getLogger()
    for each in root.handlers:
        if isinstance(each, LineHandler):
            each.close()
    sink = LineHandler(fd, JsonLines() if as_json else PlainLines())
    root.handlers[:] = [sink]
    set_level(level)
    return sink.writer


def set_level(level: str) -> None:
    """Sets the level of the server's own lines; those of libraries count from warnings on."""
    logging.getLogger().setLevel(max(logging.WARNING, getattr(logging, level.upper())))
    for name in _OURS:
        logging.getLogger(name).setLevel(level.upper())


def take_over() -> None:
    """Logs what Python itself would write to standard error, and wait for: warnings, and exceptions that
    nobody caught. For a process of the server's, once."""
    warnings.showwarning = cast(Any, _warned)  # the original takes a file to write to as well
    sys.excepthook = _ended
    sys.unraisablehook = _not_raised
    threading.excepthook = _thread_ended


class LineHandler(logging.Handler):
    """Writes each record as a line through `writer`, a `LineWriter` on the descriptor `fd`, which `close`
    closes."""

    def __init__(self, fd: int, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.writer = LineWriter(fd, told=self._told)

    def emit(self, record: logging.LogRecord) -> None:
        """Writes the record's line; where the record cannot be formatted, a line that says so. Never
        raises."""
        try:
            line = self.format(record)
        except Exception:  # raised by a field's own `str`: logging must not fail for it
            line = self.format(_record(logging.ERROR, "line cannot be written", logger=record.name))
        self.writer.write(line)

    def close(self) -> None:
        """Closes the writer, which waits up to `line_writer.CLOSE_S` seconds for its reader."""
        self.writer.close()
        super().close()

    def _told(self, count: int) -> str:
        return self.format(_record(logging.ERROR, "log lines lost", lines=count))


def _record(level: int, message: str, **extra: Any) -> logging.LogRecord:
    record = log.makeRecord(log.name, level, "", 0, message, (), None)
    vars(record).update(extra)
    return record


def mask(name: str, value: Any) -> Any:
    """Returns `value` as it may be logged in the field `name`."""
    if name in _REASONS and isinstance(value, str):
        return mask_numbers(value)
    if name not in MASKED_FIELDS or value in (None, ""):
        return value
    text = str(value)
    if _PHONE_NUMBER.fullmatch(text):
        return f"…{text[-2:]}"
    return f"({len(text)} characters)"


def mask_numbers(text: str) -> str:
    """Returns `text` (a reason, an error of a library) with everything masked that looks like a number of a
    telephone, a card or an account, or an e-mail address: the last two characters stay."""
    return _PERSONAL.sub(lambda found: f"…{found.group()[-2:]}", text)


def message(record: logging.LogRecord) -> str:
    """Returns a record's message: the server's own as it is, a library's with addresses and numbers
    masked."""
    text = record.getMessage()
    return text if record.name.partition(".")[0] in _OURS else mask_numbers(_ADDRESS.sub(_masked, text))


def _masked(found: re.Match[str]) -> str:
    try:
        ipaddress.ip_address(found.group())
    except ValueError:  # the time of day, a version
        return found.group()
    return "(address)"


def fields(record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
    """Yields the `extra` fields of a record, masked, and the id of the request that is being handled."""
    if request_id := REQUEST_ID.get():
        yield "request_id", request_id
    for name, value in vars(record).items():
        if name not in _STANDARD and not name.startswith("_"):
            yield name, mask(name, value)


class JsonLines(logging.Formatter):
    """One JSON object a line: time (UTC, ISO 8601), level, logger, message, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the record's JSON object as one line."""
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": message(record),
        }
        line.update(fields(record))
        if record.exc_info and record.exc_info[1]:
            line["error"] = traced(record.exc_info[1])
        return json.dumps(line, default=str, ensure_ascii=False)


class PlainLines(logging.Formatter):
    """For a terminal: time, level, message, then `field=value` pairs."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the record's line, with the traceback below it where there is one."""
        pairs = "".join(f" {name}={value}" for name, value in fields(record))
        line = f"{_time(record)[11:23]} {record.levelname.lower():<7} {message(record)}{pairs}"
        if record.exc_info and record.exc_info[1]:
            line += "\n" + traced(record.exc_info[1])
        return line


def traced(error: BaseException) -> str:
    """Returns the traceback of `error` and its causes: exceptions' types, and texts of this server's own
    exceptions only."""
    return mask_numbers("".join(_traced(error, set()))).rstrip()


def _traced(error: BaseException, told: set[int]) -> Iterator[str]:
    told.add(id(error))
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None and id(cause) not in told:
        yield from _traced(cause, told)
        yield "\nwhich led to:\n\n"
    yield "Traceback (most recent call last):\n"
    yield from traceback.format_tb(error.__traceback__, limit=-_DEPTH)
    yield f"{_named(error)}\n"
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield "\nof which one is:\n\n"
            yield from _traced(inner, told)


def _named(error: BaseException) -> str:
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(error, _PLAIN):
        return f"{name}: {error}"
    if isinstance(error, OSError) and error.errno:
        return f"{name}: {os.strerror(error.errno)}"
    return name


def unhandled(loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
    """The event loop's exception handler. Logs neither the arguments of callbacks nor the results of tasks,
    as asyncio's own would."""
    error, task = context.get("exception"), context.get("task") or context.get("future")
    name = task.get_name() if isinstance(task, asyncio.Task) else ""
    if isinstance(error, BaseException):
        log.error("unhandled exception", exc_info=error, extra={"task": name})
    else:
        log.error("event loop complains", extra={"task": name, "what": sorted(context)})


def _warned(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: object) -> None:
    """Replaces `warnings.showwarning`."""
    extra = {"kind": category.__name__, "place": f"{filename}:{lineno}", "reason": str(message)}
    log.warning("python warns", extra=extra)


def _ended(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    log.critical("process ends", exc_info=(kind, error, trace))


def _thread_ended(args: threading.ExceptHookArgs) -> None:
    name = args.thread.name if args.thread is not None else ""
    log.error("thread ended", exc_info=args.exc_value, extra={"thread_name": name})


def _not_raised(args: sys.UnraisableHookArgs) -> None:
    log.error("unhandled exception", exc_info=args.exc_value, extra={"task": ""})


def _time(record: logging.LogRecord) -> str:
    when = datetime.fromtimestamp(record.created, UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
