"""One row of the media plane, stepped by hand: a stream without sockets, threads and time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from pipeline.leg import LegListener
from pipeline.plane.called import address_of, count_sent_at, due_at, take_at
from pipeline.plane.outgoing import Outgoing
from pipeline.plane.rows import KEYS, Field, Happened, rows, scratch, shared
from pipeline.plane.setup import begin_sending, configure, configure_sending, detect_tones, prepare
from sip.rtp.heard import Heard
from sip.rtp.media_formats import receiving, sending
from sip.rtp.media_stream import PATIENCE_MS
from sip.rtp.telephone_event import DIGITS
from sip.sdp.media_plan import MediaPlan

_NS: Final = 1_000_000_000
_FAR: Final = bytes(range(16))
"""The sockaddr of the far end, whatever it says."""


class SteppedStream:
    """A stream whose datagrams and ticks are given to it. `on_sent` hears of each frame of the agent's that
    left, `on_keyed` of the number of digits sent. `urgent`: what was told last was wanted at once."""

    def __init__(
        self, plan: MediaPlan, *, rate_hz: int, now: float, poke: Callable[[], None] | None = None,
        inband_dtmf: bool = False,
    ) -> None:  # fmt: skip
        self.on_sent: Callable[[float], None] | None = None
        self.on_keyed: Callable[[int], None] | None = None
        self.aside: list[bytes] = []
        self.urgent = False
        self._rows, self._scratch, self._shared = rows(1), scratch(), shared()
        self._clock = self._shared["clock"]
        self.line: Any = self._rows[0]
        self._at = address_of(self.line)
        self._step = self._at, address_of(self._scratch), address_of(self._shared)
        prepare(self.line, 0, rate_hz=rate_hz, patience_ms=PATIENCE_MS)
        begin_sending(self.line, -1, first_due_ns=round(now * _NS))
        self.line["remote"][: len(_FAR)] = list(_FAR)
        self.line["remote_size"] = len(_FAR)
        self.heard = Heard(self.line)
        self.outgoing = Outgoing(self.line, poke or (lambda: None))
        self.configure(plan, inband_dtmf=inband_dtmf)

    def configure(self, plan: MediaPlan, *, inband_dtmf: bool = False) -> None:
        """See `MediaStream.configure`."""
        receives = receiving(plan)
        configure(self.line, receives)
        detect_tones(self.line, wanted=inband_dtmf or receives.events_type < 0)
        configure_sending(self.line, sending(plan))

    @property
    def listener(self) -> LegListener | None:
        """Who hears the frames."""
        return self.heard.listener

    @listener.setter
    def listener(self, listener: LegListener | None) -> None:
        self.heard.listener = listener

    def datagram(self, data: bytes, now: float, *, sender: bytes = _FAR) -> bool:
        """A datagram arrives. Whether it was the far end's."""
        shared = self._shared
        shared["packet"][: len(data)] = np.frombuffer(data, np.uint8)
        shared["sender"][: len(sender)] = list(sender)
        self._clock[Field.SIZE], self._clock[Field.SENDER_LENGTH] = len(data), len(sender)
        taken = take_at(*self._step, round(now * _NS))
        self._tell(now)
        return bool(taken)

    def due(self, now: float, *, lost: bool = False) -> list[bytes]:
        """The packets that leave by now; `lost`: the socket does not take them."""
        packets = []
        self._clock[Field.BETWEEN] = 0
        for k in range(due_at(*self._step, round(now * _NS))):
            size = int(self._shared["outgoing"][k])
            count_sent_at(self._at, 0 if lost else size)
            if not lost:
                packets.append(self._shared["outbox"][k, :size].tobytes())
        self._tell(now)
        return packets

    @property
    def due_between(self) -> float | None:
        """When a packet leaves before the next tick, where one does."""
        return int(self._clock[Field.BETWEEN_NS]) / _NS if self._clock[Field.BETWEEN] else None

    def key(self, digits: str) -> None:
        """Digits are to be sent."""
        for digit in digits:
            self.line["wanted_keys"][int(self.line["keys_wanted"]) % KEYS] = DIGITS.index(digit)
            self.line["keys_wanted"] += 1

    def _tell(self, now: float) -> None:
        clock, events = self._clock, self._shared["events"]
        self.urgent, clock[Field.URGENT] = bool(clock[Field.URGENT]), 0
        while clock[Field.EVENT_TAIL] < clock[Field.EVENT_HEAD]:
            _, kind, one, two = events[int(clock[Field.EVENT_TAIL]) % len(events)].tolist()
            clock[Field.EVENT_TAIL] += 1
            if kind == Happened.HEARD:
                self.heard.pass_on(one, two, now)
            elif kind == Happened.SENT and self.on_sent is not None:
                self.on_sent(two / _NS)
            elif kind == Happened.KEYED and self.on_keyed is not None:
                self.on_keyed(one)
            elif kind == Happened.ASIDE:
                size = int(self.line["aside_size"][one, 0])
                self.aside.append(self.line["aside"][one, :size].tobytes())
                self.line["asides_read"] += 1
