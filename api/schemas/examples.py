"""Examples of bodies and answers for the OpenAPI document, one for each model: a day of a small clinic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

from api.schemas import base, calls, data, live, managed, speech, supervisors, traces
from api.schemas.events import DATA, ENVELOPES, EndedData, EventData

_AGENT: Final = "2f1c1a34-6f3e-4f0e-9a63-0d8f2f0f7a11"
_CALL: Final = "0b9fd2a4-8f6f-4a55-9c39-5f0f2c3f9f22"
_HOOK_ID: Final = "5d2c8a10-5c1b-4a3e-8a3f-1c9d2b7e6f01"
_BATCH: Final = "b1a7c7b2-2f4b-4d0a-9a53-7f3a0a1e9c10"
_NUMBER: Final = "+14155550123"
_AT: Final = "2026-05-04T09:30:00.000Z"
_LATER: Final = "2026-05-04T09:31:12.480Z"
_NAMES: Final = {"name": "Mary Williams"}
_SUPERVISOR: Final = {"identity": "anna", "name": "Anna", "role": "take_over"}
_USUAL: Final[Mapping[str, Any]] = {
    "callTaskId": _CALL,
    "webhookId": _HOOK_ID,
    "agentId": _AGENT,
    "companyId": "clinic",
    "keyId": "key_7f3a0a1e9c102f4b",
    "trunkId": "carrier",
    "sipCallId": "7c1e0b9a5d3f4e21",
    "phoneNumber": _NUMBER,
    "direction": "outbound",
    "managedBy": "api",
    "isTest": False,
    "interrupted": False,
    "metadata": {"crmId": "A-17"},
    "status": "COMPLETED",
    "hangupCause": "agent_hangup",
    "sipStatus": 200,
    "endedBy": "local",
    **dict.fromkeys(
        ("at", "createdAt", "startedAt", "dialedAt", "dialingAt", "ringingAt", "answeredAt"), _AT
    ),
    "endedAt": _LATER,
}
"""The values of fields that several models have."""


def _of(model: type[BaseModel], **own: Any) -> dict[str, Any]:
    """Returns an example of `model`: the values that are its `own`, the usual ones of other fields that it
    must have, and null where there is none."""
    fields = (name for name, field in model.model_fields.items() if name in own or field.is_required())
    return {name: own.get(name, _USUAL.get(name)) for name in fields}


_LINES: Final = [
    _of(
        base.TranscriptLine,
        role="agent",
        text="Is this Mary Williams?",
        startMs=420,
        endMs=1840,
        confidence=1.0,
        words=[{"text": "Is", "startMs": 420, "endMs": 560}],
    )
]
_TURN: Final = _of(
    base.Turn,
    turn=1,
    userText="yes",
    keyed="",
    confidence=0.93,
    agentText="Is this Mary Williams?",
    startMs=420,
    endMs=2650,
    latency={
        "voiceToVoiceMs": 612.0,
        "endpointMs": 320.0,
        "sttMs": 110.0,
        "agentMs": 2.0,
        "ttsMs": 60.0,
        "serverMs": 4.0,
    },
    silences=[],
)
_ANALYSIS: Final = {"disposition": "confirmed", "reachedGoal": True, "answers": {"known": "yes"}}

_LISTED: Final = _of(
    base.ListedCall,
    name="Mary Williams",
    disposition="confirmed",
    durationMs=72_480,
    latencyMs=612,
    slowestMs=940,
)
_SIP: Final = {
    "headers": {"X-Account": "A-17"},
    "displayName": "",
    "asserted": False,
    "withheld": False,
    "verstat": "",
    "diversions": [],
    "userToUser": "",
    "reasons": [{"protocol": "Q.850", "cause": 16, "text": "Normal call clearing"}],
    "mediaEncryption": {"keys": "sdes", "suite": "AES_CM_128_HMAC_SHA1_80"},
}
_REPORT: Final = _of(
    base.CallReport,
    promptVariables=_NAMES,
    transcript=_LINES,
    turns=[_TURN],
    attempts=[_of(base.Attempt, number=1, dialedNumber=_NUMBER)],
    decisions=[],
    recordingUrl=f"https://calls.example.com/api/v1/calls/{_CALL}/recording",
    analysis=_ANALYSIS,
    sip=_SIP,
)
_BATCH_DATA: Final = {
    "policy": {"mode": "DEDUPE", "spacingMinutes": 10},
    "summary": {"received": 2, "queuedNow": 1, "queuedLater": 0, "deduped": 1, "failed": 0},
    "items": [
        {"phoneNumber": _NUMBER, "action": "queued_now", "callTaskId": _CALL},
        {"phoneNumber": _NUMBER, "action": "deduped", "reason": "Duplicate phone number in the request"},
    ],
    "webhookId": _HOOK_ID,
    "agentId": _AGENT,
    "batchId": _BATCH,
    "total": 2,
    "queued": 1,
    "failed": 0,
    "duplicatesRemoved": 1,
}
_BATCH_VIEW: Final = _of(
    managed.BatchView, batchId=_BATCH, status="ONGOING", total=100, open=40, endedAt=None
)
_JOINING: Final = {
    "serverUrl": "wss://calls.example.com",
    "participantToken": "eyJhbGciOiJIUzI1NiJ9.e30.c2ln",
}
_PERSON: Final = {
    "identity": "phone-1",
    "name": "Mary",
    "kind": "phone",
    "state": "active",
    "canPublish": True,
    "phoneNumber": _NUMBER,
    "callStatus": "ringing",
}
_COMPANY: Final = {"name": "The clinic", "country": "US", "maxConcurrentCalls": 20, "webCalls": True}
_TRUNK: Final = {"uri": "sip:sip.example.net;transport=tls", "callerId": "+14155550100"}
_TALKER: Final = {
    "name": "Appointment reminder",
    "trunk": "carrier",
    "phoneNumber": "+14155550100",
    "greeting": "Hello {{name}}, this is the clinic.",
    "script": {"start": "bye", "step": [{"id": "bye", "say": "Goodbye.", "action": "hang_up"}]},
}
_WEBHOOK: Final = {"url": "https://crm.example.com/hook", "events": ["call.*", "transcript.completed"]}
_WEBHOOK_VIEW: Final = _of(managed.WebhookView, id="we_7f3a0a1e9c10", rotating=False, **_WEBHOOK)
_KEY_VIEW: Final = _of(
    managed.KeyView,
    id=_USUAL["keyId"],
    name="CRM",
    hint="ml_4fQz",
    scopes=["calls"],
    agentIds=[],
)
_DELIVERY: Final = {
    "id": 17,
    "eventId": "evt_5d2c8a105c1b4a3e8a3f1c9d2b7e6f01",
    "type": "call.answered",
    "sequence": 4,
    "webhook": "we_7f3a0a1e9c10",
    "url": "https://crm.example.com/hook",
    "state": "DELIVERED",
    "attempts": 1,
    "settledAt": _LATER,
    "lastStatus": 204,
    "lastDurationMs": 42,
}
_MANAGED: Final = {name: _USUAL[name] for name in ("companyId", "managedBy")}
_COMPANY_VIEW: Final = {**_COMPANY, "id": "clinic", "managedBy": "api"}
_SERVER: Final = {
    "address": "198.51.100.7:5061",
    "transport": "tls",
    "health": "up",
    "status": 200,
    "rttMs": 24.5,
}
_SEEN: Final = {"seenAs": None, "stunHealth": None}
_TRUNK_VIEW: Final = {
    **_TRUNK,
    **_MANAGED,
    "id": "carrier",
    "registered": True,
    "servers": [_SERVER],
    **_SEEN,
}
_TALKER_VIEW: Final = {**_TALKER, **_MANAGED, "id": _AGENT, "missing": None}
_NEVER: Final = _of(managed.DoNotCallRow, reason="Asked not to be called")
_ENDED: Final = _of(EndedData, durationMs=72480)
_FAILED: Final = {**_ENDED, "status": "BUSY", "hangupCause": "busy", "sipStatus": 486, "durationMs": 0}
_EVENT_DATA: Final[Mapping[str, Mapping[str, Any]]] = {
    "call.completed": _ENDED,
    "call.failed": _FAILED,
    "call.cancelled": {**_ENDED, "status": "CANCELLED", "hangupCause": "cancelled", "sipStatus": None},
    "call.unknown": {**_ENDED, "status": "UNKNOWN", "hangupCause": "node_lost", "sipStatus": None},
    "call.transferred": {
        "target": "front_desk",
        "outcome": "answered",
        "rung": "bridge",
        "tried": [{"rung": "refer", "outcome": "refused", "status": 405}],
    },
    "turn.completed": _TURN,
    "transcript.completed": {"transcript": _LINES},
    "analysis.completed": {"analysis": _ANALYSIS},
    "recording.completed": {"recordingUrl": _REPORT["recordingUrl"]},
    "batch.completed": {
        "batchId": _BATCH,
        "status": "COMPLETED",
        "total": 2,
        "calls": {"COMPLETED": 1, "BUSY": 1},
    },
    "webcall.started": {"direction": "web", "userRef": "visitor-9", "phoneNumber": "visitor-9"},
    "webcall.ended": _ENDED,
}

_ERASURE: Final = _of(
    data.ErasureView,
    id="era_5d2c8a105c1b4a3e8a3f1c9d2b7e6f01",
    fingerprint="c0ffee5d2c8a105c1b4a3e8a3f1c9d2b7e6f01",
    calls=3,
    events=21,
    recordings=2,
    openCalls=0,
    openRecordings=0,
    completedAt=_LATER,
)
_HOLD: Final = _of(data.HoldView, id="hold_7f3a0a1e9c102f4b", callTaskId=None, reason="Case 17/26")
_DONE: Final = _of(data.AuditView, requestId="9b2e6f015d2c8a10", operation="getRecording", subject=_CALL)

_TRACE: Final = {
    "callTaskId": _CALL,
    "legs": [
        _of(
            traces.TraceLeg,
            remoteNumber=_NUMBER,
            leftOut=0,
            media=[
                {
                    "at": _LATER,
                    "packetsSent": 3610,
                    "packetsReceived": 3604,
                    "lost": 2,
                    "late": 0,
                    "concealed": 2,
                    "jitterMs": 1.4,
                    "remoteLost": 0,
                    "remoteFractionLost": 0.0,
                    "remoteJitterMs": 0.8,
                    "rttMs": 31.2,
                    "mos": 4.4,
                    "remoteMos": 4.41,
                }
            ],
        )
    ],
    "messages": [
        {
            "at": _AT,
            "ms": 0.0,
            "leg": 0,
            "sent": True,
            "transport": "udp",
            "local": "192.0.2.10:5060",
            "remote": "198.51.100.7:5060",
            "summary": "INVITE",
            "cseq": "1 INVITE",
            "repetition": False,
            "text": f"INVITE sip:{_NUMBER}@sip.carrier.example SIP/2.0\r\nCSeq: 1 INVITE\r\n\r\n",
        }
    ],
}

EXAMPLES: Final[Mapping[type[BaseModel], Any]] = {
    traces.CallTrace: _TRACE,
    calls.OutboundRequest: {"agentId": _AGENT, "phoneNumber": _NUMBER, "promptVariables": _NAMES},
    calls.OutboundResponse: {
        "success": True,
        "data": _of(calls.OutboundData),
    },
    calls.BatchResponse: {"success": True, "data": _BATCH_DATA},
    calls.TrialResponse: {
        "success": True,
        "data": _of(calls.TrialData, dryRun=True, action="queued_now"),
    },
    calls.CancelRequest: {"agentId": _AGENT},
    calls.CancelResponse: {
        "success": True,
        "data": {
            "cancelled": True,
            "phoneNumber": _NUMBER,
            "callQueueId": _CALL,
            "previousStatus": "PENDING",
            "status": "CANCELLED",
            "cancelledCount": 1,
        },
    },
    calls.WebCallRequestBody: {
        "agentId": _AGENT,
        "userRef": "visitor-9",
        "metadata": {"promptVariables": _NAMES},
    },
    calls.WebCallResponse: {**_JOINING, "roomName": f"web-{_CALL}", "participantName": "visitor-9"},
    calls.CallInBody: {"phoneNumber": _NUMBER, "name": "Mary"},
    calls.ParticipantView: _PERSON,
    calls.ParticipantList: {"participants": [_PERSON]},
    calls.Removed: {"success": True},
    calls.TokenBody: {"identity": "supervisor", "canPublish": False, "hidden": True},
    calls.TokenView: _JOINING,
    supervisors.SupervisorBody: {"role": "monitor", "identity": "anna", "name": "Anna"},
    supervisors.SupervisorToken: {"identity": "anna", "role": "monitor", "roomName": _CALL, **_JOINING},
    supervisors.SupervisorView: _SUPERVISOR,
    supervisors.SupervisorList: {"supervisors": [_SUPERVISOR]},
    supervisors.RoleBody: {"role": "take_over"},
    supervisors.WhisperBody: {"text": "Offer Saturday, too."},
    calls.LivekitKeyView: {"apiKey": "key_5f2a9c41d0b7e683", "apiSecret": "9f0c…"},
    live.LiveEvent: _of(
        live.LiveEvent,
        type="call.words",
        at=_LATER,
        data={"role": "caller", "text": "yes", "startMs": 2210, "endMs": 2650, "interrupted": False},
    ),
    base.CallPage: {"calls": [_LISTED], "cursor": None},
    base.CallReport: _REPORT,
    base.HangupResponse: {"success": True, "data": {"callTaskId": _CALL, "outcome": "requested"}},
    base.ErrorResponse: {"error": "Invalid phone number format"},
    base.Readiness: {"ready": True, "missing": []},
    speech.SpeechBody: {"text": "Hello, this is the clinic.", "format": "wav", "chunk_size": 128},
    speech.TranscriptionForm: {"file": "(the audio file)", "job_id": "job-1"},
    speech.TranscriptionResponse: {"transcription": "hello", "confidence": 0.93, "job_id": "job-1"},
    managed.Done: {"success": True},
    managed.BanList: {"bans": [{"address": "198.51.100.9", "transport": "udp", "leftS": 431.2}]},
    managed.NewCompanyBody: {**_COMPANY, "id": "clinic"},
    managed.CompanyChange: {"maxConcurrentCalls": 40},
    managed.CompanyView: _COMPANY_VIEW,
    managed.CompanyPage: {"companies": [_COMPANY_VIEW], "cursor": None},
    managed.TrunkBody: _TRUNK,
    managed.TrunkChange: {"callerId": "+14155550101"},
    managed.TrunkView: _TRUNK_VIEW,
    managed.TrunkPage: {"trunks": [_TRUNK_VIEW], "cursor": None},
    managed.AgentBody: _TALKER,
    managed.AgentChange: {"greeting": "Good morning, this is the clinic."},
    managed.AgentView: _TALKER_VIEW,
    managed.AgentPage: {"agents": [_TALKER_VIEW], "cursor": None},
    managed.NewWebhook: _WEBHOOK,
    managed.WebhookChange: {"events": ["*"]},
    managed.WebhookView: _WEBHOOK_VIEW,
    managed.WebhookPage: {"webhooks": [_WEBHOOK_VIEW], "cursor": None},
    managed.NewKeyBody: {"scopes": ["calls"], "name": "CRM"},
    managed.RotateBody: {"overlapS": 86_400},
    managed.KeyView: _KEY_VIEW,
    managed.KeyPage: {"keys": [_KEY_VIEW], "cursor": None},
    managed.DoNotCallBody: {"phoneNumbers": [_NUMBER], "reason": "Asked not to be called"},
    managed.DoNotCallAdded: {"success": True, "added": 1},
    managed.DoNotCallList: {"numbers": [_NEVER], "cursor": None},
    managed.BatchView: _BATCH_VIEW,
    managed.BatchPage: {"batches": [_BATCH_VIEW], "cursor": None},
    managed.ReplayBody: {"callTaskId": _CALL},
    managed.Replayed: {"success": True, "replayed": 4},
    managed.DeliveryPage: {"deliveries": [_of(managed.DeliveryView, **_DELIVERY)], "cursor": None},
    data.SubjectBody: {"phoneNumber": _NUMBER},
    data.NumberBody: {"phoneNumber": _NUMBER},
    data.HoldBody: {"phoneNumber": _NUMBER, "reason": "Case 17/26"},
    data.ErasureView: _ERASURE,
    data.ErasurePage: {"erasures": [_ERASURE], "cursor": None},
    data.HoldView: _HOLD,
    data.HoldList: {"holds": [_HOLD]},
    data.AuditPage: {"entries": [_DONE], "cursor": None},
    data.ExportView: _of(
        data.ExportView,
        calls=[_REPORT],
        traces=[_TRACE],
        events=[{"type": "call.answered", "sequence": 4}],
        doNotCall=False,
        more=False,
    ),
    managed.DeliveryReportView: _of(
        managed.DeliveryReportView,
        **_DELIVERY,
        body={"type": "call.answered", "sequence": 4},
        log=[_of(managed.DeliveryAttemptView, number=1, durationMs=42, status=204, response="")],
    ),
    **{
        ENVELOPES[kind]: {
            "type": kind,
            "timestamp": _LATER,
            "webhookId": _HOOK_ID,
            "sequence": place,
            "data": {**_of(EventData), **_EVENT_DATA.get(kind, {})},
        }
        for place, kind in enumerate(DATA, start=1)
    },
}
"""An example for every body, answer and event, by its model."""
