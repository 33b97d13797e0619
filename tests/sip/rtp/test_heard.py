"""Is nothing heard twice, or out of its order, by a listener whose event loop was late?"""

from __future__ import annotations

import pytest

from pipeline.plane.rows import HEARD, rows
from pipeline.plane.setup import prepare
from sip.rtp.heard import Heard
from tests.support.speech.media import RecordingListener


@pytest.mark.parametrize("frames", [10, HEARD, 170, 1000])
def test_what_a_late_loop_is_told_is_in_order_and_heard_once(frames: int) -> None:
    line = rows(1)[0]
    prepare(line, 0, rate_hz=8000, patience_ms=40)
    heard = Heard(line)
    heard.listener = recorder = RecordingListener()
    for number in range(frames):
        line["heard_frames"][number % HEARD] = (160 * number, 0, 0, 0, 0.0)
    line["frames"] = frames
    for told in range(1, frames + 1):  # the events of a loop that stood still, one after the other
        heard.pass_on(told, 0, 1.0)
    positions = [position // 160 for position in recorder.positions]
    assert positions == list(range(frames - len(positions), frames))
    assert len(positions) >= min(frames, HEARD - 8)
