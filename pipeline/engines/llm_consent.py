"""The caller's permission for what a tool is about to do: asked and understood by us, not by the model."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pipeline.engines.llm_tools import Tool
from pipeline.engines.script_answers import value_of
from pipeline.engines.script_lexicon import lexicon
from pipeline.engines.wording import plain_words

MAX_VALUE: Final = 120  # characters of one argument that are read to the caller

_DOUBT: Final = (
    "but wait except instead unless if not no stop don't hold maybe actually rather"
    " لكن ولكن بس انتظر لحظة الا إلا اذا إذا ليس بدل"
)
_HEDGES: Final = frozenset(_DOUBT.split())
_PLACEHOLDER: Final = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")


@dataclass(frozen=True, slots=True)
class Pending:
    """A tool that waits for the caller's yes, with the arguments that the caller was told of."""

    tool: Tool
    arguments: Mapping[str, Any]
    question: str


def question(template: str, arguments: Mapping[str, Any]) -> str:
    """What the caller is asked: `{{name}}` in the template is an argument."""
    return _PLACEHOLDER.sub(lambda mark: _read_out(arguments.get(mark[1], "")), template)


def agrees(text: str, language: str) -> bool:
    """Whether the caller's words are a yes without an if or a but. A doubtful one is none: the caller is
    asked again."""
    words = plain_words(text).replace("no problem", "").replace("why not", "")
    if _HEDGES & set(words.split()):
        return False
    return any(value_of("yes_no", plain_words(words), lexicon(each)) == "yes" for each in {language, "en"})


def _read_out(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return " ".join(text.split())[:MAX_VALUE]
