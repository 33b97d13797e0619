"""Defines the payloads of webhook events for the OpenAPI document, an envelope for each type of event.

`data` may gain fields; receivers ignore what they do not know."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from api.schemas.base import CallStatus, Silence, SipReport, TranscriptLine, Turn


class EventData(BaseModel):
    """What every event tells of its call. `metadata` is that of the request that placed the call."""

    model_config = ConfigDict(defer_build=True, extra="allow")

    callTaskId: str
    agentId: str
    companyId: str
    phoneNumber: str
    metadata: dict[str, Any]


class LastAttempt(BaseModel):
    """How the attempt ended after which a call is queued again."""

    status: CallStatus
    hangupCause: str
    sipStatus: int | None


class QueuedData(EventData):
    """A call waits to be dialled; `scheduledFor` (ISO 8601) not before then, `attempt` after one that
    failed."""

    scheduledFor: str | None = None
    attempt: LastAttempt | None = None


class RingingData(EventData):
    """The telephone rings; `direction` and what follows it only of an inbound call."""

    direction: Literal["inbound"] | None = None
    calledNumber: str | None = None
    sip: SipReport | None = None


class EndedData(EventData):
    """How and when a call ended. Times are ISO 8601 in UTC; `durationMs` counts from the answer."""

    status: CallStatus
    hangupCause: str
    sipStatus: int | None
    endedBy: Literal["local", "remote"] | None
    error: str | None
    durationMs: int
    createdAt: str | None
    dialingAt: str | None
    ringingAt: str | None
    answeredAt: str | None
    endedAt: str | None
    sip: SipReport = Field(default_factory=SipReport)


class TriedRung(BaseModel):
    """What came of a rung of the transfer ladder; `status`: the SIP code that told it."""

    rung: str
    outcome: str
    status: int | None = None


class TransferredData(EventData):
    """A caller was handed on, or could not be; `outcome` "answered" when the target was reached. `rung`: how
    ("refer", "refer_replaces", "bridge"); `tried`: what the carrier was asked for."""

    target: str
    outcome: str
    reason: str | None = None
    rung: str | None = None
    tried: list[TriedRung] | None = None


class TurnData(EventData, Turn):
    """One exchange, as `turns` of the call has it."""

    model_config = ConfigDict(defer_build=True, extra="allow", frozen=False)
    silences: list[Silence] = Field(default_factory=list)


class TranscriptData(EventData):
    """The whole transcript of a call that is over."""

    transcript: list[TranscriptLine]


class AnalysisData(EventData):
    """What came of a call: disposition, goal and collected answers."""

    analysis: dict[str, Any]


class RecordingData(EventData):
    """Where the recording of a call is fetched, with an API key."""

    recordingUrl: str


class BatchOverData(EventData):
    """A batch is over; `calls` counts its calls by status. It is told among its last call's events."""

    batchId: str
    status: Literal["COMPLETED", "CANCELLED"]
    total: int
    calls: dict[str, int]


class WebCallData(EventData):
    """Somebody has joined an agent's room from a browser; `userRef` is the client's name for the person."""

    direction: Literal["web"]
    userRef: str


DATA: dict[str, tuple[type[EventData], str]] = {
    "call.queued": (QueuedData, "A call was queued, or queued again"),
    "call.dialing": (EventData, "The number is being dialled"),
    "call.ringing": (RingingData, "The telephone rings"),
    "call.answered": (EventData, "Somebody, or something, has answered"),
    "call.completed": (EndedData, "A call that was answered is over"),
    "call.failed": (EndedData, "A call ended without an answer: NO_ANSWER, BUSY or FAILED"),
    "call.cancelled": (EndedData, "A call was cancelled before its answer"),
    "call.unknown": (EndedData, "The node that held the call was lost; it is not dialled again"),
    "call.transferred": (TransferredData, "The agent has handed the caller on"),
    "turn.completed": (TurnData, "The caller and the agent have each spoken"),
    "transcript.completed": (TranscriptData, "The transcript of a call that is over"),
    "analysis.completed": (AnalysisData, "The analysis of a call that is over"),
    "recording.completed": (RecordingData, "The recording of a call can be fetched"),
    "batch.completed": (BatchOverData, "The last call of a batch is over"),
    "webcall.started": (WebCallData, "Somebody has joined an agent's room"),
    "webcall.ended": (EndedData, "The conversation in a room is over"),
}
"""The data of every type of event, and when it is sent."""


class Event(BaseModel):
    """The envelope of every event. `sequence` counts the events of one call without gaps."""

    type: str
    timestamp: str
    webhookId: str
    sequence: Annotated[int, Field(ge=1)]


def envelope(kind: str) -> type[BaseModel]:
    """Returns the model of an event's whole body, named after its type."""
    data, text = DATA[kind]
    name = "".join(part.title() for part in kind.split(".")) + "Event"
    fields: dict[str, Any] = {"type": (Literal[kind], ...), "data": (data, ...)}
    model: type[BaseModel] = create_model(name, __base__=Event, __doc__=f"{text}.", **fields)
    return model


ENVELOPES: dict[str, type[BaseModel]] = {kind: envelope(kind) for kind in DATA}
"""The models of all events, by type."""
