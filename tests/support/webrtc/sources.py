"""Counts the sources that an SRTP session knows."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import pylibsrtp


def known(session: pylibsrtp.Session, ssrcs: Iterable[int]) -> int:
    """Returns of how many of these sources libsrtp has a context, and removes those."""
    count = 0
    for ssrc in ssrcs:
        with suppress(pylibsrtp.Error):
            session.remove_stream(ssrc)
            count += 1
    return count
