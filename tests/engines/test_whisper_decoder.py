"""The process of a Whisper model: what becomes of calls when it dies, hangs or does not start again."""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
import os
import queue
import resource
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mediaserver.demo.micro_whisper import MODEL_DIR
from mediaserver.engine_pool import warm_up
from mediaserver.engine_pool.warm_up import try_whisper
from pipeline.audio import Pcm
from pipeline.confinement.messages import pack
from pipeline.engines.guard import Guard
from pipeline.errors import EngineBusy, EngineError, EngineMissing
from pipeline.speech import Expected, Hypothesis
from pipeline.stt.fallback import FallbackListening, FallbackRecognizer, GuardedRecognizer, of_call
from pipeline.stt.faster_whisper import FasterWhisper
from pipeline.stt.pocketsphinx import PocketSphinx
from pipeline.stt.whisper import decoder, process
from pipeline.stt.whisper.decoder import DecoderProgram, WhisperDecoder, _Running
from pipeline.tts.espeak import Espeak
from tests.support.speech.engines import LINE_HZ, espeak, over_the_line, push

SETTINGS = {"model": str(MODEL_DIR), "encoder_window_s": 1, "threads": 2, "partial_every_s": 0}
LIMIT_S = 30
YES_NO = Expected(kinds=("yes_no",))


@pytest.fixture(scope="module")
def yes() -> Pcm:
    async def said() -> Pcm:
        speaker = Espeak.from_settings({"voice": "en-us"})
        await speaker.start()
        try:
            return over_the_line(await espeak(speaker, "yes please"), speaker.rate_hz)
        finally:
            await speaker.close()

    return asyncio.run(said())


@pytest.fixture
async def engine() -> AsyncIterator[FasterWhisper]:
    engine = FasterWhisper.from_settings(SETTINGS)
    await engine.start()
    yield engine
    await engine.close()


@pytest.fixture
async def recognizer(engine: FasterWhisper) -> AsyncIterator[FallbackRecognizer]:
    """As an agent has them: the grammar's recogniser behind the model."""
    sphinx = PocketSphinx()
    await sphinx.start()
    yield FallbackRecognizer(
        [
            GuardedRecognizer(engine, Guard("stt", "faster-whisper")),
            GuardedRecognizer(sphinx, Guard("stt", "pocketsphinx")),
        ]
    )
    await sphinx.close()


def listen(recognizer: FallbackRecognizer, samples: Pcm) -> FallbackListening:
    listening = recognizer.listen(rate_hz=LINE_HZ, language="en", expected=YES_NO)
    push(listening, samples)
    return listening


def pid_of(engine: FasterWhisper) -> int:
    assert engine.pid is not None
    return engine.pid


def described(pid: int) -> tuple[dict[str, str], bytes]:
    """A process's status, and its environment as of its start."""
    directory = Path("/proc", str(pid))
    lines = (
        line.split(":\t", 1) for line in (directory / "status").read_text().splitlines() if ":\t" in line
    )
    return dict(lines), (directory / "environ").read_bytes()


async def until_started_again(engine: FasterWhisper, before: int) -> None:
    async with asyncio.timeout(LIMIT_S):
        while engine.pid in (None, before):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
async def test_a_process_that_dies_costs_no_utterance(
    engine: FasterWhisper,
    recognizer: FallbackRecognizer,
    yes: Pcm,
    number: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = pid_of(engine)
    os.kill(before, signal.SIGSTOP)
    listening = listen(recognizer, yes)
    heard = asyncio.create_task(listening.result())
    async with asyncio.timeout(LIMIT_S):
        while engine._queue is not None and not engine._queue._begun:
            await asyncio.sleep(0.01)
        os.kill(before, number)
        os.kill(before, signal.SIGCONT)
        assert (await heard).text.startswith("yes")
    assert listening._name == "pocketsphinx"
    await until_started_again(engine, before)
    assert [each.message for each in caplog.records if each.levelno >= logging.WARNING] == [
        "recogniser process ended, started again"
    ]
    again = listen(recognizer, yes)
    assert (await again.result()).text == "yes please"
    assert again._name == "faster-whisper"


async def test_a_decode_that_raises_the_unforeseen_costs_no_utterance(
    engine: FasterWhisper,
    recognizer: FallbackRecognizer,
    yes: Pcm,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(*arguments: object) -> list[Hypothesis]:
        raise ZeroDivisionError

    monkeypatch.setattr(engine, "_heard", broken)
    ears, _ = of_call(recognizer, lambda reason: None, call_id="call-1", language="en")
    listening = ears.listen(rate_hz=LINE_HZ, language="en", expected=YES_NO)
    push(listening, yes)
    async with asyncio.timeout(LIMIT_S):
        assert (await listening.result()).text.startswith("yes")
    (line,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert (line.message, vars(line)["call_id"]) == ("engine broke", "call-1")
    assert line.exc_info is not None
    assert line.exc_info[0] is ZeroDivisionError


@pytest.mark.parametrize(
    ("raised", "answer"),
    [(None, {"texts": []}), (ZeroDivisionError("yes please"), {"failed": "ZeroDivisionError"})],
)
def test_of_what_the_model_raises_its_process_tells_the_kind_alone(
    raised: Exception | None, answer: dict[str, Any]
) -> None:
    class Model:
        def decoded(self, audios: object, **head: object) -> list[object]:
            if raised is not None:
                raise raised
            return []

    assert process._decoded(Model(), {"lengths": [2]}, bytes(8)) == answer


async def test_a_decode_that_does_not_end_is_ended_and_others_do_not_queue_behind_it(
    engine: FasterWhisper,
    recognizer: FallbackRecognizer,
    yes: Pcm,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert engine._model is not None
    monkeypatch.setattr(engine, "_late_s", 0.2)
    monkeypatch.setattr(engine._model, "hung_s", 2.0)
    before = pid_of(engine)
    os.kill(before, signal.SIGSTOP)
    first = asyncio.create_task(listen(recognizer, yes).result())
    beside = asyncio.create_task(listen(recognizer, yes).result())  # the other thread
    await asyncio.sleep(0.5)
    with pytest.raises(EngineBusy):
        engine.submit(yes, LINE_HZ, "en", None)
    second = listen(recognizer, yes)
    async with asyncio.timeout(LIMIT_S):
        assert (await second.result()).text.startswith("yes")
        assert not first.done()
        assert (await first).text.startswith("yes")
        assert (await beside).text.startswith("yes")
    assert second._name == "pocketsphinx"
    await until_started_again(engine, before)
    messages = [each.message for each in caplog.records]
    assert messages.count("recogniser process hangs and is killed") == 1


async def test_while_it_is_started_again_decodes_fail_at_once(
    engine: FasterWhisper, yes: Pcm, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert engine._model is not None

    def refused() -> None:
        raise EngineError("no memory", retryable=True)

    monkeypatch.setattr(engine._model, "_started", refused)
    os.kill(pid_of(engine), signal.SIGKILL)
    async with asyncio.timeout(LIMIT_S):
        while engine.pid is not None:
            await asyncio.sleep(0.01)
        with pytest.raises(EngineError, match="started again"):
            await engine.decode(yes, LINE_HZ, "en", None)


async def killed(engine: FasterWhisper) -> None:
    """Its process is ended, and there is another."""
    before = pid_of(engine)
    os.kill(before, signal.SIGKILL)
    await until_started_again(engine, before)


async def test_it_is_started_again_when_descriptors_are_there_again(
    engine: FasterWhisper, yes: Pcm, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, asked, made = socket.socketpair, itertools.count(1), list[socket.socket]()

    def scarce() -> tuple[socket.socket, socket.socket]:
        if next(asked) == 2:  # of the two that it needs
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        made.extend(pair := make())
        return pair

    monkeypatch.setattr(socket, "socketpair", scarce)
    await killed(engine)
    assert [each.fileno() for each in made[:2]] == [-1, -1]
    assert (await engine.decode(yes, LINE_HZ, "en", None)).text == "yes please"


async def test_it_is_started_again_however_often_that_failed(
    engine: FasterWhisper, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, failures = engine._model, iter(range(1100))
    assert model is not None
    start = model._started

    def refused() -> Any:
        if next(failures, None) is not None:
            raise EngineError("no memory", retryable=True)
        return start()

    monkeypatch.setattr(decoder, "_RESTART_S", 0.0)
    monkeypatch.setattr(model, "_started", refused)
    await killed(engine)
    assert next(failures, None) is None


def test_one_that_dies_whenever_it_is_asked_is_started_more_and_more_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, pauses = WhisperDecoder(DecoderProgram("", 1, "cpu", "int8")), list[float]()

    def started() -> _Running:
        """One whose process is at its end; the fourth has answered before."""
        here, there = socket.socketpair()
        there.sendall(pack({"texts": []}))
        free: queue.SimpleQueue[socket.socket] = queue.SimpleQueue()
        free.put(here)
        running = _Running(subprocess.Popen(["true"]), (here,), free)
        if len(pauses) == 3:
            model._exchanged(running, b"")
        there.close()
        return running

    def wait(pause_s: float) -> bool:
        pauses.append(pause_s)
        if len(pauses) == 5:
            model._closing.set()
        return model._closing.is_set()

    monkeypatch.setattr(model, "_started", started)
    monkeypatch.setattr(model._closing, "wait", wait)
    model._supervise(started())
    assert pauses == [0.1, 0.2, 0.4, 0.1, 0.2]


async def test_it_starts_where_the_server_has_many_descriptors_open(yes: Pcm) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, limits[1]), limits[1]))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    engine = FasterWhisper.from_settings(SETTINGS)
    try:
        await engine.start()
        assert (await engine.decode(yes, LINE_HZ, "en", None)).text == "yes please"
    finally:
        await engine.close()
        for each in held:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


async def test_the_process_ends_with_the_engine(engine: FasterWhisper) -> None:
    pid = pid_of(engine)
    await engine.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_the_process_is_confined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_KEY", "sk-of-the-server")
    engine = FasterWhisper.from_settings(SETTINGS)
    await engine.start()
    try:
        status, environment = described(pid_of(engine))
    finally:
        await engine.close()
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    assert b"OMP_NUM_THREADS" in environment
    assert b"LLM_KEY" not in environment


@pytest.mark.nightly("ci")
def test_the_process_steps_back_behind_the_server() -> None:
    program = f"""
import asyncio, os
from pipeline.stt.faster_whisper import FasterWhisper

async def main():
    engine = FasterWhisper.from_settings({SETTINGS!r})
    await engine.start()
    nice = os.getpriority(os.PRIO_PROCESS, engine.pid) - os.getpriority(os.PRIO_PROCESS, 0)
    print(nice, os.sched_getscheduler(engine.pid) == os.SCHED_OTHER)
    await engine.close()

try:
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
except PermissionError:
    pass
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["5", "True"]


@pytest.fixture(params=["model.bin", "tokenizer.json"])
def broken(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A model of which one file is none. Of a broken tokenizer.json a bare `Exception` is raised."""
    model = tmp_path / "model"
    shutil.copytree(MODEL_DIR, model)
    (model / request.param).write_bytes(b"half of a wheel")
    return model


async def test_a_model_that_cannot_be_loaded_says_why(broken: Path) -> None:
    engine = FasterWhisper.from_settings({**SETTINGS, "model": str(broken)})
    with pytest.raises(EngineMissing, match=r"does not load: .+"):
        await engine.start()
    await engine.close()


async def test_a_trial_of_a_model_that_cannot_be_loaded_says_why(broken: Path) -> None:
    trial = await try_whisper(broken, window_s=1, compute_type="int8")
    assert trial.cpu_ms == 0
    assert "process ended" not in trial.problem
    assert trial.problem
    assert not trial.passing


async def test_a_trial_that_does_not_end_in_its_time_may_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_up, "RECOGNIZER_S", 0.01)
    trial = await try_whisper(MODEL_DIR, window_s=1, compute_type="int8")
    assert (trial.problem, trial.passing) == ("no decode in 0 s", True)


@pytest.mark.parametrize(
    ("number", "reason"),
    [(signal.SIGILL, r"SIGILL.*AVX"), (signal.SIGKILL, r"SIGKILL.*memory"), (40, r"ended with signal 40")],
)
async def test_a_process_that_is_ended_as_it_starts_says_by_what(
    number: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A processor without AVX ends it by SIGILL, a machine without memory by SIGKILL."""
    dies = [sys.executable, "-c", f"import os; os.kill(os.getpid(), {int(number)})"]
    monkeypatch.setattr(decoder, "confined_command", lambda *arguments: dies)
    engine = FasterWhisper.from_settings(SETTINGS)
    with pytest.raises(EngineMissing, match=reason):
        await engine.start()


@pytest.mark.nightly("ci")
def test_the_server_has_nothing_of_the_model_in_its_process() -> None:
    program = f"""
import asyncio, sys
import numpy as np
from pipeline.stt.faster_whisper import FasterWhisper

async def main():
    engine = FasterWhisper.from_settings({SETTINGS!r})
    await engine.start()
    await engine.decode(np.zeros(8000, np.int16), 8000, "en", None)
    await engine.close()

asyncio.run(main())
print(sorted({{"ctranslate2", "faster_whisper", "av", "onnxruntime"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_more_callers_than_threads_are_all_answered(engine: FasterWhisper, yes: Pcm) -> None:
    heard = await asyncio.gather(*(engine.decode(yes, LINE_HZ, "en", None) for _ in range(30)))
    assert {each.text for each in heard} == {"yes please"}
    waits = engine.decoder_waits()
    assert waits is not None
    assert sum(waits.counts) == 31  # that of the start is one
    assert waits.sum_s > 0


async def test_samples_come_out_of_the_process_as_they_went_in(engine: FasterWhisper, yes: Pcm) -> None:
    """Utterances of different lengths in one pass are told apart."""
    model = engine._model
    assert model is not None
    one = yes.repeat(2).astype(np.float32) / np.float32(32768)
    alone = model.decoded([one], language="en", hotwords=None, window_s=1, most=20)
    pair = model.decoded([one, one[:3000]], language="en", hotwords=None, window_s=1, most=20)
    assert pair[0].text == alone[0].text


@pytest.mark.parametrize("module", ["process", "model", "trial"])
def test_the_process_compiles_no_kernels(module: str) -> None:
    """A confined process has no cache of them: it would take ten seconds to start."""
    code = f"import sys, pipeline.stt.whisper.{module}; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
