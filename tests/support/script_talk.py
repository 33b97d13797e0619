"""A conversation with a scripted agent, event by event, without audio."""

from __future__ import annotations

import tomllib

from pipeline.agent import AgentAct, AgentContext, AgentEvent, CallOpened, UserSaid
from pipeline.agents.script.agent import Script, ScriptConversation


def joined(text: str, language: str = "en") -> ScriptConversation:
    """A conversation in the script `text` (TOML)."""
    return Script.from_settings(tomllib.loads(text)).join(AgentContext("call", language, "", {}))


async def told(conversation: ScriptConversation, event: AgentEvent | str) -> list[AgentAct]:
    """What the agent does after `event`; a text: words that were understood for certain."""
    happened = UserSaid(event, 0.9) if isinstance(event, str) else event
    return [act async for act in conversation.respond(happened)]


async def talk(conversation: ScriptConversation, *events: AgentEvent | str) -> list[AgentAct]:
    """What the agent does after the last of `events`, from the answer of the call on."""
    acts = await told(conversation, CallOpened())
    for event in events:
        acts = await told(conversation, event)
    return acts
