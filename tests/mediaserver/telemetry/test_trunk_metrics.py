"""Figures by trunk have a bound, whoever makes trunks."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mediaserver.telemetry.metrics import Metrics
from mediaserver.telemetry.trunk_metrics import OTHERS, SHOWN
from sip.call import CallFailed
from sip.states import HangupCause

MANY = [f"trunk-{place:04d}" for place in range(SHOWN + 50)]


def figures(metrics: Metrics) -> dict[str, float]:
    """The calls of each label of a trunk."""
    families = text_string_to_metric_families(metrics.exposition().decode())
    (family,) = [each for each in families if each.name == "mediaserver_trunk_calls"]
    return {each.labels["trunk"]: each.value for each in family.samples}


def fail(metrics: Metrics, trunk: str) -> None:
    """A call over the trunk whose INVITE cannot leave."""
    with pytest.raises(CallFailed), metrics.trunks.placing(trunk):
        raise CallFailed("the trunk's name has no address", 503, HangupCause.UNREACHABLE)


def test_beyond_a_number_trunks_are_counted_together() -> None:
    metrics = Metrics()
    metrics.trunks.registered = lambda: dict.fromkeys(MANY, True)
    for trunk in MANY:
        fail(metrics, trunk)
    shown = figures(metrics)
    assert len(shown) == SHOWN + 1
    assert shown[OTHERS] == len(MANY) - SHOWN
    assert set(shown.values()) == {1.0, shown[OTHERS]}
    assert metrics.exposition().count(b"\nmediaserver_trunk_registered{") == SHOWN + 1


def test_a_trunks_figures_go_with_it() -> None:
    metrics = Metrics()
    trunks: dict[str, bool | None] = {"one": None, "two": None}
    metrics.trunks.registered = lambda: trunks
    for trunk in ("one", "two", "two"):
        fail(metrics, trunk)
    assert figures(metrics) == {"one": 1, "two": 2}
    del trunks["two"]
    assert figures(metrics) == {"one": 1}
    trunks["two"] = None
    fail(metrics, "two")
    assert figures(metrics) == {"one": 1, "two": 1}
