"""The base of engines that stand in for models, in benchmarks and tests."""

from __future__ import annotations


class Stub:
    """An engine without resources: starting and closing it does nothing."""

    async def start(self) -> None:
        """Does nothing: the engine is ready when it is made."""

    async def close(self) -> None:
        """Does nothing: the engine holds no resources."""
