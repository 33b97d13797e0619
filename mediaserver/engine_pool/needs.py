"""What an agent needs of the engines that "auto" chooses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mediaserver.settings.agent import AgentSettings, EngineSettings


def needs(agent: AgentSettings) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Returns the needs of an agent: a recogniser of all its languages, and a voice for the first of them."""
    spoken = languages(agent)
    return {"languages": spoken, "grammar": _expects(agent)}, {"languages": spoken[:1]}


def languages(agent: AgentSettings) -> list[str]:
    """Returns the languages that the agent speaks, its own first."""
    changes = {str(step.get("language") or "") for _, step in steps(agent)}
    chosen = () if agent.llm is None else agent.llm.languages
    return [agent.language, *sorted({*changes, *chosen} - {"", agent.language})]


def _expects(agent: AgentSettings) -> bool:
    """Whether a question of the agent says what can be answered, or the agent asks none, so that no answer is
    waited for."""
    asked = [step for _, step in steps(agent) if step.get("expect") or step.get("answers")]
    return agent.script is not None and (not asked or any(map(_has_grammar, asked)))


def _has_grammar(step: Mapping[str, Any]) -> bool:
    expect = step.get("expect")
    read = expect if isinstance(expect, Mapping) else {}
    kinds = read.get("kinds")
    free = isinstance(kinds, list | tuple) and "free" in kinds
    return not free and bool(step.get("answers") or read.get("phrases") or kinds)


def steps(agent: AgentSettings) -> list[tuple[int, Mapping[str, Any]]]:
    """Returns the readable steps of the agent's script with their positions."""
    steps = [] if agent.script is None else agent.script.get("step", ())
    listed = steps if isinstance(steps, list | tuple) else ()
    return [(place, step) for place, step in enumerate(listed) if isinstance(step, Mapping)]


def not_understood(engine: EngineSettings, languages: Iterable[str], whose: str = "the language is") -> str:
    """Returns why a named recogniser does not know all of `languages`, "" where it may. `whose` introduces
    the languages in the reason."""
    unknown = ", ".join(each for each in sorted(languages) if each.lower().split("-")[0] != "en")
    if engine.engine == "pocketsphinx" and unknown:
        return f"pocketsphinx understands English only, {whose} {unknown}: use another engine"
    if engine.engine == "faster-whisper" and not engine.options.get("model") and unknown:
        return f"the weights by pip understand English only, {whose} {unknown}: name a model"
    return ""
