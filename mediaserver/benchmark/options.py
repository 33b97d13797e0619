"""What `mediaserver bench` was asked for; nothing heavy is imported here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`to` is a SIP address, "" where one's own agent is called: `agent_id` in the file `config`. `plan`: the
    fields of `mediaserver.benchmark.calls.CallPlan` but its target. `speech`: WAV files, () for the voice
    that comes with the server."""

    to: str = ""
    sure: bool = False
    config: str = ""
    agent_id: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    speech: tuple[Path, ...] = ()
    plan: Mapping[str, Any] = field(default_factory=dict)
    json: Path | None = None
    plot: Path | None = None
