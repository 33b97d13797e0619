"""The API's page in a real browser, under the server's own Content-Security-Policy: shown, and tried out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.http.api_site import write_api_site
from tests.support.node.node import KEY, running
from tests.support.webrtc.chromium import chromium

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120), pytest.mark.nightly("ci")]

SHOWN = "document.querySelectorAll('.opblock').length"
AUTHORISE = f"""(() => {{
    viewer.preauthorizeApiKey('key', '{KEY}');
    return true;
}})()"""
OPEN = "document.querySelector('#operations-Calls-listCalls .opblock-summary-control').click()"
EXECUTE = "document.querySelector('#operations-Calls-listCalls .execute').click()"
ANSWER = "document.querySelector('#operations-Calls-listCalls .live-responses-table')?.innerText ?? ''"
POLICY = "document.querySelector('#operations-Calls-listCalls .curl-command')?.innerText ?? ''"


async def test_the_page_shows_every_operation_and_sends_requests(tmp_path: Path) -> None:
    async with running(write_api_site(tmp_path)) as (_, client), chromium() as page:
        async with client.get("/openapi.json") as answer:
            described = await answer.json()
        await page.open(str(client.make_url("/docs")))
        count = sum(len(methods) for part in ("paths", "webhooks") for methods in described[part].values())
        await page.until(f"{SHOWN} === {count}")
        await page.run(AUTHORISE)
        await page.run(OPEN)
        await page.until("document.querySelector('#operations-Calls-listCalls .execute') !== null")
        await page.run(EXECUTE)
        await page.until(f"({ANSWER}).includes('ratelimit-remaining')")
        told = await page.run(ANSWER)
        assert "200" in told
        assert '"calls": []' in told
        assert str(client.make_url("/")) in await page.run(POLICY)
        assert page.log == [], "what the policy refuses is an error on the console"
