"""Words while somebody speaks, by Whisper tiny.en: in the queue, of a recorded person, in a conversation."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from bench.embedded_stt.corpus import PROMPTS, on_the_line
from pipeline.agent import HangUp, Say, UserSaid
from pipeline.audio import Pcm
from pipeline.audio.wav import read
from pipeline.engines.local_weights import WHISPER
from pipeline.settings import SessionSettings
from pipeline.speech import Expected, Hypothesis
from pipeline.stt.faster_whisper import FasterWhisper
from pipeline.stt.whisper.batching import BUSY_S, Decode, DecodeQueue, Urgency
from tests.support.speech.conversation import FakeAgent, converse
from tests.support.speech.engines import LINE_HZ
from tests.support.speech.local_speech import needs

LIMIT_S = 30


def recorded(name: str) -> Pcm:
    """A prompt, over the line."""
    return on_the_line(*read(PROMPTS / f"{name}.wav"))


def decode(*, spare: bool = False) -> Decode:
    urgency = Urgency.PARTIAL if spare else Urgency.RESULT
    return Decode(np.zeros(1, np.int16), LINE_HZ, "en", urgency=urgency)


class Held:
    """A decoder that waits to be let go."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.go = threading.Event()
        self.order: list[Decode] = []

    def __call__(self, decodes: Sequence[Decode]) -> list[Hypothesis]:
        self.order += decodes
        self.begun.release()
        assert self.go.wait(LIMIT_S)
        return [Hypothesis("")] * len(decodes)


# The queue --------------------------------------------------------------------------------------------------


def test_words_so_far_come_more_seldom_the_more_is_decoded_and_not_at_all_for_the_last_thread() -> None:
    held = Held()
    queue = DecodeQueue(held, threads=3, batch=1)
    pauses = [queue.pause_s(0.3)]
    for _ in range(3):
        queue.put(decode())
        assert held.begun.acquire(timeout=LIMIT_S)
        pauses.append(queue.pause_s(0.3))
    held.go.set()
    queue.close()
    assert pauses == [0.3, BUSY_S, None, None]


def test_one_of_two_threads_is_kept_for_results() -> None:
    held = Held()
    queue = DecodeQueue(held, threads=2, batch=1)
    queue.put(decode(spare=True))
    assert held.begun.acquire(timeout=LIMIT_S)
    pause_s = queue.pause_s(0.3)
    held.go.set()
    queue.close()
    assert pause_s is None


def test_who_waits_for_a_result_goes_before_who_does_not() -> None:
    held = Held()
    queue = DecodeQueue(held, threads=1, batch=1)
    jobs = [decode(), decode(spare=True), decode(), decode(spare=True), decode()]
    queue.put(jobs[0])
    assert held.begun.acquire(timeout=LIMIT_S)
    waiting = [queue.put(each) for each in jobs[1:]]
    held.go.set()
    for each in waiting:
        each.result(LIMIT_S)
    queue.close()
    places = {id(each): place for place, each in enumerate(jobs)}
    assert [places[id(each)] for each in held.order] == [0, 2, 4, 1, 3]


def test_a_single_thread_is_kept_for_results() -> None:
    queue = DecodeQueue(Held(), threads=1, batch=1)
    assert queue.pause_s(0.3) is None
    queue.close()


# The real thing ---------------------------------------------------------------------------------------------


class Inline:
    """A queue that has decoded as soon as it is asked: the virtual clock stands still meanwhile."""

    def __init__(self, engine: FasterWhisper) -> None:
        self._engine = engine
        self.spare = 0

    def put(self, each: Decode) -> Future[Hypothesis]:
        self.spare += each.urgency is Urgency.PARTIAL
        each.outcome.set_result(self._engine._decode([each])[0])
        return each.outcome

    def pause_s(self, least_s: float) -> float:
        return least_s

    def stuck_s(self, now: float) -> float:
        return 0.0


@pytest.fixture(scope="module")
def loaded() -> Iterator[FasterWhisper]:
    needs(WHISPER)
    engine = FasterWhisper.from_settings({"threads": 2})
    asyncio.run(engine.start())
    yield engine
    asyncio.run(engine.close())


@pytest.fixture
def recognizer(loaded: FasterWhisper, monkeypatch: pytest.MonkeyPatch) -> FasterWhisper:
    monkeypatch.setattr(loaded, "_queue", Inline(loaded))
    return loaded


def listened_to(recognizer: FasterWhisper, samples: Pcm) -> list[tuple[float, str]]:
    """The stable words at each second of `samples`, where they change."""
    listening, found = recognizer.listen(rate_hz=LINE_HZ, language="en", expected=None), [(0.0, "")]
    for start in range(0, len(samples), LINE_HZ // 50):
        listening.push(samples[start : start + LINE_HZ // 50])
        if listening.partial() != found[-1][1]:
            found.append((start / LINE_HZ, listening.partial()))
    listening.close()
    return found


def test_words_are_known_while_the_sentence_goes_on(recognizer: FasterWhisper) -> None:
    """4.2 s of speech from 0.3 s on."""
    found = listened_to(recognizer, recorded("vm-newpassword"))
    assert all(after.startswith(before) for (_, before), (_, after) in pairwise(found))
    first = next(second for second, words in found if words)
    assert first <= 1.3
    assert len([second for second, _ in found if second < 3.0]) >= 4
    assert "please enter your new password followed by the pound key".startswith(found[-1][1])
    assert len(found[-1][1].split()) >= 8


@pytest.mark.parametrize("name", ["phonetic/o_p", "phonetic/a_p", "vm-message"])
def test_the_words_so_far_show_no_loop(recognizer: FasterWhisper, name: str) -> None:
    for _, words in listened_to(recognizer, recorded(name)):
        assert len(words.split()) == len(set(words.split()))


class Watched:
    """An engine of which is noted what a conversation looks at, in order: words so far, and results."""

    def __init__(self, engine: FasterWhisper) -> None:
        self.engine = engine
        self.looked: list[tuple[str, str]] = []

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    def listen(self, *, rate_hz: int, language: str, expected: Expected | None) -> Any:
        listening, looked = (
            self.engine.listen(rate_hz=rate_hz, language=language, expected=expected),
            self.looked,
        )

        class Noted:
            push, close = listening.push, listening.close

            def partial(self) -> str:
                looked.append(("partial", listening.partial()))
                return listening.partial()

            async def result(self) -> Hypothesis:
                heard = await listening.result()
                looked.append(("result", heard.text))
                return heard

        return Noted()


def conversed(recognizer: FasterWhisper, at_s: float) -> tuple[Watched, FakeAgent]:
    """The caller says "please try again" at this second of a call whose agent speaks for 3 s."""
    watched, caller = Watched(recognizer), recorded("vm-pls-try-again")
    agent = FakeAgent([Say("one two three four five six seven eight nine ten")], [HangUp()])
    settings = SessionSettings(barge_in_ms=5000, hush_ms=5000)
    converse(agent, says=[(at_s, caller)], stt=watched, settings=settings)
    return watched, agent


def test_words_stop_an_agent_that_speaks(recognizer: FasterWhisper) -> None:
    """Voice alone would not: it may last for 5 s."""
    watched, agent = conversed(recognizer, 0.3)
    said = [event for event in agent.events if isinstance(event, UserSaid)]
    assert [event.text for event in said] == ["please try again"]
    assert ("partial", "please") in watched.looked or ("partial", "please try") in watched.looked


def test_the_words_so_far_are_there_when_the_caller_stops(recognizer: FasterWhisper) -> None:
    watched, agent = conversed(recognizer, 4.0)
    assert [event.text for event in agent.events if isinstance(event, UserSaid)] == ["please try again"]
    looked = watched.looked
    assert looked.index(("partial", "please try")) < looked.index(("result", "please try again"))
