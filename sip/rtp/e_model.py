"""How a call sounds, as the mean opinion score of ITU-T G.107 (the E-model), from what RTP and RTCP count.

    R = 93.2 - Idd - Ie,eff        MOS = 1 + 0.035 R + R (R - 60) (100 - R) 7e-6

93.2 is the rating of G.107's default values. Idd is the impairment by delay; Ie,eff that by the codec and its
losses, with Ie = 0 and Bpl = 25.1 of G.113 Appendix I, G.711 with concealment. Echo is left out: it does not
come from the network. Wideband codecs are rated on the same narrow-band scale, so that they are never rated
above G.711."""

from __future__ import annotations

import math
from typing import Final

DEFAULT_R: Final = 93.2
BPL: Final = 25.1
"""Robustness to loss of G.711 with packet loss concealment (G.113 Appendix I)."""

PACKET_MS: Final = 20.0
"""Delay of a packet of 20 ms before it is sent."""


def delay_ms(rtt_ms: float | None, jitter_ms: float) -> float:
    """Returns an estimate of the delay from mouth to ear in milliseconds: half the round trip, a packet, and
    twice the jitter for the far end's buffer. Without a round trip (no RTCP) the network's share is 0."""
    return (rtt_ms or 0.0) / 2 + PACKET_MS + 2 * jitter_ms


def rating(loss: float, delay: float) -> float:
    """Returns R, 0 to 93.2. `loss`: the share of packets lost, 0 to 1; `delay`: one way in milliseconds."""
    lost_percent = 100 * min(max(loss, 0.0), 1.0)
    equipment = 95 * lost_percent / (lost_percent + BPL)
    return max(0.0, DEFAULT_R - _delay_impairment(delay) - equipment)


def mean_opinion_score(loss: float, delay: float) -> float:
    """Returns MOS-CQ, 1.0 to 4.41, for `loss` and `delay` as in `rating`."""
    r = rating(loss, delay)
    return max(1.0, 1 + 0.035 * r + r * (r - 60) * (100 - r) * 7e-6)


def _delay_impairment(delay: float) -> float:
    """Returns Idd, which begins at 100 ms."""
    if delay <= 100:
        return 0.0
    x = math.log2(delay / 100)
    return float(25 * ((1 + x**6) ** (1 / 6) - 3 * (1 + (x / 3) ** 6) ** (1 / 6) + 2))
