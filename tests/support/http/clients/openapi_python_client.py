"""A user's program on the client that openapi-python-client makes: prints what it got as JSON.

python -m openapi_python_client URL CALLS_KEY SPEECH_KEY WEB_KEY
"""

from __future__ import annotations

import io
import json
import sys
from typing import Any

from agents.api.default import (
    get_api_v1_calls,
    get_api_v_1_calls_call_task_id,
    post_api_v1_calls_outbound,
    post_api_v1_web_calls_connect,
    post_api_v_1_calls_queue_cancel_phone_number,
    post_transcribe,
    post_v1_text_to_speech_generate,
)
from agents.client import AuthenticatedClient
from agents.models import CancelRequest, OutboundRequest, SpeechBody, TranscriptionForm, WebCallRequestBody
from agents.types import File

AGENT = "2f1c1a34-6f3e-4f0e-9a63-0d8f2f0f7a11"

url, *keys = sys.argv[1:]
calls, speech, web = (AuthenticatedClient(base_url=url.rstrip("/"), token=key) for key in keys)


def order(**fields: object) -> Any:
    body = OutboundRequest.from_dict({"agentId": AGENT, **fields})
    return post_api_v1_calls_outbound.sync(client=calls, body=body)


names = {"name": "Bo"}
placed = order(phoneNumber="+14155550123", promptVariables=names)
batch = order(calls=[{"phoneNumber": "+14155550124", "promptVariables": names}])
trial = order(phoneNumber="+14155550125", promptVariables=names, dryRun=True)
page = get_api_v1_calls.sync(client=calls)
call = get_api_v_1_calls_call_task_id.sync(placed.data.call_task_id, client=calls)
cancelled = post_api_v_1_calls_queue_cancel_phone_number.sync(
    "+14155550199", client=calls, body=CancelRequest()
)
ticket = post_api_v1_web_calls_connect.sync(
    client=web, body=WebCallRequestBody.from_dict({"agentId": AGENT, "metadata": {"promptVariables": names}})
)
spoken = post_v1_text_to_speech_generate.sync_detailed(
    client=speech, body=SpeechBody.from_dict({"text": "Hello.", "format": "wav", "chunk_size": 100})
)
form = TranscriptionForm(file=File(payload=io.BytesIO(spoken.content), file_name="hello.wav"), job_id="job-1")
heard = post_transcribe.sync(client=speech, body=form)
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
            "audio": spoken.content[:4].decode(),
            "job": heard.job_id,
        }
    )
)
