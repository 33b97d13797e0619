"""The pjsua2 softphone (`mediaserver.demo.softphone`) under a test's control, in a process of its own."""

from __future__ import annotations

import asyncio
import json
import sys
import wave
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from pipeline.audio import Pcm
from tests.support.paths import ROOT

PATIENCE_S = 20.0


class SoftphoneProcess:
    """`async with SoftphoneProcess(tmp_path, answer_after_s=0.1) as phone`."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.directory, self.options = directory, options
        self.events: list[Mapping[str, Any]] = []
        self.port = 0
        self._arrived = asyncio.Condition()

    async def __aenter__(self) -> SoftphoneProcess:
        command = ["-m", "mediaserver.demo.softphone", "--dir", str(self.directory)]
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *command,
            "--options",
            json.dumps(self.options),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=ROOT,
        )
        self._reader = asyncio.create_task(self._read())
        self.port = (await self.event("ready"))["port"]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.returncode is None:
            self.do("quit")
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        await self._reader

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            async with self._arrived:
                self.events.append(json.loads(line))
                self._arrived.notify_all()

    def do(self, verb: str, **fields: Any) -> None:
        """Sends a command."""
        assert self._process.stdin is not None
        self._process.stdin.write((json.dumps({"do": verb, **fields}) + "\n").encode())

    async def event(self, name: str, **fields: Any) -> Mapping[str, Any]:
        """The first event of that name with those fields, past or still to come."""

        def found() -> Mapping[str, Any] | None:
            for event in self.events:
                if event["event"] == name and fields.items() <= event.items():
                    return event
            return None

        async with asyncio.timeout(PATIENCE_S), self._arrived:
            while (event := found()) is None:
                await self._arrived.wait()
            return event

    def heard(self, line: int = 0) -> tuple[Pcm, int]:
        """What the softphone's user heard on `line` (complete once the line has ended), and its rate."""
        with wave.open(str(self.directory / f"line{line}-heard.wav")) as file:
            return np.frombuffer(file.readframes(file.getnframes()), np.int16), file.getframerate()
