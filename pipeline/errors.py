"""The exceptions of the pipeline, as one tree."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


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
    """The engine is not usable on this machine: what is missing and what to do are in the message."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retryable=False)


class EngineTimeout(EngineError):
    """The engine kept its caller waiting past its deadline: asking it again would cost the deadline again."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retryable=True)


class EngineBroke(EngineError):
    """The engine raised something that no engine should; see `pipeline.errors`."""

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
    """The engine works, but not on this request (a text it cannot say, audio it cannot read). `unsupported`:
    fields of the request that it says it does not know, where it says so."""

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
    """A voice does not speak the language of the text: no fault, where another voice does."""


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
    """Names the type of a foreign exception: all of it that may be logged or told."""
    return type(error).__name__


@dataclass(slots=True)
class Failure:
    """What a `boundary` stopped: `error`, None where its block ended in order."""

    error: Exception | None = None

    @property
    def kind(self) -> str:
        """What may be told of the error; "" for none."""
        return kind_of(self.error) if self.error is not None else ""


@contextmanager
def boundary(logger: logging.Logger, message: str, /, **fields: object) -> Iterator[Failure]:
    """The boundary of a task, or to somebody else's code, where any exception may come: it is logged with its
    trace and goes no further. What is expected is caught within."""
    failure = Failure()
    try:
        yield failure
    except Exception as error:
        logger.error(message, extra=fields, exc_info=error, stacklevel=3)
        failure.error = error


@contextmanager
def contained(what: str, **fields: object) -> Iterator[None]:
    """Within, everything but an `EngineError` becomes one. `what`: the engine, for people; `fields`: of the
    log."""
    try:
        yield
    except EngineError:
        raise
    except TimeoutError:
        raise EngineTimeout(f"{what} did not answer in time") from None
    except Exception as error:
        log.error("engine broke", extra={"engine": what, **fields}, exc_info=error)
        raise EngineBroke(f"{what} broke ({kind_of(error)})") from error
