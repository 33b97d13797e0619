"""SIPp, the carriers' test tool, running one scenario of `tests/support/sip/scenarios` in another process."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.support.paths import SUPPORT
from tests.support.ports import free_port

SCENARIOS = SUPPORT / "sip" / "scenarios"
PATIENCE_S = 25


class Sipp:
    """`async with Sipp("uas_early_media", tmp_path) as sipp: ...; await sipp.passed()`."""

    def __init__(
        self,
        scenario: str,
        directory: Path,
        *,
        target: int | None = None,
        calls: int = 1,
        options: tuple[str, ...] = (),
    ) -> None:
        self.port = free_port()
        self._directory = directory
        self._command = [
            "sipp", "-sf", str(SCENARIOS / f"{scenario}.xml"), "-i", "127.0.0.1", "-p", str(self.port),
            "-m", str(calls), "-l", str(calls), "-nostdin", "-timeout", f"{PATIENCE_S - 5}s",
            "-timeout_error", "-trace_err", "-error_file", str(directory / "sipp-errors.log"),
            "-s", "+14155550101", *options, f"127.0.0.1:{target or 9}",
        ]  # fmt: skip

    async def __aenter__(self) -> Sipp:
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            cwd=self._directory,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def passed(self) -> None:
        """Waits for the end; fails with SIPp's own words unless every call went as the scenario says."""
        async with asyncio.timeout(PATIENCE_S):
            _, said = await self._process.communicate()
        errors = self._directory / "sipp-errors.log"
        text = errors.read_text(errors="replace") if errors.exists() else said.decode(errors="replace")
        assert self._process.returncode == 0, text[-3000:]
