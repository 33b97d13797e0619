"""A softphone on PJSIP, the independent stack at the other end of the demo and of the tests.

Runs as a process of its own (`python -m mediaserver.demo.softphone --dir DIR`): commands are JSON lines on
standard input, events JSON lines on standard output. PJSIP dictates the shape: one endpoint per process, four
calls at most, one thread for everything (a pjsua2 object that dies on a foreign thread aborts the process),
audio through PJSIP's own player and recorder because Python callbacks on its clock thread crash.
"""

from __future__ import annotations

import json
import os
import random
import select
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import pjsua2 as pj

from mediaserver.demo.telephone import CLOCK_RATE_HZ, Events, Report


@dataclass
class Line:
    """One call of the softphone. Outlives the PJSIP object, which must be freed with its call."""

    number: int
    recording: Path
    state: str = "new"
    status: int = 0
    digits: str = ""
    ended: bool = False
    has_audio: bool = False
    audio: Any = None
    recorder: Any = None
    player: Any = None
    players: list[Any] = field(default_factory=list)

    def release(self) -> None:
        """Drops PJSIP's media objects; on PJSIP's thread only."""
        self.audio = self.recorder = self.player = None
        self.players.clear()


class SoftCall(pj.Call):  # type: ignore[misc]
    """A PJSIP call. Its callbacks report events and update `line`; none may raise."""

    def __init__(self, phone: Softphone, line: Line, call_id: int = pj.PJSUA_INVALID_ID) -> None:
        super().__init__(phone.account, call_id)
        self.phone, self.line = phone, line

    def onCallState(self, _param: Any) -> None:
        info, line = self.getInfo(), self.line
        line.state, line.status = info.stateText, info.lastStatusCode
        self.phone.report("state", {"line": line.number, "state": line.state, "status": line.status})
        if info.state == pj.PJSIP_INV_STATE_DISCONNECTED:
            line.ended = True
            line.release()
            # At once: a destructor that comes later hangs up whichever new call has the slot by then.
            self.phone.calls.pop(line.number, None)

    def onCallMediaState(self, _param: Any) -> None:
        line, info = self.line, self.getInfo()  # `info` is kept: its list of media dies with it
        for index, media in enumerate(info.media):
            if media.type != pj.PJMEDIA_TYPE_AUDIO:
                continue
            active = media.status == pj.PJSUA_CALL_MEDIA_ACTIVE
            self.phone.report("media", {"line": line.number, "active": active, "status": media.status})
            if active:
                line.audio = self.getAudioMedia(index)
                self.phone.connect(line)

    def onDtmfDigit(self, param: Any) -> None:
        self.line.digits += param.digit
        self.phone.report("digit", {"line": self.line.number, "digit": param.digit})

    def onCallTransferRequest(self, param: Any) -> None:
        param.statusCode = 603  # accepted by default: a stranger could dial at our cost

    def onCallReplaceRequest(self, param: Any) -> None:
        param.statusCode = 603


class SoftAccount(pj.Account):  # type: ignore[misc]
    """The PJSIP account, which passes incoming calls to `phone`."""

    phone: Softphone

    def onIncomingCall(self, param: Any) -> None:
        self.phone.arrived(param.callId)


class Softphone:
    """One PJSIP endpoint on loopback. Its owner calls `poll` at least every 20 ms."""

    def __init__(
        self, directory: Path, report: Report, *, port: int = 0, options: Mapping[str, Any] | None = None
    ) -> None:
        options = options or {}
        self.directory, self.report, self.port = directory, report, port
        self.heard_rate_hz = CLOCK_RATE_HZ
        self.answer_after_s = options.get("answer_after_s")
        self.answer_code = int(options.get("answer_code", 200))
        self.calls: dict[int, SoftCall] = {}
        self.lines: list[Line] = []
        self._answer_at: dict[int, float] = {}
        self._endpoint = self._start_endpoint(int(options.get("log_level", 0)))
        self._transport = self._listen("tcp" if options.get("tcp") else "udp")
        self._choose_codecs(tuple(options.get("codecs", ("PCMU", "PCMA"))))
        self.account = self._open_account(options)

    def _start_endpoint(self, log_level: int) -> Any:
        endpoint = pj.Endpoint()
        endpoint.libCreate()
        config = pj.EpConfig()
        config.logConfig.level = config.logConfig.consoleLevel = log_level
        config.uaConfig.threadCnt = 0
        config.uaConfig.mainThreadOnly = True
        config.uaConfig.userAgent = "softphone"
        config.medConfig.clockRate = config.medConfig.sndClockRate = CLOCK_RATE_HZ
        config.medConfig.noVad = True
        config.medConfig.ecTailLen = 0
        config.medConfig.sndAutoCloseTime = -1
        config.medConfig.jbMaxPre = 3
        endpoint.libInit(config)
        endpoint.audDevManager().setNullDev()
        return endpoint

    def _listen(self, transport: str) -> int:
        config = pj.TransportConfig()
        config.port, config.boundAddress = self.port, "127.0.0.1"
        kind = pj.PJSIP_TRANSPORT_TCP if transport == "tcp" else pj.PJSIP_TRANSPORT_UDP
        transport_id = int(self._endpoint.transportCreate(kind, config))
        self._endpoint.libStart()
        self.transport = transport
        self.port = int(self._endpoint.transportGetInfo(transport_id).localName.rpartition(":")[2])
        return transport_id

    def _choose_codecs(self, codecs: tuple[str, ...]) -> None:
        wanted = {name.lower(): 255 - place for place, name in enumerate(codecs)}
        for codec in self._endpoint.codecEnum2():
            name = codec.codecId.partition("/")[0].lower()
            self._endpoint.codecSetPriority(codec.codecId, wanted.get(name, 0))

    def _open_account(self, options: Mapping[str, Any]) -> SoftAccount:
        config = pj.AccountConfig()
        config.idUri = str(options.get("identity") or f"sip:softphone@127.0.0.1:{self.port}")
        config.sipConfig.transportId = self._transport
        config.callConfig.timerUse = pj.PJSUA_SIP_TIMER_OPTIONAL
        config.callConfig.prackUse = pj.PJSUA_100REL_OPTIONAL
        config.mediaConfig.transportConfig.boundAddress = "127.0.0.1"
        config.mediaConfig.transportConfig.port = int(
            options.get("rtp_port") or random.randrange(40000, 60000, 16)
        )
        if options.get("srtp"):
            mandatory = options["srtp"] == "mandatory"
            config.mediaConfig.srtpUse = pj.PJMEDIA_SRTP_MANDATORY if mandatory else pj.PJMEDIA_SRTP_OPTIONAL
            config.mediaConfig.srtpSecureSignaling = 0
        if options.get("username"):
            credential = pj.AuthCredInfo("digest", "*", options["username"], 0, options.get("password", ""))
            config.sipConfig.authCreds.append(credential)
        account = SoftAccount()
        account.phone = self
        account.create(config, True)
        return account

    # Calls

    def _new_line(self) -> Line:
        line = Line(len(self.lines), self.directory / f"line{len(self.lines)}-heard.wav")
        self.lines.append(line)
        return line

    def arrived(self, call_id: int) -> None:
        """Rings for an INVITE, and answers it after `answer_after_s` (None: only on command)."""
        line = self._new_line()
        call = self.calls[line.number] = SoftCall(self, line, call_id)
        info = call.getInfo()
        self.report("incoming", {"line": line.number, "from": info.remoteUri, "to": info.localUri})
        self._answer(call, pj.PJSIP_SC_RINGING)
        if self.answer_after_s is not None:
            self._answer_at[line.number] = time.monotonic() + float(self.answer_after_s)

    def _answer(self, call: SoftCall, code: int) -> None:
        param = pj.CallOpParam(True)
        param.statusCode = code
        call.answer(param)

    def answer(self, line: int, code: int = 200) -> None:
        """Answers a ringing line, or refuses it with the SIP status `code`."""
        self._answer(self.calls[line], code)

    def dial(self, uri: str) -> Line:
        """Calls the SIP URI `uri`; returns the line of the call."""
        line = self._new_line()
        call = self.calls[line.number] = SoftCall(self, line)
        call.makeCall(uri, pj.CallOpParam(True))
        return line

    def hang_up(self, line: int, code: int = 0) -> None:
        """Ends the call of `line` if it is still there; `code` refuses a ringing one."""
        if call := self.calls.get(line):
            param = pj.CallOpParam()
            param.statusCode = code
            call.hangup(param)

    def hold(self, line: int) -> None:
        """Holds the call: re-INVITE with sendonly."""
        self.calls[line].setHold(pj.CallOpParam(True))

    def resume(self, line: int) -> None:
        """Resumes a held call: re-INVITE with sendrecv."""
        param = pj.CallOpParam(True)
        param.opt.flag = pj.PJSUA_CALL_UNHOLD
        self.calls[line].reinvite(param)

    def dtmf(self, line: int, digits: str) -> None:
        """Sends `digits` as RFC 4733 events."""
        self.calls[line].dialDtmf(digits)

    # Audio

    def connect(self, line: Line) -> None:
        """Connects the far end's audio to the recorder, which is made once: hold and resume go on in one
        file."""
        if line.recorder is None:
            line.recorder = pj.AudioMediaRecorder()
            line.recorder.createRecorder(str(line.recording))
        line.audio.startTransmit(line.recorder)
        line.has_audio = True

    def play(self, line: int, file: str) -> None:
        """Plays a 16-bit mono WAV file into the call, once."""
        this = self.lines[line]
        if this.audio is None:
            return
        player = pj.AudioMediaPlayer()
        player.createPlayer(file, pj.PJMEDIA_FILE_NO_LOOP)
        player.startTransmit(this.audio)
        this.players.append(player)  # kept until the call ends: PJSIP may still be reading it

    # The one thread

    def poll(self, timeout_ms: int = 10) -> None:
        """Handles PJSIP's events for up to `timeout_ms`; to be called at least every 20 ms."""
        self._endpoint.libHandleEvents(timeout_ms)
        now = time.monotonic()
        for number in [n for n, at in self._answer_at.items() if at <= now]:
            del self._answer_at[number]
            if number in self.calls:
                self.answer(number, self.answer_code)

    def close(self) -> None:
        """Hangs up every call and frees the stack; no PJSIP object may outlive it."""
        self._endpoint.hangupAllCalls()
        deadline = time.monotonic() + 1.0
        while self.calls and time.monotonic() < deadline:
            self.poll()
        for line in self.lines:
            line.release()
        self.calls.clear()
        self.account.shutdown()
        del self.account
        self._endpoint.libDestroy()


class Commands:
    """Reads JSON lines from standard input without blocking."""

    def __init__(self) -> None:
        self._rest = b""
        os.set_blocking(0, False)

    def read(self) -> list[dict[str, Any]] | None:
        """Returns the commands that have arrived, None at the end of input."""
        if not select.select([0], [], [], 0)[0]:
            return []
        data = os.read(0, 65536)
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines if line.strip()]


def obey(phone: Softphone, command: dict[str, Any]) -> None:
    """Carries out one command; a refusal by PJSIP becomes an event, not an exception."""
    verb = command.pop("do")
    if verb not in ("answer", "dial", "hang_up", "hold", "resume", "dtmf", "play"):
        phone.report("error", {"do": verb, "reason": "no such command"})
        return
    try:
        getattr(phone, verb)(**command)
    except (pj.Error, KeyError, IndexError) as error:
        phone.report("error", {"do": verb, "reason": getattr(error, "reason", str(error))})


@click.command()
@click.option(
    "--dir", "directory", type=click.Path(path_type=Path), required=True, help="Where recordings go."
)
@click.option("--port", default=0, help="SIP port on 127.0.0.1; 0 takes a free one.")
@click.option(
    "--options",
    default="{}",
    help="JSON: answer_after_s, answer_code, codecs, srtp, tcp, username, password.",
)
def main(directory: Path, port: int, options: str) -> None:
    """Runs a softphone until `{"do": "quit"}` or the end of input."""
    directory.mkdir(parents=True, exist_ok=True)
    report, commands = Events(), Commands()
    phone = Softphone(directory, report, port=port, options=json.loads(options))
    report("ready", {"port": phone.port, "transport": phone.transport})
    running = True
    while running:
        phone.poll()
        arrived = commands.read()
        for command in arrived or ():
            if command["do"] == "quit":
                running = False
            else:
                obey(phone, command)
        running = running and arrived is not None
    phone.close()


if __name__ == "__main__":
    main()
