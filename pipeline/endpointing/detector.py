"""Detects the end of a turn within a deadline, by a model in a thread or else by the built-in scorer."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Final

from pipeline.endpointing.policy import EVIDENCE_S, EndOfTurnScorer, TurnEvidence
from pipeline.endpointing.prosody import LOOK_BACK_S
from pipeline.endpointing.scorer import BuiltInDetector, by_words, unfinished
from pipeline.errors import EngineError, contained

DEADLINE_S: Final = 0.1
"""Longest wait for a model, in seconds: a longer wait costs more silence than the model saves."""

log = logging.getLogger(__name__)


class EndOfTurnDetector:
    """The end-of-turn detector of an agent, shared by its calls. `model` runs in `executor`, for `deadline_s`
    at most. Since a model has only the voice, it is not asked where the words decide (missing digits, a
    complete answer) or where the voice cannot be attributed to the caller."""

    def __init__(
        self,
        model: EndOfTurnScorer | None = None,
        executor: Executor | None = None,
        *,
        deadline_s: float = DEADLINE_S,
        built_in: BuiltInDetector | None = None,
    ) -> None:
        self.late = 0  # number of answers by the built-in scorer after a late or failed model
        self._model = model
        if model is not None and executor is None:  # of its own: one that blocks holds up nothing else
            executor = ThreadPoolExecutor(thread_name_prefix="end of turn")
        self._executor = executor
        self._deadline_s = deadline_s
        self._built_in = built_in or BuiltInDetector()

    @property
    def evidence_s(self) -> float:
        """The most of a caller's audio that is looked at, in seconds."""
        return LOOK_BACK_S if self._model is None else EVIDENCE_S

    async def p_eot(self, evidence: TurnEvidence) -> float:
        """Gives the probability that the turn is over, 0 to 1, at the latest after the deadline. Never
        raises."""
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
