"""The tools of a language-model agent, and the limits on their use.

The model proposes a call; the code here decides. A tool that is not here does not exist, arguments that do
not fit its schema are never sent, and the cost of a call in requests, seconds and bytes is bounded before it
begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from pipeline.agents.llm.table import LlmBudget
from pipeline.agents.llm.tools.schema import Schema
from pipeline.errors import PipelineError

MAX_RESULT: Final = 8_000
"""The most characters of one result that the model gets."""

MAX_FAILURE: Final = 600
"""The most characters of a tool's failure that the model gets."""


class ToolFailed(PipelineError):
    """A tool call failed; the message is for the model and the log, and holds no secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool's description for the model, the caller and the budget.

    `acts`: the tool changes something in the world. `asks`: the question to the caller before the tool runs
    ("" for none); `{{name}}` is an argument. `filler`: said when the tool takes longer than a moment.
    `needs`: numbers that the caller must have given before."""

    name: str
    description: str
    schema: Schema
    acts: bool = True
    asks: str = ""
    timeout_s: float = 8.0
    max_calls: int = 5
    filler: str = ""
    needs: frozenset[str] = frozenset()

    @property
    def message(self) -> dict[str, Any]:
        """The tool as the chat API takes it."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": self.schema.document,
            },
        }


class Tool(Protocol):
    """A tool outside of the server: an HTTP endpoint, or one of an MCP server."""

    @property
    def spec(self) -> ToolSpec:
        """The tool's name, schema and limits, as the model and the budget know it."""

    async def call(self, arguments: Mapping[str, Any], variables: Mapping[str, str], *, key: str = "") -> str:
        """Calls the tool with arguments that fit the schema; returns the result as text. `key`: of this call
        alone, by which the tool's server knows a request that it has had. Raises `ToolFailed`."""


class Budget:
    """The remainder of the limits in one call; `LlmBudget.rounds` are answers of the model to one turn."""

    __slots__ = ("_by_name", "_calls", "_limits", "_seconds", "_turn")

    def __init__(self, limits: LlmBudget) -> None:
        self._limits = limits
        self._calls = self._turn = 0
        self._seconds = 0.0
        self._by_name: Counter[str] = Counter()

    def new_turn(self) -> None:
        """Restarts the counts per turn."""
        self._turn = 0

    @property
    def is_spent(self) -> bool:
        """Whether no tool that costs something may be called, in this turn or any more."""
        return bool(self._over())

    def refuses(self, name: str, most: int, *, costs: bool = True) -> str:
        """Counts a call of `name`; returns why it is refused, "" where it is not. `most`: calls of that tool
        in one call. `costs`: the tool counts towards the limits of all tools together, unlike a built-in one,
        without which the model could not end the call."""
        over = self._over() if costs else ""
        if over:
            return over
        if self._by_name[name] >= most:
            return "this tool has been used as often as it may be in one call"
        self._turn += costs
        self._calls += costs
        self._by_name[name] += 1
        return ""

    def _over(self) -> str:
        limits = self._limits
        if self._turn >= limits.calls_a_turn:
            return "too many tools in one turn"
        if self._calls >= limits.calls or self._seconds >= limits.seconds:
            return "the budget for tools in this call is used up"
        return ""

    def took(self, seconds: float) -> None:
        """Counts the seconds that a tool took."""
        self._seconds += seconds
