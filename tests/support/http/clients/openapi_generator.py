"""A user's program on the client that openapi-generator makes: prints what it got as JSON.

python -m openapi_generator URL CALLS_KEY SPEECH_KEY WEB_KEY
"""

from __future__ import annotations

import json
import sys

import voice_agents
from voice_agents.models.cancel_request import CancelRequest
from voice_agents.models.outbound_request import OutboundRequest
from voice_agents.models.speech_body import SpeechBody
from voice_agents.models.web_call_request_body import WebCallRequestBody

AGENT = "2f1c1a34-6f3e-4f0e-9a63-0d8f2f0f7a11"

url, calls_key, speech_key, web_key = sys.argv[1:]


def client(key: str) -> voice_agents.ApiClient:
    return voice_agents.ApiClient(voice_agents.Configuration(host=url.rstrip("/"), access_token=key))


calls, names = voice_agents.CallsApi(client(calls_key)), {"name": "Bo"}
placed = calls.place_call(
    OutboundRequest.from_dict({"agentId": AGENT, "phoneNumber": "+14155550123", "promptVariables": names})
).actual_instance
batch = calls.place_call(
    OutboundRequest.from_dict(
        {"agentId": AGENT, "calls": [{"phoneNumber": "+14155550124", "promptVariables": names}]}
    )
).actual_instance
trial = calls.place_call(
    OutboundRequest.from_dict(
        {"agentId": AGENT, "phoneNumber": "+14155550125", "promptVariables": names, "dryRun": True}
    )
).actual_instance
page = calls.list_calls()
call = calls.get_call(placed.data.call_task_id)
cancelled = calls.cancel_queued_calls("+14155550199", cancel_request=CancelRequest())
ticket = voice_agents.WebCallsApi(client(web_key)).connect_web_call(
    WebCallRequestBody.from_dict({"agentId": AGENT, "metadata": {"promptVariables": names}})
)
speech = voice_agents.SpeechApi(client(speech_key))
audio = speech.generate_speech(SpeechBody(text="Hello.", format="wav", chunk_size=100))
heard = speech.transcribe(("hello.wav", bytes(audio)), job_id="job-1")
print(
    json.dumps(
        {
            "placed": [placed.success, placed.data.phone_number],
            "batch": [batch.success, batch.data.queued],
            "trial": [trial.success, trial.data.action],
            "calls": sorted(each.phone_number for each in page.calls),
            "call": call.call_task_id == placed.data.call_task_id,
            "cancelled": [cancelled.success, cancelled.data.cancelled],
            "token": ticket.participant_token.count("."),
            "audio": bytes(audio)[:4].decode(),
            "job": heard.job_id,
        }
    )
)
