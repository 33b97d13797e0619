"""A call that a node has claimed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from mediaserver.queue.records import Claim

_CLAIM: Final = Claim(
    call_id="call-1",
    epoch=1,
    node="node-1",
    company_id="acme",
    agent_id="agent-1",
    trunk_id="carrier",
    phone_number="+14155550123",
    dial_number="+14155550123",
    webhook_id="webhook-1",
    variables={},
    metadata={},
    is_test=False,
)


def claim(**changes: Any) -> Claim:
    """An outbound call of the company "acme", with `changes`."""
    return replace(_CLAIM, **changes)
