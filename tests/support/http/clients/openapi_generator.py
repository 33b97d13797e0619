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


def api(key: str) -> voice_agents.DefaultApi:
    client = voice_agents.ApiClient(voice_agents.Configuration(host=url.rstrip("/"), access_token=key))
    return voice_agents.DefaultApi(client)


calls, names = api(calls_key), {"name": "Bo"}
placed = calls.api_v1_calls_outbound_post(
    OutboundRequest.from_dict({"agentId": AGENT, "phoneNumber": "+14155550123", "promptVariables": names})
).actual_instance
batch = calls.api_v1_calls_outbound_post(
    OutboundRequest.from_dict(
        {"agentId": AGENT, "calls": [{"phoneNumber": "+14155550124", "promptVariables": names}]}
    )
).actual_instance
trial = calls.api_v1_calls_outbound_post(
    OutboundRequest.from_dict(
        {"agentId": AGENT, "phoneNumber": "+14155550125", "promptVariables": names, "dryRun": True}
    )
).actual_instance
page = calls.api_v1_calls_get()
call = calls.api_v1_calls_call_task_id_get(placed.data.call_task_id)
cancelled = calls.api_v1_calls_queue_cancel_phone_number_post("+14155550199", cancel_request=CancelRequest())
ticket = api(web_key).api_v1_web_calls_connect_post(
    WebCallRequestBody.from_dict({"agentId": AGENT, "metadata": {"promptVariables": names}})
)
speech = api(speech_key)
audio = speech.v1_text_to_speech_generate_post(SpeechBody(text="Hello.", format="wav", chunk_size=100))
heard = speech.transcribe_post(("hello.wav", bytes(audio)), job_id="job-1")
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
