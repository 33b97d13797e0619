"""Where somebody else's code is called: whatever it raises becomes an `EngineError`, so that retries,
fallbacks and breakers see it.

Of a foreign exception only its kind is told. Its text may quote what a caller said, and reasons end in the
record of a call, in the log and at webhooks."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from pipeline.errors import EngineBroke, EngineError, EngineTimeout

log = logging.getLogger(__name__)


def kind_of(error: BaseException) -> str:
    """What may be told of a foreign exception."""
    return type(error).__name__


@contextmanager
def contained(what: str) -> Iterator[None]:
    """Within, everything but an `EngineError` becomes one. `what`: the engine, for people."""
    try:
        yield
    except EngineError:
        raise
    except TimeoutError:
        raise EngineTimeout(f"{what} did not answer in time") from None
    except Exception as error:
        log.error("engine broke", extra={"engine": what}, exc_info=error)
        raise EngineBroke(f"{what} broke ({kind_of(error)})") from error
