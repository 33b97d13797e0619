"""`mediaserver serve`: starts the engines, whose models load in processes of their own, and imports what the
rest of the server is made of meanwhile."""

from __future__ import annotations

import asyncio
import gc
from pkgutil import resolve_name
from typing import Any

from mediaserver.settings import Settings
from mediaserver.wiring import engines_of


async def launch(settings: Settings, **options: Any) -> int:
    """Runs the server with `options` as `mediaserver.serve.run` has them; returns the exit status."""
    engines = engines_of(settings)
    starting = asyncio.create_task(engines.start(), name="engines")
    try:
        run, build = await asyncio.to_thread(_imported)
        gc.freeze()
        gc.enable()
        status: int = await run(settings, build, engines=engines, **options)
        return status
    finally:
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await engines.close()


def _imported() -> tuple[Any, Any]:
    return resolve_name("mediaserver.serve:run"), resolve_name("api.app:build")
