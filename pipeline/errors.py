"""What can go wrong in the pipeline, as one tree."""

from __future__ import annotations


class PipelineError(Exception):
    """Root of every exception that this package raises on purpose."""


class LocalError(PipelineError):
    """We used the pipeline wrongly: a bug on this side, never the caller's or an engine's fault."""


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
