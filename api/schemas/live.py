"""Defines the server-sent events of `GET /api/v1/events`: what happens in live calls."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from api.schemas.base import Model

LiveKind = Literal["call.started", "call.answered", "call.state", "call.words", "call.turn", "call.ended"]


class EventsQuery(Model):
    """Query of `GET /api/v1/events`: one agent's calls, or one call."""

    agentId: str = Field(default="", max_length=64)
    callTaskId: str = Field(default="", max_length=64)


class LiveEvent(Model):
    """The `data` of one server-sent event; its `event` is the same as `type`, its `id` goes into
    `Last-Event-ID`.

    In `data`: `call.started` direction, phoneNumber, name; `call.state` state (of turn-taking); `call.words`
    role, text, startMs, endMs, interrupted (a line of the transcript as it is kept); `call.turn` turn,
    latencyMs; `call.ended` status, hangupCause, disposition. `lost` comes without a call: `count` events were
    dropped for a slow reader, null: it is not known how many."""

    type: LiveKind | Literal["lost"]
    at: str | None
    callTaskId: str | None
    agentId: str | None
    data: dict[str, Any]
