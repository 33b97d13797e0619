"""`mediaserver serve`: starts the engines, whose models load in processes of their own, and imports what the
rest of the server is made of meanwhile."""

from __future__ import annotations

import asyncio
import gc
from pkgutil import resolve_name
from typing import Any

from mediaserver.settings import Settings
from mediaserver.signals import Signals
from mediaserver.wiring import engines_of


async def launch(settings: Settings, **options: Any) -> int:
    """Runs the server with `options` as `mediaserver.serve.run` has them; returns the exit status.
    A signal that stops it before all is imported ends the engines too."""
    signals = Signals.installed()
    engines = engines_of(settings)
    starting = asyncio.create_task(engines.start(), name="engines")
    importing = asyncio.create_task(asyncio.to_thread(_imported), name="imports")
    stopping = asyncio.create_task(signals.stop.wait(), name="stop")
    try:
        await asyncio.wait({importing, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not importing.done():
            return 0
        run, build = importing.result()
        gc.freeze()
        gc.enable()
        status: int = await run(settings, build, engines=engines, signals=signals, **options)
        return status
    finally:
        tasks = (starting, importing, stopping)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await engines.close()


def _imported() -> tuple[Any, Any]:
    return resolve_name("mediaserver.serve:run"), resolve_name("api.app:build")
