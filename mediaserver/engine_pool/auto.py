"""`engine = "auto"`: chooses the best recogniser and voice on this machine for a language that are fast
enough.

Candidates are found as files (packages of the extra `local`, directories with models), tried once for their
cost in CPU time, and the results kept for the life of the process, except those of a machine that was too
busy. docs/engines.md has the rules."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol, cast

from mediaserver.engine_pool.choice import EMBEDDED, Chosen, EngineChoice, embedded
from mediaserver.engine_pool.needs import needs, not_understood
from mediaserver.engine_pool.warm_up import RecognizerTrial, VoiceTrial, try_voice, try_whisper
from mediaserver.models.places import PIPER, WHISPER, models_in, places
from mediaserver.settings import Settings
from mediaserver.settings.agent import AUTO
from pipeline import registry
from pipeline.confinement.memory import free_mb
from pipeline.engines import local_weights
from pipeline.errors import EngineError, SettingsRefused
from pipeline.stt.faster_whisper import COMPUTE_TYPE, WINDOW_S
from pipeline.tts.subprocess_voice import ProcessVoice

log = logging.getLogger(__name__)

DECODE_MS: Final = 250.0
"""CPU time of a decode of 3 s beyond which a recogniser is too slow for a conversation."""

PIPER_RATIO: Final = 0.3
KOKORO_RATIO: Final = 0.25
"""Seconds of CPU for a second of speech, for Kokoro with two callers who wait at once."""

START_S: Final = 30.0
"""The longest that the process of a voice may take to start for its trial."""

_WHISPER_MB: Final = 200
"""MiB that a recogniser needs besides twice its weights."""

_VOICE_MB: Final = {"piper": 300, "kokoro": 600}
_MB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Candidate:
    """An engine that could be chosen. `title`: the model's name; `needs_mb`: memory; `problem`: why the
    engine cannot be chosen, "" where it can; `directory`: of a recogniser's model; `place`: where that
    directory lies, None for a package's."""

    engine: EngineChoice
    title: str
    needs_mb: int
    problem: str = ""
    directory: Path | None = None
    place: Path | None = None

    def __str__(self) -> str:
        """Returns the title with the model's place, for readers who may know that place."""
        return self.title if self.place is None else f"{self.title} in {self.place}"


class TryRecognizer(Protocol):
    """What measures a recogniser on this machine, such as `mediaserver.engine_pool.warm_up.try_whisper`."""

    async def __call__(self, directory: Path, *, window_s: int, compute_type: str) -> RecognizerTrial:
        """Measures what a decode with the model in `directory` costs."""


class TryVoice(Protocol):
    """What measures a voice on this machine, such as `mediaserver.engine_pool.warm_up.try_voice`."""

    async def __call__(self, voice: ProcessVoice, *, language: str, callers: int) -> VoiceTrial:
        """Measures what a second of the voice's speech costs."""


class Choosing:
    """A `Chooser` that tries engines on this machine. `places`: directories with models; `load` makes
    engines; `try_recognizer` and `try_voice` measure them."""

    def __init__(
        self,
        places: Sequence[Path],
        *,
        load: Callable[[str, str, Mapping[str, Any]], Any] = registry.load,
        try_recognizer: TryRecognizer = try_whisper,
        try_voice: TryVoice = try_voice,
    ) -> None:
        self._places = tuple(places)
        self._load = load
        self._try_recognizer = try_recognizer
        self._try_voice = try_voice
        self._recognizers: dict[str, RecognizerTrial] = {}
        self._voices: dict[str, VoiceTrial] = {}
        self._held: list[ProcessVoice] = []
        self._promised: dict[str, int] = {}
        self._told: set[str] = set()
        self._one_at_a_time = asyncio.Lock()

    async def choose(self, wanted: EngineChoice, refused: Mapping[str, str]) -> Chosen:
        """Chooses the best engine for `wanted`, without the `refused` ones. One choice at a time, so that no
        trial disturbs another's measurement."""
        async with self._one_at_a_time:
            await asyncio.to_thread(_without_avx)
            find = self._find_recognizer if wanted.kind == "stt" else self._find_voice
            chosen = await find(wanted, refused)
        self._tell(chosen)
        return chosen

    async def release(self) -> None:
        """Closes the voices that were tried, since a voice that is used has been started by its user. Forgets
        trials that a busy machine has spoilt."""
        held, self._held = self._held, []
        self._promised.clear()
        self._recognizers = {name: each for name, each in self._recognizers.items() if not each.passing}
        self._voices = {name: each for name, each in self._voices.items() if not each.passing}
        for voice in held:
            await voice.close()

    # Recognisers --------------------------------------------------------------------------------------------

    async def _find_recognizer(self, wanted: EngineChoice, refused: Mapping[str, str]) -> Chosen:
        languages = wanted.options["languages"]
        candidates = await asyncio.to_thread(lambda: list(recognizer_candidates(self._places, languages)))
        best: tuple[Candidate, RecognizerTrial] | None = None
        slow: tuple[Candidate, RecognizerTrial] | None = None
        passed_over, passing = [], False
        for each in candidates:  # the smallest first: a model larger than a slow one is slower
            trial = await self._recognizer_trial(each, refused)
            passing = passing or trial.passing
            if trial.problem:
                passed_over.append(f"{each}: {trial.problem}")
            elif trial.cpu_ms <= DECODE_MS:
                best = (each, trial)
            else:
                slow = (each, trial)
                passed_over.append(f"{each}: {_decode(trial)}, more than {DECODE_MS:.0f}{_without_avx()}")
                break
        chosen = self._settled_recognizer(wanted, best, slow, refused, passed_over=tuple(passed_over))
        return replace(chosen, passing=passing)

    def _settled_recognizer(
        self,
        wanted: EngineChoice,
        best: tuple[Candidate, RecognizerTrial] | None,
        slow: tuple[Candidate, RecognizerTrial] | None,
        refused: Mapping[str, str],
        *,
        passed_over: tuple[str, ...],
    ) -> Chosen:
        languages, sphinx = wanted.options["languages"], embedded(wanted)
        if best is not None:
            return self._taken(wanted, *best, f"{best[0]}: {_decode(best[1])}", passed_over)
        if _english(languages) and wanted.options.get("grammar") and sphinx.identity not in refused:
            reason = "comes with the server, understands the expected answers only"
            return Chosen(wanted=wanted, engine=sphinx, reason=reason, passed_over=passed_over)
        if slow is not None:
            reason = f"{slow[0]}: late ({_decode(slow[1])}), and nothing else understands what is free"
            return self._taken(wanted, *slow, reason, passed_over)
        return Chosen(wanted=wanted, engine=None, reason=nothing_hears(languages), passed_over=passed_over)

    async def _recognizer_trial(self, each: Candidate, refused: Mapping[str, str]) -> RecognizerTrial:
        identity = each.engine.identity
        problem = each.problem or refused.get(identity, "")
        if problem:
            return RecognizerTrial(problem=problem)
        if identity not in self._recognizers:
            short = await asyncio.to_thread(self._short, each, own=True)
            if short:
                return RecognizerTrial(problem=short)
            assert each.directory is not None  # a recogniser's candidate always has one
            self._recognizers[identity] = await self._try_recognizer(
                each.directory, window_s=WINDOW_S, compute_type=COMPUTE_TYPE
            )
        return self._recognizers[identity]

    # Voices -------------------------------------------------------------------------------------------------

    async def _find_voice(self, wanted: EngineChoice, refused: Mapping[str, str]) -> Chosen:
        language = wanted.options["languages"][0]
        candidates = await asyncio.to_thread(lambda: list(voice_candidates(self._places, language)))
        passed_over: list[str] = []
        slow: list[str] = []
        passing = False
        for each in candidates:
            name = each.engine.name
            most, callers = (KOKORO_RATIO, 2) if name == "kokoro" else (PIPER_RATIO, 1)
            if slow and name == "kokoro":
                passed_over.append(f"{each}: slower than that")
                continue
            trial = await self._voice_trial(each, refused, language=language, callers=callers)
            figures = f"{trial.cpu_ratio:.2f} s of CPU for a second of speech" + (
                " with two callers" if callers == 2 else ""
            )
            passing = passing or trial.passing
            if trial.problem:
                passed_over.append(f"{each}: {trial.problem}")
            elif trial.cpu_ratio <= most:
                taken = self._taken(wanted, each, trial, f"{each}: {figures}", tuple(passed_over))
                return replace(taken, passing=passing)
            else:
                slow.append(name)
                passed_over.append(f"{each}: {figures}, more than {most}{_without_avx()}")
        engine: EngineChoice | None = EMBEDDED["tts"]
        reason = refused.get(EMBEDDED["tts"].identity, "")
        if reason:
            engine = None
        else:
            reason = f"comes with the server, speaks {language} like a machine"
        return Chosen(
            wanted=wanted, engine=engine, reason=reason, passed_over=tuple(passed_over), passing=passing
        )

    async def _voice_trial(
        self, each: Candidate, refused: Mapping[str, str], *, language: str, callers: int
    ) -> VoiceTrial:
        identity = each.engine.identity
        problem = each.problem or refused.get(identity, "")
        if problem:
            return VoiceTrial(problem=problem)
        if identity not in self._voices:
            short = await asyncio.to_thread(self._short, each, own=False)
            if short:
                return VoiceTrial(problem=short)
            self._voices[identity] = await self._tried(each, language=language, callers=callers)
        return self._voices[identity]

    async def _tried(self, each: Candidate, *, language: str, callers: int) -> VoiceTrial:
        """Starts the voice and measures it. The voice is kept until `release`, so that its first user
        finds the process running."""
        try:
            voice = cast(ProcessVoice, self._load("tts", each.engine.name, each.engine.options))
            self._held.append(voice)
            async with asyncio.timeout(START_S):
                await voice.start()
        except (EngineError, SettingsRefused, ValueError) as error:
            return VoiceTrial(problem=str(error))
        except TimeoutError:
            return VoiceTrial(problem=f"not started in {START_S:.0f} s", passing=True)
        return await self._try_voice(voice, language=language, callers=callers)

    # Recognisers and voices ---------------------------------------------------------------------------------

    def _taken(
        self,
        wanted: EngineChoice,
        each: Candidate,
        trial: RecognizerTrial | VoiceTrial,
        reason: str,
        passed_over: tuple[str, ...],
    ) -> Chosen:
        self._promised[each.engine.identity] = each.needs_mb
        return Chosen(
            wanted=wanted,
            engine=each.engine,
            title=each.title,
            reason=reason,
            cpu_ms=trial.cpu_ms if isinstance(trial, RecognizerTrial) else 0.0,
            cpu_ratio=trial.cpu_ratio if isinstance(trial, VoiceTrial) else 0.0,
            passed_over=passed_over,
        )

    def _short(self, each: Candidate, *, own: bool) -> str:
        """Returns why there is too little memory for a candidate, "" where there is enough. Engines that were
        chosen and are not loaded yet count."""
        free = free_mb(own=own) - sum(self._promised.values())
        if free >= each.needs_mb:
            return ""
        return f"needs {each.needs_mb} MB of memory, {max(0, free)} are free"

    def _tell(self, chosen: Chosen) -> None:
        """Logs each outcome once."""
        if str(chosen) in self._told:
            return
        self._told.add(str(chosen))
        fields = {
            "kind": chosen.wanted.kind,
            "languages": chosen.wanted.options["languages"],
            "reason": chosen.reason,
            "passed_over": chosen.passed_over,
        }
        if chosen.engine is None:
            log.error("no engine to choose", extra=fields)
            return
        figures = {"cpu_ms": round(chosen.cpu_ms), "cpu_ratio": round(chosen.cpu_ratio, 3)}
        log.info("engine chosen", extra={**fields, "engine": chosen.engine.name, **figures})


def recognizer_candidates(places: Sequence[Path], languages: Sequence[str]) -> Iterator[Candidate]:
    """Yields recognisers that know all of `languages`, the smallest first. Reads files: not for the event
    loop."""
    here = [each for each in models_in(places) if each.engine == WHISPER]
    known = sorted((each for each in here if all(map(each.speaks, languages))), key=lambda each: each.size)
    if _english(languages):
        found = local_weights.examined(local_weights.WHISPER)
        whisper = EngineChoice("stt", WHISPER, {})  # without a `model`, the weights of the extra
        needs_mb = _whisper_mb(_size(found.weights))
        directory = (found.directory or Path()) / "model"
        yield Candidate(whisper, found.weights.name, needs_mb, found.problem, directory)
    for each in known:
        whisper = EngineChoice("stt", WHISPER, {"model": str(each.directory)})
        yield Candidate(
            whisper,
            each.name,
            _whisper_mb(each.size),
            each.problem,
            directory=each.directory,
            place=each.directory.parent,
        )


def voice_candidates(places: Sequence[Path], language: str) -> Iterator[Candidate]:
    """Yields voices that speak `language`, the best first. Reads files: not for the event loop."""
    for each in models_in(places):
        if each.engine == PIPER and each.file is not None and each.speaks(language):
            engine = EngineChoice("tts", PIPER, {"model": str(each.file)})
            place = each.directory.parent
            yield Candidate(engine, each.name, _VOICE_MB[PIPER], each.problem, place=place)
    for found in local_weights.local_voices(language):
        name = found.weights.engine
        yield Candidate(EngineChoice("tts", name, {}), found.weights.name, _VOICE_MB[name], found.problem)


def hearing_problems(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yields (key, reason) for what no recogniser on this machine understands, for `settings.load`. Reads
    files and tries no engine: not for the event loop."""
    yield from unheard_agents(settings)
    yield from unheard_files(settings)


def unheard_files(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yields a problem where no engine of `speech.stt` knows `speech.language`."""
    languages, chain = [settings.speech.language], settings.speech.stt.chain
    reasons = []
    for each in chain:
        reason = not_understood(each, languages)
        if each.engine == AUTO and not _english(languages):
            reason = _nothing_here(places(Path(settings.server.data_dir)), languages)
        reasons.append(reason)
    if all(reasons):
        yield "speech.stt.engine", reasons[0]


def unheard_agents(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yields a problem for each agent whose callers no recogniser understands."""
    directories = places(Path(settings.server.data_dir))
    for place, agent in enumerate(settings.agents):
        hearing, _ = needs(agent)
        languages = hearing["languages"]
        if agent.stt.engine != AUTO or (_english(languages) and hearing["grammar"]):
            continue
        if reason := _nothing_here(directories, languages):
            yield f"agent[{place}].stt.engine", reason


def _nothing_here(directories: Sequence[Path], languages: Sequence[str]) -> str:
    """Returns why no recogniser on this machine knows `languages`, "" where one does."""
    candidates = list(recognizer_candidates(directories, languages))
    if not all(each.problem for each in candidates):
        return ""
    return nothing_hears(languages, [f"{each}: {each.problem}" for each in candidates])


def nothing_hears(languages: Sequence[str], passed_over: Sequence[str] = ()) -> str:
    """Returns the reason and the advice for an agent whose languages no recogniser understands."""
    spoken = ", ".join(languages)
    if _english(languages):
        advice = f"{local_weights.INSTALL}, or mediaserver models get whisper-base.en"
        why = f"nothing here understands free answers in {spoken}"
    else:
        advice = "mediaserver models get whisper-small (many languages)"
        why = f"nothing here understands {spoken}"
    return "; ".join((f"{why}: {advice}, or name an engine", *passed_over))


def _whisper_mb(size: int) -> int:
    return _WHISPER_MB + 2 * size // _MB


def _size(weights: local_weights.LocalWeights) -> int:
    return max(file.size for file in weights.files.values())


def _english(languages: Sequence[str]) -> bool:
    return all(each.lower().partition("-")[0] == "en" for each in languages)


def _decode(trial: RecognizerTrial) -> str:
    return f"a decode of 3 s takes {trial.cpu_ms:.0f} ms of CPU"


@cache
def _without_avx() -> str:
    """Returns a remark for an x86 CPU without AVX, which is slow; "" for any other."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), ["avx"])
    return "" if "avx" in flags else " (this CPU has no AVX)"
