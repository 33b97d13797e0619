"""A user's program on the client that openapi-python-client makes: prints what it got as JSON.

python -m openapi_python_client URL CALLS_KEY SPEECH_KEY WEB_KEY
"""

from __future__ import annotations

import io
import json
import sys
from typing import Any

from agents.api.calls import cancel_queued_calls, get_call, list_calls, place_call
from agents.api.speech import generate_speech, transcribe
from agents.api.web_calls import connect_web_call
from agents.client import AuthenticatedClient
from agents.models import CancelRequest, OutboundRequest, SpeechBody, TranscriptionForm, WebCallRequestBody
from agents.types import File

AGENT = "2f1c1a34-6f3e-4f0e-9a63-0d8f2f0f7a11"

url, *keys = sys.argv[1:]
calls, speech, web = (AuthenticatedClient(base_url=url.rstrip("/"), token=key) for key in keys)


def order(**fields: object) -> Any:
    body = OutboundRequest.from_dict({"agentId": AGENT, **fields})
    return place_call.sync(client=calls, body=body)


names = {"name": "Bo"}
placed = order(phoneNumber="+14155550123", promptVariables=names)
batch = order(calls=[{"phoneNumber": "+14155550124", "promptVariables": names}])
trial = order(phoneNumber="+14155550125", promptVariables=names, dryRun=True)
page = list_calls.sync(client=calls)
call = get_call.sync(placed.data.call_task_id, client=calls)
cancelled = cancel_queued_calls.sync("+14155550199", client=calls, body=CancelRequest())
ticket = connect_web_call.sync(
    client=web, body=WebCallRequestBody.from_dict({"agentId": AGENT, "metadata": {"promptVariables": names}})
)
spoken = generate_speech.sync_detailed(
    client=speech, body=SpeechBody.from_dict({"text": "Hello.", "format": "wav", "chunk_size": 100})
)
form = TranscriptionForm(file=File(payload=io.BytesIO(spoken.content), file_name="hello.wav"), job_id="job-1")
heard = transcribe.sync(client=speech, body=form)
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
