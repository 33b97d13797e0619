"""What an agent asks of the engines that "auto" chooses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mediaserver.settings.agent import AgentSettings, EngineSettings


def needs(agent: AgentSettings) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """What "auto" must find for an agent: ears that know all its languages, a voice for the first of them."""
    spoken = languages(agent)
    return {"languages": spoken, "grammar": _expects(agent)}, {"languages": spoken[:1]}


def languages(agent: AgentSettings) -> list[str]:
    """What the agent speaks, its own language first."""
    changes = {str(step.get("language") or "") for _, step in steps(agent)}
    chosen = () if agent.llm is None else agent.llm.languages
    return [agent.language, *sorted({*changes, *chosen} - {"", agent.language})]


def _expects(agent: AgentSettings) -> bool:
    """Whether the agent's questions say what can be answered, one of them at least; nobody waits for the
    answer of one that asks nothing."""
    asked = [step for _, step in steps(agent) if step.get("expect") or step.get("answers")]
    return agent.script is not None and (not asked or any(map(_has_grammar, asked)))


def _has_grammar(step: Mapping[str, Any]) -> bool:
    expect = step.get("expect")
    read = expect if isinstance(expect, Mapping) else {}
    kinds = read.get("kinds")
    free = isinstance(kinds, list | tuple) and "free" in kinds
    return not free and bool(step.get("answers") or read.get("phrases") or kinds)


def steps(agent: AgentSettings) -> list[tuple[int, Mapping[str, Any]]]:
    """The steps of the agent's script that can be read, with their places."""
    steps = [] if agent.script is None else agent.script.get("step", ())
    listed = steps if isinstance(steps, list | tuple) else ()
    return [(place, step) for place, step in enumerate(listed) if isinstance(step, Mapping)]


def not_understood(engine: EngineSettings, languages: Iterable[str], whose: str = "the language is") -> str:
    """Why a recogniser by name does not know all of `languages`, "" where it may. `whose` they are is said
    with them."""
    unknown = ", ".join(each for each in sorted(languages) if each.lower().split("-")[0] != "en")
    if engine.engine == "pocketsphinx" and unknown:
        return f"pocketsphinx understands English only, {whose} {unknown}: use another engine"
    if engine.engine == "faster-whisper" and not engine.options.get("model") and unknown:
        return f"the weights by pip understand English only, {whose} {unknown}: name a model"
    return ""
