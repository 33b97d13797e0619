"""A number that the agent asks for under a mask reaches the agent and nobody else; keys end as it says."""

from __future__ import annotations

import math
import wave
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.agent import AgentEvent, Expect, HangUp, Say, UserKeyed, UserSaid
from pipeline.result import SessionResult
from pipeline.settings import SessionSettings
from pipeline.speech import Expected
from pipeline.text.redaction import MASK, Redaction
from tests.support.speech.conversation import (
    FakeAgent,
    FakeListening,
    FakeStt,
    Watching,
    converse,
    voice,
)

CARD = "four one one one one one one one"
ASK = (Expect(Expected(kinds=("digits",), digits=8), masked=True), Say("your card please"))
THANKS = (Expect(Expected(kinds=("yes_no",))), Say("thank you is there anything else"))
BYE = (Say("goodbye"), HangUp())


class Watchful(Watching):
    """Also keeps what is understood while it is said."""

    def __init__(self) -> None:
        super().__init__()
        self.live: list[str] = []

    def words_heard(self, text: str, now: float) -> None:
        self.live.append(text)


def heard_of(agent: FakeAgent, *texts: str, seen: Watchful | None = None, **call: Any) -> SessionResult:
    return converse(agent, **{"stt": FakeStt(*texts), "observer": seen, **call})[0]


def events(agent: FakeAgent, kind: type[AgentEvent]) -> list[AgentEvent]:
    return [event for event in agent.events if isinstance(event, kind)]


def test_a_masked_answer_is_dots_for_everybody_but_the_agent(caplog: pytest.LogCaptureFixture) -> None:
    agent, seen = FakeAgent(ASK, THANKS, BYE), Watchful()
    caplog.set_level("DEBUG")
    result = heard_of(agent, CARD, "no", says=[(2.0, voice(1.0)), (8.0, voice(0.5))], seen=seen)
    said = events(agent, UserSaid)
    assert [event.text for event in said if isinstance(event, UserSaid)] == [CARD, "no"]
    assert "four one" not in repr((asdict(result), seen.entries, seen.turns, seen.live, caplog.records))
    assert [turn.user_text for turn in result.turns if turn.user_text] == [MASK, "no"]
    assert seen.live == [MASK, "no"]
    entry = next(entry for entry in result.transcript if entry.text == MASK)
    assert entry.words == ()
    assert entry.end_ms - entry.start_ms == pytest.approx(1000, abs=100)


def test_masked_keys_are_dots_too(caplog: pytest.LogCaptureFixture) -> None:
    agent = FakeAgent(ASK, THANKS, BYE)
    caplog.set_level("DEBUG")
    result = heard_of(agent, keys=[(2.0, "41111119"), (8.0, "7#")])
    assert events(agent, UserKeyed) == [UserKeyed("41111119"), UserKeyed("7")]
    assert [turn.keyed for turn in result.turns if turn.keyed] == [MASK, "7"]
    assert "41111119" not in repr((asdict(result), caplog.records))


class Growing(FakeStt):
    """Understands more of an utterance the second time."""

    def understand(self, listening: FakeListening) -> str:
        return CARD if self.asked == 1 else f"{CARD} two"


def test_a_masked_answer_that_goes_on_after_its_turn_was_taken_stays_masked() -> None:
    early = (Expect(Expected()), 3.0, Say("never heard"))  # its mask is off before the caller goes on
    agent, seen = FakeAgent(ASK, early, BYE), Watchful()
    result = heard_of(agent, says=[(2.0, voice(0.8)), (4.0, voice(0.8))], stt=Growing(), seen=seen)
    whole = events(agent, UserSaid)[1]
    assert isinstance(whole, UserSaid)
    assert (whole.text, whole.continues) == (f"{CARD} two", True)
    assert "four one" not in repr((asdict(result), seen.entries, seen.turns, seen.live))


def test_what_was_said_last_under_a_mask_is_not_in_the_transcript() -> None:
    agent = FakeAgent(ASK)
    result = heard_of(agent, CARD, says=[(2.0, voice(0.6))], ends_s=2.7)
    assert [entry.text for entry in result.transcript][-1] == MASK


def _left(path: Path, from_s: float, to_s: float) -> int:
    """The loudest sample of the caller's channel."""
    with wave.open(str(path)) as file:
        frames = np.frombuffer(file.readframes(file.getnframes()), np.int16).reshape(-1, 2)
    return int(np.abs(frames[int(8000 * from_s) : int(8000 * to_s), 0].astype(np.int32)).max(initial=0))


@pytest.mark.parametrize("kept", [False, True])
def test_the_recording_is_silent_where_the_answer_was(tmp_path: Path, kept: bool) -> None:
    settings = SessionSettings(record_masked=kept)
    path = tmp_path / "call.wav"
    heard_of(
        FakeAgent(ASK, THANKS, BYE),
        CARD,
        "no",
        says=[(2.0, voice(1.0)), (8.0, voice(0.5))],
        settings=settings,
        record_to=path,
    )
    assert (_left(path, 1.5, 3.4) > 1000) is kept
    assert _left(path, 8.0, 8.5) > 1000


def test_keys_end_with_the_terminator_that_the_agent_names() -> None:
    agent = FakeAgent([Expect(Expected(kinds=("digits",), terminator="*"))], BYE)
    heard_of(agent, keys=[(1.0, "12#3*9")])
    assert events(agent, UserKeyed)[0] == UserKeyed("12#3")


@pytest.mark.parametrize(("timeout_s", "keyed"), [(6.0, ["1234"]), (1.0, ["12", "34"])])
def test_keys_wait_as_long_as_the_agent_says(timeout_s: float, keyed: list[str]) -> None:
    expect = Expect(Expected(kinds=("digits",), key_timeout_s=timeout_s))
    agent = FakeAgent([expect], [expect] if len(keyed) > 1 else BYE, BYE)
    heard_of(agent, keys=[(1.0, "12"), (5.0, "34")])
    assert events(agent, UserKeyed) == [UserKeyed(each) for each in keyed]


def test_sound_stays_hidden_a_little_longer_than_words() -> None:
    redaction = Redaction()
    redaction.ask(True, 1.0)
    redaction.heard()
    redaction.ask(False, 2.0)
    assert redaction.active  # the utterance is not over
    assert redaction.until == math.inf
    redaction.forgotten(3.0)
    assert not redaction.active
    assert redaction.until == 3.0 + Redaction.TAIL_S
