"""Plays what an agent says in a voice of its own: the sound as it is made, the words beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from pipeline.agent import OwnSpeech
from pipeline.audio.levels import Audibility
from pipeline.audio.resample import Resampler
from pipeline.engines.aio import closing
from pipeline.errors import EngineError
from pipeline.media.playout import MAX_QUEUED_S, Playout

_TAIL_MS: Final = 10  # zeros that push the last samples out of the resampler


async def play(
    speech: OwnSpeech, playout: Playout, resampler: Resampler, sounded: Callable[[], None]
) -> None:
    """Writes `speech` to the playout as an utterance, and returns when all of it is there. `sounded`: called
    before each piece with sound. Raises `EngineError`."""
    utterance = playout.begin(interruptible=True)
    utterance.on_cut = speech.cut
    utterance.begin_piece("")
    sound = Audibility(playout.rate_hz)
    try:
        async with closing(speech.pieces()) as pieces:
            async for piece in pieces:
                utterance.continue_piece(piece.text)
                if piece.samples.size:
                    sounded()
                    samples = resampler(piece.samples)
                    sound.add(samples)
                    playout.write(samples)
                    await playout.room(MAX_QUEUED_S)
    except EngineError:
        playout.end()
        raise
    if speech.broke_off:
        utterance.break_piece(sound.quiet_samples)
    else:
        if resampler.delay_samples:
            playout.write(resampler(np.zeros(resampler.from_hz * _TAIL_MS // 1000, np.int16)))
        utterance.end_piece(sound.quiet_samples)
    playout.end()
