"""Defines the bodies about supervisors of live calls."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from api.schemas.base import Model

Role = Literal["monitor", "whisper", "barge", "take_over"]

_IDENTITY = r"^[A-Za-z0-9_.@+-]+$"


class SupervisorBody(Model):
    """Body of `POST /api/v1/calls/{callTaskId}/supervisors`. `monitor` listens, `whisper` is heard by the
    agent's model and by a colleague, `barge` by everybody, `take_over` speaks in the agent's place."""

    role: Role = "monitor"
    identity: str | None = Field(default=None, min_length=1, max_length=128, pattern=_IDENTITY)
    name: str | None = Field(default=None, max_length=128)


class SupervisorToken(Model):
    """Where and with which token the supervisor joins, by a LiveKit SDK or WHIP."""

    identity: str
    role: Role
    roomName: str
    serverUrl: str
    participantToken: str


class SupervisorView(Model):
    """A supervisor who is in a call."""

    identity: str
    name: str
    role: Role


class SupervisorList(Model):
    """Answer with the supervisors in a call."""

    supervisors: list[SupervisorView]


class RoleBody(Model):
    """Body of the change of a supervisor's role."""

    role: Role


class WhisperBody(Model):
    """Body of `POST /api/v1/calls/{callTaskId}/whisper`: what the agent's model is told."""

    text: str = Field(min_length=1, max_length=1000)
