"""The PostgreSQL server that the tests of a run share."""

from __future__ import annotations

import atexit
import functools

from bench.support.cluster import FASTER, Cluster


@functools.cache
def shared() -> Cluster:
    """The server; it goes with the process."""
    cluster = Cluster(**FASTER)
    atexit.register(cluster.remove)
    cluster.prepare_template()
    return cluster
