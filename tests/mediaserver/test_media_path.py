"""The stages that `mediaserver explain` prints are those that real frames visit, in that order."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType, FunctionType, SimpleNamespace
from typing import Any

import numpy as np
from aioice import ice
from pylibsrtp import Policy
from pylibsrtp import Session as Srtp

from bench.support.codecs import encoder
from mediaserver.media_path import MadeOf, Stage, answered, phone_in, phone_out, web_in, web_out
from mediaserver.rooms.webrtc import udp_mux as media_port
from mediaserver.rooms.webrtc.audio_track import RoomAudio, SecureLink
from mediaserver.rooms.webrtc.udp_mux import MediaPort
from mediaserver.settings import AgentSettings, TrunkSettings, load
from mediaserver.wiring import agent_choice
from pipeline.agent import HangUp, Say
from pipeline.audio import Pcm, frame_samples
from pipeline.audio.opus import CLOCK_HZ, RATE_HZ, OpusEncoder
from pipeline.call_progress.answer_detection import AnswerDetector
from pipeline.call_progress.settings import AnswerDetectionSettings
from pipeline.endpointing.detector import EndOfTurnDetector
from pipeline.engines.guard import Guard, GuardedVoice
from pipeline.leg import AudioSource, LegListener
from pipeline.media.bridge import Bridge
from pipeline.media.pacer import Pacer
from pipeline.media.playout import Playout
from pipeline.media.recording import Recording
from pipeline.plane.codecs import MAX_PAYLOAD_BYTES
from pipeline.plane.drive.plane import Plane
from pipeline.session.session import Session
from pipeline.stt.fallback import FallbackRecognizer, GuardedRecognizer
from pipeline.turns.effects.utterance import hear
from sip.rtp.media_stream import MediaStream
from sip.rtp.packet import RtpPacket
from sip.rtp.ports import PortRange
from sip.sdp.media_plan import CODECS, Codec
from tests.support.paths import ROOT
from tests.support.ports import free_rtp_range
from tests.support.speech.conversation import FakeAgent, FakeStt, FakeTts, recording_to, voice
from tests.support.speech.media import plan

HOST = "127.0.0.1"
OURS = tuple(f"{ROOT}/{package}/" for package in ("pipeline", "sip", "mediaserver"))
AGENT, TRUNK = "2f1c1a34-6f3e-4f0e-9a63-0d8f2f0f7a11", "carrier"


def demo_agent() -> AgentSettings:
    agent = load(ROOT / "config" / "demo.toml").agent(AGENT)
    assert agent is not None
    return agent


def demo_trunk(**changes: Any) -> TrunkSettings:
    trunk = load(ROOT / "config" / "demo.toml").trunk(TRUNK)
    assert trunk is not None
    return trunk.model_copy(update=changes)


def made() -> MadeOf:
    agent = demo_agent()
    return MadeOf(agent=agent, choice=agent_choice(agent), recognizer=None, voice_hz=FakeTts.rate_hz)


# What is visited --------------------------------------------------------------------------------------------


class Visits:
    """Every function of ours that was called, in order. Those that `entry` and its caller called are one
    frame's."""

    def __init__(self, entry: Stage) -> None:
        self.calls: list[CodeType] = []
        self.frames: list[list[CodeType]] = []
        self._entry = entry.enters.__code__
        self._around: FrameType | None = None

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "return" and frame is self._around:
            self._around = None
        if event != "call" or not code.co_filename.startswith(OURS):
            return
        if code is self._entry:
            self._around = frame.f_back
            self.frames.append([])
        self.calls.append(code)
        if self._around is not None:
            self.frames[-1].append(code)


@contextmanager
def watched(entry: Stage) -> Iterator[Visits]:
    visits = Visits(entry)
    sys.setprofile(visits)
    try:
        yield visits
    finally:
        sys.setprofile(None)


def skipped(calls: Sequence[CodeType], stages: Sequence[Stage]) -> list[str]:
    """Those of `stages` that are not among `calls` after the one before them."""
    names, at = [], 0
    for stage in stages:
        code = stage.enters.__code__
        if code in calls[at:]:
            at = calls.index(code, at)
        else:
            names.append(stage.name)
    return names


def takes_audio(code: CodeType) -> bool:
    """Whether the function has a parameter that is a frame."""
    modules = (
        each for each in tuple(sys.modules.values()) if getattr(each, "__file__", "") == code.co_filename
    )
    found: Any = next(modules, None)
    for part in code.co_qualname.split("."):
        found = getattr(found, part, None)
    hints = getattr(found, "__annotations__", {})
    return any("Pcm" in str(hint) for name, hint in hints.items() if name != "return")


def unlisted(calls: Sequence[CodeType], stages: Sequence[Stage]) -> set[str]:
    """The files whose functions take a frame and that no stage is in."""
    listed = {stage.enters.__code__.co_filename for stage in stages}
    files = {code.co_filename for code in calls if takes_audio(code)} - listed
    return {Path(file).relative_to(ROOT).as_posix() for file in files} - PARTS


PARTS = {
    "pipeline/audio/levels.py",  # whether a frame can be heard, for the watch over dead air
    "pipeline/session/session.py",  # its tap on the playout, which calls EchoGate and Recording
    "pipeline/audio/kernels.py",  # what stages compute with
    "pipeline/call_progress/classifier.py",  # AnswerDetector's
    "pipeline/audio/vad.py",  # that of AnswerDetector, where the line detects the caller's voice
    "pipeline/session/kept_audio.py",  # AudioInput's
}


def visible(stages: Iterable[Stage]) -> tuple[Stage, ...]:
    """Those that Python's profiler sees: not the compiled ones."""
    return tuple(stage for stage in stages if isinstance(stage.enters, FunctionType))


def assert_is_the_path(visits: Visits, inbound: Sequence[Stage], outbound: Sequence[Stage]) -> None:
    first_of_voice = min(visits.frames, key=lambda calls: len(skipped(calls, inbound)))
    assert skipped(first_of_voice, inbound) == []
    assert unlisted(first_of_voice, inbound) == set()
    assert skipped(visits.calls, outbound) == []
    said = visits.calls[visits.calls.index(outbound[0].enters.__code__) :]
    wake = next(place for place, stage in enumerate(outbound) if stage.name == "Outgoing.say")
    first = said.index(outbound[wake].enters.__code__)
    last = said.index(outbound[-1].enters.__code__, first)
    assert skipped(said[first : last + 1], outbound[wake:]) == []
    if Playout.left.__code__ in said[first:last]:  # the plane has sent it meanwhile
        first = max(place for place in range(first, last) if said[place] is Playout.left.__code__)
    assert unlisted(said[first : last + 1], outbound) == set()  # all within one call


KERNELS = "pipeline/audio/kernels.py"
MOST_FILES, MOST_RETURNS = 13, 11
"""Of the way that the frame takes with which the caller begins to speak, to the turn machine and back."""


def way(calls: Iterable[CodeType]) -> list[str]:
    """The files of the functions called, in order, each once for calls that follow each other; not that of
    the kernels, whose calls lead no further."""
    files = (Path(code.co_filename).relative_to(ROOT).as_posix() for code in calls)
    return [file for file, _ in groupby(file for file in files if file != KERNELS)]


# Calls ------------------------------------------------------------------------------------------------------


class OverStream:
    """A leg over a phone call's stream."""

    held = False

    def __init__(self, stream: MediaStream | RoomAudio) -> None:
        self._stream = stream
        self.rate_hz = stream.rate_hz

    def attach(self, listener: LegListener | None, source: AudioSource | None) -> None:
        self._stream.attach(listener, source)

    async def hang_up(self) -> None: ...

    async def send_dtmf(self, digits: str) -> None: ...


def session(leg: Any, recording: Recording | None, *, line: AnswerDetector | None) -> Session:
    return Session(
        leg=leg,
        agent=FakeAgent([Say("hello")], [Say("goodbye"), HangUp()]),
        stt=FallbackRecognizer([GuardedRecognizer(FakeStt("yes"), Guard("stt", "fake"))]),
        tts=GuardedVoice(FakeTts(), Guard("tts", "fake"), last=True),
        recording=recording,
        answer_detector=line,
        detector=EndOfTurnDetector(),
    )


async def conversed(talk: Session, send: Callable[[Pcm], None], rate_hz: int, entry: Stage) -> Visits:
    """Runs the conversation with a caller who is silent for a second and speaks for half of one."""
    said = np.concatenate((np.zeros(rate_hz, np.int16), voice(0.5, rate_hz=rate_hz)))
    size, over = frame_samples(rate_hz), asyncio.create_task(talk.run())
    with watched(entry) as visits:
        for place in range(0, 10 * rate_hz, size):
            if over.done():
                break
            send(said[place : place + size] if place < len(said) else np.zeros(size, np.int16))
            await asyncio.sleep(0.02)
    await over
    return visits


async def phone_call(codec: Codec, folder: Path, entry: Stage, *, placed: bool = True) -> Visits:
    """A call with a recording; `placed`: by the server, which looks for who answers."""
    loop, ports = asyncio.get_running_loop(), PortRange(*free_rtp_range())
    encoding, into, sent = encoder(codec), np.zeros(MAX_PAYLOAD_BYTES, np.uint8), 0
    with ExitStack() as cleanup:
        far, _ = map(cleanup.enter_context, ports.bind(HOST))
        plane = Plane(loop)
        cleanup.callback(plane.close)
        stream = MediaStream.open(ports, plane, host=HOST, loop=loop)
        cleanup.callback(stream.close)
        agreed = plan(far.getsockname()[1], codec)
        stream.configure(agreed, symmetric=False, media_timeout_s=30.0, inband_dtmf=True)

        def send(frame: Pcm) -> None:
            nonlocal sent
            size = encoding.encode(frame, into)
            stamp, sent = sent * codec.clock_rate_hz // 50, sent + 1
            packet = RtpPacket(codec.payload_type, sent, stamp, 1, into[:size].tobytes())
            far.sendto(packet.to_bytes(), (HOST, stream.local_port))

        async with recording_to(folder / "call.wav", stream.rate_hz) as recording:
            line = AnswerDetector(AnswerDetectionSettings()) if placed else None
            talk = session(OverStream(stream), recording, line=line)
            return await conversed(talk, send, codec.rate_hz, entry)


async def web_call(folder: Path, entry: Stage) -> Visits:
    """Over a link of which nothing is sent, from an address that ICE has verified."""
    loop, key, sent = asyncio.get_running_loop(), bytes(range(30)), 0
    chosen = SimpleNamespace(get_selected_srtp_profile=lambda: b"SRTP_AES128_CM_SHA1_80")
    here, there = (
        (Srtp(Policy(key, Policy.SSRC_ANY_OUTBOUND)), Srtp(Policy(key, Policy.SSRC_ANY_INBOUND)))
        for _ in range(2)
    )
    dtls: Any = SimpleNamespace(_tx_srtp=here[0], _rx_srtp=here[1], _ssl=chosen)
    with ExitStack() as cleanup:
        far = cleanup.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        far.bind((HOST, 0))
        plane = Plane(loop)
        cleanup.callback(plane.close)
        port = MediaPort.open(plane, free_rtp_range(), addresses=[HOST])
        cleanup.callback(port.close)
        path = media_port.Path(port, ice.Connection(ice_controlling=False))
        port._reached(path, port.sockets[0][0], far.getsockname())
        audio, encoding = RoomAudio(plane, loop=loop), OpusEncoder()
        cleanup.callback(audio.close)
        bridge = Bridge(Pacer(loop), rate_hz=RATE_HZ)
        bridge.add(OverStream(audio))

        def send(frame: Pcm) -> None:
            nonlocal sent
            sent += 1
            packet = RtpPacket(111, sent, sent * CLOCK_HZ // 50, 1, encoding.encode(frame))
            far.sendto(there[0].protect(packet.to_bytes()), (HOST, port.number))

        link = SecureLink(dtls, path)
        audio.hear_on(link, frozenset({111}))
        audio.speak_on(link, payload_type=111, ssrc=7)
        async with recording_to(folder / "call.wav", RATE_HZ) as recording:
            return await conversed(session(bridge, recording, line=None), send, RATE_HZ, entry)


async def test_a_frame_of_a_phone_call_takes_the_path_that_is_printed(tmp_path: Path) -> None:
    codec = CODECS["pcmu"]
    inbound = visible(phone_in(codec, demo_trunk(inband_dtmf=True), made()))
    visits = await phone_call(codec, tmp_path, inbound[0])
    assert_is_the_path(visits, inbound, visible(phone_out(codec, made())))
    assert skipped(visits.calls, tuple(answered(made()))) == []


async def test_the_frame_that_begins_the_callers_speech_is_followed_through_few_files(tmp_path: Path) -> None:
    codec = CODECS["pcmu"]
    inbound = visible(phone_in(codec, demo_trunk(inband_dtmf=True), made()))
    visits = await phone_call(codec, tmp_path, inbound[0], placed=False)
    (first,) = (calls for calls in visits.frames if hear.__code__ in calls)
    files = way(first)
    returns = len(files) - len(set(files))
    assert (len(set(files)) <= MOST_FILES, returns <= MOST_RETURNS) == (True, True), files


async def test_a_frame_of_a_web_call_takes_the_path_that_is_printed(tmp_path: Path) -> None:
    inbound = visible(web_in(made()))
    visits = await web_call(tmp_path, inbound[0])
    assert_is_the_path(visits, inbound, visible(web_out(made())))
