"""The trace that a call belongs to, and the header fields by which its requests carry the trace on.

W3C Trace Context: `traceparent: 00-<trace id, 32 hex digits>-<span id, 16>-01`."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

TRACE_ID: Final[ContextVar[str]] = ContextVar("trace_id", default="")
"""The trace id of the call that this task belongs to, 32 hex digits; "" where calls are not traced."""


def trace_id_of(call_id: str) -> str:
    """Returns the trace id of the call `call_id`, a UUID."""
    return call_id.replace("-", "")


def call_traceparent(call_id: str) -> str:
    """Returns the `traceparent` of what follows from a call: its webhooks."""
    return traceparent(trace_id_of(call_id), span_id_of(call_id))


def traceparent(trace_id: str, span_id: str) -> str:
    """Returns the value of the header field `traceparent` of a sampled trace."""
    return f"00-{trace_id}-{span_id}-01"


def span_id_of(key: str) -> str:
    """Returns the span id of the request whose key is the UUID `key`: its last 16 hex digits, which are never
    all 0."""
    return key.replace("-", "")[-16:]


def request_fields(key: str, *, span: str = "") -> dict[str, str]:
    """Returns the header fields of a request that may be repeated: `Idempotency-Key` with `key` ("" for none)
    and, in a traced call, `traceparent` with the span of the UUID `span` (`key` by default)."""
    fields = {"Idempotency-Key": key} if key else {}
    if key and (trace_id := TRACE_ID.get()):
        fields["traceparent"] = traceparent(trace_id, span_id_of(span or key))
    return fields
