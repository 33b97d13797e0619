"""Does every stream get a pair of its own, and a full range a clear refusal?"""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from sip.rtp.ports import NoPortsLeft, PortRange
from tests.support.ports import free_rtp_range

HOST = "127.0.0.1"


@contextmanager
def bound(ports: PortRange) -> Iterator[int]:
    rtp, rtcp = ports.bind(HOST)
    port = int(rtp.getsockname()[1])
    try:
        assert port % 2 == 0
        assert rtcp.getsockname()[1] == port + 1
        assert not rtp.getblocking()
        yield port
    finally:
        rtp.close()
        rtcp.close()
        ports.release(port)


def free_range(pairs: int) -> PortRange:
    """A range in which every pair is free just now."""
    while True:
        ports = PortRange(*free_rtp_range(2 * pairs))
        with ExitStack() as stack:
            try:
                for _ in range(pairs):
                    stack.enter_context(bound(ports))
            except NoPortsLeft:
                continue
            return ports


def test_pairs_are_even_and_odd_and_all_different() -> None:
    ports = free_range(8)
    with ExitStack() as stack:
        taken = [stack.enter_context(bound(ports)) for _ in range(8)]
        assert len(set(taken)) == 8
        assert ports.in_use == ports.capacity == 8
    assert ports.in_use == 0


def test_a_full_range_says_so_and_recovers() -> None:
    ports = free_range(3)
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(bound(ports))
        with bound(ports) as last, pytest.raises(NoPortsLeft, match=r"3 RTP port pairs.*3 of them by calls"):
            ports.bind(HOST)
        with bound(ports) as again:
            assert again == last


def test_a_port_just_freed_comes_round_last() -> None:
    ports = free_range(5)
    with bound(ports) as first:
        pass
    following = []
    for _ in range(4):
        with bound(ports) as port:
            following.append(port)
    assert first not in following


def test_ports_of_other_programs_are_passed_over() -> None:
    ports = free_range(2)
    with bound(ports) as first, bound(ports) as second:
        pass
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as foreign:
        foreign.bind((HOST, first + 1))  # the RTCP port is enough to spoil a pair
        for _ in range(3):
            with bound(ports) as port:
                assert port == second
        with bound(ports), pytest.raises(NoPortsLeft, match="1 of them by calls"):
            ports.bind(HOST)


def test_the_start_is_random() -> None:
    starts = set()
    for seed in range(12):
        with bound(PortRange(30_000, 39_999, rng=random.Random(seed))) as port:
            starts.add(port)
    assert len(starts) > 8


@pytest.mark.parametrize(("first", "last"), [(0, 100), (5, 4), (65000, 70000), (20001, 20002), (7, 7)])
def test_a_range_without_a_pair_is_refused(first: int, last: int) -> None:
    with pytest.raises(ValueError, match=r"ports|RTP port"):
        PortRange(first, last)


def test_an_odd_start_gives_no_pair_away_that_is_not_inside() -> None:
    assert PortRange(20001, 20005).capacity == 2


def test_an_address_that_is_not_ours_is_the_callers_error() -> None:
    ports = PortRange(30_000, 30_999)
    with pytest.raises(OSError, match="assign"):
        ports.bind("203.0.113.7")
    assert ports.in_use == 0


def test_ipv6_is_bound_too() -> None:
    ports = PortRange(30_000, 39_999)
    rtp, rtcp = ports.bind("::1")
    assert rtp.family == socket.AF_INET6
    rtp.close()
    rtcp.close()
