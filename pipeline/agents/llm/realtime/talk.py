"""What the model of one call is told, and what it answers.

The history of the call is this server's. The service gets each part of it once: the caller's words as audio
where it heard these, as text otherwise (keys, a silence, a number that this server reads), what this server
said, and the calls of tools with their results."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from pipeline.agents.llm.history import Exchange, History, Message, Round, ToolCall
from pipeline.agents.llm.realtime import messages
from pipeline.agents.llm.realtime.ears import RealtimeEars
from pipeline.agents.llm.realtime.line import SHORTEST_MS, LineLost, RealtimeLine
from pipeline.agents.llm.realtime.response import Part
from pipeline.agents.llm.realtime.spoken import SpokenItem
from pipeline.agents.llm.realtime.table import RealtimeSettings
from pipeline.engines.aio import closing
from pipeline.engines.guard import Guard
from pipeline.errors import EngineError
from pipeline.net.call_socket import READY_S
from pipeline.net.socket_service import address_of, at, filled_in, fits, name_of
from pipeline.net.web_socket import SocketEndpoint
from pipeline.speech import SpeechToText

LATE: Final = "[The tool {name} has answered since then: {result}]"
NOT_DONE: Final = '{"error": "not done: the caller went on speaking"}'


@dataclass(frozen=True, slots=True)
class RealtimeService:
    """The model behind the Realtime protocol, shared by all calls of its agent."""

    settings: RealtimeSettings
    endpoint: SocketEndpoint
    guard: Guard


@dataclass(frozen=True, slots=True)
class HeardCall:
    """What a line is opened with: the call, and the tools `offers` as the chat API takes these."""

    call_id: str
    offers: Sequence[Message]


@dataclass(frozen=True, slots=True)
class HeardTurn:
    """What the caller did: `spoken`, so that the model may hear it; `keyed`: the keys with it, as the model
    is told these; `continues`: it goes on with the turn before."""

    spoken: bool = False
    keyed: str = ""
    continues: bool = False


class RealtimeTalk:
    """The model of one call. `opening`: the messages before the conversation, the system's first."""

    def __init__(self, service: RealtimeService, opening: Sequence[Message]) -> None:
        self._service = service
        self._opening = opening
        self._line: RealtimeLine | None = None
        self._is_told = False  # of the failure
        self._tools: list[Message] = []
        self._known: set[str] = set()  # calls of tools that the service knows of
        self._answered: set[str] = set()
        self._unfinished: set[str] = set()  # those that had no result when the service was told of them
        self._spoken = False  # the latest turn is there as audio
        self._text = ""  # the item with its text otherwise

    def ears(
        self,
        stt: SpeechToText,
        call: HeardCall,
        *,
        rate_hz: int,
        history: History,
        is_private: Callable[[], bool],
    ) -> SpeechToText:
        """Opens the line, and gives the recogniser whose utterances the model hears too, but for those during
        which the caller says what is not for it (`is_private`)."""
        service = self._service
        line = self._line = RealtimeLine(
            service.settings, service.endpoint, service.guard, call_id=call.call_id, rate_hz=rate_hz
        )
        self._tools = list(call.offers)
        instructions = str(self._opening[0]["content"])
        session = messages.session(
            service.settings,
            narrow=line.narrow,
            instructions=instructions,
            tools=self._tools,
        )
        line.open(session)
        for message in self._opening[1:]:
            line.tell(messages.said("user", message["content"]))
        self._known.clear()
        self._answered.clear()
        self._unfinished.clear()
        self._spoken, self._text, self._is_told = False, "", False
        history.forget_told()
        return RealtimeEars(stt, line, is_private)

    @property
    def is_up(self) -> bool:
        """Whether the model answers in this call."""
        return self._line is not None and self._line.failure is None

    def failure(self) -> str:
        """Why the model answers no more in this call, told once; "" otherwise."""
        line = self._line
        if line is None or line.failure is None or self._is_told:
            return ""
        self._is_told = True
        return f"the realtime model at {self._service.endpoint.host}: {line.failure}"

    def knows(self, call: ToolCall) -> bool:
        """Whether a call of a tool is the service's own."""
        return call.id in self._known

    def takes_turn(self, history: History, exchange: Exchange, turn: HeardTurn) -> None:
        """Begins a turn with the caller's words: the audio so far where the caller has spoken, else the text
        of `exchange`. A turn that `continues` adds to the audio of the one before, or replaces its text."""
        line = self._line
        if line is None or line.failure is not None:
            return
        goes_on = turn.continues and self._spoken
        text, self._text = self._text if turn.continues else "", ""
        if text:
            line.tell(messages.delete(text))
        self._spoken = turn.spoken and (goes_on or line.heard_ms >= SHORTEST_MS)
        exchange.told = True
        self._tell(line, history)
        if self._spoken:
            if turn.keyed:
                line.tell(messages.said("user", turn.keyed))
            if line.heard_ms >= SHORTEST_MS:
                line.commit()
            return
        line.clear()
        if exchange.user is not None:
            self._text = uuid4().hex
            line.tell(messages.said("user", exchange.user, item_id=self._text))

    def forget(self, exchange: Exchange) -> None:
        """Takes back the answer of an exchange, of which nobody heard anything."""
        line = self._line
        for each in exchange.rounds:
            for segment in each.segments:
                if isinstance(segment, SpokenItem) and line is not None and segment.line is line:
                    line.forget(segment)

    async def answer(
        self,
        history: History,
        each: Round,
        notes: Sequence[Message],
        offers: Sequence[Message],
        *,
        may_call: bool,
        may_be_empty: bool,
    ) -> AsyncGenerator[Part, None]:
        """Gives the parts of the answer, which `each` is of. Raises `LineLost`."""
        line = self._line
        assert line is not None
        self._tell(line, history)
        for note in notes:
            line.tell(messages.said("user", note["content"]))
        more: dict[str, Any] = {} if may_call else {"tool_choice": "none"}
        if list(offers) != self._tools:
            more["tools"] = messages.functions(offers)
        empty = not may_be_empty
        async with closing(line.answer(more)) as parts:
            async for part in parts:
                empty = False
                if isinstance(part, SpokenItem):
                    each.told += 1
                elif isinstance(part, ToolCall):
                    self._known.add(part.id)
                yield part
        if empty:
            failure = EngineError("the model said nothing", retryable=True)
            line.lose(failure)
            raise LineLost(str(failure), retryable=True)

    def _tell(self, line: RealtimeLine, history: History) -> None:
        """Tells the service what it does not know of the history."""
        for exchange in history.exchanges:
            if not exchange.told and exchange.user is not None:
                line.tell(messages.said("user", exchange.user))
            exchange.told = True
            for each in exchange.rounds:
                self._tell_round(line, each)
        for call_id in sorted(self._known - self._answered):
            line.tell(messages.result(call_id, NOT_DONE))
            self._answered.add(call_id)

    def _tell_round(self, line: RealtimeLine, each: Round) -> None:
        for call in each.calls:
            if call.id not in self._known:
                line.tell(messages.called(call))
                self._known.add(call.id)
            if call.id not in self._answered:
                line.tell(messages.result(call.id, each.result(call.id)))
                self._answered.add(call.id)
                if call.id not in each.results:
                    self._unfinished.add(call.id)
            elif call.id in self._unfinished and call.id in each.results:
                self._unfinished.remove(call.id)
                late = LATE.format(name=call.name, result=each.results[call.id])
                line.tell(messages.said("user", late))
        for segment in each.segments[each.told :]:
            line.tell(messages.said("assistant", segment.text))
        each.told = max(each.told, len(each.segments))


async def check_session(settings: RealtimeSettings) -> str:
    """Asks the service for a session: gives "" if it gives one, else the reason."""
    service = settings.socket()
    endpoint = service.endpoint()
    made = messages.session(settings, narrow=True, instructions="", tools=())
    try:
        url, query = await address_of(service, endpoint, {})
        async with asyncio.timeout(READY_S), endpoint.opened(url, query) as socket:
            await socket.send(filled_in(service.begin[0], session=made))
            while not fits(message := await socket.receive(), service.ready):
                if fits(message, {"type": "error"}):
                    return f"refused ({name_of(str(at(message, 'error.code')))})"
    except TimeoutError:
        return f"no session in {READY_S:g} s"
    except EngineError as error:
        return str(error)
    finally:
        await endpoint.close()
    return ""
