"""Conformance suites for engines: `pytest --pyargs mediaserver.testing.stt --engine my_package:Engine`."""
