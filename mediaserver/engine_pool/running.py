"""Runs the engines of this node, each behind a guard, and keeps the reasons of those that failed."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import Any, Final, Protocol, cast

from mediaserver.engine_pool.choice import EngineChoice, unique
from pipeline.agent import Agent
from pipeline.engines.guard import EngineHealth, ForFiles, Guard, Guarded, GuardedVoice, Queued, RemoteEngine
from pipeline.errors import EngineError, boundary
from pipeline.latency import DecoderWaits
from pipeline.net.egress import EgressPolicy, egress_policy
from pipeline.speech import SpeechToText, TextToSpeech
from pipeline.stt.fallback import GuardedRecognizer

log = logging.getLogger(__name__)

START_TIMEOUT_S = 60.0
"""Seconds after which an engine that has not started counts as failed."""

FILES_AHEAD_S: Final = 10.0
"""Seconds: a file's speech waits for callers who would run out of sound within this time."""

Load = Callable[[str, str, Mapping[str, Any]], Any]
"""Makes an engine from its kind, its name and its options."""


class Purpose(Enum):
    """The use of an engine: failures and latency of one use do not count for the other."""

    CALLS = auto()
    FILES = auto()


class Startable(Protocol):
    """The life cycle that agents and engines share."""

    async def start(self) -> None:
        """Checks the settings, loads the model and warms it up."""

    async def close(self) -> None:
        """Frees the memory, connections and processes of the engine."""


class RunningEngines:
    """Starts, guards and closes engines. `load` makes these; `egress`: the addresses that remote engines may
    have."""

    def __init__(self, load: Load, egress: EgressPolicy) -> None:
        self.missing: dict[str, str] = {}
        """The reason why an engine does not run, by its identity."""
        self._load = load
        self._egress = egress
        self._engines: dict[str, Startable] = {}
        self._guards: dict[tuple[str, Purpose], Guard] = {}

    async def start(self, choices: Iterable[EngineChoice]) -> None:
        """Starts the engines that do not run, all at once; `missing` has the reasons of failures."""
        wanted = [each for each in unique(choices) if each.identity not in self._engines]
        await asyncio.gather(*(self._start(each) for each in wanted))

    async def _start(self, choice: EngineChoice) -> None:
        engine: Startable | None = None
        fields = {"engine": choice.name, "kind": choice.kind}
        with boundary(log, "engine missing", **fields) as failure:
            try:
                with egress_policy(self._egress):
                    engine = cast(Startable, self._load(choice.kind, choice.name, choice.options))
                async with asyncio.timeout(START_TIMEOUT_S):
                    await engine.start()
            except (EngineError, ValueError, TimeoutError) as error:
                failure.error = error
                log.error("engine missing", extra={**fields, "reason": _why_missing(error)})
        if failure.error is None and engine is not None:
            self.missing.pop(choice.identity, None)
            self._engines[choice.identity] = engine
            return
        self.missing[choice.identity] = f"{choice.name}: {_why_missing(failure.error)}"
        if engine is not None:
            await _close(engine)

    async def keep(self, used: Container[str]) -> None:
        """Closes all engines except those whose identity is in `used`."""
        unused = [name for name in self._engines if name not in used]
        guards = [self._guards.pop(key) for key in tuple(self._guards) if key[0] in unused]
        await _close_all(guards, [self._engines.pop(name) for name in unused])

    async def close(self) -> None:
        """Closes all engines; a failure of one does not keep the others open."""
        engines, self._engines = self._engines, {}
        await _close_all(self._guards.values(), engines.values())

    def of(self, choices: Iterable[EngineChoice]) -> list[EngineChoice]:
        """Returns those of `choices` that run."""
        return [each for each in choices if each.identity in self._engines]

    def agent(self, choice: EngineChoice) -> Agent:
        """Returns the running agent. Raises KeyError."""
        return cast(Agent, self._engines[choice.identity])

    def recognizers(self, there: Sequence[EngineChoice], purpose: Purpose) -> list[GuardedRecognizer]:
        """Returns the recognisers of `there`, which must run, each behind its guard."""
        return [GuardedRecognizer(self._engine(each, purpose), self._guard(each, purpose)) for each in there]

    def _engine(self, choice: EngineChoice, purpose: Purpose) -> SpeechToText:
        engine = self._engines[choice.identity]
        if purpose is Purpose.FILES and isinstance(engine, ForFiles):
            return engine.for_files()
        return cast(SpeechToText, engine)

    def voices(self, there: Sequence[EngineChoice], purpose: Purpose) -> list[GuardedVoice]:
        """Returns the voices of `there`, which must run, in the order of fallback."""
        return [
            GuardedVoice(
                cast(TextToSpeech, self._engines[each.identity]),
                self._guard(each, purpose),
                last=each is there[-1],
                ahead_s=FILES_AHEAD_S if purpose is Purpose.FILES else 0.0,
            )
            for each in there
        ]

    def _guard(self, choice: EngineChoice, purpose: Purpose) -> Guard:
        guard = self._guards.get((choice.identity, purpose))
        if guard is None:
            engine = self._engines[choice.identity]
            remote = engine if isinstance(engine, RemoteEngine) else None
            guard = self._guards[choice.identity, purpose] = Guard(
                choice.kind,
                " ".join((choice.name, str(choice.options.get("base_url", "")))).strip(),
                deadline_s=remote.deadline_s if remote and purpose is Purpose.CALLS else None,
                check=remote.check if remote else None,
            )
        return guard

    def health(self) -> list[EngineHealth]:
        """Returns the health of the agents' engines, language models included."""
        own = [each.engine_health() for each in self._engines.values() if isinstance(each, Guarded)]
        return [guard.health for guard in self._guards.values()] + [one for each in own for one in each]

    def decoder_waits(self) -> list[tuple[str, DecoderWaits]]:
        """Returns the waits of callers for a recogniser in use by others, by the recogniser's name."""
        queued = [
            (json.loads(identity)[1], engine.decoder_waits())
            for identity, engine in self._engines.items()
            if isinstance(engine, Queued)
        ]
        return [(name, waits) for name, waits in queued if waits is not None]

    async def unreachable(self) -> list[str]:
        """Asks every remote engine whether its service answers; returns one line for each that does not."""
        names = {identity: guard.name for (identity, _), guard in self._guards.items()}
        remote = [
            (names[identity], engine)
            for identity, engine in self._engines.items()
            if identity in names and isinstance(engine, RemoteEngine)
        ]
        reasons = await asyncio.gather(*(engine.check() for _, engine in remote))
        return [f"{name}: {reason}" for (name, _), reason in zip(remote, reasons, strict=True) if reason]


async def _close_all(guards: Iterable[Guard], engines: Iterable[Startable]) -> None:
    await asyncio.gather(*(guard.close() for guard in guards))
    await asyncio.gather(*(_close(each) for each in engines))


async def _close(engine: Startable) -> None:
    with boundary(log, "engine did not close cleanly"):
        await engine.close()


def _why_missing(error: Exception | None) -> str:
    return str(error or "") or f"not loaded after {START_TIMEOUT_S:.0f} s"
