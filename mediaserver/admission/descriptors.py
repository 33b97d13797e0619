"""How many files and sockets the process may have, and which of them are kept for calls.

Whoever connects takes a descriptor, and a call that finds none is refused. So connections of HTTP and of SIP
get none above a number (see `sip.stack.listening`): what is above is for the sound of calls, their recordings
and their engines.
"""

from __future__ import annotations

import resource
from typing import Final

MOST: Final = 1 << 20
"""A limit above that is not asked for: other programs walk through it."""

PER_CALL: Final = 6
"""RTP, RTCP, the recording, and connections to a recogniser, a model and a voice."""

PROCESS: Final = 150
"""The database, processes of engines, listeners, what is read now and then."""


def highest() -> int:
    """The limit that `raise_limit` reaches."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)


def limit() -> int:
    """The limit of this process as it is."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else soft


def raise_limit() -> int:
    """Raises the limit of this process to what it is allowed; gives it as it then is."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit() < highest():
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest(), hard))
    return limit()


def needed(max_calls: int, http_connections: int) -> int:
    """How many a server uses that is full."""
    return PER_CALL * max_calls + PROCESS + http_connections


def for_calls(max_calls: int, most: int) -> int:
    """How many of `most` are kept for `max_calls` calls: what they need, but no more than half."""
    return min(PER_CALL * max_calls + PROCESS, most // 2)


def http_ceiling(max_calls: int, most: int) -> int:
    """The descriptor from which on none is HTTP's."""
    return most - for_calls(max_calls, most)


def sip_ceiling(max_calls: int, most: int) -> int:
    """The descriptor from which on none is a SIP connection's: a call over TCP needs one, and others too."""
    return most - for_calls(max_calls, most) // 2
