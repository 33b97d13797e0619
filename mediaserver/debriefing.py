"""What an agent makes of a call once it is over: asked off the line; a call is recorded without it too."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace

from pipeline.agent import Conversation, Debriefing
from pipeline.boundary import kind_of
from pipeline.errors import EngineError
from pipeline.outcome import EngineFault, SessionResult

log = logging.getLogger(__name__)

LIMIT_S = 60.0
"""However long an agent says that it may take."""


async def debriefed(
    agent: Conversation | None, result: SessionResult | None, fields: Mapping[str, object]
) -> SessionResult | None:
    """`result` with the agent's last word on the call; without it, and with a fault, where that fails. Never
    raises."""
    if result is None or not isinstance(agent, Debriefing):
        return result
    try:
        async with asyncio.timeout(LIMIT_S):
            return replace(result, report=await agent.debrief(result.transcript))
    except (EngineError, TimeoutError) as error:
        reason = str(error) or "not done in time"
        log.warning("no debriefing", extra={**fields, "reason": reason})
    except Exception as error:  # the boundary to somebody else's code
        log.exception("debriefing broke", extra=dict(fields))
        reason = f"the agent broke ({kind_of(error)})"
    fault = EngineFault("agent", f"no debriefing: {reason}", result.duration_ms)
    return replace(result, faults=(*result.faults, fault))
