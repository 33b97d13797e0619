"""Defines the query of `GET /api/v1/calls`: what a list of calls is narrowed to."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from api.schemas.base import CallStatus, Model

PAGE_LIMIT = 100

_DAY_MS = 24 * 3600 * 1000


class CallsQuery(Model):
    """Query of `GET /api/v1/calls`. Every filter that is given has to hold."""

    status: CallStatus | None = None
    phoneNumber: str = Field(
        default="",
        max_length=40,
        description="The other party's, however written; two to six digits: its end",
    )
    name: str = Field(default="", max_length=100, description="A part of the other party's name")
    agentId: str = Field(default="", max_length=64)
    batchId: str = Field(default="", max_length=64)
    direction: Literal["inbound", "outbound", "web"] | None = None
    disposition: str = Field(default="", max_length=100, description="As in the analysis")
    hangupCause: str = Field(default="", max_length=64)
    since: str = Field(default="", max_length=40, description="Created then or later (ISO 8601 with zone)")
    until: str = Field(default="", max_length=40, description="Created before then (ISO 8601 with zone)")
    minDurationMs: int = Field(default=0, ge=0, le=_DAY_MS, description="From the answer to the end")
    maxDurationMs: int | None = Field(default=None, ge=1, le=_DAY_MS)
    minLatencyMs: int = Field(default=0, ge=0, le=_DAY_MS, description="Of the slowest turn")
    maxLatencyMs: int | None = Field(default=None, ge=1, le=_DAY_MS)
    words: str = Field(
        default="", max_length=200, description="Words that were said one after the other, by either"
    )
    cursor: str = Field(default="", max_length=64)
    limit: int = Field(default=50, ge=1, le=PAGE_LIMIT)
