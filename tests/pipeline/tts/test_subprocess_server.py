"""The order in which a voice's process serves many callers."""

from __future__ import annotations

import io
import os
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import pytest

from pipeline.confinement.messages import pack, receive
from pipeline.tts.subprocess_server import Emit, VoiceService
from pipeline.tts.subprocess_wire import Kind

LIMIT_S = 30


class Speaker:
    """Says each text when it may, and remembers which; the first one waits to be let go."""

    rate_hz = 8000

    def __init__(self) -> None:
        self.go, self.busy = threading.Event(), threading.Event()
        self.said: list[str] = []

    def speak(self, request: Mapping[str, Any], emit: Emit) -> None:
        assert set(request) == {"text"}
        self.busy.set()
        assert self.go.wait(LIMIT_S)
        self.said.append(request["text"])
        if request["text"] == "13":
            raise ZeroDivisionError("said thirteen")
        emit(b"\0\0", [])


@pytest.fixture
def speaker() -> Speaker:
    return Speaker()


class Served:
    """A service in a thread, and the server's end of its requests."""

    def __init__(self, speaker: Speaker, requests: BinaryIO, source: BinaryIO) -> None:
        self.speaker, self.requests, self.sink = speaker, requests, io.BytesIO()
        self.service = VoiceService(source, self.sink, speaker)
        self.thread = threading.Thread(target=self.service.run)
        self.thread.start()

    def finish(self, waiting: int) -> None:
        """Lets the speaker go when all the requests, `waiting` of them, are there, and waits for the end."""
        self.requests.close()
        deadline = time.monotonic() + LIMIT_S
        while self.service._requests.qsize() < waiting + 1:  # the end of all is one
            assert time.monotonic() < deadline
            time.sleep(0.001)
        self.speaker.go.set()
        self.thread.join(LIMIT_S)


@pytest.fixture
def served(speaker: Speaker) -> Iterator[Served]:
    read, write = os.pipe()
    with os.fdopen(read, "rb") as source, os.fdopen(write, "wb", buffering=0) as requests:
        serving = Served(speaker, requests, source)
        yield serving
        speaker.go.set()
        requests.close()
        serving.thread.join(LIMIT_S)


def ask(requests: BinaryIO, number: int, **fields: object) -> None:
    requests.write(pack({"kind": Kind.SPEAK, "number": number, "request": {"text": str(number), **fields}}))


def kinds(answers: bytes) -> list[tuple[str, int]]:
    """Kind and number of each message."""
    found, source = [], io.BytesIO(answers)
    while source.tell() < len(answers):
        head, _ = receive(source.read)
        found.append((head["kind"], head.get("number", 0)))
    return found


def test_whoever_hears_nothing_soonest_is_next(served: Served) -> None:
    ask(served.requests, 1)
    assert served.speaker.busy.wait(LIMIT_S)
    for number, due in ((2, 9.0), (3, 5.0), (4, 7.0), (5, 5.0)):
        ask(served.requests, number, due=due)
    served.finish(waiting=4)
    assert served.speaker.said == ["1", "3", "5", "4", "2"]


def test_one_that_is_cancelled_before_its_turn_is_skipped_whatever_its_number(served: Served) -> None:
    ask(served.requests, 5)
    assert served.speaker.busy.wait(LIMIT_S)
    ask(served.requests, 2, due=8.0)
    ask(served.requests, 3, due=9.0)
    served.requests.write(pack({"kind": Kind.CANCEL, "number": 2}))
    served.finish(waiting=2)
    assert served.speaker.said == ["5", "3"]
    done = [number for kind, number in kinds(served.sink.getvalue()) if kind == Kind.DONE]
    assert done == [5, 2, 3]


def test_a_voice_that_raises_the_unforeseen_fails_one_sentence_and_quotes_nothing(served: Served) -> None:
    ask(served.requests, 13)
    assert served.speaker.busy.wait(LIMIT_S)
    ask(served.requests, 14)
    served.finish(waiting=1)
    answers = served.sink.getvalue()
    assert kinds(answers) == [(Kind.READY, 0), (Kind.FAILED, 13), (Kind.CHUNK, 14), (Kind.DONE, 14)]
    assert b'"ZeroDivisionError"' in answers
    assert b"said thirteen" not in answers
