"""The language-model agent and the servers of the wild: vLLM, Ollama, llama.cpp, LiteLLM, Azure, OpenRouter,
Gemini's gateway. What a caller hears and what is done are the same with all of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from pipeline.agent import CallOpened, Say, Trouble, UserSaid
from pipeline.agents.llm.agent import Llm
from pipeline.agents.llm.attempt import THOUGHTLESS
from pipeline.agents.llm.conversation import LlmConversation
from pipeline.agents.llm.dialect import Dialect
from pipeline.errors import EngineError, EngineRefused
from pipeline.transcript import Role, TranscriptEntry
from tests.support.hostile.wild import DONE, SSE, Piece, WildServer, event, wild_server
from tests.support.http.chat import acts_of, context
from tests.support.http.llm import words

pytestmark = pytest.mark.virtual_clock

HELLO = UserSaid("hello", 0.9)
END = (event(finish="stop"), DONE)
FINE = (SSE, event({"content": "Fine then."}), *END)
PING = b": OPENROUTER PROCESSING\n\n"


pytestmark = pytest.mark.usefixtures("at_home")


@asynccontextmanager
async def calling(
    *answers: Sequence[Piece], **settings: Any
) -> AsyncIterator[tuple[WildServer, LlmConversation]]:
    """A call that a server leads with these answers."""
    async with wild_server(*answers) as server:
        table = {"base_url": server.base_url, "model": "m", "prompt": "Be kind.", **settings}
        llm = Llm.from_settings(table)
        try:
            yield server, llm.join(context())
        finally:
            await llm.close()


WHOLE = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
    + json.dumps(
        {"choices": [{"message": {"role": "assistant", "content": "Hello there."}, "finish_reason": "stop"}]}
    ).encode()
)
WHOLE_HEAD = WHOLE[: WHOLE.index(b"{")]
HELLO_THERE = event({"content": "Hello there."})


@pytest.mark.parametrize(
    "answer",
    [
        [SSE, event({"role": "assistant", "content": None}), HELLO_THERE, *END],
        [SSE, HELLO_THERE, event(finish="stop"), b'data: {"choices":[],"usage":{"n":3}}\n\n', DONE],
        [SSE, b'data: {"choices":[],"prompt_filter_results":[]}\n\n', HELLO_THERE, *END],
        [SSE, *(piece.replace(b"\n", b"\r\n") for piece in (HELLO_THERE, *END))],
        [SSE, PING, b"event: message\nid: 3\n" + HELLO_THERE, PING, *END],
        [SSE, HELLO_THERE.replace(b"data: ", b"data:"), DONE],
        [SSE, event({"content": "Hello there."}, finish="stop")],
        [b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", HELLO_THERE, *END],
        [SSE, event({"reasoning_content": "They greet.", "content": None}), HELLO_THERE, *END],
        [WHOLE[:99], WHOLE[99:150], 0.01, WHOLE[150:]],
        [WHOLE.replace(b"\r\n\r\n", b"\r\n\r\n\n  ")],
        [WHOLE_HEAD, b"\n", 0.02, b"\xef\xbb", 0.02, b"\xbf ", 0.02, WHOLE[len(WHOLE_HEAD) :]],
        [SSE, b"\xef\xbb\xbf" + HELLO_THERE, *END],
        [
            SSE,
            event({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}),
            event({"content": [{"type": "text", "text": "Hello there."}]}),
            *END,
        ],
    ],
    ids=[
        "role", "usage", "azure", "crlf", "lines", "no-space", "no-done", "http-1.0", "reasoning", "whole",
        "space-before", "space-in-pieces", "bom", "parts",
    ],
)  # fmt: skip
async def test_words_are_words_however_they_are_wrapped(answer: list[Piece]) -> None:
    async with calling(answer) as (server, conversation):
        acts = await acts_of(conversation, HELLO)
        assert acts == [Say("Hello there.")]
        assert len(server.requests) == 1


async def test_thoughts_whose_beginning_is_not_marked_are_heard_once_at_most() -> None:
    aloud = [SSE, event({"content": "They greet."}), event({"content": "\n</think>\n\nHello there."}), *END]
    plain = [SSE, event({"content": "I am here. "}), event({"content": "What can I do?"}), *END]
    slow: list[Piece] = [*plain[:2], event({"content": "What "}), 60.0]
    async with calling(aloud, aloud, *[plain] * THOUGHTLESS, slow) as (_, conversation):
        await acts_of(conversation, HELLO)
        assert words(await acts_of(conversation, HELLO)) == "Hello there."
        for _ in range(THOUGHTLESS):
            assert words(await acts_of(conversation, HELLO)) == "I am here. What can I do?"
        acts = await acts_of(conversation, HELLO, most=1)
        assert words(acts) == "I am here.", "said before the end of the answer"


async def test_nobody_waits_for_the_thoughts_of_another_model() -> None:
    aloud = [SSE, event({"content": "They greet."}), event({"content": "\n</think>\n\nHello there."}), *END]
    slow: list[Piece] = [SSE, event({"content": "I am here. "}), event({"content": "What "}), 60.0]
    async with wild_server(slow) as spare:
        fallback = [{"base_url": spare.base_url, "model": "spare"}]
        async with calling(aloud, refusal(500, {}), fallback=fallback) as (_, conversation):
            await acts_of(conversation, HELLO)
            acts = await acts_of(conversation, HELLO, most=2)
            assert words(acts) == "I am here.", "said before the end of the answer"


# Tools ------------------------------------------------------------------------------------------------------


def fragment(name: str | None, arguments: object, **more: Any) -> dict[str, Any]:
    return {**more, "type": "function", "function": {"name": name, "arguments": arguments}}


def note(key: str) -> str:
    return json.dumps({"key": key, "value": "x"})


def streamed(*deltas: list[dict[str, Any]]) -> list[Piece]:
    """An answer that is nothing but calls."""
    return [SSE, *(event({"tool_calls": delta}) for delta in deltas), event(finish="tool_calls"), DONE]


HEAD, TAIL = note("one")[:9], note("one")[9:]


@pytest.mark.parametrize(
    ("answer", "keys"),
    [
        (streamed([fragment("remember", HEAD, index=0, id="a")], [fragment(None, TAIL, index=0)]), ["one"]),
        (
            streamed([fragment("remember", HEAD, index=0, id="a")], [fragment("", TAIL, index=0, id="")]),
            ["one"],
        ),
        (streamed(*([fragment("remember", part, index=0, id="a")] for part in (HEAD, TAIL, ""))), ["one"]),
        (streamed([fragment("remember", note("one"), index=1, id="a")]), ["one"]),
        (streamed([fragment("remember", {"key": "one", "value": "x"}, index=0, id="a")]), ["one"]),
        (
            streamed(*([fragment("remember", note(key), index=0, id=key)] for key in ("one", "two"))),
            ["one", "two"],
        ),
        (
            streamed([fragment("remember", note(key), index=0, id="") for key in ("one", "two")]),
            ["one", "two"],
        ),
        (streamed([fragment("remember", note(key)) for key in ("one", "two")]), ["one", "two"]),
        (
            streamed(
                [fragment("remember", note(key), index=n, id="a") for n, key in enumerate(("one", "two"))]
            ),
            ["one", "two"],
        ),
        (
            streamed(
                [fragment("remember", HEAD, index=0), fragment("remember", HEAD, index=1)],
                [fragment(None, TAIL, index=0), fragment(None, TAIL.replace("x", "y"), index=1)],
            ),
            ["one", "one"],
        ),
    ],
    ids=[
        "fragments", "empty-id", "all-repeated", "from-one", "object", "same-index", "same-index-no-id",
        "no-index-no-id", "same-id", "interleaved",
    ],
)  # fmt: skip
async def test_calls_of_tools_are_told_apart(answer: list[Piece], keys: list[str]) -> None:
    async with calling(answer, FINE) as (server, conversation):
        await acts_of(conversation, HELLO)
        assert conversation.report().answers.keys() == set(keys)
        (told,) = [each for each in server.requests[-1]["messages"] if each.get("tool_calls")]
        assert [call["function"]["name"] for call in told["tool_calls"]] == ["remember"] * len(keys)
        assert [json.loads(call["function"]["arguments"])["key"] for call in told["tool_calls"]] == keys


@pytest.mark.parametrize("arguments", [None, "", "{}", "null", {}])
async def test_a_call_without_arguments_has_none(arguments: object) -> None:
    answer = [
        SSE,
        event({"content": "Goodbye."}),
        *streamed([fragment("hang_up", arguments, index=0, id="a")])[1:],
    ]
    async with calling(answer, FINE) as (_, conversation):
        acts = await acts_of(conversation, HELLO)
        assert [type(act).__name__ for act in acts] == ["Say", "HangUp"]


# What a server does not know -------------------------------------------------------------------------------


def refusal(status: int, body: object) -> list[Piece]:
    head = f"HTTP/1.1 {status} No\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
    return [head.encode(), json.dumps(body).encode()]


def openai_refusal(param: str, message: str, code: str) -> list[Piece]:
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    return refusal(400, {"error": error})


NO_MAX_TOKENS = openai_refusal(
    "max_tokens",
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'"
    " instead.",
    "unsupported_parameter",
)
NO_TEMPERATURE = openai_refusal(
    "temperature",
    "Unsupported value: 'temperature' does not support 0.3 with this model. Only the default (1) value is"
    " supported.",
    "unsupported_value",
)
EXTRA = refusal(
    422, {"detail": [{"type": "extra_forbidden", "loc": ["body", "temperature"], "msg": "Extra inputs"}]}
)
TOO_LONG = openai_refusal(
    "messages",
    "This model's maximum context length is 8192 tokens. Reduce the messages, the temperature of this"
    " discussion, or max_tokens.",
    "context_length_exceeded",
)


@pytest.mark.parametrize(
    ("refusals", "sent"),
    [
        ([NO_MAX_TOKENS, NO_TEMPERATURE], {"max_completion_tokens"}),
        ([NO_TEMPERATURE, NO_MAX_TOKENS], {"max_completion_tokens"}),
        ([NO_MAX_TOKENS], {"max_completion_tokens", "temperature"}),
        ([EXTRA], {"max_tokens"}),
        ([], {"max_tokens", "temperature"}),
    ],
    ids=["both", "the-other-way-round", "azure", "fastapi", "neither"],
)
async def test_a_field_that_a_model_does_not_take_is_left_out_from_then_on(
    refusals: list[list[Piece]], sent: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    fields = {"max_tokens": 200, "max_completion_tokens": 200, "temperature": 0.3}
    async with calling(*refusals, FINE, max_tokens=200, temperature=0.3) as (server, conversation):
        for _ in range(2):
            acts = await acts_of(conversation, HELLO)
            assert acts == [Say("Fine then.")], "nothing that belongs on the record"
        assert len(server.requests) == len(refusals) + 2
        for request in server.requests[-2:]:
            assert {name: value for name, value in request.items() if name in fields} == {
                name: fields[name] for name in sent
            }
    told = [vars(record) for record in caplog.records if record.msg == "model does not take a setting"]
    assert {(each["model"], each["field"]) for each in told} == {
        ("m", name) for name in {"max_tokens", "temperature"} - sent
    }
    assert len(told) == len(refusals)


@pytest.mark.parametrize("refused", [TOO_LONG, refusal(400, {"error": "no"})], ids=["too-long", "no-reason"])
async def test_a_refusal_for_another_reason_is_one(refused: list[Piece]) -> None:
    async with calling(refused, FINE, max_tokens=200, temperature=0.3) as (server, conversation):
        with pytest.raises(EngineError, match="400"):
            await acts_of(conversation, HELLO)
        assert len(server.requests) == 1
        await acts_of(conversation, HELLO)
        assert server.requests[-1]["max_tokens"] == 200
        assert server.requests[-1]["temperature"] == 0.3


async def test_a_field_is_not_left_out_because_of_a_refusal_that_this_did_not_help() -> None:
    async with calling(NO_MAX_TOKENS, TOO_LONG, FINE, max_tokens=200) as (server, conversation):
        with pytest.raises(EngineError, match="400"):
            await acts_of(conversation, HELLO)
        await acts_of(conversation, HELLO)
        assert server.requests[-1]["max_tokens"] == 200


class Strict:
    """A `ChatEndpoint` that takes neither setting and is slow to say so; `given_s`: the time it was given."""

    def __init__(self) -> None:
        self.given_s: list[float] = []

    async def stream_sse(
        self, path: str, body: Mapping[str, Any], *, first_s: float, stall_s: float
    ) -> AsyncIterator[str]:
        yield str(await self.post_json(path, body, timeout_s=first_s))

    async def post_json(self, path: str, body: Mapping[str, Any], *, timeout_s: float | None = None) -> Any:
        assert timeout_s is not None
        self.given_s.append(timeout_s)
        await asyncio.sleep(0.05)
        for name in ("max_tokens", "temperature"):
            if name in body:
                raise EngineRefused("no", unsupported=frozenset({name}))
        return "yes"

    async def close(self) -> None: ...


async def test_asking_again_without_a_field_takes_none_of_the_time_twice() -> None:
    body = {"max_tokens": 200, "temperature": 0.3}
    strict = Strict()
    assert await Dialect(strict).post_json("chat", body, timeout_s=9.0) == "yes"
    events = Dialect(strict).stream_sse("chat", body, first_s=9.0, stall_s=1.0)
    assert [data async for data in events] == ["yes"]
    for given_s in (strict.given_s[:3], strict.given_s[3:]):
        assert len(given_s) == 3
        assert 9.0 >= given_s[0] > given_s[1] > given_s[2]


async def test_a_form_is_filled_in_by_a_model_that_takes_no_temperature() -> None:
    form = {"properties": {"day": {"type": "string"}}, "required": ["day"]}
    filled = json.dumps({"choices": [{"message": {"content": '{"day": "monday"}'}}]}).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
    said = [TranscriptEntry(Role.CALLER, "on monday", 0, 1000)]
    async with calling(NO_TEMPERATURE, [head, filled], temperature=0.3, extract={"schema": form}) as (
        server, conversation,
    ):  # fmt: skip
        assert (await conversation.debrief(said)).extracted == {"day": "monday"}
        assert ["temperature" in request for request in server.requests] == [True, False]
        assert all("response_format" in request for request in server.requests)


# Templates --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("greeting", ["", "Hello."])
@pytest.mark.parametrize("variables", [{}, {"name": "Sara"}])
async def test_the_roles_take_turns_as_strict_templates_want_them(
    greeting: str, variables: dict[str, str]
) -> None:
    """Gemma's and Mistral's raise an exception, and the server answers 400, for anything else."""
    noted = streamed([fragment("remember", note("one"), index=0, id="a")])
    slow: list[Piece] = [SSE, event({"content": "Let me see. "}), 5.0]
    async with wild_server(noted, FINE, slow, FINE) as server:
        llm = Llm.from_settings({"base_url": server.base_url, "model": "m", "prompt": "Be kind."})
        conversation = llm.join(context(greeting=greeting, variables=variables))
        if greeting:
            await acts_of(conversation, CallOpened())
        await acts_of(conversation, HELLO if greeting else CallOpened())
        await acts_of(conversation, UserSaid("I want", 0.9), most=1)
        await acts_of(conversation, UserSaid("I want that", 0.9, continues=True))
        await llm.close()
    assert len(server.requests) == 4
    for request in server.requests:
        roles = [each["role"] for each in request["messages"] if each["role"] != "tool"]
        calls = [bool(each.get("tool_calls")) for each in request["messages"] if each["role"] != "tool"]
        told = [role for role, called in zip(roles, calls, strict=True) if not called]
        assert told[:2] == ["system", "user"]
        assert all(one != other for one, other in pairwise(told)), told


# Servers that are there while the model behind them is not -------------------------------------------------


def every(piece: bytes, times: int = 2000) -> list[Piece]:
    return [part for _ in range(times) for part in (piece, 0.05)]


@pytest.mark.parametrize(
    "nothing",
    [
        PING,
        event({"content": ""}),
        event({"content": "\n"}),
        event({"role": "assistant"}),
        event({"content": "!"}),
        event({"content": "\N{SLIGHTLY SMILING FACE}"}),
        b"d",
    ],
    ids=["pings", "empty", "lines", "roles", "marks", "smiles", "bytes"],
)
async def test_a_server_that_only_shows_that_it_is_there_is_given_up(nothing: bytes) -> None:
    async with calling([SSE, *every(nothing)], FINE, timeout_s=1.0, stall_s=0.2) as (_, conversation):
        async with asyncio.timeout(30):
            acts = await acts_of(conversation, HELLO)
        assert [type(act) for act in acts] == [Trouble, Say]
        assert words(acts) == "Fine then."


@pytest.mark.parametrize(
    "thought",
    [event({"reasoning_content": "hm "}), event({"content": "<think>hm "})],
    ids=["thoughts", "marked-thoughts"],
)
async def test_a_model_that_thinks_without_an_end_has_the_time_of_both_attempts(thought: bytes) -> None:
    async with calling([SSE, *every(thought)], FINE, timeout_s=0.6, stall_s=0.2) as (server, conversation):
        async with asyncio.timeout(30):
            with pytest.raises(EngineError, match="thinks without an end"):
                await acts_of(conversation, HELLO)
        assert len(server.requests) == 1


async def test_who_thinks_in_the_middle_of_an_answer_has_stalled() -> None:
    begun = [
        SSE,
        event({"content": "It was sent on monday. It "}),
        *every(event({"reasoning_content": "hm "})),
    ]
    async with calling(begun, FINE, timeout_s=2.0, stall_s=0.2) as (_, conversation):
        async with asyncio.timeout(30):
            acts = await acts_of(conversation, HELLO)
    assert words(acts) == "It was sent on monday. Fine then."
    (trouble,) = [act.message for act in acts if isinstance(act, Trouble)]
    assert "in time" in trouble
    assert "thinks" not in trouble


@pytest.mark.parametrize("nothing", [PING, event({"content": "!"})], ids=["pings", "marks"])
async def test_pings_in_the_middle_of_an_answer_are_a_stall(nothing: bytes) -> None:
    begun = [SSE, event({"content": "It was sent on monday. It "}), *every(nothing)]
    async with calling(begun, FINE, timeout_s=2.0, stall_s=0.2) as (server, conversation):
        async with asyncio.timeout(30):
            acts = await acts_of(conversation, HELLO)
        assert words(acts) == "It was sent on monday. Fine then."
        assert "broke off" in server.requests[-1]["messages"][-1]["content"]


async def test_a_model_that_thinks_is_not_asked_to_think_anew() -> None:
    thinking = [SSE, *every(event({"reasoning_content": "hm "}), 12), HELLO_THERE, *END]
    async with calling(thinking, FINE, timeout_s=1.0, stall_s=0.2) as (server, conversation):
        assert words(await acts_of(conversation, HELLO)) == "Hello there."
        assert len(server.requests) == 1


# Servers that fail, and then do not -------------------------------------------------------------------------

REFUSED = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
PAGE = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<html>Bad day</html>"
FAILURES: dict[str, Sequence[Piece]] = {
    "500": [REFUSED],
    "empty": [SSE, *END],
    "bad line": [SSE, b'data: {"choices": [{"del\n\n'],
    "page": [PAGE],
    "marks": [SSE, event({"content": "!?"}), *END],
    "null": [WHOLE.replace(b'"Hello there."', b"null")],
    "closed": [SSE],
}


@pytest.mark.parametrize("failure", FAILURES)
async def test_three_failures_in_a_row_cost_a_moment_and_not_the_call(failure: str) -> None:
    async with calling(*[FAILURES[failure]] * 3, FINE) as (server, conversation):
        acts = await acts_of(conversation, HELLO)
        assert words(acts) == "Fine then."
        assert [type(act) for act in acts] == [Trouble, Say]
        assert len(server.requests) == 4
