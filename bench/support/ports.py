"""Finds free loopback ports for servers of benchmarks and tests."""

from __future__ import annotations

from mediaserver.local_node import free_port

__all__ = ["free_port"]
