"""The benchmark's caller against a far end whose delays are known, on a clock of its own: what it measures is
what happened, to the packet."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from mediaserver.benchmark.caller import MISSED_AT_MOST, CallingParty, Fate
from mediaserver.benchmark.sayings import Recorded, Saying, sayings
from pipeline.audio import Pcm
from tests.support.speech.syllables import syllables

RATE_HZ = 8000
FRAME = 160
FRAME_S = 0.02
SILENCE: Pcm = np.zeros(FRAME, np.int16)
ON_THE_WAY_S = 0.007
"""From the far end to us."""

OURS, THEIRS = 120.0, 205.0
"""Pitches."""


def ours(*seconds: float) -> list[Saying]:
    """Sentences of the caller's."""
    return sayings([Recorded(f"{each} s", syllables(OURS, each), RATE_HZ) for each in seconds], RATE_HZ)


def frames(samples: Pcm) -> list[Pcm]:
    whole = np.concatenate([samples, np.zeros(-len(samples) % FRAME, np.int16)])
    return list(whole.reshape(-1, FRAME))


class Agent:
    """Greets, answers `delay_s` after the last packet of each sentence, and stops `yields_s` after the first
    packet of one said over it (None: never)."""

    def __init__(self, *, delay_s: float, answer_s: float = 2.0, yields_s: float | None = 0.4) -> None:
        self.delay_s, self.yields_s, self.answer_s = delay_s, yields_s, answer_s
        self.saying = frames(syllables(THEIRS, 1.0))
        self._begun_s = self._silent_frames = 0.0
        self._talks = False
        self._due_s: float | None = None

    def frame(self, heard: Pcm, now: float) -> Pcm:
        loud = bool(np.abs(heard).max() > 100)
        if loud and not self._talks:
            self._talks, self._begun_s = True, now
        self._silent_frames = 0 if loud else self._silent_frames + 1
        if loud:
            self._due_s = now + self.delay_s
        if self._silent_frames > 10:
            self._talks = False
        interrupted = self._talks and self.yields_s is not None and now - self._begun_s >= self.yields_s
        if self.saying and interrupted:
            self.saying = []
        if self._due_s is not None and now >= self._due_s - 1e-6 and not loud:
            self.saying, self._due_s = frames(syllables(THEIRS, self.answer_s)), None
            self._talks = False
        return self.saying.pop(0) if self.saying else SILENCE


class Echo:
    """Gives everything back, `late_frames` later; an agent may speak on the same line."""

    def __init__(self, late_frames: int, agent: Agent | None = None, *, gain: float = 1.0) -> None:
        self._waiting = [SILENCE] * late_frames
        self._agent = agent
        self._gain = gain

    def frame(self, heard: Pcm, now: float) -> Pcm:
        self._waiting.append((heard * self._gain).astype(np.int16))
        back = self._waiting.pop(0)
        return back if self._agent is None else back + self._agent.frame(heard, now)


def had(
    caller: CallingParty, answer: Callable[[Pcm, float], Pcm], seconds: float, *, lost: Sequence[int] = ()
) -> None:
    """The call: a packet each way every 20 ms."""
    position = 0
    for number in range(round(seconds / FRAME_S)):
        now = 100.0 + number * FRAME_S
        said = caller.read()
        assert said is not None
        said = said.copy()
        caller.sent(now)
        frame = answer(said, now)
        caller.audio_received(frame, position, now + ON_THE_WAY_S, concealed=number in lost)
        position += FRAME


@pytest.mark.parametrize("delay_s", [0.1, 0.72, 3.0])
def test_an_agent_with_a_known_delay_is_measured_to_the_packet(delay_s: float) -> None:
    over: list[bool] = []
    caller = CallingParty(ours(1.2, 2.0), RATE_HZ, turns=5, done=lambda: over.append(True))
    had(caller, Agent(delay_s=delay_s).frame, 60)
    assert over == [True]
    assert [turn.fate for turn in caller.turns] == [Fate.ANSWERED] * 5
    measured = [turn.voice_to_voice_ms for turn in caller.turns]
    assert measured == pytest.approx([1000 * (delay_s + ON_THE_WAY_S)] * 5, abs=1)
    assert caller.heard.first_voice_s == pytest.approx(100 + ON_THE_WAY_S)
    assert all(turn.echo_ms is None for turn in caller.turns)


def test_every_third_turn_talks_over_the_agent_which_stops() -> None:
    caller = CallingParty(ours(1.6), RATE_HZ, turns=6, barge_every=3)
    had(caller, Agent(delay_s=0.5, answer_s=6.0, yields_s=0.42).frame, 90)
    assert [turn.interrupts for turn in caller.turns] == [False, False, True, False, False, True]
    measured = [turn.barge_in_ms for turn in caller.turns if turn.interrupts]
    # The agent's last packet is of the tick before it stops; its last syllable may end some packets earlier.
    for each in measured:
        assert each is not None
        assert 340 <= each <= 420
    assert [turn.fate for turn in caller.turns] == [Fate.ANSWERED] * 6


def test_an_agent_that_talks_on_does_not_give_way() -> None:
    caller = CallingParty(ours(1.0), RATE_HZ, turns=2, barge_every=2)
    had(caller, Agent(delay_s=0.5, answer_s=8.0, yields_s=None).frame, 30)
    (_, turn) = caller.turns
    assert turn.interrupts
    assert (turn.stopped_s, turn.fate) == (None, Fate.TALKED_OVER)


def test_an_agent_that_begins_a_moment_too_early_has_not_answered() -> None:
    """With the last packet but one, too late to be noticed before the sentence ends."""
    (saying,) = said = ours(1.0)
    caller = CallingParty(said, RATE_HZ, turns=1)
    voice, begun = frames(syllables(THEIRS, 2.0)), 0

    def frame(heard: Pcm, now: float) -> Pcm:
        nonlocal begun
        begun += bool(heard.any()) or begun > 0
        return voice.pop(0) if begun > saying.last - 1 and voice else SILENCE

    had(caller, frame, 12)
    (turn,) = caller.turns
    assert (turn.fate, turn.voice_to_voice_ms) == (Fate.TALKED_OVER, None)


def test_an_answer_that_is_too_short_to_interrupt_leaves_it_for_the_next() -> None:
    caller = CallingParty(ours(1.0), RATE_HZ, turns=4, barge_every=2)
    agent = Agent(delay_s=0.5, answer_s=0.5)

    def frame(heard: Pcm, now: float) -> Pcm:
        agent.answer_s = 5.0 if len(caller.turns) >= 3 else 0.5
        return agent.frame(heard, now)

    had(caller, frame, 60)
    assert [turn.interrupts for turn in caller.turns] == [False, False, False, True]


@pytest.mark.parametrize("late_frames", [2, 12, 60, 100])
def test_our_own_voice_is_not_an_answer(late_frames: int) -> None:
    """However late: after 2 s it begins when the sentence is long over."""
    over: list[bool] = []
    caller = CallingParty(ours(0.7, 1.2), RATE_HZ, turns=8, done=lambda: over.append(True))
    had(caller, Echo(late_frames).frame, 90)
    assert [turn.fate for turn in caller.turns] == [Fate.MISSED] * MISSED_AT_MOST
    assert over == [True]
    late_ms = late_frames * 20 + 1000 * ON_THE_WAY_S
    assert [turn.echo_ms for turn in caller.turns] == pytest.approx([late_ms] * MISSED_AT_MOST, abs=25)


@pytest.mark.parametrize("late_frames", [2, 12])
def test_an_agent_on_a_line_with_an_echo_is_measured(late_frames: int) -> None:
    caller = CallingParty(ours(1.3), RATE_HZ, turns=3)
    had(caller, Echo(late_frames, Agent(delay_s=0.8), gain=0.2).frame, 40)
    assert [turn.fate for turn in caller.turns] == [Fate.ANSWERED] * 3
    measured = [turn.voice_to_voice_ms for turn in caller.turns]
    assert measured == pytest.approx([1000 * (0.8 + ON_THE_WAY_S)] * 3, abs=1)


def test_silence_is_missed_and_given_up() -> None:
    over: list[bool] = []
    caller = CallingParty(ours(1.0), RATE_HZ, turns=8, done=lambda: over.append(True))
    had(caller, lambda heard, now: SILENCE, 60)
    assert [turn.fate for turn in caller.turns] == [Fate.MISSED] * MISSED_AT_MOST
    assert over == [True]
    assert caller.heard.first_voice_s is None


def test_the_end_of_the_call_cuts_a_turn_short() -> None:
    over: list[bool] = []
    caller = CallingParty(ours(1.0), RATE_HZ, turns=8, done=lambda: over.append(True))
    had(caller, Agent(delay_s=9.0).frame, 5)
    caller.leg_ended("normal", 105.0)
    assert [turn.fate for turn in caller.turns] == [Fate.CUT_SHORT]
    assert over == [True]


def test_a_loss_is_no_gap_of_the_senders() -> None:
    caller = CallingParty(ours(1.0), RATE_HZ, turns=1)
    had(caller, lambda heard, now: SILENCE, 1.0, lost=(10, 11, 30))
    gaps = caller.heard.gaps_s
    assert caller.heard.concealed == 3
    assert len(gaps) == 50 - 1 - 5  # between the packets on both sides of what was lost there is none
    assert gaps == pytest.approx([FRAME_S] * len(gaps))


def test_a_sender_that_suppresses_silence_is_understood() -> None:
    """Nothing at all comes while it is silent, and its position goes on."""
    caller = CallingParty(ours(1.0), RATE_HZ, turns=3)
    agent, position = Agent(delay_s=0.6, answer_s=0.3), 0
    for number in range(round(30 / FRAME_S)):
        now = 100.0 + number * FRAME_S
        said = caller.read()
        assert said is not None
        said = said.copy()
        caller.sent(now)
        frame = agent.frame(said, now)
        if agent.saying or frame.any():
            caller.audio_received(frame, position, now + ON_THE_WAY_S, concealed=False)
        position += FRAME
    assert [turn.fate for turn in caller.turns] == [Fate.ANSWERED] * 3
    measured = [turn.voice_to_voice_ms for turn in caller.turns]
    assert measured == pytest.approx([1000 * (0.6 + ON_THE_WAY_S)] * 3, abs=1)
    assert max(caller.heard.gaps_s) < 0.03  # its pauses are not late packets
