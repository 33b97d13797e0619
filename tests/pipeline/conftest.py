"""What the tests of the pipeline share: servers on this machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pipeline.net.egress import EgressPolicy, egress_policy


@pytest.fixture
def at_home() -> Iterator[None]:
    """This machine's own addresses may be reached."""
    with egress_policy(EgressPolicy(["127.0.0.0/8"])):
        yield
