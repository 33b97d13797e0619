"""The path of a frame through the server, in and out, with the rates and delays that it has for one agent.

```
phone  socket ► the media plane (order, decoder, frames, VAD, echo: pipeline.plane) ► Heard ┐ many at once
web    the shared port ► the media plane (order, decoder, frames) ► Heard ► Bridge ────────────┤
       Session ► Recording, AnswerDetector, AudioInput (Foreground, STT) ► Dialogue ► Turns
                 web: EchoGate, VAD                                           agent ◄─────┘
       Synthesis ► normalisation ► voice ► Resampler ► Playout, some frames ahead, to
phone  the media plane (gain, encoder, SRTP, echo) ► socket     what left, many at once: Recording
web    the media plane (gain, encoder, SRTP) ► the shared port  the same: EchoGate, Recording
```

Frames pass by direct call, so there is no list that a frame is passed along at run time. Each `Stage` here
names the function that the frame enters, which may be a compiled one; a test sends frames through real legs
and a real `Session`, and compares the functions visited with these lists. Figures are read from the
constants and settings in use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Final

from mediaserver.engine_pool.choice import AgentChoice
from mediaserver.rooms.webrtc import receiver as room_receiver
from mediaserver.settings import AgentSettings, TrunkSettings
from pipeline.agents.llm.realtime import line as realtime_line
from pipeline.agents.llm.realtime.line import RealtimeLine
from pipeline.audio import FRAME_MS, echo_gate, frames, kernels, opus
from pipeline.audio.background_speech import Foreground
from pipeline.audio.echo_gate import EchoGate
from pipeline.audio.other_vads import DETECTORS
from pipeline.audio.resample import Resampler
from pipeline.audio.vad import EnergyVad
from pipeline.call_progress.answer_detection import AnswerDetector
from pipeline.endpointing import detector, policy, prosody
from pipeline.endpointing.detector import EndOfTurnDetector
from pipeline.engines.guard import GuardedVoice, RemoteEngine
from pipeline.media import bridge
from pipeline.media.bridge import Bridge
from pipeline.media.playout import Playout
from pipeline.media.recording import Recording
from pipeline.plane import port, rows, send, srtp, step
from pipeline.plane.outgoing import Outgoing
from pipeline.plane.reception import frames as plane_frames
from pipeline.plane.reception import hearing, receive, recovery
from pipeline.plane.send import FRAME_NS, SLOT_NS
from pipeline.session import audio_input, synthesis
from pipeline.session.agent_turns import AgentTurns
from pipeline.session.audio_input import AudioInput
from pipeline.session.dialogue import Dialogue
from pipeline.session.session import Session
from pipeline.session.synthesis import Synthesis
from pipeline.speech import SpeechToText
from pipeline.stt import faster_whisper, openai
from pipeline.stt.fallback import FallbackListening
from pipeline.stt.sphinx import decoder as sphinx
from pipeline.text.normalise import verbalize
from pipeline.turns.machine import Turns
from sip.rtp import media_stream
from sip.rtp.heard import Heard
from sip.sdp.media_plan import Codec

_UNITS: Final = {"MS": "ms", "S": "s", "HZ": "Hz", "FRAMES": "frames"}

_HEARD_AT: Final = {
    "faster-whisper": (faster_whisper, "MODEL_RATE_HZ"),
    "openai": (openai, "MODEL_RATE_HZ"),
    "pocketsphinx": (sphinx, "RATE_HZ"),
}
"""The constant with the rate that each built-in recogniser resamples to."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A number that a stage works with. `source`: the constant or the key of the configuration."""

    meaning: str
    value: float
    unit: str
    source: str

    def __str__(self) -> str:
        return f"{self.meaning}: {self.value:g} {self.unit}".rstrip() + f" ({self.source})"


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of the path. `enters`: the function that a frame enters; `rate_hz`: of the audio that leaves
    the stage, or of the RTP clock for packets, 0 for text and events; `delay_ms`: added to every frame;
    `when`: for which frames, "" for all."""

    enters: Callable[..., Any]
    does: str
    rate_hz: int = 0
    figures: tuple[Figure, ...] = ()
    delay_ms: float = 0.0
    when: str = ""

    @property
    def name(self) -> str:
        """Name of the function that a frame enters, "Class.method" or "module.function"."""
        name = self.enters.__qualname__
        return name if "." in name else f"{self.enters.__module__.rpartition('.')[2]}.{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeOf:
    """An agent with its engines. `recognizer`, `voice_hz` (the voice's rate): None where the engine is not
    usable on this machine."""

    agent: AgentSettings
    choice: AgentChoice
    recognizer: SpeechToText | None
    voice_hz: int | None


# A frame in -------------------------------------------------------------------------------------------------


def phone_in(codec: Codec, trunk: TrunkSettings, made: MadeOf) -> Iterator[Stage]:
    """Yields the stages from the socket of a call to turn-taking."""
    clock_hz, rate_hz = codec.clock_rate_hz, codec.rate_hz
    missing = constant("a missing packet is waited for, at most", media_stream, "PATIENCE_MS")
    most = constant("made up for one hole, at most", plane_frames, "MAX_CONCEALED", unit="frames")
    length = constant("length", frames, "FRAME_MS")
    tick = Figure("read every", SLOT_NS / 1e6, "ms", f"{send.__name__}.SLOT_NS")
    digits = "" if trunk.inband_dtmf else "telephone-event is not agreed"
    yield Stage(step.take, "a datagram, from the far end's address alone", clock_hz, (tick,))
    yield Stage(receive.receive, "source, order, a packet to PCM, losses concealed", rate_hz, (missing, most))
    yield Stage(kernels.dtmf_step, "keys as tones in the audio", rate_hz, when=digits)
    own = DETECTORS[made.choice.vad] is EnergyVad
    if own:
        tail = constant("looked for, after the agent's last frame", echo_gate, "TAIL_S")
        yield Stage(
            hearing.notice, "voice, the agent's own voice coming back", rate_hz, (tail, *_voice_times())
        )
        late = constant("silence is handed on after, at most", audio_input, "IDLE_FRAMES")
        length = replace(length, meaning="length of each")
        yield Stage(Heard.pass_on, "frames on the far end's clock, many at once", rate_hz, (length, late))
    else:
        yield Stage(Heard.pass_on, "frames on the far end's clock", rate_hz, (length,))
    yield from heard(rate_hz, made, placed=made.agent.direction == "outbound", by_line=own)


def web_in(made: MadeOf) -> Iterator[Stage]:
    """Yields the stages from a participant's connection to turn-taking."""
    clock_hz, rate_hz = opus.CLOCK_HZ, opus.RATE_HZ
    missing = constant("a missing packet is waited for, at most", room_receiver, "PATIENCE_MS")
    most = constant("made up for one hole, at most", recovery, "MAX_RECOVERED", unit="frames")
    length = constant("length", frames, "FRAME_MS")
    kept = constant("of each, once several people are in the room", bridge, "PREFILL", unit="frames")
    tick = Figure("read every", SLOT_NS / 1e6, "ms", f"{send.__name__}.SLOT_NS")
    yield Stage(port.arrived, "a datagram, from an address of a participant's", clock_hz, (tick,))
    yield Stage(receive.receive, "source, order, Opus to PCM, losses concealed", rate_hz, (missing, most))
    yield Stage(Heard.pass_on, "frames on the far end's clock", rate_hz, (length,))
    yield Stage(Bridge.place, "one person straight through, several mixed", rate_hz, (kept,))
    yield from heard(rate_hz, made, placed=False, by_line=False)


def heard(rate_hz: int, made: MadeOf, *, placed: bool, by_line: bool) -> Iterator[Stage]:
    """Yields the stages of a frame in the conversation. `placed`: the server placed the call; `by_line`: the
    leg has looked for voice and echo."""
    timing = Timing(made)
    enters = Session.frames_received if by_line else Session.audio_received
    yield Stage(enters, "20 ms frames of the leg", rate_hz)
    if made.agent.session.recording:
        written = Recording.caller_frames if by_line else Recording.caller
        yield Stage(written, "left channel, written by a thread", rate_hz)
    if placed:
        yield Stage(AnswerDetector.push, "answering machine, hold music, tones", rate_hz)
    preroll = constant("kept for the recogniser from before the voice", audio_input, "PREROLL_MS")
    if by_line:
        yield Stage(AudioInput.take, "pre-roll, silence on the media clock", rate_hz, (preroll,))
        yield Stage(Foreground.is_behind, "a voice behind the caller's", rate_hz, when="a voice")
    else:
        tail = constant("looked for, after the agent's last frame", echo_gate, "TAIL_S")
        yield Stage(EchoGate.is_echo, "the agent's own voice coming back", rate_hz, (tail,))
        yield Stage(AudioInput.push, "pre-roll, silence on the media clock", rate_hz, (preroll,))
        yield Stage(DETECTORS[made.choice.vad].push, "voice activity", rate_hz, _voice_times())
        yield Stage(Foreground.is_background, "a voice behind the caller's", rate_hz)
    changed = "the voice begins, lasts or ends"
    lowered = (timing("agent lowered after", "duck_ms"), timing("agent silenced after", "barge_in_ms"))
    yield Stage(Dialogue.heard, "what changed", 0, lowered, when=changed)
    names = behind(made.choice.stt.name, made.choice.stt_fallback)
    yield Stage(FallbackListening.push, names, rate_hz, _heard_at(made), when="the caller speaks")
    if made.agent.realtime is not None:
        kept = constant("sent in pieces of", realtime_line, "CHUNK_MS")
        hearing_itself = "the realtime model, as µ-law or at 24 kHz"
        yield Stage(RealtimeLine.hear, hearing_itself, 0, (kept,), when="the caller speaks")
    yield Stage(Turns.receive, "turn-taking: an event in, actions out", when=changed)


def _voice_times() -> tuple[Figure, Figure]:
    vad, source = audio_input.VAD, f"{audio_input.__name__}.VAD"
    return (
        Figure("voice begins after", vad.min_on_ms, "ms", f"{source}.min_on_ms"),
        Figure("voice ends after", vad.hang_ms, "ms", f"{source}.hang_ms"),
    )


# From the caller's last word to the agent's first -----------------------------------------------------------


def answered(made: MadeOf) -> Iterator[Stage]:
    """Yields the stages from the end of a turn to its answer: events and tasks, no frames."""
    timing, choice = Timing(made), made.choice
    late = timing("waited for after the end-point, at most", "stt_deadline_ms")
    yield Stage(
        FallbackListening.result,
        f"{choice.stt.name} is asked for the words",
        0,
        (timing("asked after a silence of", "speculate_ms"), *_deadline(made), late),
    )
    judge = f"the model {choice.turn_model}" if choice.turn_model else "the built-in judge"
    limit = (
        (constant("the model is waited for, at most", detector, "DEADLINE_S"),) if choice.turn_model else ()
    )
    looked_at = (policy, "EVIDENCE_S") if choice.turn_model else (prosody, "LOOK_BACK_S")
    evidence = constant("of voice judged", *looked_at)
    yield Stage(EndOfTurnDetector.p_eot, f"{judge} says whether the turn is over", 0, (*limit, evidence))
    yield Stage(
        Turns.handle_timer,
        "the end-point",
        0,
        (
            timing("taken for over from a probability of", "eot_threshold"),
            timing("a turn that seems over ends after", "eot_action_delay_ms", by="endpoint_ms"),
            timing("any turn ends after", "eot_timeout_ms", by="endpoint_ms"),
        ),
    )
    filler = timing("a filler is heard after", "dead_air_ms")
    yield Stage(
        AgentTurns.start,
        f"the agent ({choice.agent.name}) is asked for its reply",
        0,
        (*_model(made), filler),
    )


# A frame out ------------------------------------------------------------------------------------------------


def phone_out(codec: Codec, made: MadeOf) -> Iterator[Stage]:
    """Yields the stages from the agent's words to the socket of a call."""
    rate_hz = codec.rate_hz
    yield from handed_over(rate_hz, made)
    done = f"PCM to {codec.name} at the volume of the moment, a packet of silence too"
    yield Stage(send.packet_due, done, codec.clock_rate_hz, _every())
    own = DETECTORS[made.choice.vad] is EnergyVad
    if own:
        yield Stage(hearing.played, "compared with what comes back", rate_hz)
    yield from left(rate_hz, made, compared=not own)


def web_out(made: MadeOf) -> Iterator[Stage]:
    """Yields the stages from the agent's words to a participant's connection."""
    rate_hz = opus.RATE_HZ
    yield from handed_over(rate_hz, made)
    done = "PCM to Opus with FEC at the volume of the moment, none of silence"
    yield Stage(send.packet_due, done, opus.CLOCK_HZ, _every())
    yield Stage(srtp.sealed, "SRTP encrypted, then the shared UDP port", opus.CLOCK_HZ)
    yield from left(rate_hz, made, compared=True)


def handed_over(rate_hz: int, made: MadeOf) -> Iterator[Stage]:
    """Yields the stages from text to frames that the plane sends by itself."""
    yield from spoken(rate_hz, made)
    ahead = constant("in the plane's hands, at most", rows, "AHEAD", unit="frames")
    lead = Figure("ahead of its clock, at most", FRAME_NS / 1e6, "ms", f"{send.__name__}.FRAME_NS")
    yield Stage(Outgoing.say, "sent at once after silence", rate_hz, (ahead, lead))


def spoken(rate_hz: int, made: MadeOf) -> Iterator[Stage]:
    """Yields the stages from text to frames that wait for the pacer."""
    timing, choice = Timing(made), made.choice
    ahead = constant("the next sentence is made when so much is left", synthesis, "AHEAD_S")
    if made.agent.realtime is not None:
        yield Stage(Synthesis.play, "what the realtime model says itself", when="the realtime model is there")
    yield Stage(Synthesis.say, "sentence by sentence", 0, (ahead,))
    yield Stage(verbalize, "figures and signs in words")
    names, voice_hz = behind(choice.tts.name, choice.tts_fallback), made.voice_hz or 0
    stall = timing("a voice that stalls is given up after", "tts_stall_ms")
    yield Stage(GuardedVoice.speak_ahead, names, voice_hz, (stall,))
    late_ms = Resampler(voice_hz, rate_hz).delay_samples * 1000 / rate_hz if voice_hz else 0.0
    yield Stage(Resampler.__call__, "to the leg's rate", rate_hz, delay_ms=late_ms)
    yield Stage(Playout.write, "frames wait for the clock, none is kept back", rate_hz)


def left(rate_hz: int, made: MadeOf, *, compared: bool) -> Iterator[Stage]:
    """Yields the stages that get the frames that were sent. `compared`: outside the plane."""
    yield Stage(Playout.catch_up, "what was heard, to the sample, many at once", rate_hz)
    if compared:
        yield Stage(EchoGate.played, "compared with what comes back", rate_hz)
    if made.agent.session.recording:
        yield Stage(Recording.agent_frames, "right channel, written by a thread", rate_hz)


# Where figures come from ------------------------------------------------------------------------------------


def constant(meaning: str, module: ModuleType, name: str, *, unit: str | None = None) -> Figure:
    """Returns the constant `name` of `module` as a figure; its unit is the end of its name unless `unit` is
    given."""
    unit = _UNITS[name.rpartition("_")[2]] if unit is None else unit
    return Figure(meaning, getattr(module, name), unit, f"{module.__name__}.{name}")


class Timing:
    """Reads the timing of an agent's conversations as figures."""

    def __init__(self, made: MadeOf) -> None:
        self._written = made.agent.session
        self._used = made.choice.session

    def __call__(self, meaning: str, name: str, *, by: str = "") -> Figure:
        """Returns the setting `name` as a conversation uses it. `by`: the key that it is derived from where
        it is 0."""
        written = getattr(self._written, name, None)
        key = by if by and not written else name
        known = key in type(self._written).model_fields
        source = f"agent.session.{key}" if known else f"{type(self._used).__module__}.SessionSettings.{key}"
        return Figure(
            meaning, getattr(self._used, name), _UNITS.get(name.rpartition("_")[2].upper(), ""), source
        )


def behind(first: str, fallback: tuple[Any, ...]) -> str:
    """Returns the names of engines in the order in which they are used."""
    return ", then ".join((first, *(each.name for each in fallback)))


def _heard_at(made: MadeOf) -> tuple[Figure, ...]:
    place = _HEARD_AT.get(made.choice.stt.name)
    return () if place is None else (constant("resampled for the model to", *place),)


def _deadline(made: MadeOf) -> tuple[Figure, ...]:
    """Returns how long a recogniser behind a network is waited for, where another can take its place."""
    if not made.choice.stt_fallback or not isinstance(made.recognizer, RemoteEngine):
        return ()
    return (
        Figure(
            "then the next engine is asked, after", made.recognizer.deadline_s, "s", "agent.stt.deadline_s"
        ),
    )


def _model(made: MadeOf) -> tuple[Figure, ...]:
    """Returns how long a language model is waited for, where the agent has one."""
    llm, realtime = made.agent.llm, made.agent.realtime
    if llm is None:
        return ()
    first, further = "agent.realtime.timeout_s", "agent.realtime.stall_s"
    own = (
        ()
        if realtime is None
        else (
            Figure("one that speaks itself is waited for, at most", realtime.timeout_s, "s", first),
            Figure("for each further part of its answer", realtime.stall_s, "s", further),
        )
    )
    return (
        *own,
        Figure("the model's first words are waited for, at most", llm.timeout_s, "s", "agent.llm.timeout_s"),
        Figure("its next words, at most", llm.stall_s, "s", "agent.llm.stall_s"),
    )


def _every() -> tuple[Figure, ...]:
    return (Figure("every", FRAME_MS, "ms", f"{frames.__name__}.FRAME_MS"),)
