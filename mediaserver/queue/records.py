"""Records of the database as the rest of the server uses them, and their states.

Times named `_ms` are milliseconds since 1970 UTC; 0 means "not yet"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from uuid import uuid4

from mediaserver.db.database import Row
from mediaserver.queue.decisions import Decision


class CallStatus(StrEnum):
    """The state of a call in the API, in the order in which a call goes through them."""

    PENDING = "PENDING"
    DIALING = "DIALING"
    RINGING = "RINGING"
    ANSWERED = "ANSWERED"
    COMPLETED = "COMPLETED"
    NO_ANSWER = "NO_ANSWER"
    BUSY = "BUSY"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    UNKNOWN = "UNKNOWN"

    @property
    def final(self) -> bool:
        """Whether a call stays in this state for ever."""
        return not TRANSITIONS[self]


_ENDS = frozenset(
    {
        CallStatus.COMPLETED,
        CallStatus.NO_ANSWER,
        CallStatus.BUSY,
        CallStatus.FAILED,
        CallStatus.CANCELLED,
        CallStatus.UNKNOWN,
    }
)

TRANSITIONS: Mapping[CallStatus, frozenset[CallStatus]] = {
    CallStatus.PENDING: frozenset({CallStatus.DIALING, CallStatus.FAILED, CallStatus.CANCELLED}),
    CallStatus.DIALING: frozenset({CallStatus.RINGING, CallStatus.ANSWERED}) | _ENDS,
    CallStatus.RINGING: frozenset({CallStatus.ANSWERED}) | _ENDS,
    # An answered call was connected: it cannot become one without an answer.
    CallStatus.ANSWERED: frozenset({CallStatus.COMPLETED, CallStatus.FAILED, CallStatus.UNKNOWN}),
    **dict.fromkeys(_ENDS, frozenset()),
}
"""The transitions within an attempt. A requeued call is still PENDING; another attempt, which only a definite
outcome allows (`mediaserver.queue.finish`), begins at PENDING again."""


class Stage(StrEnum):
    """The stage of a call in the dispatch ledger (`mediaserver.queue.ledger`)."""

    QUEUED = "QUEUED"
    HELD = "HELD"  # its batch is paused
    CLAIMED = "CLAIMED"
    ARMED = "ARMED"
    FINISHED = "FINISHED"


class Stopping(StrEnum):
    """What a request to hang up did."""

    CANCELLED = "cancelled"  # the call had not been dialled, and never will be
    REQUESTED = "requested"  # the call is live: the node that holds it must hang up now
    ENDED = "ended"  # the call was over already


@dataclass(frozen=True, slots=True)
class KeyRow:
    """An API key: its company and scopes. The key itself is not stored. `agents`: those that the key is for,
    empty for all."""

    id: str
    company_id: str
    company_name: str
    scopes: frozenset[str]
    agents: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCall:
    """A call to be made. `phone_number`: E.164 with "+"; `dial_number`: what is sent to the trunk's
    carrier; `headers`: further header fields of the INVITE."""

    company_id: str
    agent_id: str
    trunk_id: str
    phone_number: str
    dial_number: str
    webhook_id: str
    variables: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    is_test: bool = False
    not_before_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NewInboundCall:
    """An inbound call. `phone_number`: the caller's, as the trunk gave it; `call_id`: known before the call
    is written; `ringing_at_ms` 0: rings since it was written; `sip`: what its INVITE says."""

    company_id: str
    agent_id: str
    trunk_id: str
    phone_number: str
    called_number: str
    webhook_id: str
    call_id: str = field(default_factory=lambda: str(uuid4()))
    ringing_at_ms: int = 0
    variables: Mapping[str, str] = field(default_factory=dict)
    sip: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWebCall:
    """A web call that a participant has joined. `call_id`: the name of its room; `user_ref`: the client's own
    name for the person."""

    call_id: str
    company_id: str
    agent_id: str
    webhook_id: str
    user_ref: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWebRoom:
    """A room that may be joined for `life_ms`, by whom and for which agent."""

    name: str
    company_id: str
    agent_id: str
    identity: str
    life_ms: int
    user_ref: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A call held by one node for the length of a lease. `epoch` fences: a node that lost the call cannot
    write to it. `sip`: what SIP said of the call so far, and the `headers` that its INVITE is to carry."""

    call_id: str
    epoch: int
    node: str
    company_id: str
    agent_id: str
    trunk_id: str
    phone_number: str
    dial_number: str
    webhook_id: str
    variables: Mapping[str, str]
    metadata: Mapping[str, Any]
    is_test: bool
    sip: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Renewal:
    """A claim whose lease was extended. `hang_up`: a client has asked to end the call."""

    call_id: str
    epoch: int
    hang_up: bool


@dataclass(frozen=True, slots=True)
class Reaped:
    """What `reap_expired` did: calls requeued, calls that became UNKNOWN, and calls cancelled because their
    company is gone."""

    requeued: tuple[str, ...]
    unknown: tuple[str, ...]
    orphaned: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a call ended. `status` is a final one; `cause` a `sip.states.HangupCause` value or one of this
    server's.

    `transcript`, `turns`, `analysis` and `sip` are plain JSON values; empty ones write no event. `definite`:
    the far end gave a final response to the INVITE, which another attempt requires. `recording_node`: where
    other nodes reach the node that has the recording."""

    status: CallStatus
    cause: str
    sip_status: int = 0
    ended_by: str = ""
    ended_at_ms: int = 0  # 0: the database's time of writing
    error: str = ""
    definite: bool = False
    transcript: Sequence[Mapping[str, Any]] = ()
    turns: Sequence[Mapping[str, Any]] = ()
    analysis: Mapping[str, Any] = field(default_factory=dict)
    sip: Mapping[str, Any] = field(default_factory=dict)
    recording_path: str = ""
    recording_url: str = ""
    recording_node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRow:
    """One attempt to dial: its row is written before the INVITE leaves."""

    number: int
    node: str
    trunk_id: str
    dial_number: str
    sip_call_id: str
    started_at_ms: int
    ended_at_ms: int
    status: CallStatus
    cause: str
    sip_status: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRow:
    """A call without its content, as lists show it."""

    id: str
    company_id: str
    agent_id: str
    trunk_id: str
    batch_id: str
    direction: str
    phone_number: str
    dial_number: str
    webhook_id: str
    is_test: bool
    status: CallStatus
    stage: Stage
    created_at_ms: int
    not_before_ms: int
    dialing_at_ms: int
    ringing_at_ms: int
    answered_at_ms: int
    ended_at_ms: int
    cause: str
    sip_status: int
    ended_by: str
    error: str


def call_states(row: Row) -> dict[str, Any]:
    """Returns the fields of a `CallRow` that a row of `calls` has as numbers or text, for `read_row`."""
    return {
        "is_test": bool(row["is_test"]),
        "status": CallStatus(row["status"]),
        "stage": Stage(row["stage"]),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord(CallRow):
    """A call with everything known about it."""

    variables: Mapping[str, str]
    metadata: Mapping[str, Any]
    transcript: Sequence[Mapping[str, Any]]
    turns: Sequence[Mapping[str, Any]]
    analysis: Mapping[str, Any]
    sip: Mapping[str, Any]
    recording_path: str
    recording_url: str
    recording_node: str
    attempts: tuple[AttemptRow, ...]
    decisions: tuple[Decision, ...] = ()

    @property
    def next_attempt_at_ms(self) -> int:
        """When the call will be dialled next, as far as is known; 0 where it will not be, or its batch is
        paused."""
        return self.not_before_ms if self.stage is Stage.QUEUED else 0


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event to one subscription; `body` is sent unchanged in every attempt. `attempt` counts all
    attempts, `tries` those since the last replay."""

    id: int
    event_id: str
    subscription_id: str
    call_id: str
    url: str
    body: str
    attempt: int
    tries: int
    created_at_ms: int


@dataclass(frozen=True, slots=True)
class StoreCounts:
    """Counts for metrics, of what is not done (the rest grows for ever): calls by ledger stage and by status,
    deliveries PENDING and DEAD."""

    stages: Mapping[str, int]
    statuses: Mapping[str, int]
    deliveries: Mapping[str, int]
