"""One process of PJSIP: the INVITE sessions of four calls at most, no media, no network.

`python -m sip.pjsip.process CHANNEL RELAY` is started by `sip.pjsip.processes`. PJSIP's only peer is RELAY, a
UDP socket on loopback, over which this process hands it the messages of the server and takes its own. One
thread does everything, because a pjsua2 object that dies on another one aborts the process. It ends with
the server, when the channel does."""

from __future__ import annotations

import contextlib
import gc
import os
import select
import socket
import sys
import time
from collections import defaultdict
from typing import Any

import pjsua2 as pj

from pipeline.confinement.confinement import Confinement
from sip.pjsip.channel import BEAT_S, CALLS_LIMIT, MAX_FRAME, event, read

TICK_MS = 20
"""How often PJSIP's timers are looked at."""

MEMORY_MB = 512
"""Of its own data; a process with four calls has a tenth of it."""

DECLINE = 603


class PjsipCall(pj.Call):  # type: ignore[misc]
    """A call of PJSIP. Its callbacks must not raise: an exception would pin the call for good."""

    def __init__(self, engine: Engine, key: str, call_id: int = pj.PJSUA_INVALID_ID) -> None:
        super().__init__(engine.account, call_id)
        self.engine, self.key = engine, key

    def onCallState(self, _param: Any) -> None:
        """Tells the end, and drops the call at once: a destructor that comes later hangs up whichever new
        call has the slot by then."""
        info = self.getInfo()
        if info.state == pj.PJSIP_INV_STATE_DISCONNECTED:
            self.engine.calls.pop(self.key, None)
            self.engine.tell("ended", self.key, status=info.lastStatusCode, reason=info.lastReason)

    def onCallTransferRequest(self, param: Any) -> None:
        """Declines a REFER, which PJSIP obeys unless told otherwise; none comes this far."""
        param.statusCode = DECLINE

    def onCallReplaceRequest(self, param: Any) -> None:
        """Declines to be replaced, as above."""
        param.statusCode = DECLINE

    def onCallRedirected(self, _param: Any) -> int:
        """Follows no redirection: who may be called is the server's decision."""
        return int(pj.PJSIP_REDIRECT_STOP)


class PjsipAccount(pj.Account):  # type: ignore[misc]
    """PJSIP's account, which passes incoming calls to the engine."""

    engine: Engine

    def onIncomingCall(self, param: Any) -> None:
        """Takes a call that the server handed over."""
        self.engine.arrived(param.callId)


class Engine:
    """PJSIP's endpoint and its calls by key."""

    def __init__(self, channel: socket.socket, relay: socket.socket) -> None:
        self.calls: dict[str, PjsipCall] = {}
        self._channel, self._relay = channel, relay
        self._events: list[bytes] = []
        self._early: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)  # commands before the call
        self._endpoint = _endpoint()
        config = pj.TransportConfig()
        config.boundAddress, config.port = "127.0.0.1", 0
        self._transport = int(self._endpoint.transportCreate(pj.PJSIP_TRANSPORT_UDP, config))
        self._endpoint.libStart()
        host, _, port = self._endpoint.transportGetInfo(self._transport).localName.rpartition(":")
        relay.connect((host, int(port)))  # from now on it hears PJSIP alone
        relay.setblocking(False)
        self.account: PjsipAccount | None = None
        self.tell("ready", version=self._endpoint.libVersion().full)

    def tell(self, name: str, call: str = "", **fields: object) -> None:
        """Tells the server what happened, after what PJSIP sends meanwhile: the answer to a BYE, for one."""
        self._events.append(event(name, call, **fields))

    # Commands -------------------------------------------------------------------------------------------

    def obey(self, command: dict[str, Any]) -> None:
        """Carries out one command; what PJSIP refuses becomes an event."""
        verb, key = command.pop("do"), command.pop("call")
        try:
            match verb:
                case "account":
                    self.open_account(**command)
                case "dial":
                    self.dial(key, **command)
                case _ if key in self.calls:
                    self._change(self.calls[key], verb, **command)
                case "answer":  # its INVITE has not been read yet
                    self._early[key].append({"do": verb, "call": key, **command})
        except pj.Error as error:
            self.tell("failed", key, verb=verb, reason=error.reason or error.title)

    def open_account(
        self, *, username: str, password: str, expires_s: int, min_s: int, reliable: bool
    ) -> None:
        """Takes the account whose calls follow."""
        config = pj.AccountConfig()
        config.idUri = "sip:pjsip@127.0.0.1"
        sip, calls, media = config.sipConfig, config.callConfig, config.mediaConfig
        sip.transportId = self._transport
        sip.proxies.append(f"sip:127.0.0.1:{self._relay.getsockname()[1]};lr")
        if username:
            sip.authCreds.append(pj.AuthCredInfo("digest", "*", username, 0, password))
        calls.timerUse = pj.PJSUA_SIP_TIMER_OPTIONAL if expires_s else pj.PJSUA_SIP_TIMER_INACTIVE
        calls.timerSessExpiresSec, calls.timerMinSESec = max(expires_s, min_s), min_s
        calls.prackUse = pj.PJSUA_100REL_OPTIONAL if reliable else pj.PJSUA_100REL_NOT_USED
        media.useLoopMedTp, media.lockCodecEnabled = True, False
        if self.account is None:
            self.account = PjsipAccount()
            self.account.engine = self
            self.account.create(config, True)
        else:
            self.account.modify(config)

    def dial(self, key: str, *, uri: str) -> None:
        """Begins a call; its INVITE leaves over the relay before this returns."""
        call = self.calls[key] = PjsipCall(self, key)
        param = pj.CallOpParam(True)
        param.opt.customCallId = key
        try:
            call.makeCall(uri, param)
        except pj.Error:
            self.calls.pop(key, None)
            raise

    def _change(self, call: PjsipCall, verb: str, *, status: int = 0) -> None:
        if verb == "answer":
            param = pj.CallOpParam(True)
            param.statusCode = status
            call.answer(param)
        elif verb == "reinvite":
            param = pj.CallOpParam(True)
            param.opt.flag = pj.PJSUA_CALL_UNHOLD
            call.reinvite(param)
        elif verb == "hang_up":
            call.hangup(pj.CallOpParam())

    def arrived(self, call_id: int) -> None:
        """Takes an INVITE, and what the server has said of it meanwhile."""
        call = PjsipCall(self, "", call_id)
        call.key = call.getInfo().callIdString
        self.calls[call.key] = call
        self.tell("arrived", call.key)
        for each in self._early.pop(call.key, ()):
            self.obey(each)

    # The one thread -------------------------------------------------------------------------------------

    def run(self) -> None:
        """Works until the channel ends."""
        waiting, beat_at = select.poll(), 0.0
        for each in (self._channel, self._relay):
            waiting.register(each, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in waiting.poll(TICK_MS)}
            if self._channel.fileno() in ready and not self._take(self._channel.recv(MAX_FRAME)):
                return
            self._endpoint.libHandleEvents(0)
            if time.monotonic() >= beat_at:
                beat_at = time.monotonic() + BEAT_S
                self.tell("alive")
            self._pass_on()

    def _take(self, frame: bytes) -> bool:
        if not frame:
            return False
        if (command := read(frame)) is None:
            self._relay.send(frame)
        else:
            self.obey(command)
        return True

    def _pass_on(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                message = self._relay.recv(MAX_FRAME)
                if len(message) > len("\r\n\r\n"):  # shorter ones are keep-alives
                    self._channel.send(message)
        happened, self._events = self._events, []
        for each in happened:
            self._channel.send(each)


def _endpoint() -> Any:
    """Returns PJSIP's endpoint without threads, media clock, names and log."""
    endpoint = pj.Endpoint()
    endpoint.libCreate()
    config = pj.EpConfig()
    config.logConfig.level = config.logConfig.consoleLevel = 0
    config.uaConfig.threadCnt, config.uaConfig.mainThreadOnly = 0, True
    config.uaConfig.maxCalls = CALLS_LIMIT
    config.medConfig.threadCnt, config.medConfig.hasIoqueue = 0, False
    config.medConfig.sndAutoCloseTime = -1
    endpoint.libInit(config)
    endpoint.audDevManager().setNoDev()
    return endpoint


def main() -> None:
    """Runs the engine on the descriptors that the server gave."""
    gc.disable()
    descriptors = tuple(int(each) for each in sys.argv[1:3])
    Confinement(descriptors=descriptors, datagrams=True, memory_mb=MEMORY_MB).apply()
    channel, relay = (socket.socket(fileno=each) for each in descriptors)
    engine = Engine(channel, relay)
    with contextlib.suppress(ConnectionError):
        engine.run()
    os._exit(0)  # PJSIP aborts where one of its objects outlives it


if __name__ == "__main__":
    main()
