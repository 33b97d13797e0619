"""The speech engines and agents of the configured agents: made once, shared where they are equal.

Two agents with the same engine and the same options use one instance: a model is loaded once, a voice has one
helper process. An engine that cannot be used on this machine does not stop the server; it is remembered with
its reason, `missing()` tells it to `/readyz` and `doctor`, and a call for its agent is refused with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final
from weakref import WeakSet

from mediaserver.engine_pool.choice import AgentChoice, AutoEngines, Chooser, Chosen, EngineChoice, unique
from mediaserver.engine_pool.running import Load, Purpose, RunningEngines
from mediaserver.settings.agent import AUTO
from pipeline import registry
from pipeline.agent import Agent
from pipeline.call_progress.answer_detection import TALK_TO_ALL
from pipeline.call_progress.settings import LineSettings
from pipeline.endpointing.detector import EndOfTurnDetector
from pipeline.endpointing.scorer import BuiltInDetector
from pipeline.endpointing.sentence_model import sentence_ends
from pipeline.endpointing.smart_turn import load as load_turn_model
from pipeline.engines.guard import GuardedVoice
from pipeline.errors import EngineError, EngineMissing
from pipeline.net.egress import EgressPolicy
from pipeline.session.prompts import Phrases
from pipeline.settings import SessionSettings
from pipeline.speech import TextToSpeech
from pipeline.stt.fallback import FallbackRecognizer

BUILT_IN: Final = EndOfTurnDetector()
"""Judges the ends of turns where nobody chose another."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class AgentEngines:
    """An agent ready to take calls. `uses`: the identities of its engines."""

    agent: Agent
    stt: FallbackRecognizer
    tts: TextToSpeech
    fallback_tts: tuple[TextToSpeech, ...]
    phrases: Phrases
    session: SessionSettings
    line: LineSettings = TALK_TO_ALL
    judge: EndOfTurnDetector = BUILT_IN
    uses: frozenset[str] = frozenset()


class Engines:
    """Makes, starts, shares and closes engines. `others` are chains of engines that no agent is made of, by
    the name that `missing` calls the first of each; `reach`: where those behind a network may be; `chooser`
    finds an engine for each that is called "auto"; `load` is `pipeline.registry.load` unless a test says
    so."""

    def __init__(
        self,
        choices: Sequence[AgentChoice],
        *,
        others: Mapping[str, Sequence[EngineChoice]] = MappingProxyType({}),
        load: Load = registry.load,
        reach: EgressPolicy | None = None,
        chooser: Chooser | None = None,
    ) -> None:
        self._written = self._choices = tuple(choices)
        self._others = {name: tuple(chain) for name, chain in others.items()}
        self.running = RunningEngines(load, reach or EgressPolicy())
        self._auto = AutoEngines(chooser)
        self._unprepared: dict[str, str] = {}  # why an agent cannot take calls whose engines run, by its id
        self._ears: dict[tuple[str, ...], FallbackRecognizer] = {}
        self._judges: dict[str, EndOfTurnDetector] = {}
        self._casts: dict[str, AgentEngines] = {}
        self._in_use: WeakSet[AgentEngines] = WeakSet()
        self._changing = asyncio.Lock()
        self.started = False

    async def start(self) -> None:
        """Starts every engine that anybody needs, all at once; none that fails stops the others. A
        second call waits for the first."""
        async with self._changing:
            if self.started:
                return
            await self._bring_up(self._written, [each for chain in self._others.values() for each in chain])
            self.started = True

    async def change(self, choices: Sequence[AgentChoice]) -> None:
        """Replaces the agents: starts what the new ones need beyond what runs, closes what nobody uses any
        more. Calls in progress keep what they began with."""
        async with self._changing:
            before = {choice.agent_id: choice for choice in self._written}
            new = [choice for choice in choices if before.get(choice.agent_id) != choice]
            self._written = tuple(choices)
            self._settle()
            for agent_id in set(before) - {choice.agent_id for choice in choices}:
                self._casts.pop(agent_id, None)
            await self._bring_up(new)
            await self._close_unused()

    async def _bring_up(self, choices: Sequence[AgentChoice], others: Iterable[EngineChoice] = ()) -> None:
        wanted = unique([*(each for choice in choices for each in choice.all_engines), *others])
        named = [each for each in wanted if each.name != AUTO]
        open_ones = [each for each in wanted if each.name == AUTO]
        settled = {each.agent_id for each in choices if all(one.name != AUTO for one in each.all_engines)}
        refused: dict[str, str] = {}
        try:
            await asyncio.gather(self._start_named(named, settled), self._auto.choose(open_ones, refused))
            while open_ones:  # until each has an engine that starts, or none is left for it
                found = {each.identity: self._auto.resolved(each) for each in open_ones}
                engines = [each for each in found.values() if each.name != AUTO]
                await self.running.start(engines)
                failed = {each.identity for each in engines} & self.running.missing.keys()
                refused |= {name: self.running.missing[name] for name in failed}
                open_ones = [each for each in open_ones if found[each.identity].identity in failed]
                await self._auto.choose(open_ones, refused)
        finally:
            await self._auto.release()
        self.running.missing |= self._auto.unmet
        self._settle()
        await self._prepare_all({choice.agent_id for choice in choices} - settled)

    async def _start_named(self, named: Iterable[EngineChoice], settled: Container[str]) -> None:
        """Agents made of named engines take calls when those run: they wait for nobody's trial."""
        await self.running.start(named)
        self._settle()
        await self._prepare_all(settled)

    async def _prepare_all(self, agents: Container[str]) -> None:
        await asyncio.gather(*(self._prepare(each) for each in self._choices if each.agent_id in agents))

    def _settle(self) -> None:
        self._choices = tuple(choice.settled(self._auto.resolved) for choice in self._written)

    async def _close_unused(self) -> None:
        used = {self._auto.resolved(choice).identity for chain in self._others.values() for choice in chain}
        used.update(choice.identity for each in self._choices for choice in each.all_engines)
        used.update(identity for cast in tuple(self._in_use) for identity in cast.uses)
        self._ears = {names: ears for names, ears in self._ears.items() if used.issuperset(names)}
        await self.running.keep(used)

    async def close(self) -> None:
        """Closes everything that was started; a failure of one does not keep the others open."""
        self._casts.clear()
        await self.running.close()

    def cast(self, agent_id: str) -> AgentEngines:
        """What `agent_id` takes calls with. Raises `EngineMissing` with the reason where it cannot."""
        if agent_id in self._casts:
            return self._casts[agent_id]
        choice = next((each for each in self._choices if each.agent_id == agent_id), None)
        if choice is None:
            raise EngineMissing("the agent is not configured on this node")
        raise EngineMissing(self._reason(choice) or "still starting")

    def ears(self, chain: Sequence[EngineChoice]) -> FallbackRecognizer:
        """The recognisers of `chain` that run, for files: nobody waits on a line, so none is given up for
        being slow. Raises `EngineMissing` with the reason where the first of them does not run."""
        return FallbackRecognizer(self.running.ears(self._files(chain), Purpose.FILES))

    def voices(self, chain: Sequence[EngineChoice]) -> list[GuardedVoice]:
        """The voices of `chain` that run, for files. Raises as `ears` does."""
        return self.running.voices(self._files(chain), Purpose.FILES)

    def _files(self, chain: Sequence[EngineChoice]) -> list[EngineChoice]:
        engines = unique(map(self._auto.resolved, chain))
        there = self.running.of(engines)
        if engines[0] not in there:
            raise EngineMissing(self.running.missing.get(engines[0].identity, "still starting"))
        return there

    def missing(self, of: Container[str] | None = None) -> list[str]:
        """One line for each engine that is needed and not there; of agents, those in `of` or all."""
        if not self.started:
            return ["engines: still loading"]
        lines = [
            f"agent {choice.agent_id}: {self._reason(choice)}"
            for choice in self._choices
            if choice.agent_id not in self._casts and (of is None or choice.agent_id in of)
        ]
        for name, (written, *_) in self._others.items():
            first = self._auto.resolved(written)
            if first.identity in self.running.missing:
                lines.append(f"{name}: {self.running.missing[first.identity]}")
        return lines

    def of(self, agent_id: str) -> AgentChoice:
        """What an agent is made of, with what "auto" became. Raises KeyError."""
        return {choice.agent_id: choice for choice in self._choices}[agent_id]

    def chosen(self) -> list[Chosen]:
        """What every "auto" that somebody needs became."""
        written = [each for choice in self._written for each in choice.all_engines]
        return self._auto.chosen([*written, *(each for chain in self._others.values() for each in chain)])

    def why_not(self, agent_id: str) -> str | None:
        """Why an agent cannot take calls here, None if it can."""
        try:
            self.cast(agent_id)
        except EngineMissing as missing:
            return str(missing)
        return None

    def _reason(self, choice: AgentChoice) -> str:
        reasons = [self.running.missing.get(engine.identity) for engine in choice.engines]
        return "; ".join(filter(None, [*reasons, self._unprepared.get(choice.agent_id)]))

    async def _prepare(self, choice: AgentChoice) -> None:
        self._unprepared.pop(choice.agent_id, None)
        if any(engine.identity in self.running.missing for engine in choice.engines):
            self._casts.pop(choice.agent_id, None)
            return
        ears = self._hearing(choice)
        voices = self.running.voices(self.running.of((choice.tts, *choice.tts_fallback)), Purpose.CALLS)
        try:
            mind = self.running.agent(choice.agent)
            languages = getattr(mind, "languages", ())
            phrases = await Phrases.prepare(voices, choice.session, languages=languages)
        except EngineError as error:
            self._unprepared[choice.agent_id] = f"{choice.tts.name}: {error}"
            self._casts.pop(choice.agent_id, None)
            return
        judge = await self._judge(choice)
        if judge is None:
            return
        made = AgentEngines(
            agent=mind,
            stt=ears,
            tts=voices[0],
            fallback_tts=tuple(voices[1:]),
            phrases=phrases,
            session=_patient(choice.session, getattr(mind, "patience", 0)),
            line=choice.line,
            judge=judge,
            uses=frozenset(engine.identity for engine in choice.all_engines),
        )
        self._in_use.add(made)
        self._casts[choice.agent_id] = made

    async def _judge(self, choice: AgentChoice) -> EndOfTurnDetector | None:
        """Who judges the ends of turns; None where the agent's model is missing, and the agent with it."""
        path = choice.turn_model
        try:
            if path not in self._judges:
                built_in = BuiltInDetector(await asyncio.to_thread(sentence_ends))
                model = await asyncio.to_thread(load_turn_model, path) if path else None
                self._judges[path] = EndOfTurnDetector(model, built_in=built_in)
            return self._judges[path]
        except EngineMissing as error:
            self._unprepared[choice.agent_id] = str(error)
            self._casts.pop(choice.agent_id, None)
            return None

    def _hearing(self, choice: AgentChoice) -> FallbackRecognizer:
        """The recognisers of an agent that run; agents with the same ones share them."""
        there = self.running.of((choice.stt, *choice.stt_fallback))
        names = tuple(each.identity for each in there)
        if names not in self._ears:
            self._ears[names] = FallbackRecognizer(self.running.ears(there, Purpose.CALLS))
        return self._ears[names]


def _patient(session: SessionSettings, patience: int) -> SessionSettings:
    """`session`, as patient with a silent caller as the agent that has words for so many silences."""
    return replace(session, max_reprompts=max(session.max_reprompts, patience))
