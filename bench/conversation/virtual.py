"""Runs conversations on a virtual clock: the real `Session` between a scripted caller and stub models.

The audio passes through RTP, the codec, reordering, concealment and the packets' times as in the server, by
the media plane's `step`. Only the sockets are replaced."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable
from functools import partial
from typing import Final, Protocol

from bench.conversation.baseline import VadOnly
from bench.conversation.caller import Truth
from bench.conversation.handset import PTIME_S, Handset, Taped, plan_of
from bench.conversation.scenarios import Script
from bench.conversation.sounds import reading
from bench.conversation.stubs import Agent, Fault, Recogniser, Voice
from bench.support.stepped_stream import SteppedStream
from bench.support.virtual_clock import VirtualLoop
from pipeline.endpointing.detector import EndOfTurnDetector
from pipeline.endpointing.scorer import BuiltInDetector
from pipeline.endpointing.sentence_model import sentence_ends
from pipeline.engines.guard import Guard, GuardedVoice
from pipeline.leg import AudioSource, LegListener
from pipeline.media.playout import Playout
from pipeline.plane.send import SLOT_NS
from pipeline.result import SessionObserver, SessionResult
from pipeline.session.prompts import Phrases
from pipeline.session.session import Session
from pipeline.settings import SessionSettings
from pipeline.stt.fallback import FallbackRecognizer, GuardedRecognizer
from sip.rtp.pulled import Pulled
from sip.sdp.media_plan import CODECS, Codec

EPOLL_S: Final = 0.001
"""Step of the virtual clock in seconds, the granularity of epoll's timeout: a timer of two frames must not
expire just before the second frame."""

TICK_S: Final = SLOT_NS / 1e9
"""Tick of the media plane in seconds."""

_JUDGE: Final = EndOfTurnDetector(built_in=BuiltInDetector(sentence_ends()))


class Talk(Protocol):
    """A conversation on a leg: a session, or the baseline."""

    def run(self) -> Awaitable[SessionResult | None]:
        """Runs the conversation until the leg ends."""


class Line:
    """The agent's leg: a `sip.rtp.media_stream.MediaStream` with the caller's handset instead of sockets."""

    def __init__(self, script: Script, codec: Codec, seed: int) -> None:
        self._loop = asyncio.get_running_loop()
        self.rate_hz = codec.rate_hz
        self.held = False
        self.handset = Handset(script, codec, seed, self._receive)
        self._stream = SteppedStream(
            plan_of(codec), rate_hz=codec.rate_hz, now=self._loop.time(), poke=self._poke
        )
        self._stream.on_sent = self._left
        self._source: AudioSource | None = None
        self._pulled: Pulled | None = None
        self._timer = self._loop.call_later(TICK_S, self._tick)

    def attach(self, listener: LegListener | None, source: AudioSource | None) -> None:
        """See `pipeline.leg.Leg`."""
        self._disconnect()
        self._stream.listener, self._source = listener, source
        if isinstance(source, Playout):
            source.connect(self._stream.outgoing)
        elif source is not None:
            self._pulled = Pulled(source, self._stream.outgoing, self._loop)

    async def hang_up(self) -> None:
        """See `pipeline.leg.Leg`."""
        self._stream.listener = None
        self.handset.hang_up()

    async def send_dtmf(self, digits: str) -> None:
        """Drops the digits."""

    def end(self) -> None:
        """Ends the leg, as when the caller hangs up."""
        self._timer.cancel()
        listener = self._stream.listener
        if listener is not None:
            listener.leg_ended("normal", self._loop.time())
        self._disconnect()

    def _disconnect(self) -> None:
        if self._pulled is not None:
            self._pulled.close()
            self._pulled = None
        elif isinstance(self._source, Playout):
            self._source.connect(None)
        self._source = None

    def _receive(self, packet: bytes) -> None:
        self._stream.datagram(packet, self._loop.time())

    def _tick(self) -> None:
        self._timer = self._loop.call_later(TICK_S, self._tick)
        self._send()

    def _poke(self) -> None:
        self._loop.call_soon(self._send)

    def _send(self) -> None:
        for packet in self._stream.due(self._loop.time()):
            self.handset.receive(packet)

    def _left(self, at: float) -> None:
        if self._pulled is not None:
            self._pulled.left(at)
        elif isinstance(self._source, Playout):
            self._source.left()


class _Deciding(SessionObserver):
    def __init__(self) -> None:
        self.decisions: list[tuple[float, str]] = []

    def state_changed(self, state: str, now: float) -> None:
        self.decisions.append((now, state))


def converse(
    script: Script,
    seed: int,
    *,
    codec: str = "pcmu",
    settings: SessionSettings | None = None,
    vad_only: bool = False,
) -> Taped:
    """Runs one call on a virtual clock of its own and returns the recording."""
    reading()  # made before the clock starts, since synthesis takes a process and real time
    with asyncio.Runner(loop_factory=partial(VirtualLoop, EPOLL_S)) as runner:
        return runner.run(
            _converse(script, seed, CODECS[codec], settings or SessionSettings(), vad_only=vad_only)
        )


async def _converse(
    script: Script, seed: int, codec: Codec, settings: SessionSettings, *, vad_only: bool
) -> Taped:
    loop = asyncio.get_running_loop()
    truth = Truth()
    phrases = await Phrases.prepare([Voice()], settings)
    line = Line(script, codec, seed)
    agent = Agent(script.part, script.fault)
    watching = _Deciding()
    talk: Talk
    if vad_only:
        talk = VadOnly(line, agent, Recogniser(truth, script.fault), Voice(script.fault))
    else:
        talk = _session(
            line, agent, truth, script.fault, settings=settings, phrases=phrases, observer=watching
        )
    running = loop.create_task(_finish(talk))
    await asyncio.sleep(random.Random(seed).uniform(0, PTIME_S))  # neither side's frames wait for the other's
    start = loop.time()
    taped = await line.handset.talk(truth)
    line.end()
    taped.events, taped.result = agent.events, await running
    taped.decisions = [(max(0.0, now - start), state) for now, state in watching.decisions]
    return taped


def _session(
    line: Line,
    agent: Agent,
    truth: Truth,
    fault: Fault,
    *,
    settings: SessionSettings,
    phrases: Phrases,
    observer: SessionObserver,
) -> Session:
    """Returns a session with the engines behind the same guards as in the server."""
    stalls = fault is Fault.TTS_STALLS
    return Session(
        leg=line,
        agent=agent,
        stt=FallbackRecognizer([GuardedRecognizer(Recogniser(truth, fault), Guard("stt", "stand-in"))]),
        tts=GuardedVoice(Voice(fault), Guard("tts", "stand-in"), last=not stalls),
        settings=settings,
        phrases=phrases,
        fallback_tts=(GuardedVoice(Voice(), Guard("tts", "spare"), last=True),) if stalls else (),
        observer=observer,
        detector=_JUDGE,
    )


async def _finish(talk: Talk) -> SessionResult | None:
    return await talk.run()
