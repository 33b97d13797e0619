"""One answer of a language-model agent: the model's words to the voice, its calls to the tools, in rounds."""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from pipeline.agent import AgentAct, Expect, Play, Say, SwitchLanguage, ToolUse, Trouble
from pipeline.agents.llm.attempt import SaidNothing
from pipeline.agents.llm.chat import BrokenOff, Chat
from pipeline.agents.llm.confirmation import Pending, question, unreadable
from pipeline.agents.llm.digits import Wanted, concealed
from pipeline.agents.llm.extraction import ExtractSettings
from pipeline.agents.llm.history import Exchange, History, Message, Round, Segment, ToolCall
from pipeline.agents.llm.markup import tidy
from pipeline.agents.llm.realtime.line import LineLost
from pipeline.agents.llm.realtime.response import Part
from pipeline.agents.llm.realtime.spoken import SpokenItem
from pipeline.agents.llm.realtime.talk import RealtimeService, RealtimeTalk
from pipeline.agents.llm.table import LlmBudget
from pipeline.agents.llm.tools.builtin import Builtin, Notebook, Policy
from pipeline.agents.llm.tools.schema import Misfit
from pipeline.agents.llm.tools.tool import MAX_FAILURE, MAX_RESULT, Budget, Tool, ToolFailed, ToolSpec
from pipeline.engines.aio import closing
from pipeline.errors import EngineError, boundary, contained
from pipeline.net.trace_context import TRACE_ID
from pipeline.speech import Expected
from pipeline.text.formulas import read_formulas
from pipeline.text.normalise import verbalize
from pipeline.text.scripts import readable
from pipeline.text.sentences import Segmenter

log = logging.getLogger(__name__)

FILLER_AFTER_S: Final = 0.7
FILLER_AGAIN_S: Final = 6.0

FILLERS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "en": ("Let me check.", "One more moment, please."),
        "ar": ("لحظة من فضلك.", "لحظة أخرى من فضلك."),
    }
)
"""Sentences said while a tool takes its time, by language."""

ASKED: Final = json.dumps({"status": "the caller is asked for permission; nothing is done before they agree"})
GO_ON: Final[Message] = {
    "role": "user",
    "content": "[Your answer broke off after these words. Go on after them; do not repeat them.]",
}
WRAP_UP: Final[Message] = {
    "role": "user",
    "content": "[You can use no more tools now. Tell the caller what you know and what could not be done.]",
}
TAKEN_BACK: Final = json.dumps({"error": "not done: the caller went on speaking"})
SKIPPED: Final = json.dumps({"error": "not done: something before it ended this answer"})

Queued: TypeAlias = AgentAct | Exception | None


class After(Enum):
    """How an answer goes on after a tool call."""

    GO_ON = auto()  # the model hears the result and goes on
    NOTED = auto()  # the same, unless it has said what it had to say
    QUIET = auto()  # nothing more is said in this turn
    OVER = auto()  # nothing may follow


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmAgentSpec:
    """The definition of an agent, shared by its calls. `tools` may change while a call lasts (a server that
    comes back)."""

    chat: Chat
    prompt: str
    policy: Policy
    builtins: Mapping[str, Builtin]
    tools: Callable[[], Mapping[str, Tool]]
    limits: LlmBudget
    history_turns: int
    history_tokens: int
    extract: ExtractSettings | None = None
    realtime: RealtimeService | None = None


@dataclass(slots=True)
class State:
    """The state of one call that its next answer depends on."""

    history: History
    budget: Budget
    language: str
    variables: Mapping[str, str]
    call_id: str
    tool_used: Callable[[ToolUse], None]
    trace_id: str
    notes: Notebook = field(default_factory=Notebook)
    pending: Pending | None = None
    wanted: Wanted | None = None
    given: dict[str, str] = field(default_factory=dict)
    """Numbers that the caller gave when asked, by name. The model is told those that are not masked."""
    under_way: set[asyncio.Task[None]] = field(default_factory=set)
    """Tool calls that change something, as tasks: an interruption does not cancel these half-way."""
    calls: int = 0
    realtime: RealtimeTalk | None = None
    """The model that hears and speaks by itself, where the agent has one."""
    ending: tuple[Round, str] | None = None
    """The tool call that ends the conversation, while the caller hears the words before it."""

    def go_on(self) -> None:
        """Notes that the conversation goes on: its noted end is taken back."""
        self.notes.disposition = ""
        if self.ending is not None:
            (each, call_id), self.ending = self.ending, None
            each.results[call_id] = TAKEN_BACK


@dataclass(frozen=True, slots=True)
class Turn:
    """The turn to be answered. `granted`: a tool that the caller has just agreed to; `say`: the answer, where
    no model is needed."""

    exchange: Exchange
    say: str = ""
    granted: Pending | None = None
    settled: Callable[[], Awaitable[None]] | None = None


class Answer:
    """Makes the answer to one turn. `acts` gets the acts, then an exception or None."""

    def __init__(
        self,
        spec: LlmAgentSpec,
        state: State,
        turn: Turn,
        acts: asyncio.Queue[Queued],
        *,
        messages: Callable[[], list[Message]],
    ) -> None:
        self._spec = spec
        self._state = state
        self._turn = turn
        self._acts = acts
        self._messages = messages
        self._tools = dict(spec.tools())
        self._spoke = self._broke_off = False
        self._was_foreign = False  # words were left out whole, because no voice of the language can say them
        self._language = state.language

    async def run(self) -> None:
        """Runs until the answer is complete or has failed."""
        end: EngineError | None = None
        try:
            with contained("the agent", call_id=self._state.call_id):
                await self._answer()
        except SaidNothing as failure:  # after words this ends the answer
            end = None if self._spoke else failure
        except EngineError as failure:  # raised by the reader of the acts
            end = failure
        await self._acts.put(end)

    async def _answer(self) -> None:
        if self._state.wanted is not None:
            await self._acts.put(self._state.wanted.expect)
        if self._turn.say:
            each = Round()
            self._turn.exchange.rounds.append(each)
            await self._say(each, self._turn.say)
            return
        if self._turn.granted is not None:
            await self._carry_out_granted(self._turn.granted)
        if not await self._rounds() and not self._spoke:
            await self._whole_round(wraps_up=True, may_call=False)
            if not self._spoke:
                raise SaidNothing

    async def _rounds(self) -> bool:
        """Requests rounds until one needs no other; False where they are used up."""
        for left in reversed(range(self._spec.limits.rounds)):
            each = await self._whole_round(wraps_up=left == 0 or self._state.budget.is_spent)
            after = await self._carry_out(each)
            if after in (After.QUIET, After.OVER) or (each.segments and after is After.NOTED):
                return True
            if not each.calls and self._spoke:
                return True
        return False

    async def _whole_round(self, *, wraps_up: bool, may_call: bool = True) -> Round:
        """Requests one round of the model. A model that breaks off is asked, once in an answer, to go on
        after the words that the caller has heard. `wraps_up`: the tools are used up, and only the built-in
        ones are left, so that the model can still end the call."""
        each = Round()
        self._turn.exchange.rounds.append(each)
        note = [WRAP_UP] if wraps_up and (self._tools or not may_call) else []
        if self._was_foreign and not self._spoke:
            note.append(_in_language(self._language))
        offers = tool_offers(self._spec.builtins, {} if wraps_up else self._tools)
        goes_on: Sequence[Message] = ()
        while True:
            await self._tell_of_lost_model()
            try:
                await self._round(each, [*note, *goes_on], offers, may_call=may_call)
            except LineLost:
                pass
            except BrokenOff as error:
                if self._broke_off:
                    raise
                self._broke_off = True
                await self._fault(str(error))
                if not error.retryable:
                    return each
            else:
                return each
            goes_on = [GO_ON] if each.segments else ()

    async def _tell_of_lost_model(self) -> None:
        lost = self._state.realtime.failure() if self._state.realtime is not None else ""
        if lost:
            await self._fault(lost)

    def _parts(
        self, each: Round, notes: Sequence[Message], offers: Sequence[Message], *, may_call: bool
    ) -> AsyncIterator[Part]:
        """What the model answers: one that hears and speaks by itself, as long as it is there."""
        realtime, history = self._state.realtime, self._state.history
        if realtime is not None and realtime.is_up:
            return realtime.answer(history, each, notes, offers, may_call=may_call, may_be_empty=self._spoke)
        messages = [*self._messages(), *notes]
        return self._spec.chat.stream(
            messages, tools=offers, may_call=may_call, may_be_empty=self._spoke, on_fault=self._fault
        )

    async def _round(
        self, each: Round, notes: Sequence[Message], offers: Sequence[Message], *, may_call: bool
    ) -> None:
        segmenter = Segmenter()
        calls: list[ToolCall] = []
        async with closing(self._parts(each, notes, offers, may_call=may_call)) as parts:
            async for part in parts:
                if isinstance(part, ToolCall):
                    calls.append(self._numbered(part))
                    continue
                if isinstance(part, SpokenItem):
                    self._spoke = True
                    each.segments.append(part)
                    await self._acts.put(Play(part))
                    continue
                for piece in segmenter.feed(read_formulas(part, self._language)):
                    await self._say(each, piece)
        for piece in segmenter.finish():
            await self._say(each, piece)
        each.calls = calls

    async def _say(self, each: Round, text: str) -> None:
        plain = readable(tidy(text), self._language)
        self._was_foreign = self._was_foreign or (not plain and bool(tidy(text)))
        spoken = verbalize(plain, self._language) if plain else ""
        if spoken:
            self._spoke = True
            each.segments.append(Segment(plain, spoken))
            await self._acts.put(Say(spoken))
            await asyncio.sleep(0)  # yields to the loop: an answer may come all at once

    def _numbered(self, call: ToolCall) -> ToolCall:
        """Returns the call with an id that no other call of the conversation has."""
        if self._state.realtime is not None and self._state.realtime.knows(call):
            return call
        self._state.calls += 1
        return ToolCall(f"call_{self._state.calls}", call.name, call.arguments)

    async def _fault(self, reason: str) -> None:
        """Reports a failure of the model, which is asked again."""
        await self._acts.put(Trouble(reason))

    # Tool calls ---------------------------------------------------------------------------------------------

    async def _carry_out(self, each: Round) -> After:
        after = After.NOTED
        for call in each.calls:
            if after in (After.QUIET, After.OVER):
                each.results[call.id] = SKIPPED
                continue
            outcome = await self._do(each, call)
            after = outcome if outcome is not After.NOTED else after
        return after if each.calls else After.GO_ON

    async def _do(self, each: Round, call: ToolCall) -> After:
        builtin, tool = self._spec.builtins.get(call.name), self._tools.get(call.name)
        known = builtin or tool
        if known is None:
            each.results[call.id] = _error("there is no such tool")
            return After.GO_ON
        refusal = self._state.budget.refuses(call.name, known.spec.max_calls, costs=builtin is None)
        try:
            arguments = known.spec.schema.read(call.arguments)
        except Misfit as misfit:
            refusal = refusal or f"arguments refused: {misfit}"
        missing = sorted(known.spec.needs - self._state.given.keys())
        if missing:
            refusal = refusal or f"ask the caller first, with ask_digits: {', '.join(missing)}"
        if refusal:
            self._note_refusal(call.name, refusal)
            each.results[call.id] = _error(refusal)
            return After.GO_ON
        if builtin is not None:
            return await self._do_builtin(each, call, builtin, arguments)
        assert tool is not None
        if tool.spec.asks:
            return await self._ask(each, call, tool, arguments)
        await self._run(each, call.id, tool, arguments)
        return After.GO_ON

    async def _do_builtin(
        self, each: Round, call: ToolCall, builtin: Builtin, arguments: Mapping[str, Any]
    ) -> After:
        effect = builtin.perform(arguments, self._spec.policy, self._state.notes)
        each.results[call.id] = effect.result
        if isinstance(effect.act, SwitchLanguage):
            self._language = effect.act.language
        if effect.act is not None:
            await self._acts.put(effect.act)
        if effect.wanted is not None:
            self._state.wanted = effect.wanted
            await self._acts.put(effect.wanted.expect)
            await self._say(each, effect.question)
            return After.OVER
        if effect.ends:
            self._state.ending = each, call.id
            return After.OVER
        return After.QUIET if effect.quiet else After.NOTED

    async def _ask(self, each: Round, call: ToolCall, tool: Tool, arguments: Mapping[str, Any]) -> After:
        """Asks the caller for permission; the tool runs in a later turn, after a yes."""
        unread = unreadable(tool.spec.asks, arguments)
        if unread:
            each.results[call.id] = _error(f"too long to be read to the caller: {', '.join(unread)}")
            return After.GO_ON
        text = question(tool.spec.asks, arguments)
        each.results[call.id] = ASKED
        self._state.pending, self._state.wanted = Pending(tool, arguments, text), None
        await self._acts.put(Expect(Expected(kinds=("yes_no",))))
        await self._say(each, text)
        return After.OVER

    async def _carry_out_granted(self, granted: Pending) -> None:
        spec = granted.tool.spec
        each = Round(calls=[self._numbered(ToolCall("", spec.name, json.dumps(dict(granted.arguments))))])
        self._turn.exchange.rounds.append(each)
        await self._run(each, each.calls[0].id, granted.tool, granted.arguments)

    async def _run(self, each: Round, call_id: str, tool: Tool, arguments: Mapping[str, Any]) -> None:
        """Runs a tool; returns when it has answered or its time is over. A filler is said when that takes
        long."""
        if tool.spec.acts:
            if self._turn.settled is not None:
                await self._turn.settled()
            self._turn.exchange.acted = True
        task = asyncio.create_task(self._result(each, call_id, tool, arguments))
        if tool.spec.acts:
            self._state.under_way.add(task)
            task.add_done_callback(self._state.under_way.discard)
        try:
            await self._wait(each, task, tool.spec)
        finally:
            if not tool.spec.acts:
                task.cancel()

    async def _wait(self, each: Round, task: asyncio.Task[None], spec: ToolSpec) -> None:
        usual, again = FILLERS.get(self._language.split("-")[0], ("", ""))
        first = "" if each.segments else spec.filler or usual
        for pause, filler in ((FILLER_AFTER_S, first), (FILLER_AGAIN_S, again)):
            done, _ = await asyncio.wait({task}, timeout=pause)
            if done:
                return
            if filler:
                await self._filler(each, filler)
        await asyncio.wait({task})

    async def _filler(self, each: Round, text: str) -> None:
        """Says words that do not count as an answer: the model has still to say something."""
        spoke = self._spoke
        await self._say(each, text)
        self._spoke = spoke

    async def _result(self, each: Round, call_id: str, tool: Tool, arguments: Mapping[str, Any]) -> None:
        """Puts the tool's answer into the round, as data. Never raises."""
        spec, loop = tool.spec, asyncio.get_running_loop()
        began, key = loop.time(), str(uuid.uuid4())
        TRACE_ID.set(self._state.trace_id)
        result = _error("the tool is broken")
        with boundary(log, "tool broke", call_id=self._state.call_id, tool=spec.name):
            try:
                async with asyncio.timeout(spec.timeout_s):
                    given = {**self._state.variables, **self._state.given}
                    text = await tool.call(arguments, given, key=key)
                result = json.dumps({"result": self._bare(text)[:MAX_RESULT]}, ensure_ascii=False)
            except TimeoutError:
                result = _error("no answer in time; whether it was done is not known")
            except ToolFailed as failure:
                result = _error(self._bare(str(failure))[:MAX_FAILURE])
        each.results[call_id] = result
        use = ToolUse(
            id=key,
            name=spec.name,
            arguments=arguments,
            result=result,
            failed=result.startswith('{"error"'),
            began=began,
            ended=loop.time(),
        )
        self._note_use(use)

    def _note_use(self, use: ToolUse) -> None:
        self._state.budget.took(use.ended - use.began)
        self._state.tool_used(use)
        took_ms = round((use.ended - use.began) * 1000)
        told = {"call_id": self._state.call_id, "tool": use.name, "ms": took_ms, "failed": use.failed}
        log.info("tool used", extra=told)

    def _bare(self, text: str) -> str:
        """Returns a tool's answer without the numbers that the model may not see."""
        asks, given = self._spec.policy.asks, self._state.given
        return concealed(text, [value for name, value in given.items() if asks[name].mask])

    def _note_refusal(self, name: str, reason: str) -> None:
        log.warning(
            "tool refused", extra={"call_id": self._state.call_id, "tool": name[:64], "reason": reason}
        )


def tool_offers(builtins: Mapping[str, Builtin], tools: Mapping[str, Tool]) -> list[Message]:
    """Gives the tools as the chat API takes them."""
    specs = [each.spec for each in builtins.values()] + [each.spec for each in tools.values()]
    return [spec.message for spec in specs]


def _in_language(language: str) -> Message:
    return {"role": "user", "content": f"[The voice speaks {language} only: say it in that language.]"}


def _error(reason: str) -> str:
    return json.dumps({"error": reason}, ensure_ascii=False)
