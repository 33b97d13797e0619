"""Formats the table of targets, the table of scenarios, and the page with both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from bench import report
from bench.conversation.figures import wire_report
from bench.conversation.scenarios import SCENARIOS

Scenes = Mapping[str, Mapping[str, Any]]
"""`bench.conversation.figures.metrics.summary` by scenario."""


@dataclass(frozen=True, slots=True)
class Target:
    """A row of the table: name, limit (None: no target), and a function that reads the value from the
    scenarios' figures (None: not measured). `each`: the same for a single scenario, to find the worst."""

    name: str
    limit: float | None
    read: Callable[[Scenes], float | None]
    at_least: bool = False
    unit: str = "ms"
    each: Callable[[str], Callable[[Scenes], float | None]] | None = None

    def verdict(self, value: float) -> str:
        """Returns "met" or "missed", "" where there is no target."""
        if self.limit is None:
            return ""
        met = value >= self.limit if self.at_least else value <= self.limit
        return "met" if met else "missed"

    @property
    def wanted(self) -> str:
        """The target as text, "" for none."""
        sign = "≥" if self.at_least else "≤"
        return "" if self.limit is None else f"{sign} {self.limit:g} {self.unit}".strip()

    def worst(self, scenes: Scenes) -> str:
        """Returns the scenario with the highest figure as " (worst: FIGURE, NAME)"."""
        found = [(value, name) for name in scenes if self.each and (value := self.each(name)(scenes))]
        return f" (worst: {_text(max(found)[0])}, {max(found)[1]})" if found else ""


def _percentile(scenario: str, figure: str, name: str) -> Callable[[Scenes], float | None]:
    def read(scenes: Scenes) -> float | None:
        value = scenes.get(scenario, {}).get(figure, {}).get(name)
        return None if value is None else float(value)

    return read


def _values(metric: str, figure: str, scenes: Scenes) -> list[float]:
    found = [scenes[each][figure] for each in _of(metric) if each in scenes]
    return [value for each in found for value in each["each"]]


def _yield_of_all(figure: str, percent: int) -> Target:
    def read(scenes: Scenes) -> float | None:
        values = _values("yield", figure, scenes)
        return float(np.percentile(values, percent)) if values else None

    what = "silent" if figure == "yield_ms" else "10 dB lower for good, or silent,"
    return Target(
        f"{what} after an interruption, p{percent}",
        YIELD_MS[percent],
        read,
        each=lambda scenario: _percentile(scenario, figure, f"p{percent}"),
    )


def _unbroken(metric: str) -> Callable[[Scenes], float | None]:
    def read(scenes: Scenes) -> float | None:
        values = _values(metric, "hushed_ms", scenes)
        return sum(value == 0 for value in values) / len(values) if values else None

    return read


def _good(metric: str) -> Callable[[Scenes], float | None]:
    def read(scenes: Scenes) -> float | None:
        found = [scenes[each] for each in _of(metric) if each in scenes]
        calls = sum(each["calls"] for each in found)
        return sum(each["as_wanted"] * each["calls"] for each in found) / calls if calls else None

    return read


def _sum(figure: str, metrics: Sequence[str], *, per: str = "") -> Callable[[Scenes], float | None]:
    def read(scenes: Scenes) -> float | None:
        found = [scenes[each] for metric in metrics for each in _of(metric) if each in scenes]
        if not found:
            return None
        total = sum(each[figure] for each in found)
        below = sum(each[per] for each in found) if per else 1
        return float(total / below) if below else None

    return read


def _bad_calls(metric: str) -> Callable[[Scenes], float | None]:
    def read(scenes: Scenes) -> float | None:
        found = [scenes[each] for each in _of(metric) if each in scenes]
        return float(sum(round((1 - each["as_wanted"]) * each["calls"]) for each in found)) if found else None

    return read


def _of(metric: str) -> list[str]:
    return [name for name, scenario in SCENARIOS.items() if scenario.metric == metric]


_EVERY_TURN: Final = ("response", "cut-off", "digits", "yield", "loss", "in noise")
_ALL: Final = tuple(dict.fromkeys(scenario.metric for scenario in SCENARIOS.values()))
YIELD_MS: Final = {50: 350, 95: 600}
TARGETS: Final = (
    Target("response on the virtual clock, p50", 500, _percentile("clean turn", "response_ms", "p50")),
    Target("response on the virtual clock, p95", 700, _percentile("clean turn", "response_ms", "p95")),
    Target("digit dictations split", 0, _bad_calls("digits"), unit="calls"),
    Target("yield rate", 1.0, _good("yield"), at_least=True, unit=""),
    *(_yield_of_all(figure, percent) for figure in ("lowered_ms", "yield_ms") for percent in YIELD_MS),
    Target("selectivity: backchannel", 0.98, _good("backchannel"), at_least=True, unit=""),
    Target("backchannels without any pause of the agent's", None, _unbroken("backchannel")),
    Target('selectivity: cough, thump, keyboard, "um"', 0.99, _good("noise"), at_least=True, unit=""),
    Target("selectivity: talk to someone else", 0.95, _good("aside"), at_least=True, unit=""),
    Target("agent interrupts the caller, per turn", 0.01, _sum("cut_in", _EVERY_TURN, per="turns"), unit=""),
    Target(
        "histories at most 1 word off",
        0.99,
        _sum("words_within_1", ("yield",), per="words_compared"),
        at_least=True,
        unit="",
    ),
    Target("self-interruptions by echo of the line, 12 to 30 dB", 0, _bad_calls("echo"), unit="calls"),
    Target("speech over such echo", 60, _sum("agent_minutes", ("echo",)), at_least=True, unit="min"),
    Target("self-interruptions by echo of a room, 12 to 30 dB", 0, _bad_calls("room echo"), unit="calls"),
    Target("speech over such echo", 60, _sum("agent_minutes", ("room echo",)), at_least=True, unit="min"),
    Target("silences above 2 s without a cause", 0, _sum("unexplained", _ALL), unit=""),
)


def target_rows(figures: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Returns rows of target, measured value, baseline, and whether the target is met."""
    rows: list[tuple[str, ...]] = []
    for target in TARGETS:
        value, beside = target.read(figures["session"]), target.read(figures["vad_only"])
        if value is None:
            continue
        rows.append(
            (
                target.name,
                target.wanted,
                _text(value) + target.worst(figures["session"]),
                _text(beside),
                target.verdict(value),
            )
        )
    rows += wire_report.target_rows(figures)
    held_out = next(iter(figures.get("end_of_turn", ())), None)
    for budget, share in ((300, 0.05), (600, 0.01)):
        if held_out is not None:
            point = held_out[f"at_{budget}_ms"]
            value, beside = point["real_lengths"], point["real_lengths_fixed_silence"]
            met = "met" if value <= share else "missed"
            name = f"false cut-offs at a mean delay of {budget} ms"
            rows.append((name, f"≤ {share:g}", _text(value), _text(beside), met))
    return rows


def scenario_rows(figures: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Returns a row for each scenario: calls, as wanted, response, both yields, with the baseline's
    values."""
    rows: list[tuple[str, ...]] = []
    for name, ours in figures["session"].items():
        beside = figures["vad_only"].get(name, {})
        rows.append(
            (
                name,
                str(ours["calls"]),
                _text(ours["as_wanted"]),
                _text(beside.get("as_wanted")),
                _pair(ours["response_ms"]),
                _pair(beside.get("response_ms", {})),
                _pair(ours["lowered_ms"]),
                _pair(ours["yield_ms"]),
                "; ".join(
                    (*_turn_by_turn(name, ours), *(f"{why}: {n}" for why, n in ours["reasons"].items()))
                ),
            )
        )
    return rows


def _turn_by_turn(name: str, ours: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the first turn beside later ones for scenarios in noise, which is learnt in the first turn."""
    if SCENARIOS[name].metric != "in noise":
        return ()
    return (f"first turn {_pair(ours['first_ms'])}, later {_pair(ours['later_ms'])}",)


def end_rows(figures: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Returns a row for each set of turns: the share of pauses taken for an end at both mean delays, with
    that of a fixed silence in brackets; with even lengths, and with those of people's pauses."""
    return [
        (
            each["name"],
            str(each["voices"]),
            f"{each['ends']} / {each['pauses']}",
            *(_beside(each[f"at_{budget}_ms"], "cut_off", "fixed_silence") for budget in (300, 600)),
            *(
                _beside(each[f"at_{budget}_ms"], "real_lengths", "real_lengths_fixed_silence")
                for budget in (300, 600)
            ),
            f"{each['defaults'][1]:.3f} at {each['defaults'][0]:.0f}",
        )
        for each in figures.get("end_of_turn", ())
    ]


def _beside(point: Mapping[str, float], ours: str, fixed: str) -> str:
    return f"{point[ours]:.3f} ({point[fixed]:.3f})"


_TARGET_HEAD: Final = ("what", "target", "reached", "VAD only", "")
_SCENE_HEAD: Final = (
    "scenario", "calls", "as wanted", "VAD only",
    "response p50 / p95 ms", "VAD only", "10 dB lower p50 / p95 ms", "silent p50 / p95 ms", "else",
)  # fmt: skip
_END_HEAD: Final = (
    "turns", "voices", "ends / pauses", "300 ms", "600 ms",
    "300 ms, people's lengths", "600 ms, people's lengths", "as shipped, at ms",
)  # fmt: skip


def show(figures: Mapping[str, Any]) -> None:
    """Prints the tables on the terminal."""
    report.show("conversations: targets", _TARGET_HEAD, target_rows(figures))
    report.show("conversations: scenarios", _SCENE_HEAD, scenario_rows(figures))
    if figures.get("end_of_turn"):
        report.show("conversations: false cut-offs", _END_HEAD, end_rows(figures))
    if figures.get("wire"):
        report.show("conversations: the wire", wire_report.HEAD, wire_report.rows(figures))


def page(figures: Mapping[str, Any], pictures: Mapping[str, str]) -> str:
    """Returns the text of results/conversation.md."""
    parts = [
        "# Conversations",
        "",
        "**All voices are synthetic** (espeak-ng's and one of flite's; noises of sox's), and the models are",
        "stand-ins with fixed budgets. What is measured is turn-taking: read it as a comparison, not as a",
        "promise about people. The weights of the built-in scorer were set on sentences of the same kind;",
        "false cut-offs are those on sentences and voices that they were not set on. On the virtual clock",
        "computing takes no time: the server's own part of a response is that of the calls over SIP and RTP.",
        "Definitions are in [bench/README.md](../README.md#conversations).",
        "",
        *_table(_TARGET_HEAD, target_rows(figures)),
        "",
        *_table(_SCENE_HEAD, scenario_rows(figures)),
        "",
    ]
    if figures.get("end_of_turn"):
        parts += ["Pauses taken for the end of a turn, a fixed silence's share in brackets:", ""]
        parts += [*_table(_END_HEAD, end_rows(figures)), ""]
    if figures.get("wire"):
        parts += [
            *wire_report.text(figures),
            *_table(wire_report.HEAD, wire_report.rows(figures)),
            "",
        ]
    for name, path in pictures.items():
        parts += [f"![{name}]({path})", ""]
    return "\n".join(parts)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    rule = "|---|" + "---:|" * (len(head) - 1)
    return ["| " + " | ".join(head) + " |", rule, *("| " + " | ".join(row) + " |" for row in rows)]


def _text(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if abs(value) >= 10 or value == int(value) else f"{value:.3f}"


def _pair(figures: Mapping[str, float]) -> str:
    return f"{figures['p50']:.0f} / {figures['p95']:.0f}" if figures.get("count") else ""
