"""The languages in which figures and signs are put into words."""

from __future__ import annotations

from typing import TypeAlias

from pipeline.text.arabic import Arabic
from pipeline.text.english import English

Reading: TypeAlias = English | Arabic
"""Reads values aloud in one language. Numbers are below 10**15."""
