"""Secrets that are marked: none may come out in a log, an answer, an event or a table."""

from __future__ import annotations

import signal
import time
from base64 import b64encode
from pathlib import Path
from typing import Any

from tests.support.http.api_site import ADMIN_KEY, SERVER_KEY, write_api_site
from tests.support.node.node import NUMBER, REAL_ENGINES, ServerProcess, serving

MARK = "canary"
SECRETS = {
    name: f"{MARK}-{name}-{'x' * 8}"
    for name in ("server-key", "api-key", "rooms", "trunk", "llm", "engine", "made-trunk", "made-llm")
}
HOOK = "whsec_" + b64encode(b"canary of the webhook").decode()

FILE = """
[[company.webhook]]
url = "http://127.0.0.1:{hook}/in"
secret = "{secret}"
"""

LLM_AGENT = """
[[agent]]
id = "d5c7e2a0-93a8-4a55-8f6c-9f5f3f5f1a03"
company = "acme"
name = "Modelled"
trunk = "carrier"
phone_number = "+14155550100"
[agent.stt]
engine = "pocketsphinx"
[agent.tts]
engine = "espeak-ng"
[agent.llm]
base_url = "http://127.0.0.1:9/v1"
model = "any"
prompt = "You are kind."
api_key = "{llm}"
"""


def test_no_secret_comes_out_anywhere(tmp_path: Path) -> None:
    site = write_api_site(tmp_path, more='log_level = "debug"\n', engines=REAL_ENGINES)
    text = site.path.read_text()
    text = text.replace('log_format = "plain"', 'log_format = "json"')
    text = text.replace(SERVER_KEY, SECRETS["server-key"])
    text = text.replace(ADMIN_KEY, SECRETS["api-key"])
    text = text.replace("a-secret-that-signs-participant-tokens", SECRETS["rooms"])
    text = text.replace(
        'id = "carrier"\n', f'id = "carrier"\nusername = "acme"\npassword = "{SECRETS["trunk"]}"\n'
    )
    text = text.replace(
        '[[company]]\nid = "other"', FILE.format(hook=site.carrier, secret=HOOK) + '[[company]]\nid = "other"'
    )
    site.path.write_text(text + LLM_AGENT.format(llm=SECRETS["llm"]))
    with serving(site) as server:
        until_alive(server)
        answers = everything_that_is_answered(server)
        assert server.stop(signal_number=signal.SIGTERM) == 0
    found = {"answers": repr(answers).encode(), "log": server.log.read_bytes()}
    found |= {
        str(path): path.read_bytes()
        for path in site.data_dir.rglob("*")
        if path.is_file() and path.suffix not in (".nbi", ".nbc")
    }
    assert len(found["log"]) > 500
    assert any(name.endswith("mediaserver.db") for name in found)
    for place, content in found.items():
        for name, secret in SECRETS.items():
            assert secret.encode() not in content, (name, place)
        assert HOOK.encode() not in content, place
        assert MARK.encode() not in content, place


def until_alive(server: ServerProcess) -> None:
    """Not until it is ready: that, an agent without its engine never lets it be."""
    deadline = time.monotonic() + 180
    while server.get("/api/v1/agents", SECRETS["api-key"])[0] != 200:
        assert server.process.poll() is None, server.log.read_text()
        assert time.monotonic() < deadline
        time.sleep(0.1)


def everything_that_is_answered(server: ServerProcess) -> list[Any]:
    key, answers = SECRETS["api-key"], []
    trunk = {"uri": "sip:carrier.example", "username": "u", "password": SECRETS["made-trunk"]}
    llm = {"baseUrl": "https://models.example/v1", "model": "m", "prompt": "p", "apiKey": SECRETS["made-llm"]}
    script = {"start": "a", "step": [{"id": "a", "say": "Hi.", "action": "hang_up"}]}
    tts = {"engine": "espeak-ng", "api_key": SECRETS["engine"]}
    for method, path, body in (
        ("POST", "/api/v1/trunks", trunk),
        ("POST", "/api/v1/trunks", trunk | {"uri": SECRETS["made-trunk"]}),
        ("POST", "/api/v1/trunks", trunk | {"codecs": [SECRETS["made-trunk"]]}),
        ("POST", "/api/v1/agents", {"llm": llm}),
        ("POST", "/api/v1/agents", {"llm": llm | {"temperature": "hot"}}),
        ("POST", "/api/v1/agents", {"script": script, "tts": tts}),
        ("POST", "/api/v1/webhooks", {"url": "http://127.0.0.1:9/x", "secret": HOOK}),
        ("POST", "/api/v1/webhooks", {"url": SECRETS["engine"], "secret": HOOK}),
        ("POST", "/api/v1/webhooks", {"url": "http://127.0.0.1:9/x", "secret": SECRETS["engine"]}),
    ):
        answers.append(server.ask(method, path, body, key))
    call = {"agentId": "2f1c1a34-6f3e-4f0e-9a63-0d8f2f0f7a11", "phoneNumber": NUMBER}
    call["promptVariables"] = {"name": "Bo"}  # type: ignore[assignment]
    answers.append(server.ask("POST", "/api/v1/calls/outbound", call, "acme-calls-key"))
    answers.append(server.ask("POST", "/api/v1/calls/outbound", call, key))
    for path in ("agents", "trunks", "webhooks", "keys", "companies", "deliveries", "calls", "batches"):
        answers.append(server.get(f"/api/v1/{path}?limit=100", key))
    for path in ("/metrics", "/readyz", "/openapi.json", "/docs"):
        answers.append(server.get(path))
    answers.append(server.get("/api/v1/companies", SECRETS["server-key"]))
    assert sum(status == 201 for status, _ in answers) >= 3
    return answers
