"""Defines the trace of a call: its SIP messages in order, and how its media fared."""

from __future__ import annotations

from pydantic import Field

from api.schemas.base import Model


class TraceMessage(Model):
    """One SIP message, as it was on the wire but for secrets. `ms` counts from the first message."""

    at: str = Field(description="ISO 8601 in UTC, with microseconds")
    ms: float
    leg: int = Field(description="Place of its telephone in `legs`")
    sent: bool = Field(description="true: this server sent it; false: it was received")
    transport: str
    local: str = Field(description="host:port of this server")
    remote: str = Field(description="host:port of the other end")
    summary: str = Field(description='For a ladder: "INVITE", "180 Ringing", "BYE"')
    cseq: str
    repetition: bool = Field(description="The same message went the same way before")
    text: str


class TraceSample(Model):
    """The media counters of a telephone up to a moment; times in milliseconds. `remote...` is what the far
    end's RTCP says of the packets sent to it."""

    at: str
    packetsSent: int
    packetsReceived: int
    lost: int
    late: int
    concealed: int
    jitterMs: float
    remoteLost: int
    remoteFractionLost: float
    remoteJitterMs: float
    rttMs: float | None
    mos: float | None = Field(description="MOS (ITU-T G.107) of what was received; null: nothing was")
    remoteMos: float | None = Field(description="The same of what the far end received; null: no RTCP")


class TraceLeg(Model):
    """One telephone of the call: an attempt to dial, the caller, or the person that the caller was handed to.
    `leftOut`: messages in the middle of a long exchange that were not kept."""

    sipCallId: str
    direction: str
    trunkId: str
    remoteNumber: str
    leftOut: int
    media: list[TraceSample]


class CallTrace(Model):
    """The signalling of a call as a ladder, and the media statistics of its telephones."""

    callTaskId: str
    legs: list[TraceLeg]
    messages: list[TraceMessage]
