"""`mediaserver demo`: a real call on this machine, from the API request to the webhooks, shown as it happens.

The conversation is real on both sides: each end synthesises, sends RTP, and recognises what the other said.
The demo succeeds only if both understood what the script needs."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import IO, Any, cast

from aiohttp import ClientSession
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mediaserver.demo import telephone
from mediaserver.demo.baresip import NUMBER
from mediaserver.demo.persona import FACTS, WISHES, word_errors
from mediaserver.demo.sentences import missing
from mediaserver.demo.speech import LOST, Speech, what_is_missing
from mediaserver.demo.stage import (
    API_KEY,
    CalleeProcess,
    Ports,
    Receiver,
    StageError,
    client,
    told_by,
    write_config,
)
from mediaserver.local_node import NodeFailed, cache, process, wait_ready
from mediaserver.telemetry.line_writer import LineWriter

AGENT = "2f1c1a34-6f3e-4f0e-9a63-0d8f2f0f7a11"
NAME = "Mary Williams"
FRONT_DESK = "+14155550101"
FRONT_DESK_AGENT = "7b0f7e7e-4f5a-4b8e-9f43-5f0f2c3f9f22"
CALL_S = 150
"""Longest time for the whole call: the conversation takes about 50 s."""
LAST_WEBHOOK = "recording.completed"

STDOUT = 1

Json = Mapping[str, Any]


class Output(io.TextIOBase):
    """The file of a console, which writes to the descriptor `fd` in a thread: the call does not wait for its
    reader."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lines = LineWriter(fd, told="({} lines lost)".format)

    def write(self, text: str) -> int:
        """Queues whole lines, as a console prints them; returns the characters taken."""
        self._lines.write(text.removesuffix("\n"))
        return len(text)

    def isatty(self) -> bool:
        """Whether the descriptor is a terminal, which may show colours."""
        return os.isatty(self._fd)

    def close(self) -> None:
        """Writes the queued lines, as far as the reader takes them."""
        if not self.closed:
            self._lines.close()
        super().close()


class Screen:
    """Prints the progress of the call on the descriptor `output`."""

    def __init__(self, output: int = STDOUT) -> None:
        self.output = Output(output)
        self.console = Console(file=cast(IO[str], self.output), highlight=False, soft_wrap=True)

    def engines(self, problem: str) -> None:
        """Prints which engines hear and speak. `problem`: why there is no local speech, "" where there is."""
        if problem:
            self.console.print(f"[yellow]No local speech[/yellow]: {escape(problem)}\n{LOST}")
        else:
            self.console.print(
                "agent       hears with Whisper tiny.en, speaks with Piper (joe)\n"
                "softphone   hears with Whisper tiny.en in a process of its own, speaks with Kokoro"
            )

    def progress(self, what: str) -> Callable[[int, int], None]:
        """Returns a function that prints a bar for `what` with every further eighth."""
        drawn = -1

        def told(done: int, of: int) -> None:
            nonlocal drawn
            if (eighths := 8 * done // of) > drawn:
                drawn = eighths
                self.console.print(f"[dim]{'━' * (4 * eighths):─<32} {what}, {done} of {of}[/dim]")

        return told

    def webhook(self, event: Json) -> None:
        """Prints a line for a turn or a change of the call's state."""
        if event["type"] == "turn.completed":
            self.turn(event["data"])
        elif event["type"] in ("call.dialing", "call.ringing", "call.answered", "call.completed"):
            self.console.print(f"[dim]{event['type']}[/dim]")

    def turn(self, turn: Json) -> None:
        """Prints what the caller said, the agent's latency, and what was heard of its answer."""
        if said := turn["userText"] or turn["keyed"]:
            self.console.print(f"  [cyan]caller[/cyan]  {escape(said)}")
        latency = turn["latency"]
        after = f"  [bold]{latency['voiceToVoiceMs']:.0f} ms[/bold]" if latency else ""
        cut = "  [yellow](interrupted)[/yellow]" if turn["interrupted"] else ""
        self.console.print(f"  [green]agent[/green]   {escape(turn['agentText'])}{cut}{after}")

    def summary(
        self, call: Json, recording: Path, counts: Mapping[str, int], errors: Mapping[str, str]
    ) -> None:
        """Prints the call's recording, transcript, analysis, word errors and webhooks."""
        print_ = self.console.print
        print_(f"\nrecording   {recording}  (caller left, agent right)")
        print_("transcript")
        for entry in call["transcript"]:
            print_(f"  {entry['startMs'] / 1000:6.1f} s  {entry['role']:<6}  {escape(entry['text'])}")
        table = Table("analysis", "", box=None)
        for key, value in call["analysis"].items():
            table.add_row(key, escape(str(value)))
        for who, rate in errors.items():
            table.add_row(f"word errors, {who}", rate)
        print_(table)
        print_("webhooks    " + ", ".join(f"{name} × {n}" if n > 1 else name for name, n in counts.items()))


def verdict(call: Json, callee: CalleeProcess, wish: str) -> list[str]:
    """Returns why the demo failed; [] when the conversation reached its goal and both sides understood what
    mattered."""
    analysis, ended = call["analysis"] or {}, callee.ended or {}
    answers = analysis.get("answers", {})
    wrong = [
        f"the agent understood {key} as {answers.get(key)!r}, said was {fact!r}"
        for key, fact in FACTS.items()
        if answers.get(key) != fact
    ]
    errors, words = word_errors(wish, answers.get("wish", ""))
    if errors * 4 > words:
        wrong.append(f"the agent understood {answers.get('wish')!r}, said was {wish!r}")
    if call["status"] != "COMPLETED":
        wrong.append(f"the call ended as {call['status']}")
    if not analysis.get("reachedGoal"):
        wrong.append("the conversation did not reach its goal")
    if analysis.get("interruptions", 0) < 1:
        wrong.append("nobody was interrupted")
    if len(call["turns"]) < 6:
        wrong.append(f"only {len(call['turns'])} turns")
    if not ended.get("finished"):
        wrong.append(f"the called person never said everything; did not understand: {ended.get('misheard')}")
    return wrong


def rates(call: Json, callee: CalleeProcess) -> dict[str, str]:
    """Returns the word error rates of both sides. An interrupted sentence is compared up to the last word
    heard."""
    by_role = {
        role: " ".join(entry["text"] for entry in call["transcript"] if entry["role"] == role)
        for role in ("caller", "agent")
    }
    pairs = {
        "caller understood by agent": (" ".join(callee.said()), by_role["caller"]),
        "agent understood by caller": (by_role["agent"], " ".join(callee.heard())),
    }
    result = {}
    for name, (said, understood) in pairs.items():
        errors, words = word_errors(said, understood)
        result[name] = f"{errors} of {words} words ({100 * errors / max(words, 1):.0f} %)"
    return result


async def place_call(api: ClientSession) -> str:
    """Places the call by `POST /api/v1/calls/outbound`; returns its id. Raises `StageError`."""
    body = {"phoneNumber": NUMBER, "agentId": AGENT, "promptVariables": {"name": NAME}}
    async with api.post("/api/v1/calls/outbound", json=body) as answer:
        reply = await answer.json()
        if answer.status != 200:
            raise StageError(f"the call was refused: {reply}")
        return str(reply["data"]["callTaskId"])


async def call_of(api: ClientSession, call_id: str) -> Json:
    """Returns the answer of `GET /api/v1/calls/{callTaskId}`."""
    async with api.get(f"/api/v1/calls/{call_id}") as answer:
        reply: Json = await answer.json()
        return reply


async def converse(api: ClientSession, callee: CalleeProcess, receiver: Receiver) -> Json:
    """Places the call, waits for its last webhook, and returns its record."""
    call_id = await place_call(api)
    async with asyncio.timeout(CALL_S):
        await callee.follow(lambda event: None)
        while LAST_WEBHOOK not in receiver.count(call_id):
            await asyncio.sleep(0.05)
    return await call_of(api, call_id)


def stop_signal() -> asyncio.Event:
    """Returns an event that SIGINT or SIGTERM sets."""
    event, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, event.set)
    return event


async def prepare(screen: Screen, speech: Speech) -> Path:
    """Compiles the kernels and synthesises what the called person says, at the same time, where that was not
    done before; returns the directory of the sentences."""
    sentences = cache() / "sentences"
    told = screen.progress("kernels compiled (once on this machine)")
    jobs = [told_by("mediaserver.compile_kernels", told=told)]
    if missing(sentences, speech):
        told = screen.progress("sentences of the softphone's synthesised")
        arguments = ("--speech", speech.value, str(sentences))
        jobs.append(told_by("mediaserver.demo.sentences", *arguments, told=told))
    await asyncio.gather(*jobs)
    return sentences


async def play(directory: Path, *, exit_after: bool) -> int:
    """Runs the whole demo; returns its exit status."""
    screen, ports, stack_name = Screen(), Ports.choose(), telephone.stack()
    if not stack_name:
        raise StageError(telephone.NONE)
    receiver = Receiver(screen.webhook)
    async with AsyncExitStack() as stack:
        stack.callback(screen.output.close)
        problem = await asyncio.to_thread(what_is_missing)
        speech = Speech.EMBEDDED if problem else Speech.LOCAL
        screen.engines(problem)
        sentences = await prepare(screen, speech)
        screen.console.print(
            f"[dim]starting a media server, and a softphone ({stack_name}) in another process[/dim]"
        )
        config, server_log = write_config(directory, ports, speech), directory / "server.log"
        await stack.enter_async_context(receiver.listening(ports.webhooks))
        server = await stack.enter_async_context(
            process("mediaserver", "serve", "--config", str(config), log=server_log)
        )
        callee = await stack.enter_async_context(softphone(directory, ports, speech, sentences))
        api = await stack.enter_async_context(client(ports.http))
        await wait_ready(api, server, server_log)
        await callee.ready()
        screen.console.print(f"[dim]POST /api/v1/calls/outbound  {NUMBER}[/dim]")
        call = await converse(api, callee, receiver)
        recording = directory / "var" / "recordings" / f"{call['callTaskId']}.wav"
        screen.summary(call, recording, receiver.count(call["callTaskId"]), rates(call, callee))
        wrong = verdict(call, callee, WISHES[speech])
        for reason in wrong:
            screen.console.print(f"[red]failed:[/red] {escape(reason)}")
        if not exit_after and not wrong:
            await keep_serving(screen, ports, call["callTaskId"])
        return 1 if wrong else 0


@asynccontextmanager
async def softphone(
    directory: Path, ports: Ports, speech: Speech, sentences: Path
) -> AsyncIterator[CalleeProcess]:
    """Runs the process of the called person for the length of the block."""
    arguments = ("--dir", str(directory / "callee"), "--port", str(ports.callee))
    running = process(
        "mediaserver.demo.callee",
        *(*arguments, "--speech", speech.value, "--sentences", str(sentences)),
        log=directory / "callee.log",
        stdout=asyncio.subprocess.PIPE,
    )
    async with running as child:
        yield CalleeProcess(child)


async def keep_serving(screen: Screen, ports: Ports, call_id: str) -> None:
    """Leaves the server running until SIGINT or SIGTERM."""
    screen.console.print(
        f"\nStill serving. Talk to the front desk from a browser on this machine: "
        f"[bold]http://127.0.0.1:{ports.http}/talk/{FRONT_DESK_AGENT}[/bold]\n"
        f"or with any softphone: sip:{FRONT_DESK}@127.0.0.1:{ports.sip}\n"
        f"API and its description: http://127.0.0.1:{ports.http}/docs   Ctrl-C ends.\n"
        f"The call on one clock, with the key [bold]{API_KEY}[/bold]: "
        f"[bold]http://127.0.0.1:{ports.http}/dashboard/calls/{call_id}[/bold]"
    )
    await stop_signal().wait()


def main(*, exit_after: bool) -> int:
    """Runs the demo in a scratch directory, which stays with the recording; returns the exit status."""
    directory = Path(tempfile.mkdtemp(prefix="mediaserver-demo-"))
    try:
        return asyncio.run(play(directory, exit_after=exit_after))
    except (StageError, NodeFailed, TimeoutError) as error:
        Console(stderr=True).print(f"demo failed: {error or 'the call took too long'}\nlogs: {directory}")
        return 1
