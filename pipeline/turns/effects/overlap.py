"""Effects while both speak: the rows of the table from OVERLAPPING to DOUBTING."""

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
"""Between two looks at what the recogniser makes of a voice over the agent: words are news for half a frame
at most."""

_ANY: Final = Expected()

# The agent speaks -------------------------------------------------------------------------------------------


def duck(turns: TurnContext, event: Event | None, now: float) -> None:
    """The voice over the agent has lasted for `duck_ms`: the agent lowers its own."""
    turns.overlap.begin()
    turns.utterance.heard_since = now - turns.settings.duck_ms / 1000
    request_partial(turns, event, now)


def request_partial(turns: TurnContext, event: Event | None, now: float) -> None:
    """Asks the recogniser what the voice says so far."""
    turns.actions.append(RequestPartial(turns.turn))
    turns.arm(now + CHECK_S, Inner.OVERLAP_CHECK_DUE)


def judge_partial(turns: TurnContext, event: Event | None, now: float) -> Inner | None:
    """A partial result of the voice over the agent; what is done about it can be undone."""
    assert isinstance(event, PartialTranscript)
    return turns.overlap.judge_partial(event.text, turns.state, now)


def judge_barge_in(turns: TurnContext, event: Event | None, now: float) -> Inner:
    """The voice has lasted for `barge_in_ms`, and nobody has listened to it yet."""
    return turns.overlap.judge_barge_in(turns.state)


def judge_lasting_voice(turns: TurnContext, event: Event | None, now: float) -> Inner | None:
    """The voice goes on over the lowered voice of the agent."""
    return turns.overlap.judge_lasting_voice(turns.state, now)


def judge_words(turns: TurnContext, event: Event | None, now: float) -> Inner:
    """The recogniser's answer about a voice that goes on over the agent."""
    assert isinstance(event, FinalTranscript)
    turns.utterance.words = event
    turns.overlap.note_words(event.text, turns.state)
    if turns.noise.is_wordless(event, turns.speculation.answered, now):
        return Inner.NOISE_HEARD
    wanted = turns.overlap.wants_floor(event.text, turns.state, confidence=event.confidence)
    return Inner.INTERRUPTED if wanted else Inner.SPARED


def judge_all_words(turns: TurnContext, event: Event | None, now: float) -> Inner:
    """The recogniser's answer about a voice over the agent that has fallen silent."""
    assert isinstance(event, FinalTranscript)
    turns.utterance.words = event
    answers = turns.gather.expected or _ANY
    rated = 0.0 if event.doubtful else event.confidence  # the agent asks whether doubtful words were said
    wanted = turns.overlap.wants_floor(event.text, turns.state, confidence=rated, answers=answers)
    return Inner.INTERRUPTED if wanted else Inner.SPARED


def hold(turns: TurnContext, event: Event | None, now: float) -> None:
    """The voice was too short for the agent to lower its own; even so it may have been "no"."""
    assert isinstance(event, SpeechStopped)
    turns.noise.note_pause(event.silent_since, event.voiced_ms, now)
    if event.voiced_ms >= turns.settings.min_speech_ms:
        _ask_whole(turns)
        turns.utterance.words = None
    await_overlap_end(turns, event, now)


def judge_pause(turns: TurnContext, event: Event | None, now: float) -> None:
    """The voice over the agent has fallen silent, and the agent waits for what it said."""
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
    """The agent speaks on; what was said over it is remembered for `overlap_ms`, should the agent end."""
    at = turns.utterance.silent_since + turns.settings.overlap_ms / 1000
    turns.arm(at, Inner.OVERLAP_FORGOTTEN)


def forget(turns: TurnContext, event: Event | None, now: float) -> None:
    """What was said over the agent was no answer."""
    turns.utterance.partial = ""
    turns.actions.append(Discard())


# The agent fell silent --------------------------------------------------------------------------------------


def halt(turns: TurnContext, event: Event | None, now: float) -> None:
    """The agent falls silent for a voice, and its reply is kept. A voice over an answer that nobody has heard
    yet has lasted less long."""
    sustained_s = turns.overlap.hush_s
    if isinstance(event, SpeechStarted):
        sustained_s = 0.0
    elif isinstance(event, SpeechContinued):
        sustained_s = turns.settings.duck_ms / 1000
    turns.utterance.heard_since = now - sustained_s
    request_partial(turns, event, now)


def judge_words_halted(turns: TurnContext, event: Event | None, now: float) -> Inner:
    """The recogniser's answer about a voice that has silenced the agent: any words that carry content
    interrupt, but those of somebody else and those that are being answered."""
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
    if 0.0 < event.confidence < UNSURE and not event.doubtful:
        return False
    if gather.taken and gather.is_said_by(event.text, turns.overlap.lists):
        return False
    return not turns.overlap.wants_nothing(event.text, turns.state)


def judge_all_words_halted(turns: TurnContext, event: Event | None, now: float) -> Inner:
    """The recogniser's last answer about a voice that has silenced the agent; that of a broken recogniser is
    "somebody said something"."""
    assert isinstance(event, FinalTranscript)
    if event.failed and not turns.farewell.under_way:
        turns.utterance.words = event
        return Inner.INTERRUPTED
    return judge_words_halted(turns, event, now)


def judge_partial_halted(turns: TurnContext, event: Event | None, now: float) -> Inner | None:
    """A partial result of a voice that has silenced the agent and has ended: after a listener's the agent
    goes on before the recogniser's answer is there."""
    assert isinstance(event, PartialTranscript)
    if turns.speculation.answered or not turns.overlap.relents(event.text, turns.state, now):
        return None
    turns.utterance.words = None
    turns.utterance.partial = event.text
    return Inner.SPARED


def resume(turns: TurnContext, event: Event | None, now: float) -> None:
    """The agent goes on. If it was about to end, "yes" was an answer."""
    utterance = turns.utterance
    words = utterance.text if utterance.words is not None else utterance.partial
    listens = turns.overlap.meaning(words, turns.state).kind is OverlapKind.BACKCHANNEL
    answers = listens and not turns.speculation.answered
    turns.prompting.reply_heard = True
    turns.arm(now + turns.settings.overlap_ms / 1000 if answers else now, Inner.OVERLAP_FORGOTTEN)
