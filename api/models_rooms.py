"""What is sent and answered about rooms."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from api.models import Model

Identity = Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_.@+-]+$")


class CallInBody(Model):
    """Body of `POST /api/v1/rooms/{roomName}/participants`."""

    phoneNumber: str = Field(min_length=1, max_length=40, description="As for an outbound call")
    name: str | None = Field(default=None, max_length=128, description="What the others see")


class ParticipantView(Model):
    """Somebody in a room. `phoneNumber` and `callStatus` are a telephone's."""

    identity: str
    name: str
    kind: Literal["person", "agent", "phone"]
    state: Literal["joining", "joined", "active", "gone"]
    canPublish: bool
    phoneNumber: str | None = None
    callStatus: str | None = None


class ParticipantList(Model):
    """Answer with every participant of a room, the agent included."""

    participants: list[ParticipantView]


class Removed(Model):
    """Answer where somebody was put out."""

    success: bool


class TokenBody(Model):
    """Body of `POST /api/v1/rooms/{roomName}/tokens`. Without `canPublish` its bearer hears and is not heard;
    `hidden`: nor seen."""

    identity: str = Identity
    name: str | None = Field(default=None, max_length=128)
    canPublish: bool = True
    hidden: bool = False


class TokenView(Model):
    """What a client joins with."""

    serverUrl: str
    participantToken: str
