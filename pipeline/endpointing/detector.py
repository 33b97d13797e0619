"""Asks whoever judges the end of a turn, within a time: a model in a thread, else the built-in judge."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Executor
from typing import Final

from pipeline.endpointing.policy import EndOfTurnScorer, TurnEvidence
from pipeline.endpointing.scorer import BuiltInDetector, by_words, unfinished
from pipeline.errors import EngineError, contained

DEADLINE_S: Final = 0.1
"""A model that takes longer is not waited for: the silence it judges would be longer than it saves."""

log = logging.getLogger(__name__)


class EndOfTurnDetector:
    """Shared by the calls of an agent. `model` runs in `executor`; words that settle the question (digits
    that are still missing, a complete answer) are not put to it, since it hears only the voice, and nothing
    is where nobody can tell whose voice it is."""

    def __init__(
        self,
        model: EndOfTurnScorer | None = None,
        executor: Executor | None = None,
        *,
        deadline_s: float = DEADLINE_S,
        built_in: BuiltInDetector | None = None,
    ) -> None:
        self.late = 0  # answers that the built-in judge had to give instead
        self._model = model
        self._executor = executor
        self._deadline_s = deadline_s
        self._built_in = built_in or BuiltInDetector()

    async def p_eot(self, evidence: TurnEvidence) -> float:
        """From 0 (more comes) to 1 (done), at the latest after the deadline. Never raises."""
        certain = by_words(evidence)
        if certain is not None:
            return certain
        if self._model is not None and evidence.audio.size and not unfinished(evidence):
            loop = asyncio.get_running_loop()
            try:
                async with asyncio.timeout(self._deadline_s):
                    with contained("the turn model"):
                        return await loop.run_in_executor(self._executor, self._model.p_eot, evidence)
            except TimeoutError:
                self.late += 1
            except EngineError as error:
                self.late += 1
                log.warning("turn model failed", extra={"reason": str(error)})
        return self._built_in.weighed(evidence)
