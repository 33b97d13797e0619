"""Translates the configuration file into the settings of the SIP endpoint and the pipeline; decides
nothing."""

from __future__ import annotations

import importlib
import ssl
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from mediaserver.admission import descriptors
from mediaserver.engine_pool.auto import Choosing
from mediaserver.engine_pool.choice import EMBEDDED, AgentChoice, EngineChoice, for_files
from mediaserver.engine_pool.needs import languages, needs, not_understood, steps
from mediaserver.engine_pool.pool import Engines
from mediaserver.errors import InvalidNumber, LocalError
from mediaserver.models.places import places
from mediaserver.numbers.e164 import format_for_trunk
from mediaserver.numbers.users import LINE
from mediaserver.settings import (
    AgentSettings,
    EngineChain,
    EngineSettings,
    LlmSettings,
    Settings,
    SipSettings,
    SpeechSettings,
    TracingSettings,
    TrunkSettings,
    UserSettings,
    reveal,
    revealed,
    split_ports,
)
from mediaserver.settings.agent import AUTO
from mediaserver.tracing.call_spans import CallTracer
from pipeline import registry
from pipeline.audio.other_vads import voice_detector
from pipeline.engines.tables import Table
from pipeline.errors import EngineMissing, SettingsRefused
from pipeline.net.egress import EgressPolicy
from pipeline.settings import SessionSettings
from pipeline.text.prompts import Phrase, standard
from sip import endpoint
from sip.client_tls import VERSIONS, ClientTlsSettings
from sip.sdp.security import Srtp
from sip.states import Engine
from sip.trunk_settings import TrunkSettings as SipTrunkSettings
from sip.trunk_settings import User

PartSettings = TypeVar("PartSettings", endpoint.EndpointSettings, SessionSettings, SipTrunkSettings, User)


def engines_of(settings: Settings) -> Engines:
    """Returns the engines that the agents and the speech endpoints need, not started."""
    voices, recognizers = speech_choices(settings.speech)
    return Engines(
        [agent_choice(agent) for agent in settings.agents],
        others={"speech.tts": voices, "speech.stt": recognizers},
        egress=egress_allowed(settings),
        chooser=Choosing(places(Path(settings.server.data_dir))),
    )


def egress_allowed(settings: Settings) -> EgressPolicy:
    """Returns the addresses that engines, tools and webhooks may connect to."""
    return EgressPolicy(str(network) for network in settings.server.allow_networks)


def agent_choice(agent: AgentSettings) -> AgentChoice:
    """Returns the engines and the timing of an agent."""
    hearing, speaking = needs(agent)
    return AgentChoice(
        agent_id=agent.id,
        agent=_mind(agent),
        stt=_engine("stt", agent.stt, hearing),
        tts=_engine("tts", agent.tts, speaking),
        stt_fallback=_fallbacks("stt", agent.stt, agent.language, needs=hearing),
        tts_fallback=_voices_behind(agent, speaking),
        session=session_settings(agent),
        line=agent.line,
        turn_model=agent.session.turn_model,
        vad=agent.vad,
    )


def session_settings(agent: AgentSettings) -> SessionSettings:
    """Returns the timing of an agent's conversations."""
    session = agent.session
    return _handed_on(
        SessionSettings,
        session,
        language=agent.language,
        eot_action_delay_ms=session.action_delay_ms,
        eot_timeout_ms=session.timeout_ms,
        words=agent.words,
        pronunciation=agent.pronunciation,
        filler=standard(Phrase.FILLER, agent.language),
        retry=standard(Phrase.RETRY, agent.language),
        apology=agent.apology,
        goodbye=standard(Phrase.GOODBYE, agent.language),
    )


def call_tracer(settings: TracingSettings, opened: AsyncExitStack, *, node: str) -> CallTracer | None:
    """Returns the tracer of calls, closed with `opened`, and None where tracing is off; imports OpenTelemetry
    where tracing is on."""
    if settings.endpoint is None:
        return None
    otlp = importlib.import_module("mediaserver.tracing.otlp")
    tracer: CallTracer = otlp.OtlpTracer(settings.endpoint, revealed(settings.headers), node=node)
    opened.push_async_callback(tracer.close)
    return tracer


def endpoint_settings(settings: SipSettings, participants: int = 0) -> endpoint.EndpointSettings:
    """Returns where the SIP endpoint listens. `participants`: people in rooms that its media planes have rows
    for. Raises `LocalError` for a certificate that cannot be used."""
    return _handed_on(
        endpoint.EndpointSettings,
        settings,
        rtp_ports=split_ports(settings.rtp_ports),
        never_ban=tuple(map(str, settings.never_ban)),
        tls_server=_tls_context(settings),
        descriptor_ceiling=descriptors.sip_ceiling(settings.max_calls, descriptors.limit()),
        participants=participants,
    )


def trunk_settings(settings: TrunkSettings, engine: Engine = "native") -> SipTrunkSettings:
    """A trunk as the phone takes it. `engine`: that of a trunk which names none."""
    return _handed_on(
        SipTrunkSettings,
        settings,
        password=reveal(settings.password),
        register=settings.register_,
        allow_from=tuple(str(network) for network in settings.allow_from),
        public_address=settings.public_address or "",
        srtp=Srtp(settings.srtp),
        tls=_client_tls(settings),
        outbound_proxy=settings.outbound_proxy or "",
        engine=settings.engine or engine,
    )


def sip_user(user: UserSettings) -> User:
    """A user as the phone takes it."""
    return _handed_on(User, user, password=reveal(user.password), hashes=user.hashes)


def _handed_on(kind: type[PartSettings], table: Table, **converted: Any) -> PartSettings:
    """Makes the settings of a part: `converted`, and each other field that `table` has by the same name."""
    shared = {each.name for each in fields(kind)} & type(table).model_fields.keys() - converted.keys()
    return kind(**{name: getattr(table, name) for name in shared}, **converted)


def caller_id(agent: AgentSettings, over: TrunkSettings) -> str | None:
    """Returns the caller ID that the called person sees: the agent's own number in the carrier's format, else
    the trunk's."""
    if over.id.startswith(LINE):
        return agent.phone_number or agent.id  # what the user calls back
    if agent.phone_number is None:
        return over.caller_id or None
    try:
        return format_for_trunk(agent.phone_number, over.number_format)
    except InvalidNumber:
        return over.caller_id or None


def speech_choices(settings: SpeechSettings) -> tuple[list[EngineChoice], list[EngineChoice]]:
    """Returns the voices and the recognisers of the speech endpoints, in order."""
    languages = {"languages": [settings.language]}
    hearing = {**languages, "grammar": True, "files": True}
    recognizers = [for_files(_engine("stt", each, hearing)) for each in settings.stt.chain]
    return [_engine("tts", each, languages) for each in settings.tts.chain], recognizers


NAMED_BY_CONFIGURATION = {
    "stt": frozenset({"pocketsphinx", "faster-whisper", "openai", "websocket"}),
    "tts": frozenset({"espeak-ng", "kokoro", "openai", "piper", "websocket"}),
    "agent": frozenset({"script", "llm"}),
}
"""Engines that a configuration may name on any machine. Where one is not installed, the file is valid and the
machine lacks something, which `doctor` and /readyz report."""


def engine_problems(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yields (key, reason) for what an engine or an agent refuses in its own table, for `settings.load`.

    Engines are made but not started; an engine that is merely not installed here is reported by `doctor`."""
    for place, agent in enumerate(settings.agents):
        tables = {
            mind_of(agent): _mind(agent),
            "stt": _engine("stt", agent.stt),
            "tts": _engine("tts", agent.tts),
        }
        if agent.tts_fallback is not None:
            tables["tts_fallback"] = _engine("tts", agent.tts_fallback)
        for kind, engine in (("stt", agent.stt), ("tts", agent.tts)):
            for number, each in enumerate(engine.fallback or ()):
                tables[f"{kind}.fallback[{number}]"] = _engine(kind, each)
        for table, choice in tables.items():
            yield from _refusals(f"agent[{place}].{table}", choice)
        yield from _unfit_scorer(f"agent[{place}].session.turn_model", agent.session.turn_model)
        yield from _deaf(f"agent[{place}].stt.engine", agent)
        yield from _lost(f"agent[{place}].script.step", agent)
    for kind, chain in (("stt", settings.speech.stt), ("tts", settings.speech.tts)):
        yield from _refusals(f"speech.{kind}", _engine(kind, chain))
        for number, each in enumerate(chain.fallback or ()):
            yield from _refusals(f"speech.{kind}.fallback[{number}]", _engine(kind, each))


def _unfit_scorer(key: str, name: str) -> Iterator[tuple[str, str]]:
    """Yields a problem for a scorer's class that cannot be made; a model's file is `doctor`'s matter."""
    if registry.is_class(name):
        try:
            registry.load("scorer", name, {})
        except (EngineMissing, ValueError) as error:
            yield key, str(error)


def missing_voice_detectors(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yields a problem for each agent whose voice detector is not installed, for `settings.load`."""
    for place, agent in enumerate(settings.agents):
        try:
            voice_detector(agent.vad)
        except EngineMissing as missing:
            yield f"agent[{place}].vad", str(missing)


def _deaf(key: str, agent: AgentSettings) -> Iterator[tuple[str, str]]:
    """Yields a problem where the agent's recogniser does not know a language of the agent."""
    if reason := not_understood(agent.stt, languages(agent), whose="the agent speaks"):
        yield key, reason


def _lost(key: str, agent: AgentSettings) -> Iterator[tuple[str, str]]:
    """Yields a problem for each step that transfers to a target that the agent may not transfer to; a target
    with a variable is checked in the call."""
    for place, step in steps(agent):
        target = str(step.get("target") or "")
        if step.get("action") == "transfer" and target and "{{" not in target and not agent.reaches(target):
            yield f"{key}[{place}].target", f"{target!r} is none of the agent's transfer_targets"


def _refusals(table: str, choice: EngineChoice) -> Iterator[tuple[str, str]]:
    if choice.name == AUTO:
        yield from ((f"{table}.{key}", "auto has no settings: name an engine") for key in choice.options)
        return
    names = registry.known(choice.kind)
    own = registry.is_class(choice.name)
    if choice.name not in names and not own:
        if choice.name not in NAMED_BY_CONFIGURATION[choice.kind]:
            yield f"{table}.engine", f"no engine is called {choice.name!r}; there are {', '.join(names)}"
        return
    try:
        registry.load(choice.kind, choice.name, choice.options)
    except SettingsRefused as refused:
        for key, reason in refused.problems:
            yield f"{table}.{key}" if key else table, reason
    except EngineMissing as missing:
        yield from [(f"{table}.engine", str(missing))] * own
    except ValueError as error:
        yield table, str(error)


def certificate_problem(settings: SipSettings) -> str:
    """Returns why the certificate that the file names cannot be used, "" where it can."""
    try:
        _tls_context(settings)
    except LocalError as error:
        return str(error)
    return ""


def _tls_context(settings: SipSettings) -> ssl.SSLContext | None:
    if settings.tls is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = VERSIONS[settings.tls_min_version]
    try:
        context.load_cert_chain(settings.tls_certificate, settings.tls_key)
        if settings.tls_client_ca:
            context.load_verify_locations(settings.tls_client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except OSError as error:  # ssl.SSLError is one
        raise LocalError(f"sip.tls_certificate, sip.tls_key, sip.tls_client_ca: {error}") from error
    return context


def _client_tls(settings: TrunkSettings) -> ClientTlsSettings | None:
    """Returns the TLS of a trunk, None where it has nothing of its own."""
    files = (settings.tls_ca, settings.tls_certificate, settings.tls_key)
    if not any((*files, settings.tls_server_name, settings.tls_min_version != "1.2")):
        return None
    return ClientTlsSettings(
        ca=settings.tls_ca,
        certificate=settings.tls_certificate,
        key=settings.tls_key,
        server_name=settings.tls_server_name,
        min_version=settings.tls_min_version,
        stamp=" ".join(_stamp(Path(each)) for each in files if each),
    )


def _stamp(path: Path) -> str:
    """Says which version of a file this is; "" where it cannot be looked at, which whoever opens it will
    tell."""
    try:
        told = path.stat()
    except OSError:
        return ""
    return f"{told.st_ino}-{told.st_mtime_ns}-{told.st_size}"


def mind_of(agent: AgentSettings) -> str:
    """Returns the table that decides what the agent says: "own", "script" or "llm"."""
    return "own" if agent.own is not None else "script" if agent.script is not None else "llm"


def _mind(agent: AgentSettings) -> EngineChoice:
    if agent.own is not None:
        return EngineChoice("agent", agent.own.engine, agent.own.options)
    if agent.script is not None:
        model = {} if agent.llm is None else {"llm": _llm_options(agent, agent.llm)}
        return EngineChoice("agent", "script", {**agent.script, **model})
    if agent.llm is None:
        raise AssertionError("settings let an agent through that has neither a script nor a model")
    return EngineChoice("agent", "llm", _llm_options(agent, agent.llm))


def _llm_options(agent: AgentSettings, llm: LlmSettings) -> Mapping[str, Any]:
    """Returns the agent's own table and the names of its transfer targets."""
    options: dict[str, Any] = revealed(llm.model_dump(exclude_none=True, by_alias=True))
    if agent.realtime is not None:
        options["realtime"] = revealed(agent.realtime.model_dump(exclude_none=True))
    return options | {"transfer_targets": sorted(agent.transfer_targets)}


def _fallbacks(
    kind: str,
    engine: EngineChain,
    language: str,
    further: EngineSettings | None = None,
    *,
    needs: Mapping[str, Any],
) -> tuple[EngineChoice, ...]:
    """What is asked when `engine` fails, in order, none twice. Pocketsphinx understands English only."""
    behind = [*engine.chain[1:], *((further,) if further is not None else ())]
    written = engine.fallback if further is None else behind
    if written is None and (kind == "tts" or language.lower().split("-")[0] == "en"):
        behind.append(EngineSettings(engine=EMBEDDED[kind].name))
    choices = {choice.identity: choice for choice in (_engine(kind, each, needs) for each in behind)}
    choices.pop(_engine(kind, engine, needs).identity, None)
    return tuple(choices.values())


def _voices_behind(agent: AgentSettings, speaking: Mapping[str, Any]) -> tuple[EngineChoice, ...]:
    """The voices behind an agent's own. An "auto" finds one for the first language: what comes with the
    server speaks the others, whatever the file says of fallbacks."""
    behind = _fallbacks("tts", agent.tts, agent.language, agent.tts_fallback, needs=speaking)
    names = {agent.tts.engine, *(each.name for each in behind)}
    several = len({each.lower().partition("-")[0] for each in languages(agent)}) > 1
    if several and AUTO in names and EMBEDDED["tts"].name not in names:
        return (*behind, EMBEDDED["tts"])
    return behind


def _engine(kind: str, engine: EngineSettings, needs: Mapping[str, Any] | None = None) -> EngineChoice:
    """`needs`: what "auto" must find; without them, its options as they are written."""
    options = engine.options if needs is None or engine.engine != AUTO else needs
    return EngineChoice(kind, engine.engine, options)
