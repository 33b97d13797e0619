"""Readers that stop reading: a pipe that is full until somebody empties it, and calls meanwhile."""

from __future__ import annotations

import asyncio
import fcntl
import os
import time

from tests.support.sip.raw_call import RawCall
from tests.support.waiting import until

_SIZE = 4096


class StallingPipe:
    """A pipe: `output` is for the writing process, `text` is what it wrote, `stall` fills it up."""

    def __init__(self) -> None:
        self._reading, self.output = os.pipe()
        fcntl.fcntl(self.output, fcntl.F_SETPIPE_SZ, _SIZE)
        os.set_blocking(self._reading, False)
        self.text = ""

    def read(self) -> str:
        """Takes what there is; everything until now."""
        try:
            while data := os.read(self._reading, 65_536):
                self.text += data.decode().replace("\0", "")
        except BlockingIOError:
            pass
        return self.text

    async def wait_for(self, words: str, *, patience_s: float = 30.0) -> None:
        """Reads until `words` have been written."""
        await until(lambda: words in self.read(), patience_s)

    def stall(self) -> None:
        """Fills the pipe: from now on until `read`, whoever writes waits. A description of its own is made
        non-blocking, not the other process's."""
        filler = os.open(f"/proc/self/fd/{self.output}", os.O_WRONLY | os.O_NONBLOCK)
        try:
            while True:
                os.write(filler, b"\0")
        except BlockingIOError:
            os.close(filler)

    def close(self) -> None:
        os.close(self._reading)
        os.close(self.output)


async def packets_heard(call: RawCall, seconds: float) -> int:
    """How many packets the agent sends in `seconds`."""
    call.heard()
    until = time.monotonic() + seconds
    await call.hum(440, seconds)
    await asyncio.sleep(max(0.0, until - time.monotonic()))
    return len(call.heard())
