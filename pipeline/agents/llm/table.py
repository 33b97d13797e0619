"""The table [agent.llm]: a language model, what it may do, and what is extracted when the call is over.

The one declaration for the configuration file and for the agent. `pipeline.agents.llm.settings` checks
whether a tool's schema, address and name make sense."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, field_validator

from pipeline.agents.llm.tool_names import BuiltinName
from pipeline.engines.tables import ExtraBody, HeaderName, HttpUrl, Options, Secret, Table, Variable

ToolName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Language = Annotated[str, Field(pattern=r"^[a-z]{2,3}(-[A-Za-z0-9]{2,8})*$")]
Disposition = Annotated[str, Field(pattern=r"^[a-z0-9_]{1,40}$")]
Headers = Annotated[dict[HeaderName, Secret], Field(max_length=20)]


class LlmServer(Table):
    """A model behind an OpenAI-compatible API. `headers`, `query`, `extra_body`: sent with every request."""

    base_url: HttpUrl
    model: str = Field(min_length=1)
    api_key: Secret | None = None
    headers: Headers = Field(default_factory=dict, repr=False)
    query: dict[str, str] = Field(default_factory=dict, max_length=20)
    extra_body: ExtraBody = Field(default_factory=dict, max_length=50)

    @field_validator("headers")
    @classmethod
    def _sendable(cls, headers: Mapping[str, SecretStr]) -> Mapping[str, SecretStr]:
        for name, value in headers.items():
            text = value.get_secret_value()
            if not text.isascii() or not text.isprintable():
                raise ValueError(f"{name}: must be printable ASCII")
        return headers

    @property
    def extras(self) -> dict[str, Mapping[str, Any]]:
        """What is sent with every request beside the API's own, as `pipeline.net.model_endpoint.Extras`
        takes it."""
        headers = {name: value.get_secret_value() for name, value in self.headers.items()}
        return {"headers": headers, "query": self.query, "body": self.extra_body}


class LlmAsk(Table):
    """[[agent.llm.ask]]: a number that the model may ask the caller for. `digits` 0: of unknown length;
    keyed, it ends with `terminator`, or `key_timeout_s` after the last key (0: 2.5). `mask`: neither the
    model nor the call's record gets the number."""

    name: Variable
    description: str = Field(min_length=1, max_length=500)
    digits: int = Field(default=0, ge=0, le=64)
    terminator: Literal["", "#", "*"] = "#"
    key_timeout_s: float = Field(default=0.0, ge=0, le=60)
    mask: bool = False


class LlmTool(Table):
    """[[agent.llm.tool]]: an HTTP endpoint that the model may call. `parameters`: the JSON schema of its
    arguments; `{name}` in the URL's path is one of them; `fixed`: fields that the call's variables fill;
    `confirm`: the caller is asked first."""

    name: ToolName
    description: str = Field(min_length=1, max_length=2000)
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "POST"
    url: HttpUrl
    headers: Headers = Field(default_factory=dict)
    parameters: Options = Field(default_factory=dict)
    fixed: dict[Variable, str] = Field(default_factory=dict, max_length=50)
    confirm: bool | str = False
    acts: bool | None = None
    timeout_s: float = Field(default=8.0, ge=0.1, le=60)
    max_calls: int = Field(default=5, ge=1, le=100)
    filler: str = ""


class LlmMcp(Table):
    """[[agent.llm.mcp]]: an MCP server. Only the tools in `tools` are offered; `reads`: those of them that
    change nothing; `confirm`: the question for those that need the caller's yes."""

    url: HttpUrl
    headers: Headers = Field(default_factory=dict)
    tools: tuple[ToolName, ...] = Field(min_length=1, max_length=50)
    reads: tuple[ToolName, ...] = ()
    confirm: dict[ToolName, str] = Field(default_factory=dict)
    timeout_s: float = Field(default=8.0, ge=0.1, le=60)
    max_calls: int = Field(default=5, ge=1, le=100)


class LlmFallback(LlmServer):
    """[[agent.llm.fallback]]: a model that replaces those before it when they fail."""


class LlmExtract(Table):
    """[agent.llm.extract]: fields about the call, filled in by the model when the call is over."""

    schema_: Options = Field(alias="schema")
    goal: str = ""
    disposition: str = ""
    summary: str = ""
    timeout_s: float = Field(default=10.0, ge=1, le=60)


class LlmBudget(Table):
    """[agent.llm.budget]: limits on the tools of one call together."""

    calls: int = Field(default=30, ge=0, le=1000)
    calls_a_turn: int = Field(default=6, ge=1, le=50)
    rounds: int = Field(default=5, ge=1, le=20)
    seconds: float = Field(default=60.0, ge=0, le=3600)


class LlmSettings(LlmServer):
    """[agent.llm]: an agent that speaks through a language model behind an OpenAI-compatible API."""

    prompt: str = Field(min_length=1)
    temperature: float | None = Field(default=None, ge=0, le=2)
    max_tokens: int | None = Field(default=None, ge=1, le=1_000_000)
    timeout_s: float = Field(default=6.0, ge=0.1, le=120)
    stall_s: float = Field(default=4.0, ge=0.1, le=60)
    history_turns: int = Field(default=40, ge=1, le=1000)
    history_tokens: int = Field(default=6000, ge=200, le=1_000_000)
    builtin: tuple[BuiltinName, ...] | None = None
    dispositions: tuple[Disposition, ...] = Field(default=(), max_length=50)
    languages: tuple[Language, ...] = Field(default=(), max_length=20)
    max_digits: int = Field(default=32, ge=1, le=64)
    asks: tuple[LlmAsk, ...] = Field(default=(), alias="ask", max_length=30)
    fallback: tuple[LlmFallback, ...] = Field(default=(), max_length=3)
    tools: tuple[LlmTool, ...] = Field(default=(), alias="tool", max_length=30)
    mcp: tuple[LlmMcp, ...] = Field(default=(), max_length=5)
    extract: LlmExtract | None = None
    budget: LlmBudget = LlmBudget()
