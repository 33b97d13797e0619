"""Turn-taking: the machine that runs `pipeline.turn_table`; why the table is what it is stands there.

No audio, no task, no clock in here: `receive(event, now)` says what happened, `next_action()` what to do
about it, `timer_at()` when `handle_timer(now)` wants to be called. A whole call can be played through in a
test in a millisecond, and every race of a real one is one order of events among others."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from pipeline.agent import CallOpened, UserKeyed, UserSaid, UserSilent
from pipeline.endpointing import Endpointing
from pipeline.errors import LocalError
from pipeline.outcome import EndReason
from pipeline.settings import SessionSettings
from pipeline.speech import Expected
from pipeline.turn_events import (
    Action,
    CallConcluded,
    CheckVoice,
    Decode,
    Discard,
    EndCall,
    Event,
    Inner,
    Interrupt,
    KeyPressed,
    PlayFiller,
    SayLastWords,
    SpeechStopped,
    StartReply,
    State,
    TextWritten,
    Understood,
)
from pipeline.turn_table import TRANSITIONS, Effect, Kind

VOICE_CHECK_S: Final = 0.5
CLOSING_LIMIT_S: Final = 30.0  # the longest farewell; a leg that pulls no audio (on hold) ends here too


class Turns:
    """The floor of one conversation. Begins in OPENING with `StartReply(CallOpened)` to do."""

    def __init__(self, settings: SessionSettings, now: float) -> None:
        self.state = State.OPENING
        self.turn = 1
        self._settings = settings
        self._endpointing = Endpointing(settings)
        self._expected: Expected | None = None
        self._actions: deque[Action] = deque([StartReply(self.turn, CallOpened())])
        self._duration_at = now + settings.max_duration_s
        self._timer: tuple[float, Inner] | None = (now + settings.dead_air_ms / 1000, Inner.DEAD_AIR_NOTED)
        self._end_reason = EndReason.FAR_END
        self._heard_since = now  # the utterance's first voice
        self._silent_since = now  # its last voiced sample
        self._voiced_ms = 0
        self._words: Understood | None = None
        self._keys = ""
        self._reprompt_at = now
        self._silences = 0  # reprompts in a row
        self._fillers = 0  # for the reply under way

    # The outside --------------------------------------------------------------------------------------------

    def receive(self, event: Event, now: float) -> None:
        """Something happened. An event of an older turn is dropped. Raises `LocalError` for one that cannot
        happen in this state."""
        if getattr(event, "turn", self.turn) != self.turn:
            return
        self._step(type(event), event, now)
        self._catch_up(now)

    def next_action(self) -> Action | None:
        """The next thing to do, in order; None when there is none."""
        return self._actions.popleft() if self._actions else None

    def timer_at(self) -> float | None:
        """When `handle_timer` is due; None: never."""
        if self.state is State.ENDED:
            return None
        at = self._timer[0] if self._timer is not None else self._duration_at
        return at if self.state is State.CLOSING else min(at, self._duration_at)

    def handle_timer(self, now: float) -> None:
        """Time has passed. Harmless when nothing is due."""
        if self.state not in (State.CLOSING, State.ENDED) and now >= self._duration_at:
            self._step(Inner.DURATION_REACHED, None, now)
        self._catch_up(now)

    def expect(self, expected: Expected | None) -> None:
        """What the caller's next answer may be, for end-pointing and for the number of digits keyed."""
        self._expected = expected

    # The machine --------------------------------------------------------------------------------------------

    def _step(self, kind: Kind, event: Event | None, now: float) -> None:
        try:
            state, effect = TRANSITIONS[self.state][kind]
        except KeyError:
            name = kind.name if isinstance(kind, Inner) else kind.__name__
            raise LocalError(f"{name} cannot happen in {self.state.name}") from None
        if state is not self.state:
            self.state = state
            self._timer = None
        EFFECTS[effect](self, event, now)

    def _catch_up(self, now: float) -> None:
        """Fires what is due; a timer armed in the past (words that came after their end-point) included."""
        while self._timer is not None and now >= self._timer[0]:
            inner = self._timer[1]
            self._timer = None
            self._step(_JUDGES[inner](self, now) if inner in _JUDGES else inner, None, now)

    def _arm(self, at: float, inner: Inner) -> None:
        self._timer = (at, inner)

    # Judgements: which inner event is it? -------------------------------------------------------------------

    def _judge_voice(self, now: float) -> Inner:
        too_long = now - self._heard_since >= self._settings.max_utterance_s
        return Inner.TALKED_TOO_LONG if too_long else Inner.VOICE_CHECK_DUE

    def _judge_words(self, now: float) -> Inner:
        words = self._words
        short = self._voiced_ms < self._settings.min_speech_ms
        noise = short and words is not None and not words.text and not words.failed
        return Inner.NOISE_HEARD if noise else Inner.TURN_TAKEN

    def _judge_silence(self, now: float) -> Inner:
        patient = self._silences < self._settings.max_reprompts
        return Inner.SILENCE_NOTED if patient else Inner.PATIENCE_ENDED

    def _judge_dead_air(self, now: float) -> Inner:
        return Inner.DEAD_AIR_REPEATED if self._fillers else Inner.DEAD_AIR_NOTED

    # Effects: the caller ------------------------------------------------------------------------------------

    def _ignore(self, event: Event | None, now: float) -> None:
        pass

    def _hear(self, event: Event | None, now: float) -> None:
        self._heard_since = now
        self._hear_on(event, now)

    def _hear_on(self, event: Event | None, now: float) -> None:
        self.turn += 1  # words decoded so far are not the whole any more
        self._words = None
        self._arm(now + VOICE_CHECK_S, Inner.VOICE_CHECK_DUE)

    def _interrupt(self, event: Event | None, now: float) -> None:
        self._actions.append(Interrupt())
        self._hear(event, now)

    def _check_voice(self, event: Event | None, now: float) -> None:
        self._actions.append(CheckVoice())
        self._arm(now + VOICE_CHECK_S, Inner.VOICE_CHECK_DUE)

    def _note_pause(self, event: Event | None, now: float) -> None:
        assert isinstance(event, SpeechStopped)
        self._silent_since, self._voiced_ms = event.silent_since, event.voiced_ms

    def _pause(self, event: Event | None, now: float) -> None:
        self._note_pause(event, now)
        self._speculate(event, now)

    def _hold(self, event: Event | None, now: float) -> None:
        self._note_pause(event, now)
        self._arm(self._silent_since + self._settings.overlap_ms / 1000, Inner.OVERLAP_FORGOTTEN)

    def _speculate(self, event: Event | None, now: float) -> None:
        wait_ms = min(self._settings.speculate_ms, self._settings.endpoint_ms)
        self._arm(self._silent_since + wait_ms / 1000, Inner.DECODE_DUE)

    def _cut_off(self, event: Event | None, now: float) -> None:
        """The caller (or music on hold) does not stop: decode what there is."""
        self._silent_since = now - self._settings.endpoint_ms / 1000
        self._voiced_ms = round((now - self._heard_since) * 1000)
        self._decode(event, now)

    def _decode(self, event: Event | None, now: float) -> None:
        self._actions.append(Decode(self.turn))
        patience_ms = self._endpointing.base_ms + self._settings.stt_deadline_ms
        self._arm(self._silent_since + patience_ms / 1000, Inner.WORDS_OVERDUE)

    def _weigh(self, event: Event | None, now: float) -> None:
        assert isinstance(event, Understood)
        self._words = event
        self._arm(self._endpoint_at(), Inner.TURN_TAKEN)

    def _endpoint_at(self) -> float:
        text = self._words.text if self._words is not None else ""
        return self._silent_since + self._endpointing.delay_ms(text, self._expected) / 1000

    def _forget(self, event: Event | None, now: float) -> None:
        self._actions.append(Discard())

    def _dismiss(self, event: Event | None, now: float) -> None:
        """A noise: as if it had not been, so the reprompt comes when it would have come."""
        self._actions.append(Discard())
        self._arm(max(self._reprompt_at, now), Inner.SILENCE_NOTED)

    def _key(self, event: Event | None, now: float) -> None:
        assert isinstance(event, KeyPressed)
        if event.key != "#":
            self._keys += event.key
        wanted = self._expected.digits if self._expected is not None else 0
        complete = event.key == "#" or (wanted > 0 and len(self._keys) >= wanted)
        self._arm(now if complete else now + self._settings.key_pause_ms / 1000, Inner.KEYS_COMPLETED)

    def _first_key(self, event: Event | None, now: float) -> None:
        self.turn += 1
        self._keys = ""
        self._actions.append(Discard())
        self._key(event, now)

    def _interrupt_by_key(self, event: Event | None, now: float) -> None:
        self._actions.append(Interrupt())
        self._first_key(event, now)

    # Effects: the agent -------------------------------------------------------------------------------------

    def _take_turn(self, event: Event | None, now: float) -> None:
        words = self._words or Understood(self.turn, "", failed=True)
        if words.text:
            self._silences = 0
        self.turn += 1
        said = UserSaid(words.text, words.confidence)
        self._actions.append(StartReply(self.turn, said, self._silent_since, self._endpoint_at()))
        self._watch(max(self._silent_since + self._settings.dead_air_ms / 1000, now))

    def _take_keys(self, event: Event | None, now: float) -> None:
        self._silences = 0
        self.turn += 1
        self._actions.append(StartReply(self.turn, UserKeyed(self._keys or "#")))
        self._watch(now + self._settings.dead_air_ms / 1000)

    def _take_text(self, event: Event | None, now: float) -> None:
        assert isinstance(event, TextWritten)
        self._silences = 0
        self.turn += 1
        self._actions += (Discard(), StartReply(self.turn, UserSaid(event.text, 1.0)))
        self._watch(now + self._settings.dead_air_ms / 1000)

    def _interrupt_by_text(self, event: Event | None, now: float) -> None:
        self._actions.append(Interrupt())
        self._take_text(event, now)

    def _reprompt(self, event: Event | None, now: float) -> None:
        self._silences += 1
        self.turn += 1
        self._actions.append(StartReply(self.turn, UserSilent(self._silences)))
        self._watch(now + self._settings.dead_air_ms / 1000)

    def _watch(self, at: float) -> None:
        self._fillers = 0
        self._arm(at, Inner.DEAD_AIR_NOTED)

    def _watch_on(self, event: Event | None, now: float) -> None:
        self._arm(now + self._settings.dead_air_ms / 1000, Inner.DEAD_AIR_NOTED)

    def _forget_and_watch(self, event: Event | None, now: float) -> None:
        self._actions.append(Discard())
        self._watch_on(event, now)

    def _fill(self, event: Event | None, now: float) -> None:
        self._fillers += 1
        self._actions.append(PlayFiller(self.turn))
        self._watch_on(event, now)

    def _listen(self, event: Event | None, now: float) -> None:
        self._reprompt_at = now + self._settings.reprompt_s
        self._arm(self._reprompt_at, Inner.SILENCE_NOTED)

    # Effects: the end ---------------------------------------------------------------------------------------

    def _conclude(self, event: Event | None, now: float) -> None:
        assert isinstance(event, CallConcluded)
        self._end_reason = event.reason
        self._arm(now + CLOSING_LIMIT_S, Inner.CLOSING_ENDED)

    def _close(self, reason: EndReason, now: float) -> None:
        self.turn += 1
        self._end_reason = reason
        self._actions.append(SayLastWords(self.turn, reason))
        self._arm(now + CLOSING_LIMIT_S, Inner.CLOSING_ENDED)

    def _apologise(self, event: Event | None, now: float) -> None:
        self._close(EndReason.ENGINE_ERROR, now)

    def _say_goodbye(self, event: Event | None, now: float) -> None:
        self._close(EndReason.SILENCE, now)

    def _time_out(self, event: Event | None, now: float) -> None:
        self._close(EndReason.MAX_DURATION, now)

    def _linger(self, event: Event | None, now: float) -> None:
        self._arm(now + self._settings.linger_ms / 1000, Inner.CLOSING_ENDED)

    def _end(self, event: Event | None, now: float) -> None:
        self._actions.append(EndCall(self._end_reason))

    def _break_off(self, event: Event | None, now: float) -> None:
        self._end_reason = EndReason.FAR_END
        self._end(event, now)


_JUDGES: Final[Mapping[Inner, Callable[[Turns, float], Inner]]] = MappingProxyType(
    {
        Inner.VOICE_CHECK_DUE: Turns._judge_voice,
        Inner.TURN_TAKEN: Turns._judge_words,
        Inner.SILENCE_NOTED: Turns._judge_silence,
        Inner.DEAD_AIR_NOTED: Turns._judge_dead_air,
    }
)

EFFECTS: Final[Mapping[Effect, Callable[[Turns, Any, float], None]]] = MappingProxyType(
    {effect: getattr(Turns, f"_{effect.value}") for effect in Effect}
)
"""What each effect of the table is; a name without a method fails at import."""
