"""The options of an engine of one's own, checked as those of the built-in ones.

A class of options is a pydantic model: `mediaserver check` names each key that it does not know, and each
value that does not fit."""

from __future__ import annotations

from pipeline.engines.tables import EngineTable as Options
from pipeline.engines.tables import read_table as read_options

__all__ = ["Options", "read_options"]
