"""Services of the node and profile of the agent, as live calls use them."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from mediaserver.calls.journal import Journal
from mediaserver.calls.live_events import LiveEvents
from mediaserver.calls.outbound_legs import OutboundLegs
from mediaserver.calls.policy import NO_POLICY, Policy
from mediaserver.calls.redaction import Redactor
from mediaserver.calls.signalling.stir import StirSigner
from mediaserver.calls.signalling.traces import CallTraces
from mediaserver.engine_pool.pool import AgentEngines, Engines
from mediaserver.files.sealed import SealedFiles
from mediaserver.queue.records import Claim
from mediaserver.settings import AgentSettings
from mediaserver.settings.agent import BLIND, TransferSettings
from mediaserver.settings.tools import PreCallTool
from mediaserver.store.store import Store
from mediaserver.telemetry.metrics import Metrics
from mediaserver.tracing.call_spans import CallTracer
from pipeline.media.recording import RecordingWriter
from pipeline.net.http import HttpClient


@dataclass(frozen=True, slots=True, kw_only=True)
class CallServices:
    """The services of a node that every live call uses."""

    store: Store
    journal: Journal
    metrics: Metrics
    recorder: RecordingWriter
    recordings: Path
    lease_ms: int
    http: HttpClient | None = None  # for pre-call tools; without one, none are asked
    public_url: str = ""  # the prefix of links to this server
    node_url: str = ""  # where other nodes reach the recordings of this one
    outbound_legs: OutboundLegs | None = None  # for transfers; without them, there are none
    sealed_files: SealedFiles | None = None  # by which recordings are encrypted; None: they are not
    note_dial: Callable[[Claim], Awaitable[None]] | None = None  # called before an INVITE; raises OSError
    wall_clock: Callable[[], float] = time.time
    live_events: LiveEvents = field(default_factory=LiveEvents)  # tells whoever watches the calls
    signer: StirSigner | None = None  # of INVITEs; without it, none are signed
    traces: CallTraces | None = None  # signalling and media statistics; without them, none are kept
    tracer: CallTracer | None = None  # of OpenTelemetry; without one, no spans are made
    check: Callable[[], None] = lambda: None  # raises `Unavailable` while no calls are begun


@dataclass(frozen=True, slots=True, kw_only=True)
class CallProfile:
    """What an agent brings to a call: engines and settings."""

    engines: AgentEngines
    language: str
    greeting: str
    records: bool
    tools: tuple[PreCallTool, ...] = ()
    unreachable: str = ""  # said to the caller when a transfer is not answered
    redactor: Redactor | None = None  # of what is recorded; None: nothing is redacted
    policy: Policy = NO_POLICY  # what is said and asked before the agent's own words
    transfer: TransferSettings = BLIND  # how the caller is handed to people
    silences: bool = False  # whether what is redacted is silent in the recording

    @classmethod
    def of(cls, agent: AgentSettings, engines: Engines) -> CallProfile:
        """Returns the profile of `agent` with the engines of this node. Raises `EngineMissing`."""
        return cls(
            engines=engines.agent_engines(agent.id),
            language=agent.language,
            greeting=agent.greeting,
            records=agent.session.recording,
            tools=agent.pre_call_tools,
            unreachable=agent.unreachable,
            redactor=_redactor(agent),
            policy=Policy(
                agent.policy.disclosure,
                agent.policy.consent_question if agent.policy.recording_consent == "ask" else "",
            ),
            silences=agent.redaction.audio,
            transfer=agent.transfer,
        )


def _redactor(agent: AgentSettings) -> Redactor | None:
    table = agent.redaction
    if not table.kinds:
        return None
    return Redactor(table.kinds, country=table.country or "", language=agent.language)
