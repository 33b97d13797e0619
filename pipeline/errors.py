"""The exceptions of the pipeline, as one tree, and the boundaries at which any other exception is caught."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType


class PipelineError(Exception):
    """Root of every exception that this package raises on purpose."""


class LocalError(PipelineError):
    """The server used the pipeline wrongly: a bug of the server, never the caller's or an engine's fault."""


class EngineError(PipelineError):
    """A speech engine or an agent failed.

    `retryable` is True where the same request may succeed a moment later (a timeout, a crashed helper
    process), False where it cannot (no such voice, a missing model).
    """

    def __init__(self, message: str, *, retryable: bool) -> None:
        super().__init__(message)
        self.retryable = retryable


class EngineMissing(EngineError):
    """The engine is not usable on this machine; the message names what is missing and how to install it."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retryable=False)


class EngineTimeout(EngineError):
    """The engine missed its deadline; another request would cost the same time again."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retryable=True)


class EngineBroke(EngineError):
    """The engine raised an exception other than `EngineError`, which `contained` replaced."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retryable=True)


class EngineBusy(EngineError):
    """The engine is overloaded. `retry_after_s`: the pause that the engine asks for, in seconds; 0 where it
    names none."""

    def __init__(self, message: str, *, retry_after_s: float = 0.0) -> None:
        super().__init__(message, retryable=True)
        self.retry_after_s = retry_after_s


class EngineSilent(EngineError):
    """The voice makes audio without any audible sound."""

    def __init__(self) -> None:
        super().__init__("the voice is silent", retryable=False)


class EngineEndless(EngineError):
    """The voice makes more audio than its text can take."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retryable=False)


class EngineCircuitOpen(EngineError):
    """The engine was not asked: its circuit breaker is open after a failure."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retryable=False)


class EngineRefused(EngineError):
    """The engine works and refuses this request (a text that it cannot say, audio that it cannot read).
    `unsupported`: the fields of the request that the engine's answer names as unknown."""

    def __init__(self, message: str, *, unsupported: frozenset[str] = frozenset()) -> None:
        super().__init__(message, retryable=False)
        self.unsupported = unsupported


class RequestFailed(EngineError):
    """A server that a tool or a webhook names gave no usable answer: not resolved, not connected, too slow,
    too long."""

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message, retryable=retryable)


class TargetRefused(RequestFailed):
    """The URL leads to an address that this server does not connect to (server.allow_networks)."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retryable=False)


class LanguageRefused(EngineRefused):
    """A voice does not speak the language of the text; no fault is recorded where another voice does."""


def passes(error: EngineError) -> bool:
    """Says whether to ask the same engine again at once: not after a timeout or a refusal for load."""
    return error.retryable and not isinstance(error, EngineBusy | EngineTimeout)


class SettingsRefused(PipelineError, ValueError):
    """The settings given to an engine or an agent are wrong.

    `problems` are pairs of the key (relative to the mapping given, such as "step[2].next") and the reason,
    so that `mediaserver check` can print one line for each.
    """

    def __init__(self, subject: str, problems: Sequence[tuple[str, str]]) -> None:
        self.subject = subject
        self.problems = tuple(problems)
        super().__init__(f"{subject}: " + "; ".join(f"{key}: {reason}" for key, reason in self.problems))


class RecordingError(PipelineError):
    """The disk refused a part of a recording. `name` is the file's; `path` holds the part that was written,
    None where nothing was."""

    def __init__(self, name: str, reason: str, path: Path | None = None) -> None:
        super().__init__(f"recording {name}: {reason}")
        self.name = name
        self.path = path


log = logging.getLogger(__name__)


def kind_of(error: BaseException) -> str:
    """Names the type of a foreign exception, the only part of it that a fault or a reply may show."""
    return type(error).__name__


class boundary:
    """Catches any exception at the boundary of a task or to third-party code, and logs it with its traceback
    and `fields`, which may change meanwhile. Exceptions that are expected are caught within the block.
    `error`: what was caught, None where the block ended without an exception."""

    __slots__ = ("_logger", "_message", "error", "fields")

    def __init__(self, logger: logging.Logger, message: str, /, **fields: object) -> None:
        self._logger, self._message, self.fields = logger, message, fields
        self.error: Exception | None = None

    def __enter__(self) -> boundary:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None or not isinstance(error, Exception):
            return False
        self._logger.error(self._message, extra=self.fields, exc_info=error, stacklevel=2)
        self.error = error
        return True

    @property
    def kind(self) -> str:
        """The name of the error's type, "" for no error."""
        return kind_of(self.error) if self.error is not None else ""


class contained:
    """Replaces any exception of its block except `EngineError`: TimeoutError by `EngineTimeout`, others by
    `EngineBroke`, after logging them. `what`: the engine's name for messages; `fields`: of the log."""

    __slots__ = ("_fields", "_what")

    def __init__(self, what: str, **fields: object) -> None:
        self._what, self._fields = what, fields

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, EngineError) or not isinstance(error, Exception):
            return
        if isinstance(error, TimeoutError):
            raise EngineTimeout(f"{self._what} did not answer in time") from None
        log.error("engine broke", extra={"engine": self._what, **self._fields}, exc_info=error)
        raise EngineBroke(f"{self._what} broke ({kind_of(error)})") from error
