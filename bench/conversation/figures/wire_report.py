"""Rows and text of the calls over SIP and RTP: targets that only these can show, and a comparison with the
virtual clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from bench.conversation.figures.metrics import percentiles

RESPONSE_MS: Final = {"p50": 500.0, "p95": 700.0}
AGREE_MS: Final = 40.0
LOSS_MS: Final = 100.0
SERVER_MS: Final = 30.0

HEAD: Final = (
    "scenario", "codec", "calls", "as wanted", "virtual clock",
    "p50 / p95 ms", "virtual clock", "p50 apart", "else",
)  # fmt: skip

Row = tuple[str, ...]


def target_rows(figures: Mapping[str, Any]) -> Iterator[Row]:
    """Yields rows of target, limit, measured value, baseline, and whether the target is met."""
    wire = figures.get("wire", ())
    for name, limit in RESPONSE_MS.items():
        found = [each["wire"].get(name) for each in wire if each["scenario"] == "clean turn"]
        if None not in found and found:
            yield _row(f"response over SIP and RTP, {name}, worse codec", limit, max(found))
    apart = [each["apart_ms"] for each in wire if "apart_ms" in each]
    if apart:
        yield _row("wire and virtual clock apart, worst p50", AGREE_MS, max(apart))
    parts = server_ms(wire)
    if parts["count"]:
        yield _row("server's own part of a response on the wire, p95", SERVER_MS, parts["p95"])
    name = "5 % loss and 40 ms jitter add to the response, p95"
    costs = {codec: _loss_costs(wire, codec) for codec in ("pcmu", "opus")}
    known = [cost for cost in costs.values() if cost is not None]
    if known:
        yield _row(f"{name}, wire, worse codec", LOSS_MS, max(known))
    ours, theirs = (_loss_cost(figures.get(level, {})) for level in ("session", "vad_only"))
    if ours is not None:
        yield _row(f"{name}, virtual clock", LOSS_MS, ours, theirs)


def rows(figures: Mapping[str, Any]) -> list[Row]:
    """Returns rows of the wire beside the virtual clock."""
    return [
        (
            each["scenario"],
            each["codec"],
            str(each["calls"]),
            f"{each['as_wanted']:.3g}",
            f"{each['virtual_as_wanted']:.3g}",
            _pair(each["wire"]),
            _pair(each["virtual"]),
            f"{each['apart_ms']:.0f}" if "apart_ms" in each else "",
            "; ".join(f"{reason}: {count}" for reason, count in each["reasons"].items()),
        )
        for each in figures.get("wire", ())
    ]


def text(figures: Mapping[str, Any]) -> list[str]:
    """Returns the text that explains the table."""
    wire = figures.get("wire", ())
    late, own = percentiles([ms for each in wire for ms in each["late_ms"]]), server_ms(wire)
    return [
        "The same callers over SIP and RTP against a running server, beside the same calls on the virtual",
        "clock in the same codec. Times are of yielding where the caller interrupts, else of answering;",
        "apart is the median of what each call's two levels differ by.",
        "",
        f"By its own account the server took {_pair(own, 1)} ms (p50 / p95 of {own['count']} responses).",
        f"The callers, all in one process, sent their own frames {_pair(late, 1)} ms late (p50 / p95 of the",
        "calls, of each its p99).",
        "",
    ]


def server_ms(wire: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Returns the server's own part of every response, by its account: p50, p95 and the count."""
    return percentiles([ms for each in wire for ms in each["server_ms"]])


def _loss_costs(wire: Sequence[Mapping[str, Any]], codec: str) -> float | None:
    return _loss_cost(
        {each["scenario"]: {"response_ms": each["wire"]} for each in wire if each["codec"] == codec}
    )


def _loss_cost(scenes: Mapping[str, Mapping[str, Any]]) -> float | None:
    lossy, clean = (
        scenes.get(name, {}).get("response_ms", {}).get("p95") for name in ("loss and jitter", "clean turn")
    )
    return None if lossy is None or clean is None else float(lossy - clean)


def _row(name: str, limit: float, value: float, beside: float | None = None) -> Row:
    met = "met" if value <= limit else "missed"
    reached = f"{value:.0f}" if abs(value) >= 10 else f"{value:.1f}"
    return name, f"≤ {limit:g} ms", reached, "" if beside is None else f"{beside:.0f}", met


def _pair(figures: Mapping[str, float], digits: int = 0) -> str:
    return f"{figures['p50']:.{digits}f} / {figures['p95']:.{digits}f}" if figures.get("count") else ""
