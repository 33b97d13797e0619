"""Effects on the caller's utterance: the voice begins, pauses and goes on; its words are asked for and
answered."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pipeline.agent import UserSaid
from pipeline.turns.context import TurnContext
from pipeline.turns.effects.prompting import watch
from pipeline.turns.events import (
    CheckVoice,
    Decode,
    Discard,
    Event,
    FinalTranscript,
    Inner,
    Interrupt,
    PollPartial,
    ReplyHeard,
    RequestPartial,
    SpeechStopped,
    StartReply,
    TextWritten,
)
from pipeline.turns.speculation import GUESS_AFTER_S

GUESS_S: Final = 0.02
"""Between two looks at a partial result, once it may be the whole."""

FRAME_SLACK_S: Final = 0.005  # the frame that completes it comes a little after it was spoken, on a busy loop

# The voice --------------------------------------------------------------------------------------------------


def hear(turns: TurnContext, event: Event | None, now: float) -> None:
    """The caller's voice has begun, and the caller has the floor."""
    turns.next_turn()
    turns.utterance.begin(now)
    turns.noise.last_speech_was_noise = False
    if isinstance(event, ReplyHeard):
        _note_reply_heard(turns, now)
    turns.arm(now + turns.noise.check_s(now), Inner.VOICE_CHECK_DUE)


def hear_on(turns: TurnContext, event: Event | None, now: float) -> None:
    """The caller goes on after a pause: the words decoded so far are not all of them."""
    turns.next_turn()
    turns.utterance.go_on(now)
    turns.arm(now + turns.noise.check_s(now), Inner.VOICE_CHECK_DUE)


def retract(turns: TurnContext, event: Event | None, now: float) -> None:
    """The caller goes on although their turn was presumed over: the prepared answer is stopped."""
    turns.actions.append(Interrupt())
    hear_on(turns, event, now)


def interrupt(turns: TurnContext, event: Event | None, now: float) -> None:
    """The caller takes the floor from the agent, and goes on speaking."""
    turns.actions.append(Interrupt())
    hear(turns, event, now)


def check_voice(turns: TurnContext, event: Event | None, now: float) -> None:
    """Looks at a voice that goes on. Where keys wait for its end, the recogniser is asked for all words,
    since not every recogniser has partial results."""
    utterance = turns.utterance
    turns.actions += (CheckVoice(), PollPartial(turns.turn))
    unknown = not utterance.partial and not utterance.is_asked_whole
    if unknown and turns.gather.is_kept_waiting(utterance.voice_since, now):
        turns.actions.append(Decode(turns.turn))
        utterance.asked_at, utterance.overdue_at = now, now + turns.settings.stt_deadline_ms / 1000
    turns.arm(now + turns.noise.check_s(now), Inner.VOICE_CHECK_DUE)


def pause(turns: TurnContext, event: Event | None, now: float) -> None:
    """The caller has fallen silent."""
    assert isinstance(event, SpeechStopped)
    turns.noise.note_pause(event.silent_since, event.voiced_ms, now)
    speculate(turns, event, now)


def speculate(turns: TurnContext, event: Event | None, now: float) -> None:
    """The caller's turn may be over: decoding begins after a little silence."""
    if isinstance(event, ReplyHeard):
        _note_reply_heard(turns, now)
    wait_ms = min(turns.settings.speculate_ms, turns.settings.endpoint_ms)
    turns.arm(turns.utterance.silent_since + wait_ms / 1000, Inner.DECODE_DUE)


def _note_reply_heard(turns: TurnContext, now: float) -> None:
    """The reply has been heard while a voice was over it: the caller may be silent for `reprompt_s` from now
    on, should that voice be a noise."""
    turns.prompting.reprompt_at = now + turns.settings.reprompt_s


def cut_off(turns: TurnContext, event: Event | None, now: float) -> None:
    """The caller (or music on hold) does not stop: decodes what there is."""
    utterance = turns.utterance
    voiced_ms = round((now - utterance.heard_since) * 1000)
    utterance.pause(now - turns.settings.endpoint_ms / 1000, voiced_ms)
    decode(turns, event, now)


# Its words --------------------------------------------------------------------------------------------------


def decode(turns: TurnContext, event: Event | None, now: float) -> None:
    """Asks the recogniser for all the words."""
    utterance, settings = turns.utterance, turns.settings
    turns.actions.append(Decode(turns.turn))
    utterance.words, utterance.asked_at = None, now
    patience_ms = turns.endpointing.base_ms + settings.stt_deadline_ms
    asked_late_at = now + settings.stt_deadline_ms / 1000  # the silence was found in hindsight
    utterance.overdue_at = max(utterance.silent_since + patience_ms / 1000, asked_late_at)
    listen_on(turns, event, now)


def listen_on(turns: TurnContext, event: Event | None, now: float) -> None:
    """Asks for a partial result until the recogniser has answered."""
    utterance = turns.utterance
    turns.actions.append(RequestPartial(turns.turn))
    at = max(now + GUESS_S, utterance.silent_since + GUESS_AFTER_S + FRAME_SLACK_S)
    turns.arm(min(at, utterance.overdue_at), Inner.GUESS_DUE)


def interrupt_with_words(turns: TurnContext, event: Event | None, now: float) -> None:
    """The caller has already said over the agent what they want."""
    utterance = turns.utterance
    turns.actions.append(Interrupt())
    turns.next_turn()
    if utterance.words is not None:
        utterance.words = replace(utterance.words, turn=turns.turn)
    turns.arm(turns.endpoint_at(), Inner.TURN_TAKEN)


def interrupt_unheard(turns: TurnContext, event: Event | None, now: float) -> None:
    """The recogniser does not say what the caller said over the agent."""
    turns.actions.append(Interrupt())
    turns.utterance.words = None
    take_turn(turns, event, now)


def take_turn(turns: TurnContext, event: Event | None, now: float) -> None:
    """The agent answers what was said."""
    words = turns.utterance.words or FinalTranscript(turns.turn, "", failed=True)
    if words.text:
        turns.prompting.silences = 0
    turns.next_turn()
    turns.speculation.answered = words.text
    due, silent_since = turns.endpoint_at(), turns.utterance.silent_since
    keyed = turns.gather.take() if turns.gather.has_begun else ""
    said = UserSaid(words.text, words.confidence, keyed=keyed, doubtful=words.doubtful)
    turns.actions.append(StartReply(turns.turn, said, silent_since, due))
    watch(turns, max(silent_since + turns.settings.dead_air_ms / 1000, now))


def take_text(turns: TurnContext, event: Event | None, now: float) -> None:
    """The agent answers what the caller wrote; keys and voice before it are forgotten."""
    assert isinstance(event, TextWritten)
    turns.prompting.silences = 0
    turns.speculation.answered = ""
    turns.gather.forget()
    turns.next_turn()
    turns.actions += (Discard(), StartReply(turns.turn, UserSaid(event.text, 1.0)))
    watch(turns, now + turns.settings.dead_air_ms / 1000)


def interrupt_by_text(turns: TurnContext, event: Event | None, now: float) -> None:
    """The caller wrote something over the agent's words."""
    turns.actions.append(Interrupt())
    take_text(turns, event, now)
