"""Holds the speech engines and agents of the configured agents: made once, shared where they are equal.

Two agents with the same engine and the same options use one instance: a model is loaded once, a voice has one
helper process. An engine that cannot be used on this machine does not stop the server: `missing()` reports it
with its reason to `/readyz` and `doctor`, and a call for its agent is refused with the reason."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, cast
from weakref import WeakSet

from mediaserver.engine_pool.choice import AgentChoice, AutoEngines, Chooser, Chosen, EngineChoice, unique
from mediaserver.engine_pool.running import Load, Purpose, RunningEngines
from mediaserver.settings.agent import AUTO
from pipeline import registry
from pipeline.agent import Agent
from pipeline.audio.other_vads import MakeVoiceDetector, voice_detector
from pipeline.audio.vad import EnergyVad
from pipeline.call_progress.settings import AnswerDetectionSettings
from pipeline.endpointing.detector import EndOfTurnDetector
from pipeline.endpointing.policy import EndOfTurnScorer
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

AGAIN_S: Final = 300.0
"""Seconds from one trial to the next of what a busy machine has spoilt: a trial costs 1 s of CPU."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class AgentEngines:
    """An agent with its engines, ready to take calls. `uses`: the identities of the engines."""

    agent: Agent
    stt: FallbackRecognizer
    tts: TextToSpeech
    fallback_tts: tuple[TextToSpeech, ...]
    phrases: Phrases
    session: SessionSettings
    line: AnswerDetectionSettings
    detector: EndOfTurnDetector
    uses: frozenset[str]
    vad: MakeVoiceDetector = EnergyVad


class Engines:
    """Makes, starts, shares and closes engines. `others`: chains of engines for uses other than agents, by
    the name under which `missing` reports the first of each; `egress`: the addresses that remote engines may
    have; `chooser` finds the engine of each "auto"; `load` is `pipeline.registry.load` except in tests."""

    def __init__(
        self,
        choices: Sequence[AgentChoice],
        *,
        others: Mapping[str, Sequence[EngineChoice]] = MappingProxyType({}),
        load: Load = registry.load,
        egress: EgressPolicy | None = None,
        chooser: Chooser | None = None,
    ) -> None:
        self._written = self._choices = tuple(choices)
        self._others = {name: tuple(chain) for name, chain in others.items()}
        self.running = RunningEngines(load, egress or EgressPolicy())
        self._auto = AutoEngines(chooser)
        self._unprepared: dict[str, str] = {}  # by agent id: why it takes no calls though its engines run
        self._stt: dict[tuple[str, ...], FallbackRecognizer] = {}
        self._detectors: dict[str, EndOfTurnDetector] = {}
        self._agent_engines: dict[str, AgentEngines] = {}
        self._in_use: WeakSet[AgentEngines] = WeakSet()
        self._changing = asyncio.Lock()
        self.started = False

    async def start(self) -> None:
        """Starts every needed engine, all at once; one that fails does not stop the others. A second call
        waits for the first."""
        async with self._changing:
            if self.started:
                return
            await self._bring_up(self._written, [each for chain in self._others.values() for each in chain])
            self.started = True

    async def change(self, choices: Sequence[AgentChoice]) -> None:
        """Replaces the agents: starts the engines that the new ones need, closes those that no agent uses any
        more. Calls in progress keep their engines."""
        async with self._changing:
            before = {choice.agent_id: choice for choice in self._written}
            new = [choice for choice in choices if before.get(choice.agent_id) != choice]
            self._written = tuple(choices)
            self._settle()
            for agent_id in set(before) - {choice.agent_id for choice in choices}:
                self._agent_engines.pop(agent_id, None)
            await self._bring_up(new)
            await self._close_unused()

    async def _bring_up(self, choices: Sequence[AgentChoice], others: Iterable[EngineChoice] = ()) -> None:
        wanted = unique([*(each for choice in choices for each in choice.all_engines), *others])
        named = [each for each in wanted if each.name != AUTO]
        open_ones = [each for each in wanted if each.name == AUTO]
        settled = {each.agent_id for each in choices if all(one.name != AUTO for one in each.all_engines)}
        await self._start_chosen(open_ones, self._start_named(named, settled))
        await self._prepare_all({choice.agent_id for choice in choices} - settled)

    async def _start_chosen(self, open_ones: Sequence[EngineChoice], *meanwhile: Awaitable[None]) -> None:
        """Starts what each "auto" of `open_ones` becomes. `meanwhile` is awaited during the trials."""
        refused: dict[str, str] = {}
        try:
            await asyncio.gather(*meanwhile, self._auto.choose(open_ones, refused))
            while open_ones:  # until each has an engine that starts, or no candidate is left
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

    async def choose_again(self) -> None:
        """Runs until cancelled: every `AGAIN_S`, tries again what was passed over because the machine was too
        busy. Calls in progress keep their engines."""
        while True:
            await asyncio.sleep(AGAIN_S)
            async with self._changing:
                spoilt = [each.wanted for each in self.chosen() if each.passing]
                if not spoilt:
                    continue
                before = self._choices
                await self._start_chosen(spoilt)
                pairs = zip(before, self._choices, strict=True)
                await self._prepare_all({new.agent_id for old, new in pairs if new != old})
                await self._close_unused()

    async def _start_named(self, named: Iterable[EngineChoice], settled: Container[str]) -> None:
        """Starts named engines and prepares the agents that use these alone, without waiting for trials."""
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
        self._stt = {names: recognizers for names, recognizers in self._stt.items() if used.issuperset(names)}
        await self.running.keep(used)

    async def close(self) -> None:
        """Closes all engines; a failure of one does not keep the others open."""
        self._agent_engines.clear()
        await self.running.close()

    def agent_engines(self, agent_id: str) -> AgentEngines:
        """Returns the engines with which `agent_id` takes calls. Raises `EngineMissing` with the reason where
        it cannot."""
        if agent_id in self._agent_engines:
            return self._agent_engines[agent_id]
        choice = next((each for each in self._choices if each.agent_id == agent_id), None)
        if choice is None:
            raise EngineMissing("the agent is not configured on this node")
        raise EngineMissing(self._reason(choice) or "still starting")

    def recognizers(self, chain: Sequence[EngineChoice]) -> FallbackRecognizer:
        """Returns the running recognisers of `chain`, for files: no caller waits, so a slow one is not given
        up. Raises `EngineMissing` with the reason where the first does not run."""
        return FallbackRecognizer(self.running.recognizers(self._files(chain), Purpose.FILES))

    def voices(self, chain: Sequence[EngineChoice]) -> list[GuardedVoice]:
        """Returns the running voices of `chain`, for files. Raises as `recognizers` does."""
        return self.running.voices(self._files(chain), Purpose.FILES)

    def _files(self, chain: Sequence[EngineChoice]) -> list[EngineChoice]:
        engines = unique(map(self._auto.resolved, chain))
        there = self.running.of(engines)
        if engines[0] not in there:
            raise EngineMissing(self.running.missing.get(engines[0].identity, "still starting"))
        return there

    def missing(self, of: Container[str] | None = None) -> list[str]:
        """Returns one line for each needed engine that does not run; of agents, those in `of` or all."""
        if not self.started:
            return ["engines: still loading"]
        lines = [
            f"agent {choice.agent_id}: {self._reason(choice)}"
            for choice in self._choices
            if choice.agent_id not in self._agent_engines and (of is None or choice.agent_id in of)
        ]
        for name, (written, *_) in self._others.items():
            first = self._auto.resolved(written)
            if first.identity in self.running.missing:
                lines.append(f"{name}: {self.running.missing[first.identity]}")
        return lines

    def of(self, agent_id: str) -> AgentChoice:
        """Returns the engines of an agent, each "auto" resolved. Raises KeyError."""
        return {choice.agent_id: choice for choice in self._choices}[agent_id]

    def chosen(self) -> list[Chosen]:
        """Returns the engine chosen for each "auto" in use."""
        written = [each for choice in self._written for each in choice.all_engines]
        return self._auto.chosen([*written, *(each for chain in self._others.values() for each in chain)])

    def why_not(self, agent_id: str) -> str | None:
        """Returns why an agent cannot take calls on this node, None if it can."""
        try:
            self.agent_engines(agent_id)
        except EngineMissing as missing:
            return str(missing)
        return None

    def _reason(self, choice: AgentChoice) -> str:
        reasons = [self.running.missing.get(engine.identity) for engine in choice.engines]
        return "; ".join(filter(None, [*reasons, self._unprepared.get(choice.agent_id)]))

    async def _prepare(self, choice: AgentChoice) -> None:
        self._unprepared.pop(choice.agent_id, None)
        if any(engine.identity in self.running.missing for engine in choice.engines):
            self._agent_engines.pop(choice.agent_id, None)
            return
        recognizers = self._recognizer(choice)
        voices = self.running.voices(self.running.of((choice.tts, *choice.tts_fallback)), Purpose.CALLS)
        try:
            agent = self.running.agent(choice.agent)
            languages = getattr(agent, "languages", ())
            phrases = await Phrases.prepare(voices, choice.session, languages=languages)
        except EngineError as error:
            self._refuse_calls(choice, f"{choice.tts.name}: {error}")
            return
        try:
            vad = await asyncio.to_thread(voice_detector, choice.vad)
            detector = await self._detector(choice.turn_model)
        except EngineMissing as error:
            self._refuse_calls(choice, str(error))
            return
        made = AgentEngines(
            agent=agent,
            stt=recognizers,
            tts=voices[0],
            fallback_tts=tuple(voices[1:]),
            phrases=phrases,
            session=_patient(choice.session, getattr(agent, "patience", 0)),
            line=choice.line,
            detector=detector,
            vad=vad,
            uses=frozenset(engine.identity for engine in choice.all_engines),
        )
        self._in_use.add(made)
        self._agent_engines[choice.agent_id] = made

    def _refuse_calls(self, choice: AgentChoice, reason: str) -> None:
        """Keeps the agent from taking calls, for `reason`."""
        self._unprepared[choice.agent_id] = reason
        self._agent_engines.pop(choice.agent_id, None)

    async def _detector(self, name: str) -> EndOfTurnDetector:
        """Returns the end-of-turn detector with the model of the file `name`, or a scorer of that name or
        class; the built-in one for "". Raises `EngineMissing`."""
        if name not in self._detectors:
            built_in = BuiltInDetector(await asyncio.to_thread(sentence_ends))
            model = await asyncio.to_thread(_turn_model, name) if name else None
            self._detectors[name] = EndOfTurnDetector(model, built_in=built_in)
        return self._detectors[name]

    def _recognizer(self, choice: AgentChoice) -> FallbackRecognizer:
        """Returns the running recognisers of an agent; agents with the same ones share an instance."""
        there = self.running.of((choice.stt, *choice.stt_fallback))
        names = tuple(each.identity for each in there)
        if names not in self._stt:
            self._stt[names] = FallbackRecognizer(self.running.recognizers(there, Purpose.CALLS))
        return self._stt[names]


def _turn_model(name: str) -> EndOfTurnScorer:
    if not registry.is_class(name) and name not in registry.known("scorer"):
        return load_turn_model(name)
    try:
        return cast(EndOfTurnScorer, registry.load("scorer", name, {}))
    except ValueError as error:
        raise EngineMissing(f"turn_model {name}: {error}") from error


def _patient(session: SessionSettings, patience: int) -> SessionSettings:
    """Returns `session` with at least as many reprompts as the agent has words for silences."""
    return replace(session, max_reprompts=max(session.max_reprompts, patience))
