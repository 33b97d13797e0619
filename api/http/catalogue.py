"""Names of the operations for generated clients: `operationId` and tag.

They are part of the public API, so they stand here, whatever the handlers are called."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_V1 = "/api/v1"
_CALL = f"{_V1}/calls/{{callTaskId}}"
_ROOM = f"{_V1}/rooms/{{roomName}}"

TAGS: Final[Mapping[str, str]] = {
    "Calls": "Placing, finding and ending calls",
    "Supervisors": "Who listens, whispers, speaks or takes over in a live call",
    "Batches": "Batches of calls",
    "Do not call": "Numbers that are never dialled",
    "Web calls": "Browser sessions and who is in them",
    "Speech": "Text-to-speech and transcription, outside of any call",
    "Companies": "The server's customers, with the server's admin key",
    "Trunks": "The carriers of a company's calls",
    "Agents": "What people talk with",
    "Keys": "API keys of a company",
    "Webhooks": "Where events are sent, and what became of each",
    "Events": "What the server sends to webhooks",
    "Personal data": "Erasures, exports, legal holds, and who did what",
    "Server": "Health, figures and this document",
}
"""Every tag with its description, in the order of the document."""

_NAMES: Final[Mapping[tuple[str, str], tuple[str, str]]] = {
    ("post", f"{_V1}/calls/outbound"): ("placeCall", "Calls"),
    ("post", f"{_V1}/calls/queue/cancel/{{phoneNumber}}"): ("cancelQueuedCalls", "Calls"),
    ("get", f"{_V1}/calls"): ("listCalls", "Calls"),
    ("get", f"{_V1}/calls/{{callTaskId}}"): ("getCall", "Calls"),
    ("post", f"{_V1}/calls/{{callTaskId}}/hangup"): ("hangUpCall", "Calls"),
    ("get", f"{_V1}/calls/{{callTaskId}}/recording"): ("getRecording", "Calls"),
    ("get", f"{_V1}/calls/{{callTaskId}}/trace"): ("getTrace", "Calls"),
    ("get", f"{_V1}/calls/{{callTaskId}}/trace.pcap"): ("getTraceFile", "Calls"),
    ("get", f"{_V1}/calls/{{callTaskId}}.pcap"): ("getPcap", "Calls"),
    ("get", f"{_V1}/events"): ("streamEvents", "Calls"),
    ("get", f"{_CALL}/supervisors"): ("listSupervisors", "Supervisors"),
    ("post", f"{_CALL}/supervisors"): ("createSupervisor", "Supervisors"),
    ("patch", f"{_CALL}/supervisors/{{identity}}"): ("changeSupervisor", "Supervisors"),
    ("delete", f"{_CALL}/supervisors/{{identity}}"): ("removeSupervisor", "Supervisors"),
    ("post", f"{_CALL}/whisper"): ("whisperToAgent", "Supervisors"),
    ("get", f"{_V1}/batches"): ("listBatches", "Batches"),
    ("get", f"{_V1}/batches/{{batchId}}"): ("getBatch", "Batches"),
    ("post", f"{_V1}/batches/{{batchId}}/pause"): ("pauseBatch", "Batches"),
    ("post", f"{_V1}/batches/{{batchId}}/resume"): ("resumeBatch", "Batches"),
    ("post", f"{_V1}/batches/{{batchId}}/cancel"): ("cancelBatch", "Batches"),
    ("get", f"{_V1}/do-not-call"): ("listDoNotCall", "Do not call"),
    ("post", f"{_V1}/do-not-call"): ("addDoNotCall", "Do not call"),
    ("delete", f"{_V1}/do-not-call/{{phoneNumber}}"): ("removeDoNotCall", "Do not call"),
    ("post", f"{_V1}/web-calls/connect"): ("connectWebCall", "Web calls"),
    ("get", f"{_ROOM}/participants"): ("listParticipants", "Web calls"),
    ("post", f"{_ROOM}/participants"): ("callIntoRoom", "Web calls"),
    ("delete", f"{_ROOM}/participants/{{identity}}"): ("removeParticipant", "Web calls"),
    ("post", f"{_ROOM}/tokens"): ("createParticipantToken", "Web calls"),
    ("get", f"{_V1}/livekit-key"): ("getLivekitKey", "Web calls"),
    ("post", "/v1/text-to-speech/generate"): ("generateSpeech", "Speech"),
    ("post", "/transcribe"): ("transcribe", "Speech"),
    ("get", f"{_V1}/companies"): ("listCompanies", "Companies"),
    ("post", f"{_V1}/companies"): ("createCompany", "Companies"),
    ("get", f"{_V1}/companies/{{companyId}}"): ("getCompany", "Companies"),
    ("patch", f"{_V1}/companies/{{companyId}}"): ("updateCompany", "Companies"),
    ("delete", f"{_V1}/companies/{{companyId}}"): ("deleteCompany", "Companies"),
    ("get", f"{_V1}/trunks"): ("listTrunks", "Trunks"),
    ("post", f"{_V1}/trunks"): ("createTrunk", "Trunks"),
    ("get", f"{_V1}/trunks/{{trunkId}}"): ("getTrunk", "Trunks"),
    ("patch", f"{_V1}/trunks/{{trunkId}}"): ("updateTrunk", "Trunks"),
    ("delete", f"{_V1}/trunks/{{trunkId}}"): ("deleteTrunk", "Trunks"),
    ("get", f"{_V1}/agents"): ("listAgents", "Agents"),
    ("post", f"{_V1}/agents"): ("createAgent", "Agents"),
    ("get", f"{_V1}/agents/{{agentId}}"): ("getAgent", "Agents"),
    ("patch", f"{_V1}/agents/{{agentId}}"): ("updateAgent", "Agents"),
    ("delete", f"{_V1}/agents/{{agentId}}"): ("deleteAgent", "Agents"),
    ("get", f"{_V1}/keys"): ("listKeys", "Keys"),
    ("post", f"{_V1}/keys"): ("createKey", "Keys"),
    ("get", f"{_V1}/keys/{{key}}"): ("getKey", "Keys"),
    ("post", f"{_V1}/keys/{{key}}/rotate"): ("rotateKey", "Keys"),
    ("delete", f"{_V1}/keys/{{key}}"): ("revokeKey", "Keys"),
    ("get", f"{_V1}/webhooks"): ("listWebhooks", "Webhooks"),
    ("post", f"{_V1}/webhooks"): ("createWebhook", "Webhooks"),
    ("get", f"{_V1}/webhooks/{{webhook}}"): ("getWebhook", "Webhooks"),
    ("patch", f"{_V1}/webhooks/{{webhook}}"): ("updateWebhook", "Webhooks"),
    ("post", f"{_V1}/webhooks/{{webhook}}/rotate"): ("rotateWebhookSecret", "Webhooks"),
    ("delete", f"{_V1}/webhooks/{{webhook}}"): ("deleteWebhook", "Webhooks"),
    ("get", f"{_V1}/deliveries"): ("listDeliveries", "Webhooks"),
    ("get", f"{_V1}/deliveries/{{delivery}}"): ("getDelivery", "Webhooks"),
    ("post", f"{_V1}/deliveries/replay"): ("replayDeliveries", "Webhooks"),
    ("post", f"{_V1}/erasures"): ("createErasure", "Personal data"),
    ("get", f"{_V1}/erasures"): ("listErasures", "Personal data"),
    ("get", f"{_V1}/erasures/{{erasureId}}"): ("getErasure", "Personal data"),
    ("post", f"{_V1}/erasures/search"): ("searchErasures", "Personal data"),
    ("post", f"{_V1}/exports"): ("exportNumber", "Personal data"),
    ("post", f"{_V1}/holds"): ("createHold", "Personal data"),
    ("get", f"{_V1}/holds"): ("listHolds", "Personal data"),
    ("delete", f"{_V1}/holds/{{holdId}}"): ("liftHold", "Personal data"),
    ("get", f"{_V1}/audit"): ("listAudit", "Personal data"),
    ("get", f"{_V1}/sip/bans"): ("listBans", "Server"),
    ("delete", f"{_V1}/sip/bans/{{address}}"): ("liftBan", "Server"),
    ("get", "/healthz"): ("getHealth", "Server"),
    ("get", "/readyz"): ("getReadiness", "Server"),
    ("get", "/metrics"): ("getMetrics", "Server"),
    ("get", "/openapi.json"): ("getOpenapi", "Server"),
    ("get", "/docs"): ("getDocs", "Server"),
}


def names_of(method: str, path: str) -> tuple[str, str]:
    """Returns the `operationId` and the tag of an operation. One that is not listed is named by its method
    and path."""
    parts = re.findall(r"\w+", path)
    unlisted = method + "".join(part[:1].upper() + part[1:] for part in parts)
    return _NAMES.get((method, path), (unlisted, "Server"))


def listed() -> frozenset[tuple[str, str]]:
    """Returns method and path of every operation that is listed."""
    return frozenset(_NAMES)
