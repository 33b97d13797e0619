"""What `mediaserver explain` prints: the paths of one agent, with the engines that it will have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from mediaserver.engine_pool.auto import Choosing
from mediaserver.engine_pool.choice import AgentChoice, AutoEngines, Chosen, EngineChoice
from mediaserver.media_path import MadeOf, Stage, answered, phone_in, phone_out, web_in, web_out
from mediaserver.models.places import places
from mediaserver.settings import AgentSettings, Settings
from mediaserver.settings.agent import AUTO
from mediaserver.wiring import agent_choice
from pipeline import registry
from pipeline.errors import EngineError
from pipeline.net.egress import EgressPolicy, egress_policy
from sip.sdp.media_plan import CODECS

_ANSWER: Final = "the answer"


@dataclass(frozen=True, slots=True)
class MediaPath:
    """One direction of one kind of leg, its stages in the order in which a frame passes them."""

    title: str
    stages: tuple[Stage, ...]

    @property
    def delay_ms(self) -> float:
        """The delay of a frame when no packet is lost: the sum of the stages' delays."""
        return sum(stage.delay_ms for stage in self.stages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The paths of an agent. `chosen`: what each "auto" became; `problems`: engines that are not usable
    here."""

    agent: AgentSettings
    choice: AgentChoice
    paths: tuple[MediaPath, ...]
    chosen: tuple[Chosen, ...]
    problems: tuple[str, ...]

    def text(self) -> str:
        """Returns the report as lines for a terminal."""
        return "\n".join(self._lines())

    def data(self) -> dict[str, Any]:
        """Returns the report as a document for JSON."""
        choice = self.choice
        return {
            "agentId": self.agent.id,
            "name": self.agent.name,
            "engines": {
                "agent": choice.agent.name,
                "realtime": None if self.agent.realtime is None else self.agent.realtime.model,
                "stt": [each.name for each in (choice.stt, *choice.stt_fallback)],
                "tts": [each.name for each in (choice.tts, *choice.tts_fallback)],
            },
            "auto": [str(each) for each in self.chosen],
            "problems": list(self.problems),
            "paths": [
                {"path": each.title, "delayMs": each.delay_ms, "stages": [_stage(one) for one in each.stages]}
                for each in self.paths
            ],
        }

    def _lines(self) -> Iterator[str]:
        choice, agent = self.choice, self.agent
        yield (
            f"{agent.name or 'agent'} ({agent.id}): {choice.agent.name}, hears with {choice.stt.name}, "
            f"speaks with {choice.tts.name}"
        )
        if agent.realtime is not None:
            host = urlsplit(agent.realtime.url).hostname
            yield f"in place of all three, as long as it is there: {agent.realtime.model} at {host}"
        yield from (f"auto: {each}" for each in self.chosen)
        yield from (f"missing: {problem}" for problem in self.problems)
        if all(path.title == _ANSWER for path in self.paths):
            yield "nobody reaches this agent: it has no trunk, and its company no web calls"
        width = max(len(stage.name) for path in self.paths for stage in path.stages)
        for path in self.paths:
            late = "" if path.title == _ANSWER else f", {path.delay_ms:.1f} ms by filters"
            yield f"\n{path.title}{late}"
            for stage in path.stages:
                yield from _shown(stage, width)


async def explained(settings: Settings, agent: AgentSettings, codec: str | None) -> Report:
    """Returns the paths of `agent`; by phone with `codec` of its trunk, or the one that the trunk prefers."""
    auto = AutoEngines(Choosing(places(Path(settings.server.data_dir))))
    written = agent_choice(agent)
    open_ones = [each for each in written.all_engines if each.name == AUTO]
    egress = EgressPolicy(str(network) for network in settings.server.allow_networks)
    try:
        await auto.choose(open_ones, {})
        choice = written.settled(auto.resolved)
        with egress_policy(egress):
            made, problems = await _made(agent, choice)
    finally:
        await auto.release()
    return Report(
        agent=agent,
        choice=choice,
        paths=tuple(_paths(settings, made, codec)),
        chosen=tuple(auto.chosen(open_ones)),
        problems=(*auto.unmet.values(), *problems),
    )


def _paths(settings: Settings, made: MadeOf, codec: str | None) -> Iterator[MediaPath]:
    agent = made.agent
    trunk = None if agent.trunk is None else settings.trunk(agent.trunk)
    company = settings.company(agent.company)
    web = settings.rooms.api_secret is not None and company is not None and company.web_calls
    if trunk is not None:
        spoken = CODECS[codec or trunk.codecs[0]]
        others = ", ".join(f"{CODECS[each].name} {CODECS[each].rate_hz} Hz" for each in trunk.codecs)
        title = f"in by phone: trunk {trunk.id}, {spoken.name} of {others}"
        yield MediaPath(title, tuple(phone_in(spoken, trunk, made)))
    if web:
        yield MediaPath("in by web: opus", tuple(web_in(made)))
    yield MediaPath(_ANSWER, tuple(answered(made)))
    if trunk is not None:
        yield MediaPath(f"out by phone: {spoken.name}", tuple(phone_out(spoken, made)))
    if web:
        yield MediaPath("out by web: opus", tuple(web_out(made)))


async def _made(agent: AgentSettings, choice: AgentChoice) -> tuple[MadeOf, Sequence[str]]:
    """The agent with its engines, and what of them is not usable here. Of the engines only the voice is
    started: it may not know its rate before."""
    problems: list[str] = []
    recognizer, voice = _loaded(choice.stt, problems), _loaded(choice.tts, problems)
    voice_hz = None
    if voice is not None:
        try:
            await voice.start()
            voice_hz = voice.rate_hz
        except EngineError as error:
            problems.append(_named(choice.tts, error))
        finally:
            await voice.close()
    return MadeOf(agent=agent, choice=choice, recognizer=recognizer, voice_hz=voice_hz), problems


def _loaded(engine: EngineChoice, problems: list[str]) -> Any:
    """The engine, not started; None and a problem where it is not installed. An "auto" for which nothing was
    found has its problem already."""
    if engine.name == AUTO:
        return None
    try:
        return registry.load(engine.kind, engine.name, engine.options)
    except (EngineError, ValueError) as error:
        problems.append(_named(engine, error))
        return None


def _named(engine: EngineChoice, error: Exception) -> str:
    """What `error` says; most engines name themselves in it."""
    text = str(error)
    return text if text.startswith(engine.name) else f"{engine.name}: {text}"


def _shown(stage: Stage, width: int) -> Iterator[str]:
    rate = f"{stage.rate_hz} Hz" if stage.rate_hz else ""
    when = f"; when {stage.when}" if stage.when else ""
    late = f", {stage.delay_ms:.1f} ms late" if stage.delay_ms else ""
    yield f"  {stage.name:{width}}  {rate:>8}  {stage.does}{when}{late}"
    yield from (f"  {'':{width}}  {'':8}  · {figure}" for figure in stage.figures)


def _stage(stage: Stage) -> dict[str, Any]:
    return {
        "stage": stage.name,
        "module": stage.enters.__module__,
        "does": stage.does,
        "rateHz": stage.rate_hz,
        "delayMs": stage.delay_ms,
        "when": stage.when,
        "figures": [asdict(figure) for figure in stage.figures],
    }
