"""A telephone on baresip, the independent stack at the other end of the demo where PJSIP has no wheel.

baresip is a process of its own, told what to do over its control connection: JSON in netstrings. It plays
files, and ends the call with the file; so every file that it is given goes on with silence for `SILENT_S`.
setpriv (util-linux) lets it end with this process, however that ends."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mediaserver.demo.telephone import CLOCK_RATE_HZ, Report
from mediaserver.errors import LocalError
from mediaserver.local_node import free_port
from pipeline.audio import wav
from pipeline.audio.resample import resample

SILENT_S = 180
"""Longer than anybody listens in the demo."""

START_S = 20

HEARD_RATE_HZ = 8000
"""baresip writes what it decodes as it came over the line."""

NUMBER = "+14155550123"
"""The number that the demo calls: baresip answers for its own user only."""

CONFIG = """\
poll_method epoll
sip_listen 127.0.0.1:{port}
net_interface 127.0.0.1
ctrl_tcp_listen 127.0.0.1:{control}
audio_source aufile,{silence}
audio_alert none
ausrc_srate {rate}
auplay_srate {rate}
ausrc_channels 1
auplay_channels 1
rtp_ports 46000-46999
snd_path {directory}
module_path {modules}
module g711.so
module aufile.so
module sndfile.so
module_tmp uuid.so
module_tmp account.so
module_app menu.so
module_app ctrl_tcp.so
"""


@dataclass
class HeardLine:
    """One call: baresip's file of what it decodes, and whether the call is over."""

    number: int
    recording: Path
    ended: bool = False


class Baresip:
    """baresip at `port` of loopback, which answers after `options["answer_after_s"]`."""

    def __init__(
        self, directory: Path, report: Report, *, port: int, options: Mapping[str, Any] | None = None
    ) -> None:
        self.port, self.heard_rate_hz = port, HEARD_RATE_HZ
        self.lines: list[HeardLine] = []
        self._directory, self._report = directory, report
        self._answer_after_s = float((options or {}).get("answer_after_s", 0.0))
        self._answer_at = 0.0
        self._rest = b""
        self._played = 0
        self._silence = self._padded(np.zeros(0, np.int16), "silence")
        control = self._configure()
        self._process = subprocess.Popen(
            ("setpriv", "--pdeathsig", "TERM", "baresip", "-f", str(directory)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        self._control = self._connected(control)

    def _configure(self) -> int:
        """Writes the files that baresip reads; returns the port of its control connection."""
        control = free_port()
        modules = next((each for each in _module_folders() if each.is_dir()), None)
        if modules is None:
            raise LocalError("baresip is installed without its modules")
        values = {"port": self.port, "control": control, "rate": CLOCK_RATE_HZ, "modules": modules}
        text = CONFIG.format(silence=self._silence, directory=self._directory, **values)
        (self._directory / "config").write_text(text)
        account = f"<sip:{NUMBER}@127.0.0.1:{self.port}>;regint=0;audio_codecs=PCMU,PCMA\n"
        (self._directory / "accounts").write_text(account)
        (self._directory / "contacts").touch()
        return control

    def _connected(self, port: int) -> socket.socket:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self._process.poll() is None:
            with contextlib.suppress(OSError):
                return socket.create_connection(("127.0.0.1", port), timeout=1)
            time.sleep(0.05)
        self.close()
        raise LocalError("baresip did not start")

    def poll(self, timeout_ms: int = 10) -> None:
        """Handles baresip's events for up to `timeout_ms`."""
        if select.select([self._control], [], [], timeout_ms / 1000)[0]:
            data = self._control.recv(65536)
            if not data:
                raise LocalError("baresip ended")
            self._rest += data
        while (event := self._next()) is not None:
            self._happened(event)
        if self._answer_at and time.monotonic() >= self._answer_at:
            self._answer_at = 0.0
            self._command("accept")

    def play(self, line: int, file: str) -> None:
        """Plays a 16-bit mono WAV file into the call, once."""
        samples, rate_hz = wav.read(file)
        self._played += 1
        path = self._padded(resample(samples, rate_hz, CLOCK_RATE_HZ), f"said{self._played}")
        self._command("ausrc", f"aufile,{path}")

    def close(self) -> None:
        """Ends baresip, and with it the call."""
        if hasattr(self, "_control"):
            self._control.close()
        self._process.terminate()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _padded(self, samples: np.typing.NDArray[np.int16], name: str) -> Path:
        path = self._directory / f"{name}.wav"
        silence = np.zeros(SILENT_S * CLOCK_RATE_HZ, np.int16)
        wav.write(path, np.concatenate([samples, silence]), CLOCK_RATE_HZ)
        return path

    def _next(self) -> dict[str, Any] | None:
        """Takes the next whole message off what has arrived: "LENGTH:JSON,"."""
        length, colon, rest = self._rest.partition(b":")
        if not colon or len(rest) <= int(length):
            return None
        self._rest = rest[int(length) + 1 :]
        message: dict[str, Any] = json.loads(rest[: int(length)])
        return message

    def _happened(self, message: Mapping[str, Any]) -> None:
        kind = message.get("type")
        if kind == "CALL_INCOMING":
            self._report("incoming", {"line": len(self.lines), "from": message.get("peeruri", "")})
            self._answer_at = time.monotonic() + self._answer_after_s
        elif kind == "CALL_ESTABLISHED":
            heard = max(self._directory.glob("*dec.wav"), key=lambda path: path.stat().st_mtime_ns)
            self.lines.append(HeardLine(len(self.lines), heard))
        elif kind == "CALL_CLOSED" and self.lines:
            self.lines[-1].ended = True

    def _command(self, command: str, params: str = "") -> None:
        text = json.dumps({"command": command, "params": params})
        self._control.sendall(f"{len(text)}:{text},".encode())


def _module_folders() -> list[Path]:
    return [Path("/usr/lib/baresip/modules"), *Path("/usr/lib").glob("*/baresip/modules")]
