"""What this machine has and lacks for a configuration: a `Finding` for each thing, with what to do."""

from __future__ import annotations

import asyncio
import errno
import shutil
import socket
import statistics
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mediaserver.admission import descriptors
from mediaserver.cli.doctor_speech import speech_findings, weights_findings
from mediaserver.cli.finding import Finding
from mediaserver.engine_pool.auto import Choosing, unheard_files
from mediaserver.engine_pool.pool import Engines
from mediaserver.errors import StoreError
from mediaserver.files import private
from mediaserver.models.places import places
from mediaserver.rooms.webrtc.udp_mux import own_addresses
from mediaserver.settings import AgentSettings, Settings, reveal, split_address, split_ports
from mediaserver.store.store import Store
from mediaserver.wiring import agent_choice, mind_of, speech_choices
from pipeline.agents.llm.attempt import PATH as CHAT_PATH
from pipeline.agents.llm.realtime.talk import check_session
from pipeline.agents.llm.table import LlmFallback, LlmSettings
from pipeline.agents.llm.tools.builtin import Policy, offered
from pipeline.audio import compiled, kernels
from pipeline.audio.opus import OpusDecoder, OpusEncoder
from pipeline.confinement import memory
from pipeline.confinement.confinement import lacking, landlock_abi
from pipeline.errors import EngineError, PipelineError
from pipeline.net.egress import EgressPolicy, egress_policy
from pipeline.net.model_endpoint import Extras, ModelEndpoint
from pipeline.plane.drive.priority import Priority, raised
from sip.errors import SipError
from sip.pjsip.processes import Processes
from sip.pjsip.refused import missing
from sip.rtp.media_formats import payload_format
from sip.sdp.media_plan import CODECS

MODEL_ANSWER_S = 30.0
"""How long a model's answer is waited for: the server may have to load the model first."""

RTP_PORTS_PER_CALL = 2
RECORDING_BYTES_PER_HOUR = 8000 * 2 * 2 * 3600
_TICKS = 25


PJSIP_STARTS_S = 10.0
"""Seconds in which a process of PJSIP has told its version."""


async def timers_late_ms() -> list[float]:
    """Measures how late this machine's timers are, in ms: some ticks of 20 ms."""
    loop = asyncio.get_running_loop()
    late_ms = []
    for _ in range(_TICKS):
        due = loop.time() + 0.02
        await asyncio.sleep(0.02)
        late_ms.append((loop.time() - due) * 1000)
    return late_ms


async def examine(
    settings: Settings, *, late_ms: Callable[[], Awaitable[Sequence[float]]] = timers_late_ms
) -> list[Finding]:
    """Looks at everything that `settings` needs: starts the engines, opens the database, places no call.
    `late_ms`: measures the timers."""
    findings = [
        kernels_finding(),
        confinement_finding(),
        *codec_findings(settings),
        *port_findings(settings),
        *await pjsip_findings(settings),
        limits_finding(settings),
        await asyncio.to_thread(priority_finding),
    ]
    findings.append(await database_finding(settings))
    findings.append(await asyncio.to_thread(disk_finding, settings))
    findings.append(await asyncio.to_thread(memory_finding))
    findings.append(clock_finding(await late_ms()))
    findings += await asyncio.to_thread(weights_findings, Path(settings.server.data_dir))
    findings += await engine_findings(settings)
    return findings


def kernels_finding() -> Finding:
    """Whether the numba kernels compile and run, and are kept for the next start."""
    kernels.warm()
    if compiled.not_kept:
        return Finding("kernels", False, f"compiled at every start: {compiled.not_kept[0]}")
    return Finding("kernels", True, "compiled and warm")


def confinement_finding() -> Finding:
    """Whether the kernel can confine the processes that read strangers' files and texts."""
    lacks = lacking()
    if lacks:
        return Finding("confinement", False, f"helper processes run with less of it: {'; '.join(lacks)}")
    return Finding("confinement", True, f"no_new_privs, seccomp, Landlock {landlock_abi()}")


async def pjsip_findings(settings: Settings) -> list[Finding]:
    """Starts a process of PJSIP where a trunk needs one, and tells its version."""
    trunks = [each.id for each in settings.trunks if (each.engine or settings.sip.engine) == "pjsua2"]
    if not trunks:
        return []
    processes, loop = Processes(), asyncio.get_running_loop()
    processes.start(loop, lambda: None)
    processes.warm()
    until = loop.time() + PJSIP_STARTS_S
    while (found := processes.all) and not found[0].version and loop.time() < until:  # noqa: ASYNC110  # once
        await asyncio.sleep(0.05)
    version = found[0].version if found else ""
    await processes.close()
    if not version:
        return [Finding("PJSIP", False, f"its process does not start: {missing() or 'see the log'}")]
    return [Finding("PJSIP", True, f"{version} signals the calls of {', '.join(trunks)}, four in a process")]


async def engine_findings(settings: Settings) -> list[Finding]:
    """Starts the engines of every agent, and reports what is missing."""
    findings = []
    egress = EgressPolicy(str(network) for network in settings.server.allow_networks)
    chooser = Choosing(places(Path(settings.server.data_dir)))
    for agent in settings.agents:
        engines = Engines([agent_choice(agent)], egress=egress, chooser=chooser)
        await engines.start()
        missing = engines.missing()
        unreachable = await engines.running.unreachable() + await _model_away(agent, egress)
        await engines.close()
        name = f"agent {agent.name or agent.id}"
        if missing:
            findings += [Finding(name, False, line.partition(": ")[2] or line) for line in missing]
        else:
            made_of = engines.of(agent.id)
            text = f"{mind_of(agent)}, hears with {made_of.stt.name}, speaks with {made_of.tts.name}"
            findings.append(Finding(name, True, text))
        findings += [
            Finding(name, False, f"{line}: see base_url, model, api_key, allow_networks")
            for line in unreachable
        ]
        findings += speech_findings(name, engines.of(agent.id), engines.chosen())
    return [*findings, *await _file_findings(settings, chooser, egress)]


async def _file_findings(settings: Settings, chooser: Choosing, egress: EgressPolicy) -> list[Finding]:
    """Starts the engines of the speech endpoints, and checks that one of them knows the language."""
    voices, recognizers = speech_choices(settings.speech)
    chains = {"speech.tts": voices, "speech.stt": recognizers}
    engines = Engines([], others=chains, egress=egress, chooser=chooser)
    await engines.start()
    missing, chosen = engines.missing(), engines.chosen()
    await engines.close()
    findings = [Finding(name, False, text) for name, _, text in (line.partition(": ") for line in missing)]
    findings += [Finding("speech", True, f"auto: {each}") for each in chosen if each.engine is not None]
    unheard = await asyncio.to_thread(lambda: list(unheard_files(settings)))
    if not any(line.startswith("speech.stt") for line in missing):
        findings += [Finding("speech.stt", False, reason) for _, reason in unheard]
    names = ", ".join(f"{name} {chain[0].name}" for name, chain in chains.items())
    return findings or [Finding("speech", True, names)]


async def _model_away(agent: AgentSettings, egress: EgressPolicy) -> list[str]:
    """Returns a reason for each of the agent's language models that does not answer."""
    if agent.llm is None:
        return []
    away = []
    models: list[LlmSettings | LlmFallback] = [agent.llm, *agent.llm.fallback]
    for model in models:
        key, extras = reveal(model.api_key), Extras(**model.extras)
        endpoint = ModelEndpoint(model.base_url, api_key=key, allowed=egress, extras=extras)
        reason = await _unanswered(endpoint, model.model)
        await endpoint.close()
        away += [f"llm {model.base_url}, model {model.model}: {reason}"] if reason else []
    if agent.realtime is not None:
        with egress_policy(egress):
            reason = await check_session(agent.realtime)
        away += [f"realtime {agent.realtime.url}: {reason}"] if reason else []
    return away


async def _unanswered(endpoint: ModelEndpoint, model: str) -> str:
    """Returns why `model` does not answer a question, "" if it does. Tools are offered as in every call: some
    servers refuse them until configured for the way in which the model calls a tool."""
    question = {"model": model, "messages": [{"role": "user", "content": "Say yes."}], "tools": _tools()}
    try:
        answer = await endpoint.post_json(CHAT_PATH, question, timeout_s=MODEL_ANSWER_S)
    except EngineError as error:
        return str(error)
    return "" if isinstance(answer, Mapping) and answer.get("choices") else "it answers with something else"


def _tools() -> list[dict[str, Any]]:
    return [tool.spec.message for tool in offered(Policy()).values()]


def port_findings(settings: Settings) -> Iterator[Finding]:
    """Whether the addresses of the configuration can be bound."""
    yield _port("http", settings.server.http, socket.SOCK_STREAM)
    for name, address, kind in (
        ("sip udp", settings.sip.udp, socket.SOCK_DGRAM),
        ("sip tcp", settings.sip.tcp, socket.SOCK_STREAM),
        ("sip tls", settings.sip.tls, socket.SOCK_STREAM),
    ):
        if address is not None:
            yield _port(name, address, kind)
    yield rtp_finding(settings)
    yield from rooms_findings(settings)


def rtp_finding(settings: Settings) -> Finding:
    """Whether the RTP ports suffice for `sip.max_calls`, and the first and last can be bound."""
    first, last = split_ports(settings.sip.rtp_ports)
    room = (last - first + 1) // RTP_PORTS_PER_CALL
    if room < settings.sip.max_calls:
        text = f"room for {room} calls: widen rtp_ports, or lower sip.max_calls ({settings.sip.max_calls})"
        return Finding("rtp ports", False, text)
    host = split_address(settings.sip.udp or settings.sip.tcp or "0.0.0.0:5060")[0]
    taken = [port for port in (first, last) if _refusal(host, port, socket.SOCK_DGRAM)]
    note = f", though {', '.join(map(str, taken))} is in use now" if taken else ""
    return Finding("rtp ports", True, f"{settings.sip.rtp_ports}, room for {room} calls{note}")


SECRET_LENGTH = 32
"""Characters of a secret that signs tokens with SHA-256: as many octets as the hash has (RFC 7518 3.2)."""


def rooms_findings(settings: Settings) -> Iterator[Finding]:
    """Whether rooms have a UDP port on every address, a strong secret, and libopus."""
    rooms = settings.rooms
    if rooms.api_secret is None:
        yield Finding("rooms", True, "no web calls: rooms.api_secret is not set")
        return
    if (length := len(reveal(rooms.api_secret))) < SECRET_LENGTH:
        text = f"rooms.api_secret has {length} characters, fewer than {SECRET_LENGTH}: a token gives it away"
        yield Finding("rooms secret", False, text)
    first, last = split_ports(rooms.udp_ports)
    hosts = rooms.addresses or own_addresses()
    for number in range(first, last + 1):
        refusals = [refusal for host in hosts if (refusal := _refusal(host, number, socket.SOCK_DGRAM))]
        if not refusals:
            yield Finding("rooms udp", True, f"port {number} on {', '.join(hosts)} can be bound")
            break
    else:
        text = f"no port of {rooms.udp_ports} on {', '.join(hosts)}: {refusals[0]}"
        yield Finding("rooms udp", False, text)
    try:
        OpusEncoder()
        OpusDecoder()
    except PipelineError as error:
        yield Finding("rooms opus", False, str(error))
    else:
        yield Finding("rooms opus", True, "libopus encodes and decodes")


def codec_findings(settings: Settings) -> Iterator[Finding]:
    """Yields whether the codecs that the trunks name encode and decode."""
    for name in sorted({codec for trunk in settings.trunks for codec in trunk.codecs}):
        try:
            payload_format(CODECS[name])
        except SipError as error:
            yield Finding(f"codec {name}", False, str(error))
        else:
            yield Finding(f"codec {name}", True, "encodes and decodes")


async def database_finding(settings: Settings) -> Finding:
    """Whether the database opens and answers; it is created and migrated as `serve` would do."""
    data_dir = Path(settings.server.data_dir)
    try:
        await asyncio.to_thread(private.make_folder, data_dir)
        async with await Store.open(settings.server.database, data_dir) as store:
            counts = await store.counts()
    except (StoreError, OSError) as error:
        return Finding("database", False, f"{error}: see server.database and server.data_dir")
    return Finding("database", True, f"answers, {sum(counts.statuses.values())} calls in it")


def disk_finding(settings: Settings) -> Finding:
    """Whether the disk of `server.data_dir` has room for an hour of recordings."""
    data_dir = Path(settings.server.data_dir)
    try:
        free = shutil.disk_usage(data_dir).free
    except OSError as error:
        return Finding("disk", False, f"{error.strerror}: create {data_dir} or set server.data_dir")
    hours = free // RECORDING_BYTES_PER_HOUR
    text = f"room for {hours} hours of recordings"
    return Finding("disk", hours >= 1, text if hours else f"{text}: free some space or set server.data_dir")


def limits_finding(settings: Settings) -> Finding:
    """Whether the limit of open files suffices for the configured calls and connections."""
    most = descriptors.highest()
    needed = descriptors.needed(settings.sip.max_calls, settings.server.http_connections)
    if most < needed:
        text = f"limit {most}, {needed} for sip.max_calls and server.http_connections: raise it"
        return Finding("open files", False, f"{text} (ulimit -Hn {needed})")
    return Finding("open files", True, f"limit {most}, {needed} needed")


def priority_finding() -> Finding:
    """Which priority the threads of the media plane get, by what a thread like them gets."""
    with ThreadPoolExecutor(1) as one:
        got = one.submit(raised).result()
    if got is Priority.REAL_TIME:
        return Finding("media priority", True, "SCHED_RR: nothing else on the machine delays a packet")
    cost = "a program that keeps every core busy delays packets"
    allow = "allow it by LimitRTPRIO=1 (config/systemd), or rtprio 1 in /etc/security/limits.conf"
    return Finding("media priority", got is Priority.NICE, f"{got.value}, not SCHED_RR: {cost}; {allow}")


def memory_finding() -> Finding:
    """Whether the address space has room for a server; reports the free memory."""
    reason = memory.too_few_addresses()
    return Finding("memory", not reason, reason or f"{memory.free_mb(own=True)} MB are free")


def clock_finding(late_ms: Sequence[float]) -> Finding:
    """Whether this machine's timers are punctual, by how late some were: they pace RTP."""
    worst, typical = max(late_ms), statistics.median(late_ms)
    text = f"timers are {typical:.1f} ms late, {worst:.1f} ms at worst"
    if typical > 5:
        return Finding("clock", False, f"{text}: the machine is overloaded or its timers are coarse")
    return Finding("clock", True, text)


def _port(name: str, address: str, kind: socket.SocketKind) -> Finding:
    refusal = _refusal(*split_address(address), kind)
    if refusal:
        return Finding(name, False, f"{address}: {refusal}")
    return Finding(name, True, f"{address} can be bound")


def _refusal(host: str, port: int, kind: socket.SocketKind) -> str:
    """Why `host:port` cannot be bound, "" when it can."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, kind) as probe:
        if kind is socket.SOCK_STREAM:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return _ADVICE.get(error.errno, error.strerror or str(error))
    return ""


_ADVICE: Mapping[int | None, str] = {
    errno.EADDRINUSE: "in use: is a server running already?",
    errno.EACCES: "not permitted: ports below 1024 need CAP_NET_BIND_SERVICE",
    errno.EADDRNOTAVAIL: "not an address of this machine",
}
