"""The options of the conformance suites, as a plugin of pytest. It loads nothing of the server, since every
run of pytest loads it."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options by which an author names the engine, what it is to hear and in which language."""
    group = parser.getgroup("mediaserver")
    group.addoption("--engine", default="", help='the engine under test: "module:Class", or a name')
    group.addoption("--engine-options", default="{}", help="its options, as JSON")
    group.addoption("--engine-says", default="yes please", help="what a caller says")
    group.addoption("--engine-language", default="en", help="the language of the engine")
