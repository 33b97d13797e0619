"""Names of the built-in tools of `pipeline.agents.llm.tools.builtin`."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

BuiltinName: TypeAlias = Literal[
    "hang_up",
    "transfer",
    "ask_digits",
    "send_digits",
    "wait",
    "remember",
    "do_not_call_again",
    "switch_language",
]

NAMES: Final[tuple[str, ...]] = get_args(BuiltinName)
