"""The engines that an agent is made of: by name, or "auto" until the best one is chosen."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from mediaserver.settings.agent import AUTO
from pipeline.audio.other_vads import ENERGY
from pipeline.call_progress.answer_detection import TALK_TO_ALL
from pipeline.call_progress.settings import AnswerDetectionSettings
from pipeline.errors import boundary
from pipeline.settings import SessionSettings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """One engine by its name and options. Options of "auto" are needs: `languages`, and for a recogniser
    whether a `grammar` of answers is enough and whether it is for `files`."""

    kind: str
    name: str
    options: Mapping[str, Any]

    @property
    def identity(self) -> str:
        """Text that is equal for choices which may share an instance."""
        return json.dumps([self.kind, self.name, self.options], sort_keys=True, default=str)


EMBEDDED: Final = {
    "stt": EngineChoice("stt", "pocketsphinx", {}),
    "tts": EngineChoice("tts", "espeak-ng", {}),
}
"""The engines that come with the server: without network and weights."""

UNSURE: Final[Mapping[str, Mapping[str, Any]]] = {"pocketsphinx": {"min_confidence": 0.0}}
"""Options of recognisers for files, by name: the sender of a file gets unsure words too."""


def for_files(engine: EngineChoice) -> EngineChoice:
    """Returns `engine` with the options for uploaded files. For pocketsphinx they differ from those for
    calls, so it gets a process of its own, and a long file does not keep a caller waiting."""
    return replace(engine, options={**UNSURE.get(engine.name, {}), **engine.options})


def embedded(wanted: EngineChoice) -> EngineChoice:
    """Returns the engine that comes with the server, for an "auto"."""
    engine = EMBEDDED[wanted.kind]
    return for_files(engine) if wanted.options.get("files") else engine


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentChoice:
    """The engines of one agent. Fallbacks are used in order, when the engine before them fails in a call."""

    agent_id: str
    agent: EngineChoice
    stt: EngineChoice
    tts: EngineChoice
    stt_fallback: tuple[EngineChoice, ...] = ()
    tts_fallback: tuple[EngineChoice, ...] = ()
    session: SessionSettings
    line: AnswerDetectionSettings = TALK_TO_ALL
    turn_model: str = ""
    vad: str = ENERGY

    @property
    def engines(self) -> tuple[EngineChoice, ...]:
        """The engines that the agent cannot do without."""
        return (self.agent, self.stt, self.tts)

    @property
    def all_engines(self) -> tuple[EngineChoice, ...]:
        """The engines that the agent cannot do without, and its fallbacks."""
        return self.engines + self.stt_fallback + self.tts_fallback

    def settled(self, chosen: Callable[[EngineChoice], EngineChoice]) -> AgentChoice:
        """Returns the choice with each "auto" replaced by what `chosen` gives, and no engine twice."""
        stt, *stt_behind = unique(map(chosen, (self.stt, *self.stt_fallback)))
        tts, *tts_behind = unique(map(chosen, (self.tts, *self.tts_fallback)))
        return replace(self, stt=stt, tts=tts, stt_fallback=tuple(stt_behind), tts_fallback=tuple(tts_behind))


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What an "auto" became. `engine` None: nothing on this machine will do, and `reason` says what to
    install.

    `title`: the model's name. `cpu_ms`: of a recogniser's decode of 3 s; `cpu_ratio`: of a voice, seconds of
    CPU per second of speech; 0: not measured. `passed_over`: better engines, and why they are not used;
    `passing`: one of these was not tried to the end, since the machine was too busy."""

    wanted: EngineChoice
    engine: EngineChoice | None
    title: str = ""
    reason: str
    cpu_ms: float = 0.0
    cpu_ratio: float = 0.0
    passed_over: tuple[str, ...] = ()
    passing: bool = False

    def __str__(self) -> str:
        """Returns one line for a log or a terminal."""
        return f"{self._for}, {'; '.join((self.reason, *self.passed_over))}"

    @property
    def public(self) -> str:
        """One line for readers without a key: it names no directory of this machine."""
        return ", ".join(filter(None, (self._for, self.title)))

    @property
    def _for(self) -> str:
        kind = {"stt": "ears", "tts": "voice"}[self.wanted.kind]
        languages = ", ".join(self.wanted.options.get("languages", ()))
        files = " (files)" if self.wanted.options.get("files") else ""
        return f"{kind} for {languages}{files}: {self.engine.name if self.engine is not None else 'nothing'}"


class Chooser(Protocol):
    """Chooses an engine for each "auto"."""

    async def choose(self, wanted: EngineChoice, refused: Mapping[str, str]) -> Chosen:
        """Returns the best engine for `wanted`. `refused`: why engines did not start, by their identity."""

    async def release(self) -> None:
        """Closes what was started for trials and is no longer needed."""


def unique(choices: Iterable[EngineChoice]) -> list[EngineChoice]:
    """Returns `choices` without repeated ones."""
    return list({choice.identity: choice for choice in choices}.values())


class AutoEngines:
    """What each "auto" of a server became. Without a `chooser` an "auto" becomes the engine that comes with
    the server."""

    def __init__(self, chooser: Chooser | None) -> None:
        self._chooser = chooser
        self._chosen: dict[str, Chosen] = {}

    async def choose(self, wanted: Iterable[EngineChoice], refused: Mapping[str, str]) -> None:
        """Chooses an engine for each of `wanted`. A choice that fails does not stop the server, and leaves
        its "auto" with the engine chosen before, if any."""
        if self._chooser is None:
            return
        for each in wanted:
            with boundary(log, "engine not looked for", kind=each.kind) as failure:  # files, libraries
                found = await self._chooser.choose(each, refused)
            if failure.error is not None:
                reason = f"nothing could be looked for ({failure.kind}): name an engine"
                found = Chosen(wanted=each, engine=None, reason=reason)
            before = self._chosen.get(each.identity, found)
            if found.engine is None and before.engine is not None and before.engine.identity not in refused:
                found = before
            self._chosen[each.identity] = found

    async def release(self) -> None:
        """Closes what the chooser started for trials and no longer needs."""
        if self._chooser is not None:
            await self._chooser.release()

    def resolved(self, choice: EngineChoice) -> EngineChoice:
        """Returns the engine that an "auto" became; `choice` itself for any other choice, and where nothing
        was found yet."""
        if self._chooser is None and choice.name == AUTO:
            return embedded(choice)
        chosen = self._chosen.get(choice.identity)
        return chosen.engine if chosen is not None and chosen.engine is not None else choice

    def chosen(self, written: Iterable[EngineChoice]) -> list[Chosen]:
        """Returns what the "auto" choices among `written` became, each once."""
        return [self._chosen[each.identity] for each in unique(written) if each.identity in self._chosen]

    @property
    def unmet(self) -> Mapping[str, str]:
        """Why no engine was found, by the identity of the "auto"."""
        return {name: each.reason for name, each in self._chosen.items() if each.engine is None}
