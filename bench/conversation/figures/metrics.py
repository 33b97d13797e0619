"""Computes every call's outcome from its two recordings, and every metric from outcomes.

A recording is what the caller's socket sent or received. The system's own account is used twice: for the
words that it believes were heard, which are compared with those that were, and for the cause of a long
silence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np

from bench.conversation.caller import FRAME, LOUD
from bench.conversation.figures.alignment import (
    TAIL_S,
    Piece,
    completed,
    followed,
    longest_hush_s,
    lowered_from_s,
    samples_heard,
    silent_from_s,
)
from bench.conversation.handset import Taped
from bench.conversation.scenarios import Script, Wanted
from bench.conversation.sounds import RATE_HZ, Sound, agent_words
from pipeline.agent import CallOpened, UserKeyed, UserSaid
from pipeline.audio import Pcm
from pipeline.transcript import Role

GAP_S: Final = 2.0
"""Seconds; a longer silence in the agent's turn needs a cause."""

ASKED_AGAIN_S: Final = 10.0
"""Seconds; nobody listens longer to a silent line."""

_FIRST_WORDS_AGAIN_GOODBYE: Final = 3
HUSH_S: Final = 0.2
"""Seconds of silence within the agent's words, beyond their own pauses, that count as a stop."""

STOP_S: Final = 0.5


@dataclass(slots=True)
class Outcome:
    """The outcome of one call. `good`: the agent did what the scenario wants; else `why` not. Times in ms,
    None where there is none. `response_ms`: from the caller's last sample to the agent's first, `first_ms`
    those of the call's first turn; `yield_ms`, of each interruption: from the first sample of the words that
    claim the floor to the agent's last, and `lowered_ms` to where it was 10 dB lower for good; `hushed_ms`:
    the longest silence within words that the agent continued. `server_ms`: the server's own part, by its
    account. `turns`: of the caller; `cut_in`: how often the agent began within one. `words_off`: difference
    between the words that the agent believes were heard and those that were."""

    good: bool = True
    why: str = ""
    response_ms: list[float] = field(default_factory=list)
    first_ms: list[float] = field(default_factory=list)
    server_ms: list[float] = field(default_factory=list)
    yield_ms: list[float] = field(default_factory=list)
    lowered_ms: list[float] = field(default_factory=list)
    hushed_ms: float | None = None
    turns: int = 0
    cut_in: int = 0
    words_off: int | None = None
    unexplained: int = 0
    seconds: float = 0.0
    agent_s: float = 0.0
    late_ms: float = 0.0

    def fail(self, why: str) -> None:
        """Notes a failure; the first reason is kept."""
        self.good, self.why = False, self.why or why


@dataclass(frozen=True, slots=True)
class Stretch:
    """The agent's sound without a pause of `STOP_S`, in seconds."""

    start_s: float
    end_s: float


def outcome(script: Script, taped: Taped) -> Outcome:
    """Returns the outcome of one call."""
    found = Outcome(seconds=taped.heard.size / RATE_HZ, late_ms=taped.late_ms)
    spoken = stretches(taped.heard)
    found.agent_s = sum(each.end_s - each.start_s for each in spoken)
    _turns(found, script, taped, spoken)
    if taped.result is not None:
        found.server_ms = [turn.latency.server_ms for turn in taped.result.turns if turn.latency is not None]
    _JUDGES[script.wanted](found, script, taped, spoken)
    _silences(found, taped, spoken)
    return found


def stretches(heard: Pcm) -> list[Stretch]:
    """Returns the stretches in which the agent was heard."""
    frames = heard[: heard.size // FRAME * FRAME].reshape(-1, FRAME).astype(np.float32)
    loud = np.flatnonzero(np.sqrt((frames**2).mean(axis=1)) >= LOUD)
    found: list[Stretch] = []
    for index in loud:
        start_s = float(index) * FRAME / RATE_HZ
        if found and start_s - found[-1].end_s < STOP_S:
            found[-1] = Stretch(found[-1].start_s, start_s + 0.02)
        else:
            found.append(Stretch(_edge(heard, int(index)), start_s + 0.02))
    return found


def _edge(heard: Pcm, frame: int) -> float:
    first = max(0, frame - 1) * FRAME
    return (first + int(np.argmax(np.abs(heard[first : first + 2 * FRAME]) >= LOUD / 2))) / RATE_HZ


# Judgements of scenarios ------------------------------------------------------------------------------------


def _turns(found: Outcome, script: Script, taped: Taped, spoken: list[Stretch]) -> None:
    """Measures answers, and answers that came too early, for every real turn of the caller."""
    if script.wanted is Wanted.GOES_ON:
        return
    for placed in taped.placed:
        if placed.cue.sound is None:
            continue
        found.turns += 1
        if any(placed.start_s + 0.05 < each.start_s < placed.end_s for each in spoken):
            found.cut_in += 1
            continue
        after = [each.start_s for each in spoken if each.start_s >= placed.end_s - 1e-3]
        if after:
            found.response_ms.append((after[0] - placed.end_s) * 1000)
        if found.turns == 1:
            found.first_ms = list(found.response_ms)


def _answered(found: Outcome, script: Script, taped: Taped, spoken: list[Stretch]) -> None:
    if found.cut_in:
        found.fail("spoke into the caller's turn")
    if len(found.response_ms) + found.cut_in < len(script.cues):
        found.fail("no answer")


def _dictated(found: Outcome, script: Script, taped: Taped, spoken: list[Stretch]) -> None:
    _answered(found, script, taped, spoken)
    said = [event for event in taped.events if isinstance(event, UserSaid)]
    sound = taped.placed[0].cue.sound if taped.placed else None
    wanted = " ".join(word.text for word in sound.words) if sound is not None else ""
    if not said or said[-1].text != wanted:
        found.fail("digits split")


def _yielded(found: Outcome, script: Script, taped: Taped, spoken: list[Stretch]) -> None:
    if len(taped.placed) < len(script.cues):
        found.fail("the agent did not speak")
    text, begins_s = script.part.greeting, None
    for number, placed in enumerate(taped.placed):
        answers = [each.start_s for each in spoken if each.start_s >= placed.end_s - 1e-3]
        until = round(answers[0] * RATE_HZ) if answers else None
        pieces = followed(agent_words(text), taped.heard[:until], begins_s)
        _yielded_to(found, text, pieces, placed.start_s, script.floor_s)
        if number == 0 and taped.result is not None:
            _count_words(found, taped, text, pieces)
        if not answers:
            break
        text, begins_s = script.part.answer, answers[0]
    if len(found.response_ms) < len(taped.placed):
        found.fail("no answer" if not found.cut_in else "spoke into the caller's turn")


def _yielded_to(found: Outcome, text: str, pieces: list[Piece], start_s: float, floor_s: float) -> None:
    """Measures one interruption of `text`, whose words claim the floor `floor_s` after they began."""
    if samples_heard(pieces) > agent_words(text).samples.size - TAIL_S * RATE_HZ:
        found.fail("did not stop")
    elif silent_from_s(pieces) < start_s:
        found.fail("stopped before the caller spoke")
    else:
        found.yield_ms.append(max(0.0, silent_from_s(pieces) - start_s - floor_s) * 1000)
        found.lowered_ms.append(max(0.0, lowered_from_s(pieces) - start_s - floor_s) * 1000)


def _went_on(found: Outcome, script: Script, taped: Taped, spoken: list[Stretch]) -> None:
    turns = len(taped.placed) - 1  # the last sound wants nothing; those before are ordinary turns
    text = agent_words(script.part.answer if turns > 0 else script.part.greeting)
    found.hushed_ms = hush_ms(text, taped.heard, _began(taped, spoken) if turns > 0 else None)
    if not completed(text, taped.heard):
        found.fail("stopped")
    answers = [each for each in _settled(taped) if not isinstance(each, CallOpened)]
    if len(answers) > max(turns, 0):
        found.fail("answered")
    if found.hushed_ms >= HUSH_S * 1000:
        found.fail("fell silent")


def _began(taped: Taped, spoken: list[Stretch]) -> float:
    """Returns where the text begins over which the last sound is said."""
    return max((each.start_s for each in spoken if each.start_s <= taped.placed[-1].start_s), default=0.0)


def hush_ms(sound: Sound, heard: Pcm, begins_s: float | None = None) -> float:
    """Returns the longest silence in `sound` that the text itself does not have; a text that was cut off is
    silent to its end."""
    pieces = followed(sound, heard, begins_s)
    rest = sound.samples.size - samples_heard(pieces)
    return 1000 * (rest / RATE_HZ if rest > TAIL_S * RATE_HZ else longest_hush_s(pieces))


def _settled(taped: Taped) -> list[Any]:
    """Returns the events whose answer was heard; a speculation that was dropped is no turn."""
    if taped.result is None:
        return list(taped.events)
    answered = [turn for turn in taped.result.turns[1:] if turn.agent_text]
    return list(answered)


def _rescued(found: Outcome, script: Script, taped: Taped, spoken: list[Stretch]) -> None:
    if found.cut_in:
        found.fail("spoke into the caller's turn")
    if script.cues and not found.response_ms:
        found.fail("nothing was heard any more")


def _keyed(found: Outcome, script: Script, taped: Taped, spoken: list[Stretch]) -> None:
    keys = script.cues[0].keys.strip("#")
    got = [event.digits for event in taped.events if isinstance(event, UserKeyed)]
    if got != [keys]:
        found.fail("keys lost")


def _said_goodbye(found: Outcome, script: Script, taped: Taped, spoken: list[Stretch]) -> None:
    if len(spoken) < _FIRST_WORDS_AGAIN_GOODBYE:
        found.fail("did not ask again")
    if any(later.start_s - each.end_s > ASKED_AGAIN_S for each, later in pairwise(spoken)):
        found.fail("left the caller in silence")
    if found.seconds >= script.limit_s:
        found.fail("did not hang up")


_JUDGES: Final = {
    Wanted.ANSWERS: _answered,
    Wanted.DICTATION: _dictated,
    Wanted.YIELDS: _yielded,
    Wanted.GOES_ON: _went_on,
    Wanted.RESCUES: _rescued,
    Wanted.KEYED: _keyed,
    Wanted.SAYS_GOODBYE: _said_goodbye,
}


# Words and silences -----------------------------------------------------------------------------------------


def _count_words(found: Outcome, taped: Taped, text: str, pieces: list[Piece]) -> None:
    """Compares the transcript's account of the first words with the recording."""
    assert taped.result is not None
    entry = next((each for each in taped.result.transcript if each.role is Role.AGENT), None)
    if entry is None or not entry.interrupted:
        return
    heard_s = samples_heard(pieces) / RATE_HZ
    were = sum((word.start_s + word.end_s) / 2 <= heard_s for word in agent_words(text).words)
    found.words_off = abs(len(entry.text.split()) - were)


def _silences(found: Outcome, taped: Taped, spoken: list[Stretch]) -> None:
    """Counts silences above 2 s after a turn of the caller that no fault, filler or recorded cause
    explains."""
    result = taped.result
    explained = result is not None and (bool(result.faults) or any(turn.fillers for turn in result.turns))
    silences = [] if result is None else result.silences
    for placed in taped.placed:
        after = [each.start_s for each in spoken if each.start_s >= placed.end_s]
        until_s = after[0] if after else taped.heard.size / RATE_HZ
        speaking = any(each.start_s < placed.end_s < each.end_s for each in spoken)
        others = [each.start_s for each in taped.placed if each.start_s > placed.start_s]
        until_s = min([until_s, *others])
        known = any(
            each.start_ms < until_s * 1000 and each.start_ms + each.ms > placed.end_s * 1000
            for each in silences
        )
        if not speaking and not explained and not known and until_s - placed.end_s > GAP_S:
            found.unexplained += 1


# Sums -------------------------------------------------------------------------------------------------------


def summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Returns the figures of one scenario."""
    silent = [round(ms) for each in outcomes for ms in each.yield_ms]
    lowered = [round(ms) for each in outcomes for ms in each.lowered_ms]
    hushed = [each.hushed_ms for each in outcomes if each.hushed_ms is not None]
    words = [each.words_off for each in outcomes if each.words_off is not None]
    reasons = [each.why for each in outcomes if each.why]
    return {
        "calls": len(outcomes),
        "as_wanted": round(sum(each.good for each in outcomes) / len(outcomes), 4),
        "reasons": {reason: reasons.count(reason) for reason in sorted(set(reasons))},
        "response_ms": percentiles([ms for each in outcomes for ms in each.response_ms]),
        "first_ms": percentiles([ms for each in outcomes for ms in each.first_ms]),
        "later_ms": percentiles([ms for each in outcomes for ms in each.response_ms[len(each.first_ms) :]]),
        "server_ms": percentiles([ms for each in outcomes for ms in each.server_ms]),
        "yield_ms": percentiles(silent) | {"each": silent},
        "lowered_ms": percentiles(lowered) | {"each": lowered},
        "hushed_ms": percentiles(hushed) | {"each": [round(ms) for ms in hushed]},
        "turns": sum(each.turns for each in outcomes),
        "cut_in": sum(each.cut_in for each in outcomes),
        "words_compared": len(words),
        "words_within_1": sum(off <= 1 for off in words),
        "unexplained": sum(each.unexplained for each in outcomes),
        "minutes": round(sum(each.seconds for each in outcomes) / 60, 1),
        "agent_minutes": round(sum(each.agent_s for each in outcomes) / 60, 1),
    }


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Returns p50, p95 and the count."""
    if not values:
        return {"count": 0}
    return {
        "count": len(values),
        "p50": round(float(np.percentile(values, 50)), 1),
        "p95": round(float(np.percentile(values, 95)), 1),
    }
