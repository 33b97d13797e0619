"""The judge of what a voice over the agent means."""

from __future__ import annotations

import pytest

from pipeline.result import EndReason
from pipeline.settings import SessionSettings
from pipeline.speech import Expected
from pipeline.turns.closing import Farewell
from pipeline.turns.events import FinalTranscript, Inner, State
from pipeline.turns.overlap import OverlapJudge
from pipeline.turns.prompting import Prompting
from pipeline.turns.utterance import CallerUtterance

SETTINGS = SessionSettings()
HUSH_S = SETTINGS.barge_in_ms / 1000


class Scene:
    """A voice over the agent from 0 s on."""

    def __init__(self, *, parting: bool = False, silences: int = 0) -> None:
        self.utterance = CallerUtterance(0.0)
        self.prompting = Prompting(SETTINGS, 0.0)
        self.prompting.silences = silences
        self.farewell = Farewell()
        if parting:
            self.farewell.begin(EndReason.AGENT, 0.0)
        self.detector = OverlapJudge(SETTINGS, self.utterance, self.farewell, self.prompting)
        self.detector.begin()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("stop", True), ("tuesday works", True), ("tuesday", False), ("mm-hm", False), ("", False)],
)
def test_a_stop_word_or_two_words_of_content_want_the_floor(text: str, wanted: bool) -> None:
    assert Scene().detector.wants_floor(text, State.DUCKED) == wanted


def test_words_that_are_hardly_understood_want_nothing() -> None:
    judge = Scene().detector
    assert not judge.wants_floor("stop", State.DUCKED, confidence=0.4)
    assert judge.wants_floor("stop", State.DUCKED, confidence=0.6)


def test_a_word_wants_the_floor_where_it_answers() -> None:
    judge = Scene().detector
    assert judge.wants_floor("tuesday", State.JUDGING, answers=Expected(phrases=("tuesday",)))
    assert not judge.wants_floor("tuesday", State.JUDGING, answers=Expected())


def test_a_word_to_the_goodbye_for_somebody_silent_is_an_answer() -> None:
    missed, met = Scene(parting=True, silences=1).detector, Scene(parting=True).detector
    assert missed.wants_floor("tuesday", State.JUDGING, answers=Expected())
    assert not met.wants_floor("tuesday", State.JUDGING, answers=Expected())


@pytest.mark.parametrize("parting", [False, True])
def test_what_people_say_at_parting_wants_nothing_of_a_farewell(parting: bool) -> None:
    assert Scene(parting=parting).detector.wants_nothing("have a nice day", State.OVERLAPPED) == parting


def test_the_language_may_change_in_a_conversation() -> None:
    judge = Scene().detector
    assert not judge.wants_floor("لحظة", State.DUCKED)
    judge.speak("ar")
    assert judge.wants_floor("لحظة", State.DUCKED)


def test_a_partial_result_is_believed_when_it_stands() -> None:
    judge = Scene().detector
    moments = ((0.30, "tuesday works"), (0.32, "tuesday"), (0.36, "tuesday works"), (0.41, "tuesday works"))
    verdicts = [judge.judge_partial(text, State.DUCKED, now) for now, text in moments]
    assert verdicts == [None, None, None, Inner.ALARMED]


def test_a_partial_stop_is_believed_at_once() -> None:
    assert Scene().detector.judge_partial("stop", State.DUCKED, 0.3) is Inner.ALARMED


@pytest.mark.parametrize(("text", "verdict"), [("okay", Inner.SPARED), ("okay so", Inner.ALARMED)])
def test_a_long_voice_silences_the_agent_unless_it_only_listens(text: str, verdict: Inner) -> None:
    scene = Scene()
    scene.detector.note_words(text, State.DUCKED)
    assert scene.detector.judge_barge_in(State.OVERLAPPING) is verdict


def test_a_listener_explains_the_voice_only_for_as_long_again() -> None:
    scene = Scene()
    scene.detector.note_words("okay", State.DUCKED)
    verdicts = [
        scene.detector.judge_lasting_voice(State.DUCKED, now) for now in (0.3, 0.29 + HUSH_S, 0.31 + HUSH_S)
    ]
    assert verdicts == [None, None, Inner.ALARMED]


def test_a_voice_that_paused_is_explained_anew() -> None:
    scene = Scene()
    scene.detector.note_words("okay", State.DUCKED)
    scene.detector.judge_lasting_voice(State.DUCKED, 0.3)
    scene.detector.pause()
    assert scene.detector.judge_lasting_voice(State.DUCKED, 0.31 + HUSH_S) is None


@pytest.mark.parametrize(
    ("parting", "words", "verdict"),
    [
        (False, "", Inner.INTERRUPTED),
        (True, "", Inner.NOISE_HEARD),
        (True, "wait", Inner.OVERLAP_CHECK_DUE),
    ],
)
def test_a_voice_that_lasts_has_the_floor_unless_nobody_understands_it_over_a_farewell(
    parting: bool, words: str, verdict: Inner
) -> None:
    scene = Scene(parting=parting)
    scene.utterance.words = FinalTranscript(1, words)
    halt_s = SETTINGS.halt_ms / 1000
    assert scene.detector.judge(State.HALTED, 1, halt_s - 0.01) is Inner.OVERLAP_CHECK_DUE
    assert scene.detector.judge(State.HALTED, 1, halt_s) is verdict


@pytest.mark.parametrize(("parting", "verdict"), [(False, Inner.WORDS_OVERDUE), (True, Inner.SPARED)])
def test_a_recogniser_is_waited_for_until_its_answer_is_overdue(parting: bool, verdict: Inner) -> None:
    scene = Scene(parting=parting)
    scene.utterance.overdue_at = 2.0
    assert scene.detector.judge(State.DOUBTING, 1, 1.9) is Inner.OVERLAP_CHECK_DUE
    assert scene.detector.judge(State.DOUBTING, 1, 2.0) is verdict


@pytest.mark.parametrize(
    ("text", "now", "relents"),
    [("mm-hm", 0.1, False), ("mm-hm", 0.2, True), ("um", 0.2, True), ("tuesday", 0.2, False)],
)
def test_the_agent_goes_on_after_a_listener_that_has_ended(text: str, now: float, relents: bool) -> None:
    assert Scene().detector.relents(text, State.DOUBTING, now) == relents
