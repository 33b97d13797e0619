"""The speech service: jobs done once, engines that are missing, callers kept apart."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.support.stub import Stub
from mediaserver.engine_pool.choice import EngineChoice
from mediaserver.engine_pool.pool import Engines
from mediaserver.errors import Conflict, SpeechFailed, TooMany, Unavailable
from mediaserver.settings import Settings
from mediaserver.settings.agent import EngineChain
from mediaserver.settings.server import SpeechSettings
from mediaserver.speech.service import Speaker, SpeechRequest, SpeechService, Upload
from mediaserver.store.store import Store
from mediaserver.wiring import engine_problems, speech_choices
from pipeline.audio import Pcm
from pipeline.errors import EngineError, EngineMissing
from pipeline.speech import Expected, Hypothesis, SpeechChunk
from tests.support.node.store import ENGINES, Clock, company, on_engine, opened, settings
from tests.support.speech.sounds import file_of, tone
from tests.support.waiting import until

DAY_MS = 24 * 3600 * 1000
REQUEST = SpeechRequest(text="hello", format="pcm", chunk_ms=20)
FILE = file_of(tone(8000, 200), 8000)


class Recognizer(Stub):
    """Understands "hello" once `heard` is set, and counts."""

    def __init__(self) -> None:
        self.asked = 0
        self.heard = asyncio.Event()
        self.heard.set()
        self.error: Exception | None = None

    def listen(self, *, rate_hz: int, language: str, expected: Expected | None) -> Hearing:
        return Hearing(self)


class Hearing:
    """One piece of a file."""

    def __init__(self, recognizers: Recognizer) -> None:
        self._recognizers = recognizers

    def push(self, samples: Pcm) -> None:
        """Not listened to."""

    def partial(self) -> str:
        return ""

    async def result(self) -> Hypothesis:
        self._recognizers.asked += 1
        await self._recognizers.heard.wait()
        if self._recognizers.error is not None:
            raise self._recognizers.error
        return Hypothesis("hello", 0.75)

    def close(self) -> None:
        """Nothing to free."""


class Voice(Stub):
    """Says a frame."""

    rate_hz = 24000

    async def speak(self, text: str, *, language: str) -> AsyncGenerator[SpeechChunk, None]:
        yield SpeechChunk(np.full(480, 1000, np.int16))


class Bench:
    """A service with its store and its ears."""

    def __init__(self, service: SpeechService, store: Store, recognizers: Recognizer, clock: Clock) -> None:
        self.service = service
        self.store = store
        self.recognizers = recognizers
        self.clock = clock

    async def transcribe(self, company_id: str = "acme", job_id: str = "", sha256: str = "a") -> str:
        """The text of a file that is closed as soon as the answer is there, or given up."""
        file = os.memfd_create("test")
        try:
            os.write(file, FILE)
            upload = Upload(file=file, sha256=sha256)
            return (await self.service.transcribe(company_id, upload, job_id=job_id)).text
        finally:
            os.close(file)


@asynccontextmanager
async def bench(
    tmp_path: Path,
    *,
    missing: bool = False,
    recognizers: Recognizer | None = None,
    spares: Mapping[str, Recognizer] | None = None,
    **limits: Any,
) -> AsyncIterator[Bench]:
    """A service on the database that `on_engine` put at `tmp_path`, else on SQLite."""
    recognizers, clock = recognizers or Recognizer(), Clock()

    def load(kind: str, name: str, options: Mapping[str, Any]) -> Any:
        if missing:
            raise EngineMissing(f"no {name} at /secret/path")
        return Voice() if kind == "tts" else (spares or {}).get(name, recognizers)

    voices = [EngineChoice("tts", "voice", {})]
    hearing = [EngineChoice("stt", "ears", {}), *(EngineChoice("stt", name, {}) for name in spares or {})]
    engines = Engines([], others={"speech.tts": voices, "speech.stt": hearing}, load=load)
    await engines.start()
    configured = settings(company("acme"), company("zenith"))
    async with opened(tmp_path, clock, configured) as store:
        service = SpeechService(
            SpeechSettings(**limits), engines=engines, voices=voices, recognizers=hearing, store=lambda: store
        )
        await service.start()
        try:
            yield Bench(service, store, recognizers, clock)
        finally:
            await service.close()
            await engines.close()


async def until_asked(recognizers: Recognizer, times: int = 1) -> None:
    await until(lambda: recognizers.asked >= times)


async def test_a_job_goes_on_when_its_client_goes_away(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.recognizers.heard.clear()
        first = asyncio.create_task(here.transcribe(job_id="1"))
        await until_asked(here.recognizers)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        second = asyncio.create_task(here.transcribe(job_id="1"))
        await asyncio.sleep(0)
        here.recognizers.heard.set()
        assert await second == "hello"
        assert await here.transcribe(job_id="1") == "hello"
        assert here.recognizers.asked == 1


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_job_is_its_companys_and_kept_for_a_day(tmp_path: Path, engine: str) -> None:
    with on_engine(engine, tmp_path):
        await _jobs_of_a_day(tmp_path)


async def _jobs_of_a_day(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        await here.transcribe("acme", "1")
        await here.transcribe("zenith", "1", sha256="b")
        assert here.recognizers.asked == 2
        with pytest.raises(Conflict):
            await here.transcribe("acme", "1", sha256="b")
        here.clock.advance(DAY_MS - 1)
        await here.transcribe("acme", "1")
        assert here.recognizers.asked == 2
        here.clock.advance(1)
        await here.transcribe("acme", "1")
        assert here.recognizers.asked == 3


async def test_while_a_job_is_under_way_another_file_is_refused(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.recognizers.heard.clear()
        first = asyncio.create_task(here.transcribe(job_id="1"))
        await until_asked(here.recognizers)
        with pytest.raises(Conflict):
            await here.transcribe(job_id="1", sha256="b")
        here.recognizers.heard.set()
        assert await first == "hello"


async def test_a_job_that_failed_can_be_tried_again(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.recognizers.error = EngineError("a detail", retryable=True)
        with pytest.raises(SpeechFailed):
            await here.transcribe(job_id="1")
        here.recognizers.error = None
        assert await here.transcribe(job_id="1") == "hello"
        assert await here.store.transcription("acme", "2") is None


async def test_closing_ends_jobs_and_leaves_no_descriptor(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        before = len(os.listdir("/proc/self/fd"))
        here.recognizers.heard.clear()
        waiting = asyncio.create_task(here.transcribe(job_id="1"))
        await until_asked(here.recognizers)
        await here.service.close()
        await asyncio.gather(waiting, return_exceptions=True)
        assert waiting.cancelled()
        assert len(os.listdir("/proc/self/fd")) <= before


async def test_one_caller_at_its_limit_leaves_the_others_alone(tmp_path: Path) -> None:
    async with bench(tmp_path, at_once=1, keyless_at_once=1) as here:
        acme, zenith = Speaker("acme", has_key=True), Speaker("zenith", has_key=True)
        nobody = Speaker("192.0.2.1", has_key=False)
        async with here.service.speak(acme, REQUEST):
            with pytest.raises(TooMany):
                async with here.service.speak(acme, REQUEST):
                    pass
            async with here.service.speak(zenith, REQUEST), here.service.speak(nobody, REQUEST) as file:
                assert [len(piece) async for piece in file.pieces] == [960]
            with pytest.raises(TooMany):
                await here.transcribe("acme")
            assert await here.transcribe("zenith") == "hello"
        assert await here.transcribe("acme") == "hello"


async def test_a_file_that_the_first_recogniser_fails_on_is_heard_by_the_next(tmp_path: Path) -> None:
    spare = Recognizer()
    async with bench(tmp_path, spares={"spare": spare}) as here:
        here.recognizers.error = EngineError("gone", retryable=True)
        for _ in range(5):
            assert await here.transcribe() == "hello"
        assert spare.asked == 5
        assert here.recognizers.asked == 3  # then it was left alone
        spare.error = EngineError("gone too", retryable=True)
        with pytest.raises(SpeechFailed):
            await here.transcribe()


class RemoteRecognizer(Recognizer):
    """Behind a network; nobody waits for them longer than a moment in a call."""

    deadline_s = 0.01

    async def check(self) -> str:
        return ""


async def test_a_long_file_is_no_sign_of_a_slow_recogniser(tmp_path: Path) -> None:
    spare = Recognizer()
    async with bench(tmp_path, recognizers=RemoteRecognizer(), spares={"spare": spare}) as here:
        here.recognizers.heard.clear()
        under_way = asyncio.create_task(here.transcribe())
        await until_asked(here.recognizers)
        await asyncio.sleep(0.2)
        here.recognizers.heard.set()
        assert await under_way == "hello"
        assert spare.asked == 0


async def test_without_its_engines_it_is_unavailable_and_names_no_path(tmp_path: Path) -> None:
    async with bench(tmp_path, missing=True) as here:
        with pytest.raises(Unavailable) as caught:
            await here.transcribe()
        assert "/secret" not in str(caught.value)
        with pytest.raises(Unavailable):
            async with here.service.speak(Speaker("acme", has_key=True), REQUEST):
                pass


def test_pocketsphinx_tells_files_even_what_it_is_unsure_of() -> None:
    (voice,), (recognizers,) = speech_choices(SpeechSettings())
    assert (voice.name, recognizers.name) == ("espeak-ng", "pocketsphinx")
    assert recognizers.options == {"min_confidence": 0.0}
    named = SpeechSettings(
        stt=EngineChain.model_validate(
            {"engine": "pocketsphinx", "min_confidence": 0.5, "fallback": ["pocketsphinx"]}
        )
    )
    _, chain = speech_choices(named)
    assert [each.options for each in chain] == [{"min_confidence": 0.5}, {"min_confidence": 0.0}]


def test_what_an_engine_says_against_its_table_is_found_at_loading() -> None:
    wrong = Settings.model_validate(
        {"speech": {"stt": {"engine": "none"}, "tts": {"engine": "espeak-ng", "pitch": 1000}}}, by_alias=True
    )
    problems = dict(engine_problems(wrong))
    assert set(problems) == {"speech.stt.engine", "speech.tts.pitch"}
