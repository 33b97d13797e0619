"""Effects of a voice over the agent: the rows of the table from OVERLAPPING to DOUBTING."""

from __future__ import annotations

from typing import Final

from pipeline.speech import Expected
from pipeline.text.word_lists import OverlapKind
from pipeline.turns.context import TurnContext
from pipeline.turns.events import (
    Decode,
    Discard,
    Event,
    FinalTranscript,
    Inner,
    PartialTranscript,
    RequestPartial,
    SpeechContinued,
    SpeechStarted,
    SpeechStopped,
    State,
)
from pipeline.turns.speculation import UNSURE

CHECK_S: Final = 0.01
"""Seconds between two checks of the recogniser's words for a voice over the agent: half a frame."""

_ANY: Final = Expected()

# The agent speaks -------------------------------------------------------------------------------------------


def duck(turns: TurnContext, event: Event | None, now: float) -> None:
    """Begins to judge a voice that has lasted for `duck_ms`, over which the agent's volume is lowered."""
    turns.overlap.begin()
    turns.utterance.heard_since = now - turns.settings.duck_ms / 1000
    request_partial(turns, event, now)


def request_partial(turns: TurnContext, event: Event | None, now: float) -> None:
    """Asks the recogniser for the words of the voice so far, and arms the next check."""
    turns.actions.append(RequestPartial(turns.turn))
    turns.arm(now + CHECK_S, Inner.OVERLAP_CHECK_DUE)


def judge_partial(turns: TurnContext, event: Event | None, now: float) -> Inner | None:
    """Judges an interim transcript of a voice over the agent."""
    assert isinstance(event, PartialTranscript)
    return turns.overlap.judge_partial(event.text, turns.state, now)


def judge_barge_in(turns: TurnContext, event: Event | None, now: float) -> Inner:
    """Judges a voice that has lasted for `barge_in_ms` without having lowered the agent's volume."""
    return turns.overlap.judge_barge_in(turns.state)


def judge_lasting_voice(turns: TurnContext, event: Event | None, now: float) -> Inner | None:
    """Judges a voice that goes on over the agent's lowered volume."""
    return turns.overlap.judge_lasting_voice(turns.state, now)


def judge_words(turns: TurnContext, event: Event | None, now: float) -> Inner:
    """Judges a final transcript of a voice that goes on over the agent."""
    assert isinstance(event, FinalTranscript)
    turns.utterance.words = event
    turns.overlap.note_words(event.text, turns.state)
    if turns.noise.is_wordless(event, turns.speculation.answered, now):
        return Inner.NOISE_HEARD
    wanted = turns.overlap.wants_floor(event.text, turns.state, confidence=event.confidence)
    return Inner.INTERRUPTED if wanted else Inner.SPARED


def judge_all_words(turns: TurnContext, event: Event | None, now: float) -> Inner:
    """Judges the final transcript of a voice over the agent that stopped."""
    assert isinstance(event, FinalTranscript)
    turns.utterance.words = event
    answers = turns.gather.expected or _ANY
    wanted = turns.overlap.wants_floor(event.text, turns.state, confidence=event.confidence, answers=answers)
    return Inner.INTERRUPTED if wanted else Inner.SPARED


def hold(turns: TurnContext, event: Event | None, now: float) -> None:
    """Asks for the words of a voice that was too short to lower the agent's volume: it may have been "no"."""
    assert isinstance(event, SpeechStopped)
    turns.noise.note_pause(event.silent_since, event.voiced_ms, now)
    if event.voiced_ms >= turns.settings.min_speech_ms:
        _ask_whole(turns)
        turns.utterance.words = None
    await_overlap_end(turns, event, now)


def judge_pause(turns: TurnContext, event: Event | None, now: float) -> None:
    """Asks for the words of a voice over the agent that stopped."""
    assert isinstance(event, SpeechStopped)
    turns.noise.note_pause(event.silent_since, event.voiced_ms, now)
    turns.overlap.pause()
    _ask_whole(turns)
    request_partial(turns, event, now)


def _ask_whole(turns: TurnContext) -> None:
    turns.actions.append(Decode(turns.turn))
    patience_ms = turns.settings.endpoint_ms + turns.settings.stt_deadline_ms
    turns.utterance.overdue_at = turns.utterance.silent_since + patience_ms / 1000


def await_overlap_end(turns: TurnContext, event: Event | None, now: float) -> None:
    """Keeps words over the agent for `overlap_ms`, in which they become an answer if the agent ends."""
    at = turns.utterance.silent_since + turns.settings.overlap_ms / 1000
    turns.arm(at, Inner.OVERLAP_FORGOTTEN)


def forget(turns: TurnContext, event: Event | None, now: float) -> None:
    """Drops words over the agent, which were no answer."""
    turns.utterance.partial = ""
    turns.actions.append(Discard())


# The agent is silenced --------------------------------------------------------------------------------------


def halt(turns: TurnContext, event: Event | None, now: float) -> None:
    """Silences the agent, whose reply is kept, and asks for the words of the voice. The event tells how long
    the voice has lasted: over a reply that is not yet audible, less than over words."""
    sustained_s = turns.overlap.hush_s
    if isinstance(event, SpeechStarted):
        sustained_s = 0.0
    elif isinstance(event, SpeechContinued):
        sustained_s = turns.settings.duck_ms / 1000
    turns.utterance.heard_since = now - sustained_s
    request_partial(turns, event, now)


def judge_words_halted(turns: TurnContext, event: Event | None, now: float) -> Inner:
    """Judges a final transcript of a voice that silenced the agent: all words with content interrupt, except
    unsure ones (`UNSURE`) and those that the agent is answering."""
    assert isinstance(event, FinalTranscript)
    turns.utterance.words = event
    wordless = turns.noise.is_wordless(event, turns.speculation.answered, now)
    if turns.state is State.HALTED and wordless:
        return Inner.NOISE_HEARD
    return Inner.INTERRUPTED if _is_meant(turns, event) else Inner.SPARED


def _is_meant(turns: TurnContext, event: FinalTranscript) -> bool:
    answered, gather = turns.speculation.answered, turns.gather
    if answered:
        more = event.text.removeprefix(answered)
        goodbye = turns.farewell.under_way and turns.overlap.wants_nothing(more, turns.state)
        return event.text not in ("", answered) and not goodbye
    if 0.0 < event.confidence < UNSURE:
        return False
    if gather.taken and gather.is_said_by(event.text, turns.overlap.lists):
        return False
    return not turns.overlap.wants_nothing(event.text, turns.state)


def judge_all_words_halted(turns: TurnContext, event: Event | None, now: float) -> Inner:
    """Judges the final transcript of a voice that silenced the agent and stopped; a failed recogniser counts
    as words for the agent."""
    assert isinstance(event, FinalTranscript)
    if event.failed and not turns.farewell.under_way:
        turns.utterance.words = event
        return Inner.INTERRUPTED
    return judge_words_halted(turns, event, now)


def judge_partial_halted(turns: TurnContext, event: Event | None, now: float) -> Inner | None:
    """Judges an interim transcript of a voice that silenced the agent and stopped: after a backchannel the
    agent goes on before the final transcript."""
    assert isinstance(event, PartialTranscript)
    if turns.speculation.answered or not turns.overlap.relents(event.text, turns.state, now):
        return None
    turns.utterance.words = None
    turns.utterance.partial = event.text
    return Inner.SPARED


def resume(turns: TurnContext, event: Event | None, now: float) -> None:
    """Lets the agent go on. A backchannel is kept for `overlap_ms`, since "yes" answers a question that is
    about to end."""
    utterance = turns.utterance
    words = utterance.text if utterance.words is not None else utterance.partial
    listens = turns.overlap.meaning(words, turns.state).kind is OverlapKind.BACKCHANNEL
    answers = listens and not turns.speculation.answered
    turns.prompting.reply_heard = True
    turns.arm(now + turns.settings.overlap_ms / 1000 if answers else now, Inner.OVERLAP_FORGOTTEN)
