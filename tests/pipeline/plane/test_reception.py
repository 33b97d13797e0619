"""Is what we report of a source what RFC 3550 says? Its appendix, written down as it stands, judges."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.support.stepped_stream import SteppedStream
from sip.rtp.packet import RtpPacket
from sip.rtp.reception_stats import Reception
from sip.sdp.media_plan import OPUS, PCMU
from tests.support.speech.media import plan

SEQ_MOD, MAX_DROPOUT, MAX_MISORDER = 1 << 16, 3000, 100


class Appendix:
    """A.1 and A.3 of a source that is believed from its first packet."""

    def __init__(self) -> None:
        self.max_seq = self.cycles = self.base_seq = self.received = 0
        self.bad_seq = SEQ_MOD + 1
        self.expected_prior = self.received_prior = 0
        self.begun = False

    def init_seq(self, seq: int) -> None:
        self.base_seq = self.max_seq = seq
        self.bad_seq = SEQ_MOD + 1
        self.cycles = self.received = self.received_prior = self.expected_prior = 0

    def update_seq(self, seq: int) -> None:
        if not self.begun:
            self.begun = True
            self.init_seq(seq)
        udelta = (seq - self.max_seq) % SEQ_MOD
        if udelta < MAX_DROPOUT:
            if seq < self.max_seq:
                self.cycles += SEQ_MOD
            self.max_seq = seq
        elif udelta <= SEQ_MOD - MAX_MISORDER:
            if seq != self.bad_seq:
                self.bad_seq = (seq + 1) % SEQ_MOD
                return
            self.init_seq(seq)
        self.received += 1

    def report(self) -> tuple[int, int, int]:
        """Fraction, cumulative number of packets lost, extended highest number."""
        extended_max = self.cycles + self.max_seq
        expected = extended_max - self.base_seq + 1
        expected_interval = expected - self.expected_prior
        received_interval = self.received - self.received_prior
        self.expected_prior, self.received_prior = expected, self.received
        lost_interval = expected_interval - received_interval
        none = expected_interval == 0 or lost_interval <= 0
        return (
            0 if none else (lost_interval << 8) // expected_interval,
            expected - self.received,
            extended_max,
        )


class Heard:
    """A source of G.711 (or of `payload_type`) on a row of the plane."""

    def __init__(self) -> None:
        self.stream = SteppedStream(plan(receive={0: PCMU, 111: OPUS}), rate_hz=8000, now=0.0)
        self.reception = Reception(self.stream.line)

    def packet(
        self, sequence: int, timestamp: int = 0, now: float = 0.0, *, payload_type: int = 0, ssrc: int = 5
    ) -> None:
        packet = RtpPacket(payload_type, sequence % SEQ_MOD, timestamp % (1 << 32), ssrc, b"\x08\x08\x08\x08")
        self.stream.datagram(packet.to_bytes(), now)

    def report(self) -> tuple[int, int, int]:
        block = self.reception.block(0, 0)
        return block.fraction_lost, block.lost, block.highest_sequence


def both(sequences: Iterable[int]) -> tuple[Heard, Appendix]:
    heard, appendix = Heard(), Appendix()
    for sequence in sequences:
        heard.packet(sequence)
        appendix.update_seq(sequence % SEQ_MOD)
    return heard, appendix


@pytest.mark.parametrize(
    ("sequences", "lost", "highest"),
    [
        pytest.param(range(65_500, 65_600), 0, 65_599, id="wrap"),
        pytest.param([65_534, 0, 65_535, 1, 3, 2], 0, SEQ_MOD + 3, id="reordered over the wrap"),
        pytest.param([10, 11, 11, 11, 12], -2, 12, id="duplicates"),
        pytest.param([10, 12, 14, 16], 3, 16, id="every second lost"),
        pytest.param([10, 11, 30_000, 12], 0, 12, id="a stray number"),
        pytest.param([10, 11, 30_000, 30_001, 30_002], 0, 30_002, id="a restart"),
        pytest.param([10, 11, 30_000, 40_000, 40_001], 0, 40_001, id="a restart after a stray number"),
        pytest.param([10, 10 + MAX_DROPOUT - 1], MAX_DROPOUT - 2, 10 + MAX_DROPOUT - 1, id="longest loss"),
        pytest.param([10, 10 + MAX_DROPOUT], 0, 10, id="a jump beyond it"),
        pytest.param([500, 501, 501 - MAX_MISORDER + 1], -1, 501, id="as late as can be"),
        pytest.param([500, 501, 501 - MAX_MISORDER], 0, 501, id="later: a jump back"),
        pytest.param([5, 65_530, 65_531], -2, 5, id="older than the first"),
    ],
)
def test_numbers_are_counted_as_in_a_1(sequences: Iterable[int], lost: int, highest: int) -> None:
    heard, appendix = both(sequences)
    fraction, counted, extended = heard.report()
    assert (counted, extended) == (lost, highest)
    assert (fraction, counted, extended) == appendix.report()


STEPS = st.lists(
    st.one_of(
        st.integers(-3, 3),
        st.just(1),
        st.sampled_from([-MAX_MISORDER, -MAX_MISORDER - 1, MAX_DROPOUT - 1, MAX_DROPOUT, 0x8000]),
        st.integers(0, SEQ_MOD - 1),
    ),
    max_size=60,
)


@settings(deadline=None)
@given(st.integers(0, SEQ_MOD - 1), st.lists(STEPS, min_size=1, max_size=3))
def test_any_order_is_reported_as_the_appendix_does(first: int, intervals: list[list[int]]) -> None:
    """With a report after each interval: the fraction is of what came since the one before."""
    heard, appendix = both([first])
    sequence = first
    for steps in intervals:
        for step in steps:
            sequence = (sequence + step) % SEQ_MOD
            heard.packet(sequence)
            appendix.update_seq(sequence)
        assert heard.report() == appendix.report()


def test_a_restart_forgets_the_interval_before_it() -> None:
    heard, appendix = both(range(0, 200, 2))
    assert heard.report() == appendix.report()
    for sequence in [40_000, *range(40_001, 40_500)]:
        if sequence % 5 or sequence < 40_003:
            heard.packet(sequence)
            appendix.update_seq(sequence)
    assert heard.report() == appendix.report()


def test_a_new_source_begins_at_nothing() -> None:
    heard, _ = both(range(0, 100, 2))
    assert heard.report()[1] == 49
    for sequence in range(10):
        heard.packet(30_000 + sequence, now=1.0 + sequence / 50, ssrc=6)
    assert heard.reception.ssrc == 6
    assert heard.report() == (0, 0, 30_009)  # the first was not believed yet


@settings(deadline=None)
@given(
    st.lists(st.floats(0, 0.5), min_size=2, max_size=60),
    st.integers(0, (1 << 32) - 1),
)
def test_jitter_is_that_of_a_8(delays_s: list[float], timestamp: int) -> None:
    heard, jitter, before = Heard(), 0.0, None
    for place, delay_s in enumerate(delays_s):
        arrived_s = 1 + place * 0.6 + delay_s
        heard.packet(place, timestamp + place * 4800, arrived_s)
        transit = arrived_s * 8000 - place * 4800
        if before is not None:
            jitter += (abs(transit - before) - jitter) / 16
        before = transit
    assert heard.reception.jitter == pytest.approx(jitter, abs=0.01)
    assert heard.reception.block(0, 0).jitter == int(heard.reception.jitter)


def test_what_is_no_audio_makes_no_jitter() -> None:
    heard = Heard()
    for place in range(50):
        heard.packet(2 * place, place * 160, place * 0.02)
        event = RtpPacket(101, 2 * place + 1, 0, 5, b"\x01\x0a\x00\xa0")
        heard.stream.datagram(event.to_bytes(), place * 0.02 + 0.01)
    assert heard.reception.jitter == 0


def test_jitter_counts_in_the_clock_of_the_codec_that_comes() -> None:
    """Also where an event comes first, whose clock is another."""
    heard = Heard()
    heard.stream.datagram(RtpPacket(101, 1, 0, 5, b"\x01\x0a\x00\xa0").to_bytes(), 0.0)
    for place in range(200):
        late_s = 0.010 * (place % 2)
        heard.packet(2 + place, place * 960, place * 0.02 + late_s, payload_type=111)
    assert heard.reception.jitter_ms == pytest.approx(10, abs=0.1)
    for place in range(200, 400):
        heard.packet(2 + place, place * 160, place * 0.02)
    assert heard.reception.jitter_ms == 0
