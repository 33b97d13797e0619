"""Effects on the caller's utterance: its voice begins, pauses and goes on; its words are decoded and
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
"""Seconds between two checks of an interim transcript that may be complete."""

VOICE_CHECK_S: Final = 0.25
"""Seconds between two checks of a voice that goes on."""

NOISE_CHECK_S: Final = 0.1
"""The same on a noisy line, where only words show that the caller speaks."""

FRAME_SLACK_S: Final = 0.005  # the frame that completes the silence arrives late on a busy loop

# The voice --------------------------------------------------------------------------------------------------


def hear(turns: TurnContext, event: Event | None, now: float) -> None:
    """Begins an utterance of the caller, who has the floor."""
    turns.utterance.begin(now)
    turns.noise.last_speech_was_noise = False
    if isinstance(event, ReplyHeard):
        _note_reply_heard(turns, now)
    check_at = now + _check_s(turns, now)
    turns.next_turn()
    turns.arm(check_at, Inner.VOICE_CHECK_DUE)


def hear_on(turns: TurnContext, event: Event | None, now: float) -> None:
    """Goes on with the utterance after a pause; words decoded so far are incomplete."""
    turns.utterance.go_on(now)
    check_at = now + _check_s(turns, now)
    turns.next_turn()
    turns.arm(check_at, Inner.VOICE_CHECK_DUE)


def retract(turns: TurnContext, event: Event | None, now: float) -> None:
    """Stops the answer prepared for a turn that was presumed over, since the caller goes on."""
    turns.actions.append(Interrupt())
    hear_on(turns, event, now)


def interrupt(turns: TurnContext, event: Event | None, now: float) -> None:
    """Interrupts the agent and gives the caller the floor."""
    turns.actions.append(Interrupt())
    hear(turns, event, now)


def check_voice(turns: TurnContext, event: Event | None, now: float) -> None:
    """Checks a voice that goes on. Where keys wait for the end of the voice, asks for a final transcript,
    since not every recogniser has interim ones."""
    utterance = turns.utterance
    turns.actions += (CheckVoice(), PollPartial(turns.turn))
    unknown = not utterance.partial and not utterance.is_asked_whole
    if unknown and turns.gather.is_kept_waiting(utterance.voice_since, now):
        turns.actions.append(Decode(turns.turn))
        utterance.asked_at, utterance.overdue_at = now, now + turns.settings.stt_deadline_ms / 1000
    turns.arm(now + _check_s(turns, now), Inner.VOICE_CHECK_DUE)


def _check_s(turns: TurnContext, now: float) -> float:
    return NOISE_CHECK_S if now < turns.noise.noisy_until else VOICE_CHECK_S


def pause(turns: TurnContext, event: Event | None, now: float) -> None:
    """Notes the caller's pause, in which decoding is due."""
    assert isinstance(event, SpeechStopped)
    turns.noise.note_pause(event.silent_since, event.voiced_ms, now)
    speculate(turns, event, now)


def speculate(turns: TurnContext, event: Event | None, now: float) -> None:
    """Arms the decoding of a turn that may be over, after `speculate_ms` of silence."""
    if isinstance(event, ReplyHeard):
        _note_reply_heard(turns, now)
    wait_ms = min(turns.settings.speculate_ms, turns.settings.endpoint_ms)
    turns.arm(turns.utterance.silent_since + wait_ms / 1000, Inner.DECODE_DUE)


def _note_reply_heard(turns: TurnContext, now: float) -> None:
    """Sets the next reprompt after a reply that ended under a voice, in case the voice is noise."""
    turns.prompting.reply_ended()
    turns.prompting.reprompt_at = now + turns.settings.reprompt_s


def cut_off(turns: TurnContext, event: Event | None, now: float) -> None:
    """Ends an utterance of `max_utterance_s` (a caller or music on hold that does not stop), and decodes."""
    utterance = turns.utterance
    voiced_ms = round((now - utterance.heard_since) * 1000)
    utterance.pause(now - turns.settings.endpoint_ms / 1000, voiced_ms)
    decode(turns, event, now)


# Its words --------------------------------------------------------------------------------------------------


def decode(turns: TurnContext, event: Event | None, now: float) -> None:
    """Asks the recogniser for a final transcript."""
    utterance, settings = turns.utterance, turns.settings
    turns.actions.append(Decode(turns.turn))
    utterance.words, utterance.asked_at = None, now
    patience_ms = turns.endpointing.base_ms + settings.stt_deadline_ms
    asked_late_at = now + settings.stt_deadline_ms / 1000  # counts where noise hid the begin of the silence
    utterance.overdue_at = max(utterance.silent_since + patience_ms / 1000, asked_late_at)
    listen_on(turns, event, now)


def listen_on(turns: TurnContext, event: Event | None, now: float) -> None:
    """Asks for interim transcripts until the final one is there."""
    utterance = turns.utterance
    turns.actions.append(RequestPartial(turns.turn))
    at = max(now + GUESS_S, utterance.silent_since + GUESS_AFTER_S + FRAME_SLACK_S)
    turns.arm(min(at, utterance.overdue_at), Inner.GUESS_DUE)


def interrupt_with_words(turns: TurnContext, event: Event | None, now: float) -> None:
    """Interrupts the agent and takes the caller's words over it for the turn."""
    utterance = turns.utterance
    turns.actions.append(Interrupt())
    turns.next_turn()
    if utterance.words is not None:
        utterance.words = replace(utterance.words, turn=turns.turn)
    turns.arm(turns.endpoint_at(), Inner.TURN_TAKEN)


def interrupt_unheard(turns: TurnContext, event: Event | None, now: float) -> None:
    """Interrupts the agent for words over it whose transcript is late."""
    turns.actions.append(Interrupt())
    turns.utterance.words = None
    take_turn(turns, event, now)


def take_turn(turns: TurnContext, event: Event | None, now: float) -> None:
    """Lets the agent answer the caller's words, with the keys before them."""
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
    """Lets the agent answer a chat message; keys and voice before the message are dropped."""
    assert isinstance(event, TextWritten)
    turns.prompting.silences = 0
    turns.speculation.answered = ""
    turns.gather.forget()
    turns.next_turn()
    turns.actions += (Discard(), StartReply(turns.turn, UserSaid(event.text, 1.0)))
    watch(turns, now + turns.settings.dead_air_ms / 1000)


def interrupt_by_text(turns: TurnContext, event: Event | None, now: float) -> None:
    """Interrupts the agent and lets it answer a chat message."""
    turns.actions.append(Interrupt())
    take_text(turns, event, now)
