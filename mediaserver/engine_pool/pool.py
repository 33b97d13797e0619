"""The speech engines and agents of the configured agents: made once, shared where they are equal.

Two agents with the same engine and the same options use one instance: a model is loaded once, a voice has one
helper process. An engine that cannot be used on this machine does not stop the server; it is remembered with
its reason, `missing()` tells it to `/readyz` and `doctor`, and a call for its agent is refused with it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from types import MappingProxyType
from typing import Any, Final, Protocol, cast
from weakref import WeakSet

from mediaserver.engine_pool.choice import AgentChoice, AutoEngines, Chooser, Chosen, EngineChoice, unique
from mediaserver.settings.agent import AUTO
from pipeline import registry
from pipeline.agent import Agent
from pipeline.call_progress.answer_detection import TALK_TO_ALL, LineSettings
from pipeline.endpointing.detector import EndOfTurnDetector
from pipeline.endpointing.scorer import BuiltInDetector
from pipeline.endpointing.sentence_model import sentence_ends
from pipeline.endpointing.smart_turn import load as load_turn_model
from pipeline.engines.guard import EngineHealth, ForFiles, Guard, Guarded, GuardedVoice, Queued, RemoteEngine
from pipeline.errors import EngineError, EngineMissing, boundary
from pipeline.latency import DecoderWaits
from pipeline.net.egress import EgressPolicy, egress_policy
from pipeline.session.prompts import Phrases
from pipeline.settings import SessionSettings
from pipeline.speech import SpeechToText, TextToSpeech
from pipeline.stt.fallback import FallbackRecognizer, GuardedRecognizer

log = logging.getLogger(__name__)

START_TIMEOUT_S = 60.0
"""A model that is not loaded after this will not be: the server says so instead of waiting."""

FILES_AHEAD_S: Final = 10.0
"""A file's speech goes behind that of callers who are out of sound before so many seconds have passed."""

BUILT_IN: Final = EndOfTurnDetector()
"""Judges the ends of turns where nobody chose another."""

Load = Callable[[str, str, Mapping[str, Any]], Any]
"""Makes an engine from its kind, its name and its options."""


class Purpose(Enum):
    """What an engine is asked for: what fails or takes long for one says nothing of the other."""

    CALLS = auto()
    FILES = auto()


class Startable(Protocol):
    """What agents and engines have in common."""

    async def start(self) -> None:
        """Checks the settings, loads the model and warms it up."""

    async def close(self) -> None:
        """Frees the memory, connections and processes that it holds."""


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
        self._load = load
        self._reach = reach or EgressPolicy()
        self._auto = AutoEngines(chooser)
        self._running: dict[str, Startable] = {}
        self._missing: dict[str, str] = {}
        self._guards: dict[tuple[str, Purpose], Guard] = {}
        self._ears: dict[tuple[str, ...], FallbackRecognizer] = {}
        self._judges: dict[str, EndOfTurnDetector] = {}
        self._casts: dict[str, AgentEngines] = {}
        self._in_use: WeakSet[AgentEngines] = WeakSet()
        self._changing = asyncio.Lock()
        self.started = False

    async def start(self) -> None:
        """Starts every engine that anybody needs, all at once; none that fails stops the others."""
        async with self._changing:
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
                await self._start_all(engines)
                failed = {each.identity for each in engines} & set(self._missing)
                refused |= {name: self._missing[name] for name in failed}
                open_ones = [each for each in open_ones if found[each.identity].identity in failed]
                await self._auto.choose(open_ones, refused)
        finally:
            await self._auto.release()
        self._missing = {**self._missing, **self._auto.unmet}
        self._settle()
        await self._prepare_all({choice.agent_id for choice in choices} - settled)

    async def _start_named(self, named: Iterable[EngineChoice], settled: Container[str]) -> None:
        """Agents made of named engines take calls when those run: they wait for nobody's trial."""
        await self._start_all(named)
        self._settle()
        await self._prepare_all(settled)

    async def _prepare_all(self, agents: Container[str]) -> None:
        await asyncio.gather(*(self._prepare(each) for each in self._choices if each.agent_id in agents))

    async def _start_all(self, choices: Iterable[EngineChoice]) -> None:
        wanted = [each for each in unique(choices) if each.identity not in self._running]
        await asyncio.gather(*(self._start(each) for each in wanted))

    def _settle(self) -> None:
        self._choices = tuple(choice.settled(self._auto.resolved) for choice in self._written)

    async def _close_unused(self) -> None:
        used = {self._auto.resolved(choice).identity for chain in self._others.values() for choice in chain}
        used.update(choice.identity for each in self._choices for choice in each.all_engines)
        used.update(identity for cast in tuple(self._in_use) for identity in cast.uses)
        unused = {name: engine for name, engine in self._running.items() if name not in used}
        guards = [self._guards.pop(key) for key in tuple(self._guards) if key[0] in unused]
        for name in unused:
            del self._running[name]
        self._ears = {names: ears for names, ears in self._ears.items() if used.issuperset(names)}
        await asyncio.gather(*(guard.close() for guard in guards))
        await asyncio.gather(*(_close(each) for each in unused.values()))

    async def close(self) -> None:
        """Closes everything that was started; a failure of one does not keep the others open."""
        running, self._running = self._running, {}
        self._casts.clear()
        await asyncio.gather(*(guard.close() for guard in self._guards.values()))
        await asyncio.gather(*(_close(each) for each in running.values()))

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
        return FallbackRecognizer(self._guarded_ears(self._files(chain), Purpose.FILES))

    def voices(self, chain: Sequence[EngineChoice]) -> list[GuardedVoice]:
        """The voices of `chain` that run, for files. Raises as `ears` does."""
        return self._guarded_voices(self._files(chain), Purpose.FILES)

    def _files(self, chain: Sequence[EngineChoice]) -> list[EngineChoice]:
        engines = unique(map(self._auto.resolved, chain))
        first = engines[0].identity
        if first not in self._running:
            raise EngineMissing(self._missing.get(first, "still starting"))
        return self._there(engines)

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
            if first.identity in self._missing:
                lines.append(f"{name}: {self._missing[first.identity]}")
        return lines

    def of(self, agent_id: str) -> AgentChoice:
        """What an agent is made of, with what "auto" became. Raises KeyError."""
        return {choice.agent_id: choice for choice in self._choices}[agent_id]

    def chosen(self) -> list[Chosen]:
        """What every "auto" that somebody needs became."""
        written = [each for choice in self._written for each in choice.all_engines]
        return self._auto.chosen([*written, *(each for chain in self._others.values() for each in chain)])

    def health(self) -> list[EngineHealth]:
        """How the engines of the agents do, models that they ask included."""
        own = [each.engine_health() for each in self._running.values() if isinstance(each, Guarded)]
        return [guard.health for guard in self._guards.values()] + [one for each in own for one in each]

    def decoder_waits(self) -> list[tuple[str, DecoderWaits]]:
        """How long callers have waited for a recogniser that others were using, by its name."""
        queued = [
            (json.loads(identity)[1], engine.decoder_waits())
            for identity, engine in self._running.items()
            if isinstance(engine, Queued)
        ]
        return [(name, waits) for name, waits in queued if waits is not None]

    async def unreachable(self) -> list[str]:
        """Asks every engine behind a network whether the other end is there: one line for each that is
        not."""
        names = {identity: guard.name for (identity, _), guard in self._guards.items()}
        remote = [
            (names[identity], engine)
            for identity, engine in self._running.items()
            if identity in names and isinstance(engine, RemoteEngine)
        ]
        reasons = await asyncio.gather(*(engine.check() for _, engine in remote))
        return [f"{name}: {reason}" for (name, _), reason in zip(remote, reasons, strict=True) if reason]

    def why_not(self, agent_id: str) -> str | None:
        """Why an agent cannot take calls here, None if it can."""
        try:
            self.cast(agent_id)
        except EngineMissing as missing:
            return str(missing)
        return None

    def _reason(self, choice: AgentChoice) -> str:
        identities = [engine.identity for engine in choice.engines] + [choice.agent_id]
        return "; ".join(self._missing[identity] for identity in identities if identity in self._missing)

    async def _start(self, choice: EngineChoice) -> None:
        engine: Startable | None = None
        fields = {"engine": choice.name, "kind": choice.kind}
        with boundary(log, "engine missing", **fields) as failure:
            try:
                with egress_policy(self._reach):
                    engine = cast(Startable, self._load(choice.kind, choice.name, choice.options))
                async with asyncio.timeout(START_TIMEOUT_S):
                    await engine.start()
            except (EngineError, ValueError, TimeoutError) as error:
                failure.error = error
                log.error("engine missing", extra={**fields, "reason": _why_missing(error)})
        if failure.error is None and engine is not None:
            self._missing.pop(choice.identity, None)
            self._running[choice.identity] = engine
            return
        self._missing[choice.identity] = f"{choice.name}: {_why_missing(failure.error)}"
        if engine is not None:
            await _close(engine)

    async def _prepare(self, choice: AgentChoice) -> None:
        self._missing.pop(choice.agent_id, None)
        if any(engine.identity in self._missing for engine in choice.engines):
            self._casts.pop(choice.agent_id, None)
            return
        ears = self._hearing(choice)
        voices = self._guarded_voices(self._there((choice.tts, *choice.tts_fallback)), Purpose.CALLS)
        try:
            mind = self._running[choice.agent.identity]
            languages = getattr(mind, "languages", ())
            phrases = await Phrases.prepare(voices, choice.session, languages=languages)
        except EngineError as error:
            self._missing[choice.agent_id] = f"{choice.tts.name}: {error}"
            self._casts.pop(choice.agent_id, None)
            return
        judge = await self._judge(choice)
        if judge is None:
            return
        made = AgentEngines(
            agent=cast(Agent, mind),
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
            self._missing[choice.agent_id] = str(error)
            self._casts.pop(choice.agent_id, None)
            return None

    def _hearing(self, choice: AgentChoice) -> FallbackRecognizer:
        """The recognisers of an agent that run; agents with the same ones share them."""
        there = self._there((choice.stt, *choice.stt_fallback))
        names = tuple(each.identity for each in there)
        if names not in self._ears:
            self._ears[names] = FallbackRecognizer(self._guarded_ears(there, Purpose.CALLS))
        return self._ears[names]

    def _guarded_ears(self, there: Sequence[EngineChoice], purpose: Purpose) -> list[GuardedRecognizer]:
        return [GuardedRecognizer(self._engine(each, purpose), self._guard(each, purpose)) for each in there]

    def _engine(self, choice: EngineChoice, purpose: Purpose) -> SpeechToText:
        engine = self._running[choice.identity]
        if purpose is Purpose.FILES and isinstance(engine, ForFiles):
            return engine.for_files()
        return cast(SpeechToText, engine)

    def _guarded_voices(self, there: Sequence[EngineChoice], purpose: Purpose) -> list[GuardedVoice]:
        return [
            GuardedVoice(
                cast(TextToSpeech, self._running[each.identity]),
                self._guard(each, purpose),
                last=each is there[-1],
                ahead_s=FILES_AHEAD_S if purpose is Purpose.FILES else 0.0,
            )
            for each in there
        ]

    def _there(self, choices: Iterable[EngineChoice]) -> list[EngineChoice]:
        return [each for each in choices if each.identity in self._running]

    def _guard(self, choice: EngineChoice, purpose: Purpose) -> Guard:
        guard = self._guards.get((choice.identity, purpose))
        if guard is None:
            engine = self._running[choice.identity]
            remote = engine if isinstance(engine, RemoteEngine) else None
            guard = self._guards[choice.identity, purpose] = Guard(
                choice.kind,
                " ".join((choice.name, str(choice.options.get("base_url", "")))).strip(),
                deadline_s=remote.deadline_s if remote and purpose is Purpose.CALLS else None,
                check=remote.check if remote else None,
            )
        return guard


def _patient(session: SessionSettings, patience: int) -> SessionSettings:
    """`session`, as patient with a silent caller as the agent that has words for so many silences."""
    return replace(session, max_reprompts=max(session.max_reprompts, patience))


async def _close(engine: Startable) -> None:
    with boundary(log, "engine did not close cleanly"):
        await engine.close()


def _why_missing(error: Exception | None) -> str:
    return str(error or "") or f"not loaded after {START_TIMEOUT_S:.0f} s"
