"""An agent that keys digits, and a caller who does not wait for them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.node.node import only_report, running, write_site
from tests.support.sip.raw_call import RawCall

DESK = "+14155550101"
HURRIED = """say = "Goodbye."
action = "hang_up"
disposition = "greeted"
"""
KEYS = """action = "send_digits"
digits = "1234567890123456789012345678901234567890"
next = "end"
[[agent.script.step]]
id = "end"
say = "Goodbye."
action = "hang_up"
"""


async def test_a_caller_who_hangs_up_while_the_agent_keys_is_no_fault(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site = write_site(tmp_path).change(HURRIED, KEYS)
    async with running(site) as (_, client):
        async with RawCall(site.sip, DESK) as call:
            await call.answered()
            async with asyncio.timeout(10):
                while not call.keys_heard():
                    await asyncio.sleep(0.05)
            await call.hang_up()
        report = await only_report(client)
    assert (report["status"], report["endedBy"]) == ("COMPLETED", "remote")
    assert report["analysis"]["faults"] == []
    assert "engine broke" not in caplog.text
