"""Turn-taking: the machine that runs `pipeline.turns.table`; why the table is what it is stands there.

No audio, no task, no clock in here: `receive(event, now)` says what happened, `next_action()` what to do
about it, `timer_at()` when `handle_timer(now)` wants to be called. A whole call can be played through in a
test in a millisecond, and every race of a real one is one order of events among others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from pipeline.agent import UserKeyed, UserSaid, UserSilent
from pipeline.turns.closing import Farewells
from pipeline.turns.events import (
    CheckVoice,
    Decode,
    Discard,
    Effect,
    Event,
    FinalTranscript,
    Follow,
    Inner,
    Interrupt,
    KeyPressed,
    ListenIn,
    PartialTranscript,
    PlayFiller,
    Settle,
    StartReply,
    TextWritten,
    WaitBegan,
)
from pipeline.turns.noise import WORDLESS_S

GUESS_S: Final = 0.02
"""Between two looks at a partial result, once it may be the whole."""

GUESS_AFTER_S: Final = 0.18
"""Silence after which a recogniser that streams has caught up: silence that it heard, not time that passed.
With 40 ms of jitter the difference is a word, and a wrong guess costs the whole answer's time again."""

FRAME_SLACK_S: Final = 0.005  # the frame that completes it comes a little after it was spoken, on a busy loop

_ROUNDING_S: Final = 0.001
WRONG_GUESSES: Final = 2  # in a row: this one has not
GUESSED: Final = 0.8  # what an agent is told of words that are not final
_LIKELY: Final = 0.5  # that the turn is over: an answer is prepared, which will more often be wanted than not
UNSURE: Final = 0.5  # final words with less are no confirmation


class Turns(Farewells):
    """The floor of one conversation. Begins in OPENING with `StartReply(CallOpened)` to do."""

    def _judge(self, inner: Inner, now: float) -> Inner:
        judge = _JUDGES.get(inner)
        return judge(self, now) if judge is not None else inner

    def _perform(self, effect: Effect, event: Event | None, now: float) -> None:
        EFFECTS[effect](self, event, now)

    # Judgements: which inner event is it? -------------------------------------------------------------------

    def _judge_voice(self, now: float) -> Inner:
        if self._keeps_keys_waiting(now) and self._only_accompanies_keys(self._overheard):
            known = self._overheard or (self._asked_of_voice and now >= self._overdue_at)
            return Inner.KEYS_RESUMED if known else Inner.VOICE_CHECK_DUE
        too_long = now - self._heard_since >= self._settings.max_utterance_s
        return Inner.TALKED_TOO_LONG if too_long else Inner.VOICE_CHECK_DUE

    def _judge_words(self, now: float) -> Inner:
        words = self._words
        if self._only_accompanies_keys(words.text if words is not None else ""):
            return Inner.KEYS_RESUMED
        doubtful = self._voiced_ms < self._settings.min_speech_ms or self.is_noisy(now)
        if not doubtful or not _is_empty(words):
            return Inner.TURN_TAKEN
        return Inner.DECODE_DUE if self._asked_early(now) else Inner.NOISE_HEARD

    def _judge_patience(self, now: float) -> Inner:
        if now < self._overdue_at:
            return Inner.GUESS_DUE
        return Inner.KEYS_RESUMED if self._gather.has_begun else Inner.WORDS_OVERDUE

    def _judge_silence(self, now: float) -> Inner:
        if self._silences < self._settings.max_reprompts:
            return Inner.SILENCE_NOTED
        return Inner.PATIENCE_ENDED if self._farewell.may_be_taken_back else Inner.PATIENCE_SPENT

    def _judge_dead_air(self, now: float) -> Inner:
        spent = self._fillers >= self._settings.max_fillers
        return Inner.DEAD_AIR_REPEATED if spent else Inner.DEAD_AIR_NOTED

    def _only_accompanies_keys(self, text: str) -> bool:
        """Keys have come, and `text`, said between them or after them, is no answer beside them."""
        if not self._gather.has_begun:
            return False
        return self._wants_nothing(text) or self._gather.is_said_by(text, self._lists)

    def _keeps_keys_waiting(self, now: float) -> bool:
        """The keys would have been answered by now, but for a voice that goes on."""
        keys_due = max(self._gather.due, self._voice_since + WORDLESS_S)
        return self._gather.has_begun and now >= keys_due

    @property
    def _asked_of_voice(self) -> bool:
        """The recogniser was asked for all the words of the voice that goes on."""
        return self._asked_at > self._voice_since

    # Effects: the caller ------------------------------------------------------------------------------------

    def _ignore(self, event: Event | None, now: float) -> None:
        pass

    def _check_voice(self, event: Event | None, now: float) -> None:
        self._actions += (CheckVoice(), Follow(self.turn))
        if self._keeps_keys_waiting(now) and not self._overheard and not self._asked_of_voice:
            self._actions.append(Decode(self.turn))  # without partial results nothing is known of it
            self._asked_at, self._overdue_at = now, now + self._settings.stt_deadline_ms / 1000
        self._check_voice_again(now)

    def _follow(self, event: Event | None, now: float) -> None:
        super()._follow(event, now)
        if isinstance(event, FinalTranscript) and self._keeps_keys_waiting(now):
            self._overdue_at = now  # no words: the keys are waited for no longer
            self._arm(now, Inner.VOICE_CHECK_DUE)

    def _pause(self, event: Event | None, now: float) -> None:
        self._note_pause(event, now)
        self._speculate(event, now)

    def _speculate(self, event: Event | None, now: float) -> None:
        self._note_reply_heard(event, now)
        wait_ms = min(self._settings.speculate_ms, self._settings.endpoint_ms)
        self._arm(self._silent_since + wait_ms / 1000, Inner.DECODE_DUE)

    def _cut_off(self, event: Event | None, now: float) -> None:
        """The caller (or music on hold) does not stop: decode what there is."""
        self._silent_since = self._voiced_until = now - self._settings.endpoint_ms / 1000
        self._voiced_ms = round((now - self._heard_since) * 1000)
        self._decode(event, now)

    def _decode(self, event: Event | None, now: float) -> None:
        self._actions.append(Decode(self.turn))
        self._words, self._asked_at = None, now
        patience_ms = self._endpointing.base_ms + self._settings.stt_deadline_ms
        asked_late_at = now + self._settings.stt_deadline_ms / 1000  # the silence was found in hindsight
        self._overdue_at = max(self._silent_since + patience_ms / 1000, asked_late_at)
        self._listen_on(event, now)

    def _listen_on(self, event: Event | None, now: float) -> None:
        self._actions.append(ListenIn(self.turn))
        at = max(now + GUESS_S, self._silent_since + GUESS_AFTER_S + FRAME_SLACK_S)
        self._arm(min(at, self._overdue_at), Inner.GUESS_DUE)

    def _guess(self, event: Event | None, now: float) -> None:
        """A partial result: after some silence it will be the whole. Not of a recogniser for which that has
        not been true in this call."""
        assert isinstance(event, PartialTranscript)
        self._follow_words(event.text, now)
        words = FinalTranscript(self.turn, event.text, GUESSED, final=False)
        silence_s = min(now, event.heard_until) - self._silent_since
        late = silence_s >= GUESS_AFTER_S - _ROUNDING_S and self._wrong_guesses < WRONG_GUESSES
        if late and self._words is None and self._is_likely(words, now):
            self._words = words
            self._step(Inner.TURN_LIKELY, None, now)

    def _weigh(self, event: Event | None, now: float) -> None:
        assert isinstance(event, FinalTranscript)
        self._follow_words(event.text, now)
        self._words = event
        asks_again = _is_empty(event) and self._asked_early(now)
        self._arm(self._in_hindsight_at() if asks_again else self._endpoint_at(), Inner.TURN_TAKEN)
        if self._is_likely(event, now):
            self._step(Inner.TURN_LIKELY, None, now)

    def _is_likely(self, words: FinalTranscript, now: float) -> bool:
        """There is time to prepare an answer, and it will probably be wanted."""
        settings = self._settings
        if not settings.prepare_early or not words.text or self._gather.has_begun:
            return False
        if words.p_eot is not None:
            return words.p_eot >= _LIKELY and now < self._endpoint_at()
        delay_ms = self._endpointing.delay_ms(words.text, self._expected)
        in_time = not words.final or now < self._silent_since + delay_ms / 1000
        return delay_ms <= settings.endpoint_ms and in_time

    def _presume(self, event: Event | None, now: float) -> None:
        words = self._words
        assert words is not None
        guessed_from = self.turn
        self._next_turn()
        self._answered = words.text
        said, due = UserSaid(words.text, words.confidence), self._endpoint_at()
        self._actions.append(StartReply(self.turn, said, self._silent_since, due, presumed=True))
        if not words.final:
            self._guessed_from = guessed_from
            self._arm(self._overdue_at, Inner.WORDS_OVERDUE)
        else:
            self._arm(due, Inner.TURN_TAKEN)

    def _confirm(self, event: Event | None, now: float) -> None:
        assert isinstance(event, FinalTranscript)
        if event.turn != self._guessed_from:
            return
        if not event.failed and self._is_older(event):
            self._actions.append(Decode(event.turn))
            return
        self._guessed_from = self.turn
        if not event.failed:
            self._words = event
        if event.failed or (event.text == self._answered and event.confidence >= UNSURE):
            self._wrong_guesses = 0
            self._arm(max(self._endpoint_at(), now), Inner.TURN_TAKEN)
        else:
            self._wrong_guesses += 1
            self._step(Inner.TURN_CHANGED, event, now)

    def _is_older(self, final: FinalTranscript) -> bool:
        """The final words were asked for before the last of those that are being answered was said, as
        where noise hides the end of a word. Once."""
        known, before = self._answered.split(), final.text.split()
        asked, self._asked_after = self._asked_after, self._answered
        return len(before) < len(known) and known[: len(before)] == before and asked != self._answered

    def _revise(self, event: Event | None, now: float) -> None:
        self._actions.append(Interrupt())
        self._next_turn()
        self._weigh(event, now)

    def _settle(self, event: Event | None, now: float) -> None:
        self._silences = 0
        self._actions.append(Settle(self.turn, self._endpoint_at()))
        self._watch(max(self._silent_since + self._settings.dead_air_ms / 1000, now))

    def _forget(self, event: Event | None, now: float) -> None:
        self._overheard = ""
        self._actions.append(Discard())

    def _dismiss(self, event: Event | None, now: float) -> None:
        """A noise: as if it had not been, so the reprompt comes when it would have come."""
        self._actions.append(Discard())
        self._arm(max(self._reprompt_at, now), Inner.SILENCE_NOTED)

    def _key(self, event: Event | None, now: float) -> None:
        assert isinstance(event, KeyPressed)
        self._actions.append(Discard())
        self._arm(self._gather.press(event.key, now), Inner.KEYS_COMPLETED)

    def _key_on(self, event: Event | None, now: float) -> None:
        self._actions.append(Discard())
        self._arm(max(self._gather.due, now), Inner.KEYS_COMPLETED)

    def _first_key(self, event: Event | None, now: float) -> None:
        self._next_turn()
        self._key(event, now)

    def _interrupt_by_key(self, event: Event | None, now: float) -> None:
        self._actions.append(Interrupt())
        self._first_key(event, now)

    # Effects: the agent -------------------------------------------------------------------------------------

    def _take_turn(self, event: Event | None, now: float) -> None:
        words = self._words or FinalTranscript(self.turn, "", failed=True)
        if words.text:
            self._silences = 0
        self._next_turn()
        self._answered = words.text
        due = self._endpoint_at()
        keyed = self._gather.take() if self._gather.has_begun else ""
        said = UserSaid(words.text, words.confidence, keyed=keyed)
        self._actions.append(StartReply(self.turn, said, self._silent_since, due))
        self._watch(max(self._silent_since + self._settings.dead_air_ms / 1000, now))

    def _take_keys(self, event: Event | None, now: float) -> None:
        self._silences = 0
        self._answered = ""
        self._next_turn()
        self._actions.append(StartReply(self.turn, UserKeyed(self._gather.take())))
        self._watch(now + self._settings.dead_air_ms / 1000)

    def _take_text(self, event: Event | None, now: float) -> None:
        assert isinstance(event, TextWritten)
        self._silences = 0
        self._answered = ""
        self._gather.forget()
        self._next_turn()
        self._actions += (Discard(), StartReply(self.turn, UserSaid(event.text, 1.0)))
        self._watch(now + self._settings.dead_air_ms / 1000)

    def _interrupt_by_text(self, event: Event | None, now: float) -> None:
        self._actions.append(Interrupt())
        self._take_text(event, now)

    def _reprompt(self, event: Event | None, now: float) -> None:
        self._silences += 1
        self._answered = ""
        self._next_turn()
        self._actions.append(StartReply(self.turn, UserSilent(self._silences)))
        self._watch(now + self._settings.dead_air_ms / 1000)

    def _speak(self, event: Event | None, now: float) -> None:
        self._answered = self._gather.taken = ""
        self._farewell.heard = True
        if not self._filling:  # words of the agent's own
            self._fillers = 0
        self._filling = False

    def _wait(self, event: Event | None, now: float) -> None:
        assert isinstance(event, WaitBegan)
        self._arm(now + event.seconds, Inner.WAIT_OVER)

    def _watch(self, at: float) -> None:
        self._fillers, self._filling = 0, False
        self._arm(at, Inner.DEAD_AIR_NOTED)

    def _watch_on(self, event: Event | None, now: float) -> None:
        self._arm(now + self._settings.dead_air_ms / 1000, Inner.DEAD_AIR_NOTED)

    def _forget_and_watch(self, event: Event | None, now: float) -> None:
        self._actions.append(Discard())
        self._watch_on(event, now)

    def _fill(self, event: Event | None, now: float) -> None:
        self._fillers += 1
        self._filling = True
        self._actions.append(PlayFiller(self.turn))
        self._watch_on(event, now)

    def _listen(self, event: Event | None, now: float) -> None:
        self._reprompt_at = now + self._settings.reprompt_s
        self._arm(self._reprompt_at, Inner.SILENCE_NOTED)


def _is_empty(words: FinalTranscript | None) -> bool:
    return words is not None and not words.text and not words.failed


_JUDGES: Final[Mapping[Inner, Callable[[Turns, float], Inner]]] = MappingProxyType(
    {
        Inner.VOICE_CHECK_DUE: Turns._judge_voice,
        Inner.GUESS_DUE: Turns._judge_patience,
        Inner.OVERLAP_CHECK_DUE: Turns._judge_overlap,
        Inner.TURN_TAKEN: Turns._judge_words,
        Inner.SILENCE_NOTED: Turns._judge_silence,
        Inner.DEAD_AIR_NOTED: Turns._judge_dead_air,
    }
)

EFFECTS: Final[Mapping[Effect, Callable[[Turns, Any, float], None]]] = MappingProxyType(
    {effect: getattr(Turns, f"_{effect.value}") for effect in Effect}
)
"""What each effect of the table is; a name without a method fails at import."""
