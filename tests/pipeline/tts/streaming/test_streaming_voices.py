"""Streaming voices against servers that speak as the services' documentation says: text goes in as it is
written, sound and words come out, and what happens when the socket or the service fails."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import jsonschema
import numpy as np
import pytest
from aiohttp import web

from mediaserver.settings.presets import with_preset
from pipeline import registry
from pipeline.agent import CallOpened, HangUp, Say
from pipeline.engines.breaker import BreakerSettings, BreakerState
from pipeline.engines.guard import Guard, GuardedVoice
from pipeline.errors import EngineEndless, EngineError, EngineTimeout, SettingsRefused
from pipeline.media.playout import Playout
from pipeline.net.egress import EgressPolicy, egress_policy
from pipeline.result import EndReason, SessionObserver, SessionResult
from pipeline.session.reply import Reply
from pipeline.session.session import Session
from pipeline.session.synthesis import Synthesis
from pipeline.settings import SessionSettings
from pipeline.speech import SpeechChunk, SpokenWord, TextToSpeech, VoicePerCall
from pipeline.transcript import Role
from pipeline.tts.streaming.words import WordPlacer
from tests.support.paths import ROOT
from tests.support.speech import vendor_schemas
from tests.support.speech.conversation import FakeAgent, FakeLeg, FakeStt, FakeTts, agent_texts, voice
from tests.support.speech.voice_server import RATE_HZ, VENDORS, WORD_MS, Vendor, VoiceServer, voice_server
from tests.support.waiting import until
from tests.support.webrtc.web import answering

KEYS = {"api_key": "k-1", "voice": "v-1", "region": "westeurope"}
WORD = RATE_HZ * WORD_MS // 1000

pytestmark = pytest.mark.virtual_clock
"""The services answer on the loop of the test: a busy machine delays neither them nor the caller."""


pytestmark = pytest.mark.usefixtures("at_home")


def table(preset: str, server: VoiceServer, **more: Any) -> dict[str, Any]:
    info = cast(Any, SimpleNamespace(context={}))
    given = {name: value for name, value in KEYS.items() if name != "region" or preset == "azure-speech"}
    filled: dict[str, Any] = with_preset("tts", {"preset": preset, **given}, info)
    return filled | {"url": server.url} | more


@asynccontextmanager
async def engine_of(
    preset: str = "cartesia", vendor: Vendor | None = None, **more: Any
) -> AsyncIterator[tuple[VoiceServer, Any]]:
    async with voice_server(vendor or VENDORS[preset]) as server:
        engine = registry.load("tts", "websocket", table(preset, server, **more))
        assert isinstance(engine, VoicePerCall)
        try:
            yield server, engine
        finally:
            await cast(Any, engine).close()


@asynccontextmanager
async def in_a_call(preset: str = "cartesia", **more: Any) -> AsyncIterator[tuple[VoiceServer, Any]]:
    async with engine_of(preset, **more) as (server, engine):
        own = engine.for_call("call-1", language="en-GB")
        try:
            yield server, own
        finally:
            await own.close()


class Written:
    """The text of an answer, written step by step; and what was said of it."""

    def __init__(self, speaks: Any, *pieces: str) -> None:
        self.queue: asyncio.Queue[str | None] = asyncio.Queue()
        self.writes(*pieces)
        self.chunks: list[SpeechChunk] = []
        self.task = asyncio.create_task(self._listen(speaks))

    async def _pieces(self) -> AsyncIterator[str]:
        while (piece := await self.queue.get()) is not None:
            yield piece

    async def _listen(self, speaks: Any) -> None:
        async with aclosing(speaks.speak_pieces(self._pieces(), language="en-GB")) as chunks:
            async for chunk in chunks:
                self.chunks.append(chunk)

    def writes(self, *pieces: str) -> None:
        for piece in pieces:
            self.queue.put_nowait(piece)

    async def ends(self) -> None:
        self.queue.put_nowait(None)
        await self.task

    @property
    def samples(self) -> Any:
        return np.concatenate([np.zeros(0, np.int16), *(chunk.samples for chunk in self.chunks)])

    @property
    def words(self) -> list[SpokenWord]:
        return [word for chunk in self.chunks for word in chunk.words]


async def wrote(speaks: Any, *pieces: str) -> Written:
    """An answer that is written and said to its end."""
    written = Written(speaks, *pieces)
    await written.ends()
    return written


@pytest.mark.parametrize("preset", VENDORS)
async def test_each_service_speaks_an_answer_while_it_is_written(preset: str) -> None:
    async with in_a_call(preset) as (server, speaks):
        for _ in range(2):  # answers of one call, on one socket
            server.said.clear()
            written = Written(speaks, "Hello there,")
            await until(lambda heard=written: server.heard(heard.samples) == ["Hello", "there,"])  # type: ignore[misc]
            assert not written.task.done(), "the rest of the answer is not written yet"
            written.writes("it's half past three.", "Bye \N{EM DASH} now!")
            await written.ends()
            said = ["Hello", "there,", "it's", "half", "past", "three.", "Bye", "—", "now!"]
            assert server.heard(written.samples) == said
            assert [word.text for word in written.words] == said
            for place, word in enumerate(written.words):
                if word.text != "\N{EM DASH}" and preset != "deepgram":
                    assert abs(word.start - place * WORD) <= WORD // 3
                assert 0 <= word.start <= word.end <= len(written.samples)
        assert len(server.sockets) == 1
        first = server.requests[0]
        assert "k-1" in f"{dict(first.headers)}"
        assert "{" not in first.query_string
        assert "v-1" in f"{first.query_string} {server.sockets[0]}" or preset == "elevenlabs"
        assert not [each for each in server.sockets[0] if "{text}" in str(each) or "{context}" in str(each)]
    await until(lambda: server.open == 0)


@pytest.mark.parametrize("preset", VENDORS)
async def test_nothing_of_an_interrupted_answer_is_in_the_next(preset: str) -> None:
    async with in_a_call(preset) as (server, speaks):
        server.word_s, server.late = 0.02, 3
        old = Written(speaks, "one two three four five six seven eight nine ten eleven twelve.")
        await until(lambda: len(old.chunks) >= 2)
        old.task.cancel()
        await asyncio.gather(old.task, return_exceptions=True)
        new = await wrote(speaks, "Yes of course.")
        assert server.heard(new.samples) == ["Yes", "of", "course."]
        assert [word.text for word in new.words] == ["Yes", "of", "course."]
        assert new.words[0].start < WORD
        told = str(server.sockets[0])
        cleared = {"elevenlabs": "close_context", "cartesia": "'cancel': True", "deepgram": "Clear",
                   "rime": "'operation': 'clear'", "azure-speech": ""}  # fmt: skip
        assert cleared[preset] in told
        assert len(server.sockets) == (2 if preset == "azure-speech" else 1)
        if preset != "elevenlabs":  # which says what it was told to flush
            assert "twelve." not in server.said


@pytest.mark.parametrize("preset", VENDORS)
async def test_a_socket_that_dies_in_mid_sentence_leaves_the_words_that_were_said(preset: str) -> None:
    async with in_a_call(preset) as (server, speaks):
        server.cut_after = [3]
        written = Written(speaks, "one two three four five.")
        with pytest.raises(EngineError) as failed:
            await written.task
        assert failed.value.retryable
        assert server.heard(written.samples) in (["one", "two", "three"], ["one", "two"])
        known = [word.text for word in written.words]
        assert known == ["one", "two", "three"][: len(known)]
        again = await wrote(speaks, "four five.")
        assert server.heard(again.samples) == ["four", "five."]


@pytest.mark.parametrize("preset", ["elevenlabs", "cartesia", "deepgram"])
async def test_messages_of_both_sides_have_the_types_of_the_vendor_s_sdk(preset: str) -> None:
    types = json.loads(vendor_schemas.FILE.read_text())[preset]
    async with in_a_call(preset) as (server, speaks):
        server.word_s = 0.02
        await wrote(speaks, "One two.", "Three.")
        cut = Written(speaks, "four five six seven eight nine ten.")
        await until(lambda: len(cut.chunks) >= 2)
        cut.task.cancel()
        clears = {"elevenlabs": "close_context", "cartesia": "cancel", "deepgram": "Clear"}[preset]
        await until(lambda: clears in str(server.sockets[0][-1]))
    await until(lambda: server.open == 0)
    said = [each for each in server.sent if isinstance(each, dict)]
    assert len(server.sockets[0]) > 3
    assert said
    for way, messages in (("sent", server.sockets[0]), ("taken", said)):
        for message in messages:
            jsonschema.validate(message, types[way])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**server.sockets[0][0], "other": 1}, types["sent"])


async def spoken(
    voices: list[TextToSpeech], *says: str, settings: SessionSettings | None = None, **leg: Any
) -> tuple[SessionResult, FakeLeg]:
    """A call in which the agent says an answer of several pieces, then hangs up."""
    made = FakeLeg(leg.pop("sounds", []))
    agent = FakeAgent(leg.pop("acts", (*map(Say, says), HangUp())), *leg.pop("more", ()))
    session = Session(
        leg=made, agent=agent, stt=FakeStt("wait"), tts=voices[0], fallback_tts=voices[1:], call_id="call-1",
        settings=settings or SessionSettings(),
    )  # fmt: skip
    async with asyncio.timeout(20):
        return await session.run(), made


def agent_said(result: SessionResult) -> str:
    return " ".join(agent_texts(result))


async def test_a_call_has_one_socket_and_one_answer_for_all_its_pieces() -> None:
    async with engine_of() as (server, engine):
        result, _ = await spoken([engine], "One two three.", "Four five six seven eight nine.", "Ten eleven.")
        assert (result.reason, result.faults) == (EndReason.AGENT, ())
        assert agent_said(result) == "One two three. Four five six seven eight nine. Ten eleven."
        assert len({each["context_id"] for each in server.sockets[0]}) == 1
        assert [each["continue"] for each in server.sockets[0]][-1] is False
        await until(lambda: server.open == 0)
        assert len(server.sockets) == 1


async def test_words_are_placed_where_the_service_says() -> None:
    async with engine_of() as (_, engine):
        result, _ = await spoken([engine], "One two three.", "Four five.")
        (entry,) = [entry for entry in result.transcript if entry.role is Role.AGENT]
        starts = [word.start_ms - entry.start_ms for word in entry.words]
        assert starts == pytest.approx([0, 100, 200, 300, 400], abs=25)


async def test_observers_are_told_each_word_as_it_is_heard() -> None:
    class Subtitles(SessionObserver):
        """Notes the words so far, each time."""

        follows_words = True

        def __init__(self) -> None:
            self.told: list[tuple[str, float]] = []

        def agent_speaking(self, text: str, now: float) -> None:
            self.told.append((text.rsplit(maxsplit=1)[-1], now))

    async with engine_of() as (_, engine):
        subtitles = Subtitles()
        agent = FakeAgent((Say("One two three."), Say("Four five."), HangUp()))
        session = Session(
            leg=FakeLeg([]), agent=agent, stt=FakeStt("x"), tts=engine, call_id="c", observer=subtitles
        )
        async with asyncio.timeout(20):
            await session.run()
        assert [word for word, _ in subtitles.told] == ["One", "two", "three.", "Four", "five."]
        first = subtitles.told[0][1]
        steps = [now - first for _, now in subtitles.told]
        assert steps == sorted(steps)
        assert steps[-1] >= 0.3, "word by word, not all at once"


async def test_a_broken_socket_loses_no_word_and_says_none_twice() -> None:
    async with engine_of() as (server, engine):
        server.cut_after = [5]
        result, _ = await spoken([engine], "One two three.", "Four five six seven.", "Eight nine.")
        assert agent_said(result) == "One two three. Four five six seven. Eight nine."
        assert len(result.faults) == 1
        assert len(server.sockets) == 2
        assert server.sockets[1][0]["transcript"].split()[0] in ("five", "six")


async def test_a_filler_in_mid_answer_leaves_the_rest_of_it_as_it_is() -> None:
    async with engine_of() as (server, engine):
        server.word_s = 0.4  # slower than speech: the sound runs out within the answer
        said = "One two three four five six.", "Seven eight."
        result, _ = await spoken([engine], *said, settings=SessionSettings(dead_air_ms=300))
        assert agent_said(result).replace("One moment, please. ", "") == " ".join(said)
        assert result.faults == ()


async def test_the_next_voice_goes_on_where_a_service_fell_out() -> None:
    async with engine_of() as (server, engine):
        server.cut_after, server.word_s = [4, 0, 0, 0], 0.01
        local = FakeTts()
        result, _ = await spoken([engine, local], "One two three.", "Four five six seven.", "Eight nine.")
        assert agent_said(result) == "One two three. Four five six seven. Eight nine."
        assert " ".join(local.asked).split()[0] in ("Four", "five", "six")


async def test_a_service_that_refuses_is_left_alone_and_the_next_voice_speaks() -> None:
    async with engine_of() as (server, engine):
        server.refuses = 1000
        guard = Guard("tts", "cloud", deadline_s=1.0, settings=BreakerSettings(failures=2))
        voices = [
            GuardedVoice(engine, guard, last=False),
            GuardedVoice(FakeTts(), Guard("tts", "own"), last=True),
        ]
        result, _ = await spoken(list(voices), "One two.", "Three four.", "Five six.", "Seven eight.")
        assert agent_said(result) == "One two. Three four. Five six. Seven eight."
        assert guard.health.state is BreakerState.OPEN
        assert len(server.requests) <= 6


async def test_an_interruption_clears_the_answer_and_keeps_the_words_that_were_heard() -> None:
    async with engine_of() as (server, engine):
        long = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen."
        result, leg = await spoken(
            [GuardedVoice(engine, Guard("tts", "cloud", deadline_s=1.0), last=True)],
            sounds=[(0.6, voice(1.0))], acts=(Say(long), Say(long)), more=((Say("Yes."), HangUp()),),
        )  # fmt: skip
        first, *_, last = [entry for entry in result.transcript if entry.role is Role.AGENT]
        assert first.interrupted
        assert long.startswith(first.text)
        assert (last.text, last.interrupted) == ("Yes.", False)
        assert len(server.sockets) == 1
        heard = leg.heard.astype(int)
        yes = np.flatnonzero(abs(heard - server.level("Yes.")) <= 2)
        assert len(yes) > 400
        for word in long.split():
            assert not (abs(heard[yes[0] :] - server.level(word)) <= 2).any(), "nothing of the old answer"


async def test_an_agent_that_stops_slowly_does_not_cut_the_next_answer() -> None:
    class Reluctant:
        """An agent that goes on writing after its words, and takes its time when it is interrupted."""

        def __init__(self, words: str, writes_s: float) -> None:
            self.words, self.writes_s = words, writes_s

        async def respond(self, event: Any) -> AsyncIterator[Any]:
            try:
                yield Say(self.words)
                await asyncio.sleep(self.writes_s)
            finally:
                await asyncio.sleep(0.2)

    async with in_a_call() as (server, speaks):
        server.word_s = 0.05
        playout = Playout(RATE_HZ)
        synthesis = Synthesis(playout, [speaks], SessionSettings(), lambda role, reason: None)
        stage: Any = MagicMock()
        old = Reply(1, CallOpened(), stage, synthesis)
        old.task = asyncio.create_task(old.run(cast(Any, Reluctant("one two three four.", 60.0))))
        await until(lambda: len(server.said) > 1)
        playout.clear()
        old.cancel()
        new = Reply(2, CallOpened(), stage, synthesis)
        short = "Yes of course I can do that for you now."
        await new.run(cast(Any, Reluctant(short, 0.6)))
        assert playout.current is not None
        assert playout.current.text == short
        assert [word.text for word in playout.current.words()] == short.split()
        await asyncio.gather(old.task, return_exceptions=True)


@pytest.mark.parametrize("preset", VENDORS)
async def test_a_pause_of_the_model_ends_no_call_and_loses_nothing(preset: str) -> None:
    class Slow(FakeAgent):
        """An agent that thinks between two sentences."""

        async def respond(self, event: Any) -> AsyncIterator[Any]:
            async for act in super().respond(event):
                yield act
                await asyncio.sleep(1.0)

    async with engine_of(preset) as (server, engine):
        agent = Slow((Say("One two."), Say("Three four."), HangUp()))
        session = Session(leg=FakeLeg([]), agent=agent, stt=FakeStt("x"), tts=engine, call_id="c")
        async with asyncio.timeout(20):
            result = await session.run()
        assert agent_said(result) == "One two. Three four."
        assert result.faults == ()
        assert len(server.sockets) == 1
        if preset == "cartesia":
            assert len({each["context_id"] for each in server.sockets[0]}) == 2


async def test_a_service_that_says_nothing_is_late() -> None:
    async with in_a_call(timeout_s=0.2) as (server, speaks):
        server.mute = True
        written = Written(speaks, "Hello.")
        with pytest.raises(EngineTimeout):
            await written.task


@pytest.mark.parametrize("preset", VENDORS)
async def test_a_service_that_is_slow_is_waited_for(preset: str) -> None:
    async with in_a_call(preset, timeout_s=1.0, stall_s=1.0) as (server, speaks):
        server.word_s = 0.15
        written = await wrote(speaks, "one two three.")
        assert server.heard(written.samples) == ["one", "two", "three."]


@pytest.mark.parametrize("preset", VENDORS)
async def test_a_service_that_stops_in_mid_sentence_is_late(preset: str) -> None:
    async with in_a_call(preset, stall_s=0.2) as (server, speaks):
        written = Written(speaks, "one two.")
        await until(lambda: len(server.heard(written.samples)) == 2)
        await asyncio.sleep(0.3)
        assert not written.task.done(), "nothing is due while no text is"
        server.mute = True
        written.writes("three four.")
        with pytest.raises(EngineTimeout):
            await written.task


@pytest.mark.parametrize("preset", VENDORS)
async def test_a_service_that_never_stops_is_stopped(preset: str) -> None:
    async with in_a_call(preset) as (server, speaks):
        server.endless = True
        written = Written(speaks, "one.")
        with pytest.raises(EngineEndless):
            await written.task
        assert len(written.samples) <= 15 * RATE_HZ


@pytest.mark.nightly("ci")
async def test_sound_that_nobody_takes_is_left_at_the_service() -> None:
    async with in_a_call() as (server, speaks):
        text = " ".join(f"word{number}" for number in range(3000))

        async def pieces() -> AsyncIterator[str]:
            yield text

        async with aclosing(speaks.speak_pieces(pieces(), language="en")) as chunks:
            await anext(chunks)
            async with asyncio.timeout(5):
                said = -1
                while said != len(server.said):
                    said = len(server.said)
                    await asyncio.sleep(0.5)
            assert said < 2500


GARBAGE: list[str | bytes] = [
    "", "{", "[]", "null", "{}", '{"type": "chunk"}', '{"type": "chunk", "data": 7, "context_id": 3}',
    '{"type": "chunk", "data": "%%%"}', '{"type": "timestamps", "word_timestamps": {"words": 3}}',
    '{"type": "timestamps", "word_timestamps": {"words": ["x"], "start": [1e300], "end": [-1]}}',
    '{"type": "done", "context_id": "someone"}',
    '{"type": "error", "context_id": "someone", "contextId": "someone"}',
    '{"audio": "AAAA", "contextId": null}', '{"a": ' * 200 + "1" + "}" * 200, b"\xff\xfe", b"",
]  # fmt: skip


@pytest.mark.parametrize("preset", ["elevenlabs", "cartesia", "rime", "azure-speech"])
async def test_messages_that_make_no_sense_are_passed_over(preset: str) -> None:
    async with in_a_call(preset) as (server, speaks):
        server.before = GARBAGE
        written = await wrote(speaks, "one two three.")
        assert server.heard(written.samples) == ["one", "two", "three."]


async def test_a_flood_of_messages_leaves_the_loop_to_others() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with in_a_call(timeout_s=30.0) as (server, speaks):
        server.before = ['{"type": "chunk", "context_id": "someone", "data": "AAAA"}'] * 3000
        written, ticking = Written(speaks), asyncio.create_task(others())
        written.writes("one two.")
        await written.ends()
        ticking.cancel()
        assert server.heard(written.samples) == ["one", "two."]
        assert turns > 6000, "as many as there were messages"


@pytest.mark.parametrize(("status", "headers"), [(401, {}), (307, {"Location": "http://127.0.0.1:9/"})])
async def test_a_refusal_is_told_at_once_and_a_redirect_is_not_followed(
    status: int, headers: dict[str, str]
) -> None:
    asked: list[str] = []

    async def refuse(request: web.Request) -> web.StreamResponse:
        asked.append(request.headers["X-API-Key"])
        answer = web.StreamResponse(status=status, headers=headers)
        await answer.prepare(request)
        with suppress(ConnectionError):
            while True:  # a body without end
                await answer.write(b"no " * 100)
                await asyncio.sleep(0.01)
        return answer

    async with answering(refuse) as url:
        server = VoiceServer(VENDORS["cartesia"], url=url.replace("http", "ws", 1))
        engine = registry.load("tts", "websocket", table("cartesia", server))
        with pytest.raises(EngineError, match=f"answered {status}") as refused:
            async with asyncio.timeout(2):
                [chunk async for chunk in engine.speak("one", language="en")]
        assert not refused.value.retryable
        assert asked == ["k-1"]
        await engine.close()


async def test_times_that_cannot_be_place_no_word_outside_of_its_sound() -> None:
    placer = WordPlacer(1000)
    placer.add("one two three four")
    for text, start, end in (("one", 0, 100), ("two", 900_000, 900_100), ("two", 50, 20), ("three", 5, 300)):
        placer.samples = 200
        placer.tell(text, start, end)
    placer.samples = 400
    words = (*placer.taken(), *placer.rest())
    assert [word.text for word in words] == ["one", "two", "three", "four"]
    last = 0
    for word in words:
        assert last <= word.start <= word.end <= 400
        last = word.start


async def test_words_are_found_in_another_spelling() -> None:
    placer = WordPlacer(1000)
    placer.add("\N{EM DASH} Twenty-one o'clock, New York: ok?")
    placer.samples = 1000
    for place, text in enumerate(["twenty", "one", "uh", "O'CLOCK", "New York", "o", "k"]):
        placer.tell(text, 100 * place, 100 * place + 100)
    words = placer.taken()
    assert [word.text for word in words] == ["\N{EM DASH}", "Twenty-one", "o'clock,", "New", "York:", "ok?"]
    assert [(word.start, word.end) for word in words][1:3] == [(0, 200), (300, 400)]
    assert (words[-1].start, words[-1].end) == (500, 700)


async def test_an_error_of_the_service_is_named_and_quotes_nothing() -> None:
    vendor = Vendor(
        VENDORS["cartesia"].pieces,
        lambda context, word: [{"type": "error", "context_id": context, "error_code": "quota_exceeded",
                                "message": f"cannot say {word.text}", "done": True}],
    )  # fmt: skip
    async with in_a_call(vendor=vendor) as (_, speaks):
        written = Written(speaks, "secret.")
        with pytest.raises(EngineError, match="quota_exceeded") as failed:
            await written.task
        assert "secret" not in str(failed.value)


async def test_an_idle_socket_that_the_service_closes_is_opened_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with in_a_call(idle_s=1.0) as (server, speaks):
        await until(lambda: server.open == 1)
        await asyncio.sleep(1.05)
        server.sockets.clear()
        for request in server.requests:
            assert request.transport is not None
            request.transport.abort()
        await until(lambda: len(server.sockets) == 1)
        await wrote(speaks, "one.")
        assert len(server.sockets) == 1


async def test_a_voice_outside_of_a_call_has_a_socket_for_each_text() -> None:
    async with engine_of() as (server, engine):
        assert await engine.check() == ""
        chunks = [chunk async for chunk in engine.speak("one two.", language="en")]
        assert server.heard(np.concatenate([chunk.samples for chunk in chunks])) == ["one", "two."]
        await until(lambda: server.open == 0)


@pytest.mark.virtual_clock(only_real=True)  # the suite is another process
@pytest.mark.parametrize("preset", ["cartesia", pytest.param("deepgram", marks=pytest.mark.nightly("ci"))])
async def test_a_described_voice_passes_the_suite_that_authors_of_engines_run(preset: str) -> None:
    async with voice_server(VENDORS[preset]) as server:
        suite = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts=", "--pyargs",
            "mediaserver.testing.tts", "--engine", "websocket", "--engine-options",
            json.dumps(table(preset, server)), cwd=ROOT, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        told, _ = await asyncio.wait_for(suite.communicate(), 100)
        assert suite.returncode == 0, told.decode()
        assert b"passed" in told
        assert b"skipped" not in told
        assert server.said.count("Then") == 1, "an answer in pieces is a test of the suite"


async def test_a_long_text_goes_in_pieces_that_services_take() -> None:
    text = " ".join(f"This is sentence number {number} of a long text." for number in range(100))
    async with engine_of() as (server, engine):
        chunks = [chunk async for chunk in engine.speak(text, language="en")]
        sent = [each["transcript"] for each in server.sockets[0]]
        assert max(map(len, sent)) <= 510
        assert "".join(sent).split() == text.split()
        assert [word.text for chunk in chunks for word in chunk.words] == text.split()


async def test_no_socket_leads_where_the_server_may_not_go() -> None:
    async with voice_server(VENDORS["cartesia"]) as server:
        with egress_policy(EgressPolicy()):
            engine = registry.load("tts", "websocket", table("cartesia", server))
        with pytest.raises(EngineError, match="not an address"):
            [chunk async for chunk in engine.speak("one", language="en")]
        assert "not an address" in await engine.check()
        assert server.requests == []
        await engine.close()


async def test_a_language_may_have_a_voice_of_its_own() -> None:
    async with engine_of("deepgram", voices={"es": "aura-es"}) as (server, engine):
        for language in ("en-GB", "es-MX"):
            [chunk async for chunk in engine.speak("one", language=language)]
        assert [request.query["model"] for request in server.requests] == ["v-1", "aura-es"]


async def test_mu_law_is_understood() -> None:
    async with in_a_call("deepgram", encoding="pcm_mulaw", rate_hz=8000) as (_, speaks):
        written = await wrote(speaks, "one.")
        assert len(written.samples) == 2 * WORD, "one octet a sample"


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"url": "https://a.example", "text": {"t": "{text}"}, "sound": {}}, "url"),
        ({"url": "wss://a.example", "sound": {}}, "text"),
        ({"url": "wss://a.example", "text": {}, "sound": {}, "words": {"since": "then"}}, "words.since"),
        ({"url": "wss://a.example", "text": {}, "sound": {}, "rate_hz": 11025}, "rate_hz"),
        ({"url": "wss://a.example", "text": {}, "sound": {}, "other": 1}, "other"),
    ],
)
def test_mistakes_in_the_table_are_named(options: dict[str, Any], key: str) -> None:
    with pytest.raises(SettingsRefused) as refused:
        registry.load("tts", "websocket", options)
    assert key in [problem[0] for problem in refused.value.problems]
