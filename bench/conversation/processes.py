"""Runs the server that scripted callers ring, with one agent per call, and reads its account of each."""

from __future__ import annotations

import pickle
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.call.processes import MediaServer, agent_table, configuration
from bench.conversation.scenarios import Script
from bench.conversation.sounds import reading
from bench.conversation.stubs import Fault, Part
from pipeline.agent import AgentEvent, AgentReport, CallOpened, UserKeyed, UserSaid
from pipeline.latency import TurnLatency
from pipeline.result import EndReason, EngineFault, SessionResult, Silence, TurnRecord
from pipeline.transcript import Role, TranscriptEntry

READING: Final = "reading.pickle"
"""File beside the settings with the agent's voice, so that the server speaks with the same samples."""

_FIRST_NUMBER: Final = 14155550200
_WRITTEN_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Job:
    """Instructions to the server's stubs for a call, written before the call."""

    part: Part
    fault: Fault


class Server(MediaServer):
    """The server under test. Every script has a number and stubs of its own, so that a fault of one call
    affects no other."""

    def __init__(self, directory: Path, scripts: list[Script]) -> None:
        self.directory = directory
        (directory / READING).write_bytes(pickle.dumps(reading()))

        def configure(http: int, sip: int) -> str:
            agents = "".join(self._agent(place, script) for place, script in enumerate(scripts))
            limits = "requests_per_minute = 100000"
            codecs = ("opus", "pcmu")
            return configuration(
                directory, (http, sip), agents, rtp="18000-19999", codecs=codecs, server=limits
            )

        super().__init__(directory, configure, (sys.executable, "-m", "bench.conversation.server"))

    def _agent(self, place: int, script: Script) -> str:
        line = f'line = "{self.line(place)}"'
        spare = '{ engine = "bench" }' if script.fault is Fault.TTS_STALLS else ""
        bench = f'engine = "bench"\n{line}'
        stt, tts = f"{bench}\nfallback = []", f"{bench}\nfallback = [{spare}]"
        return agent_table(_agent_id(place), f"+{self.number(place)}", script=line, stt=stt, tts=tts)

    def number(self, place: int) -> str:
        """Returns the number to dial for script number `place`."""
        return f"{_FIRST_NUMBER + place}"

    def line(self, place: int) -> Path:
        """Returns the path of the files through which callers and server exchange data of a call."""
        return self.directory / self.number(place)

    def prepare(self, place: int, script: Script) -> None:
        """Writes the instructions for a call that is about to come. Faults begin here, since the server tries
        its voices at its start."""
        line = self.line(place)
        line.with_suffix(".job").write_bytes(pickle.dumps(Job(script.part, script.fault)))
        for kind in (".words", ".events"):
            line.with_suffix(kind).touch()

    def events(self, place: int) -> list[AgentEvent]:
        """Returns the events that the agent received in a call."""
        found: list[AgentEvent] = []
        for line in self.line(place).with_suffix(".events").read_text(encoding="utf-8").splitlines():
            kind, _, text = line.partition("\t")
            if kind == "UserSaid":
                found.append(UserSaid(text, 1.0))
            else:
                found.append(UserKeyed(text) if kind == "UserKeyed" else CallOpened())
        return found

    def results(self, count: int) -> dict[int, SessionResult]:
        """Returns the server's records of the calls of `count` scripts, once all are written."""
        until = time.monotonic() + _WRITTEN_S
        places = {_agent_id(place): place for place in range(count)}
        while True:
            told = [each for each in self.reports(count) if each["analysis"] is not None]
            if len(told) >= count or time.monotonic() > until:
                return {places[each["agentId"]]: result_of(each) for each in told}
            time.sleep(0.5)


def result_of(report: Mapping[str, Any]) -> SessionResult:
    """Returns the API's report on a call as a conversation's result."""
    analysis = report["analysis"]
    return SessionResult(
        reason=EndReason(analysis["endReason"]),
        disposition=analysis["disposition"],
        transfer_target="",
        leg_reason="",
        transcript=tuple(_entry(each) for each in report["transcript"]),
        turns=tuple(_turn(each) for each in report["turns"]),
        interruptions=analysis["interruptions"],
        report=AgentReport(),
        faults=tuple(EngineFault(each["role"], each["message"], each["atMs"]) for each in analysis["faults"]),
        duration_ms=analysis["durationMs"],
        caller_speech_ms=analysis["callerSpeechMs"],
        agent_speech_ms=analysis["agentSpeechMs"],
        silences=tuple(_silence(each) for each in analysis["silences"]),
    )


def _agent_id(place: int) -> str:
    return f"2f1c1a34-6f3e-4f0e-9a63-{place:012d}"


def _entry(data: Mapping[str, Any]) -> TranscriptEntry:
    return TranscriptEntry(
        Role(data["role"]), data["text"], data["startMs"], data["endMs"], interrupted=data["interrupted"]
    )


def _silence(data: Mapping[str, Any]) -> Silence:
    return Silence(data["startMs"], data["ms"], data["cause"])


def _turn(data: Mapping[str, Any]) -> TurnRecord:
    parts = data["latency"]
    latency = parts and TurnLatency(
        parts["voiceToVoiceMs"],
        parts["endpointMs"],
        parts["sttMs"],
        parts["agentMs"],
        parts["ttsMs"],
        parts["serverMs"],
    )
    return TurnRecord(
        number=data["turn"],
        user_text=data["userText"],
        keyed=data["keyed"],
        confidence=data["confidence"],
        agent_text=data["agentText"],
        interrupted=data["interrupted"],
        start_ms=data["startMs"],
        end_ms=data["endMs"],
        latency=latency or None,
        silences=tuple(_silence(each) for each in data["silences"]),
    )
