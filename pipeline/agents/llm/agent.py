"""The agent that speaks through a language model behind an OpenAI-compatible API (docs/llm.md)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from pipeline.agent import AgentContext
from pipeline.agents.llm.answer import LlmAgentSpec
from pipeline.agents.llm.attempt import ChatEndpoint, ChatModel
from pipeline.agents.llm.chat import Chat
from pipeline.agents.llm.conversation import LlmConversation
from pipeline.agents.llm.dialect import Dialect
from pipeline.agents.llm.realtime.table import RealtimeSettings
from pipeline.agents.llm.realtime.talk import RealtimeService
from pipeline.agents.llm.script_step import StepAgent, invite
from pipeline.agents.llm.settings import LlmPlan, read_settings
from pipeline.agents.llm.table import LlmFallback, LlmSettings
from pipeline.agents.llm.tools.builtin import offered
from pipeline.agents.llm.tools.http import HttpTool
from pipeline.agents.llm.tools.mcp import McpServer
from pipeline.agents.llm.tools.tool import Tool
from pipeline.agents.script.llm_step import LlmStep
from pipeline.engines.guard import EngineHealth, Guard
from pipeline.engines.tables import reveal
from pipeline.errors import EngineError, contained
from pipeline.net.http import GuardedHttpClient, HttpClient
from pipeline.net.model_endpoint import Extras, ModelEndpoint
from pipeline.net.web_socket import SOUND_LIMIT

log = logging.getLogger(__name__)

MCP_START_S: Final = 10.0
"""Longest wait for the MCP servers when the server starts, in seconds."""


class Llm:
    """An agent with a language model, shared by all its calls, as are the connections and MCP servers."""

    def __init__(self, plan: LlmPlan, endpoints: Sequence[ChatEndpoint], web: HttpClient) -> None:
        self._plan = plan
        self._web = web
        self._chat = Chat(
            [
                ChatModel(each.model, Dialect(endpoint), _guard(each, plan))
                for each, endpoint in zip(plan.models, endpoints, strict=True)
            ],
            plan.chat,
        )
        self._http = {spec.name: HttpTool(spec, where, web) for spec, where in plan.tools}
        self._servers = [McpServer(settings, web) for settings in plan.llm.mcp]
        self._opening: asyncio.Task[None] | None = None
        self._realtime = None if plan.realtime is None else _service(plan.realtime)
        self._spec = LlmAgentSpec(
            chat=self._chat,
            prompt=plan.llm.prompt,
            policy=plan.policy,
            builtins=offered(plan.policy),
            tools=self._tools,
            limits=plan.llm.budget,
            history_turns=plan.llm.history_turns,
            history_tokens=plan.llm.history_tokens,
            extract=plan.extract,
            realtime=self._realtime,
        )

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Llm:
        """Reads and checks the `[agent.llm]` table. Raises `SettingsRefused` with every problem found."""
        plan = read_settings(settings)
        endpoints = [
            ModelEndpoint(
                each.base_url,
                api_key=reveal(each.api_key),
                timeout_s=plan.chat.timeout_s,
                extras=Extras(**each.extras),
            )
            for each in plan.models
        ]
        return cls(plan, endpoints, GuardedHttpClient())

    @property
    def languages(self) -> frozenset[str]:
        """The languages that the model may change to."""
        return frozenset(self._plan.policy.languages)

    def engine_health(self) -> Sequence[EngineHealth]:
        """Returns the figures of each model."""
        own = [] if self._realtime is None else [self._realtime.guard.health]
        return own + self._chat.health()

    async def start(self) -> None:
        """Asks the MCP servers for their tools, and waits `MCP_START_S` at most. The agent answers calls
        without a server that is away: that server is asked again with later calls."""
        self.prewarm()
        if self._opening is not None:
            await asyncio.wait({self._opening}, timeout=MCP_START_S)

    def join(self, context: AgentContext) -> LlmConversation:
        """Makes the conversation of one call."""
        self.prewarm()
        return LlmConversation(self._spec, context)

    def prewarm(self) -> None:
        """Asks MCP servers that were away again, in a task, when a call begins."""
        if any(not server.is_open for server in self._servers) and (
            self._opening is None or self._opening.done()
        ):
            self._opening = asyncio.create_task(self._open_servers())

    def invite(self, llm_step: LlmStep, context: AgentContext, said: str) -> StepAgent:
        """Makes the model's agent for one step of a script, after the script has `said` something."""
        return invite(self._spec, llm_step, context, said)

    async def close(self) -> None:
        """Closes the connections to models, MCP servers and tools."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        if self._realtime is not None:
            await self._realtime.guard.close()
            await self._realtime.endpoint.close()
        await self._chat.close()
        await self._web.close()

    async def _open_servers(self) -> None:
        await asyncio.gather(*map(_open, self._servers))

    def _tools(self) -> Mapping[str, Tool]:
        tools: dict[str, Tool] = dict(self._http)
        for server in self._servers:
            tools.update(server.tools)
        return tools


async def _open(server: McpServer) -> None:
    try:
        with contained("the MCP server"):
            await server.open()
    except EngineError as error:
        log.warning("MCP server away", extra={"reason": str(error)})


def _guard(model: LlmSettings | LlmFallback, plan: LlmPlan) -> Guard:
    """Who gives up a request that took a whole attempt had a reason."""
    attempts = max(2, len(plan.models))
    name = f"{model.model} at {urlsplit(model.base_url).hostname}"
    return Guard("llm", name, deadline_s=plan.chat.timeout_s / attempts)


def _service(settings: RealtimeSettings) -> RealtimeService:
    endpoint = settings.socket().endpoint(longest=SOUND_LIMIT)
    return RealtimeService(settings, endpoint, Guard("realtime", f"{settings.model} at {endpoint.host}"))
