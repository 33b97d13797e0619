"""Is a recording the same whether frames come one by one or many at once?"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pipeline.media.recording import RecordingWriter

RATE, N = 8000, 160


def frames_of(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-9000, 9000, (count, N)).astype(np.int16)


async def test_frames_many_at_once_are_recorded_as_one_by_one(tmp_path: Path) -> None:
    writer = RecordingWriter()
    writer.start()
    one, many = (writer.open(tmp_path / f"{name}.wav", rate_hz=RATE, now=10.0) for name in ("one", "many"))
    heard, said = frames_of(400, 1), frames_of(400, 2)
    positions = np.cumsum([N] * 400) + N * 7 * (np.arange(400) > 120) + N * 3000 * (np.arange(400) > 300)
    arrived = [round((10.05 + 0.02 * at + (0.03 if at % 17 == 0 else 0.0)) * 1e9) for at in range(400)]
    sent = [round((10.01 + 0.02 * at + (0.4 if at > 200 else 0.0)) * 1e9) for at in range(400)]
    told = [(int(p), a, 0, 0, 0.0) for p, a in zip(positions, arrived, strict=True)]
    for at in range(400):
        one.caller(heard[at], told[at][0], arrived[at] / 1e9)
        one.agent(said[at], sent[at] / 1e9)
    for first in range(0, 400, 28):
        block = slice(first, first + 28)
        many.caller_frames(heard[block], told[block])
        many.agent_frames(said[block], [(at, 1) for at in sent[block]])
    paths = [await each.close(now=20.0) for each in (one, many)]
    await writer.close()
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert one.lost_blocks == many.lost_blocks == 0
