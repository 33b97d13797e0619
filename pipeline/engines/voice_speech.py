"""Speech of a voice process, as an engine gives it out: whole words with their times."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import numpy as np

from pipeline.engines.espeak_text import SpeechCutter
from pipeline.engines.voice_process import VoiceProcess
from pipeline.engines.voice_wire import unpack_chunk
from pipeline.speech import SpeechChunk


async def chunks_of(
    process: VoiceProcess, request: Mapping[str, Any], cutter: SpeechCutter
) -> AsyncGenerator[SpeechChunk, None]:
    """What `process` makes of `request`, cut at the words by `cutter`. Raises what `VoiceProcess.speak`
    does."""
    async with aclosing(process.speak(request)) as payloads:
        async for payload in payloads:
            raw, events = unpack_chunk(payload)
            chunk = cutter.push(np.frombuffer(raw, "<i2").astype(np.int16, copy=False), events)
            if chunk is not None:
                yield chunk
    rest = cutter.finish()
    if rest is not None:
        yield rest
