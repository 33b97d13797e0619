"""Limits of open files and sockets, and how many of them are reserved for calls.

Every connection takes a descriptor, and a call that finds none is refused. So connections of HTTP and of SIP
get no descriptor above a ceiling (`sip.stack.listening`): those above are for the media of calls, their
recordings and their engines."""

from __future__ import annotations

import resource
from typing import Final

MOST: Final = 1 << 20
"""The highest limit that is asked for: some programs loop over all descriptors."""

PER_CALL: Final = 6
"""RTP, RTCP, the recording, and connections to a recogniser, a model and a voice."""

PROCESS: Final = 150
"""Descriptors of the database, the engines' processes, the listeners, and files read now and then."""


def highest() -> int:
    """Returns the limit that `raise_limit` reaches."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)


def limit() -> int:
    """Returns the present limit of this process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else soft


def raise_limit() -> int:
    """Raises the limit of this process as far as allowed; returns the new limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit() < highest():
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest(), hard))
    return limit()


def needed(max_calls: int, http_connections: int) -> int:
    """Returns how many descriptors a fully loaded server uses."""
    return PER_CALL * max_calls + PROCESS + http_connections


def for_calls(max_calls: int, most: int) -> int:
    """Returns how many of `most` descriptors are reserved for `max_calls` calls: what they need, but no more
    than half."""
    return min(PER_CALL * max_calls + PROCESS, most // 2)


def http_ceiling(max_calls: int, most: int) -> int:
    """Returns the descriptor from which on HTTP gets none."""
    return most - for_calls(max_calls, most)


def sip_ceiling(max_calls: int, most: int) -> int:
    """Returns the descriptor from which on SIP connections get none: a call over TCP needs one, so they have
    half of the reserve."""
    return most - for_calls(max_calls, most) // 2
