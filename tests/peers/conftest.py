"""What the tests against other programs share: the same tests on each engine of `sip.endpoint`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sip.endpoint import Endpoint
from sip.states import Engine
from sip.trunk import Trunk
from sip.trunk_settings import TrunkSettings


@pytest.fixture(params=["native", pytest.param("pjsua2", marks=pytest.mark.nightly("ci"))])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """The engine of every trunk that the test adds. A test that is marked `native` has one engine."""
    named: Engine = request.param
    marker = request.node.get_closest_marker("native")
    if named != "native" and marker is not None:
        pytest.skip(marker.args[0])
    add = Endpoint.add_trunk

    def of_the_engine(self: Endpoint, settings: TrunkSettings) -> Trunk:
        return add(self, replace(settings, engine=named))

    monkeypatch.setattr(Endpoint, "add_trunk", of_the_engine)
    return named
