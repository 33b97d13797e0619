"""One's own agent under the benchmark: a node of the same configuration in a process of its own, on loopback.

It has that agent alone, at a trunk that takes calls from this machine only, and a data directory that is
thrown away. Its company has no webhooks, no keys, and may dial nothing. What hears, speaks and thinks is what
the configuration says, with the tools of a language model: these are called as in any call.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from tempfile import TemporaryDirectory
from typing import Any, Final

from aiohttp import ClientSession, ClientTimeout

from mediaserver.errors import LocalError
from mediaserver.local_node import free_port, process, wait_ready
from mediaserver.settings import (
    AgentSettings,
    CompanySettings,
    RoomsSettings,
    Settings,
    SpeechSettings,
    TrunkSettings,
    load,
)
from mediaserver.wiring import agent_choice
from pipeline import registry
from pipeline.agent import AgentContext
from pipeline.errors import EngineError, SettingsRefused
from pipeline.text.templates import PLACEHOLDER

NUMBER: Final = "+14155550101"
"""Of an agent that has none: reserved for fiction."""

SETTLE_S: Final = 2.0
_TRUNK: Final = "bench"
_SPARE_CALLS: Final = 4
_PR_SET_PDEATHSIG: Final = 1


class CannotTakeCalls(LocalError):
    """The agent would refuse the call: the message says what it lacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What the node is made from: the file, the agent in it, and what is the benchmark's own."""

    config: str
    agent_id: str
    variables: Mapping[str, str] = field(default_factory=dict)
    codec: str = "pcmu"
    calls: int = 1
    data_dir: str = ""
    parent: int = 0
    http: int = 0
    sip: int = 0


def settings_of(settings: Settings, order: Order) -> Settings:
    """`settings` as the node has them. Raises `CannotTakeCalls` where the file has no such agent."""
    agent = settings.agent(order.agent_id)
    company = settings.company(agent.company) if agent is not None else None
    if agent is None or company is None:
        raise CannotTakeCalls(f"{order.config}: agent: no {order.agent_id!r}")
    url = f"http://127.0.0.1:{order.http}"
    server = {
        "http": f"127.0.0.1:{order.http}",
        "public_url": url,
        "node_url": None,
        "data_dir": order.data_dir,
        "database": "",
        "admin_key": None,
        "secret_key": None,
        "log_format": "plain",
        "drain_s": 1.0,
    }
    sip = {
        "udp": f"127.0.0.1:{order.sip}",
        "tcp": None,
        "tls": None,
        "tls_certificate": "",
        "tls_key": "",
        "public_address": None,
        "max_calls": order.calls + _SPARE_CALLS,
    }
    return settings.model_copy(
        update={
            "server": settings.server.model_copy(update=server),
            "sip": settings.sip.model_copy(update=sip),
            "rooms": RoomsSettings(),
            "speech": SpeechSettings(),
            "companies": (_company(company, order),),
            "trunks": (_trunk(company, order),),
            "agents": (own_agent(agent, order.variables),),
        }
    )


def _company(company: CompanySettings, order: Order) -> CompanySettings:
    terms = {
        "keys": (),
        "webhooks": (),
        "dial_prefixes": (),
        "max_concurrent_calls": order.calls + _SPARE_CALLS,
    }
    return company.model_copy(update=terms)


def _trunk(company: CompanySettings, order: Order) -> TrunkSettings:
    """Where it would send calls there is nothing: port 9 of this machine discards."""
    table = {"id": _TRUNK, "company": company.id, "uri": "sip:127.0.0.1:9", "codecs": [order.codec]}
    return TrunkSettings.model_validate({**table, "allow_from": ["127.0.0.1/32"]})


def own_agent(agent: AgentSettings, variables: Mapping[str, str]) -> AgentSettings:
    """`agent`, answering calls, with `variables` where its words have their marks: nobody brings any with a
    call."""
    words = {
        "direction": "inbound",
        "trunk": _TRUNK,
        "phone_number": agent.phone_number or NUMBER,
        "phone_numbers": (),
        "answering_windows": (),
        "greeting": _filled(agent.greeting, variables),
        "script": _filled(agent.script, variables),
    }
    if agent.llm is not None:
        words["llm"] = agent.llm.model_copy(update={"prompt": _filled(agent.llm.prompt, variables)})
    return agent.model_copy(update=words)


def _filled(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return PLACEHOLDER.sub(lambda mark: variables.get(mark[1], mark[0]), value)
    if isinstance(value, Mapping):
        return {name: _filled(inner, variables) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_filled(inner, variables) for inner in value)
    return value


def check(agent: AgentSettings) -> None:
    """Lets the agent join a call that never happens. Raises `CannotTakeCalls`."""
    choice = agent_choice(agent).agent
    try:
        mind = registry.load(choice.kind, choice.name, choice.options)
        mind.join(AgentContext("", agent.language, agent.greeting, {}, {}))
    except SettingsRefused as refused:
        names = ", ".join(name for name, _ in refused.problems)
        raise CannotTakeCalls(f"the agent needs variables: --var NAME=VALUE for {names}") from None
    except (EngineError, ValueError) as error:
        raise CannotTakeCalls(f"the agent cannot take calls: {error}") from None


@asynccontextmanager
async def own_node(settings: Settings, order: Order) -> AsyncIterator[str]:
    """The node, ended with the block; gives the address to call. Raises `CannotTakeCalls` and
    `mediaserver.local_node.NodeFailed`."""
    with TemporaryDirectory(prefix="mediaserver-bench-") as name:
        directory = Path(name)
        data_dir = directory / "data"
        await asyncio.to_thread(_lay_out, data_dir, Path(settings.server.data_dir))
        made = {"data_dir": str(data_dir), "parent": os.getpid(), "http": free_port(), "sip": free_port()}
        order = Order(**{**asdict(order), **made})
        (agent,) = settings_of(settings, order).agents
        check(agent)
        told, log = directory / "order.json", directory / "node.log"
        await asyncio.to_thread(told.write_text, json.dumps(asdict(order)))
        base = f"http://127.0.0.1:{order.http}"
        async with (
            process("mediaserver.benchmark.own_node", str(told), log=log) as node,
            ClientSession(base, timeout=ClientTimeout(total=10)) as api,
        ):
            await wait_ready(api, node, log)
            await asyncio.sleep(SETTLE_S)  # what it did to start is not the load that it is measured under
            await wait_ready(api, node, log)
            yield f"sip:{agent.phone_number}@127.0.0.1:{order.sip}"


def _lay_out(data_dir: Path, real: Path) -> None:
    """A new data directory with the models of the real one."""
    data_dir.mkdir(mode=0o700)
    if (models := real / "models").is_dir():
        (data_dir / "models").symlink_to(models.resolve())


def end_with(parent: int) -> bool:
    """Lets this process have SIGTERM when `parent` is gone, killed or not (prctl(2), Linux), and no signal of
    the terminal's: SIGHUP would have it read its configuration again. False where `parent` has gone."""
    with suppress(PermissionError):  # it leads a group
        os.setsid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    return os.getppid() == parent


def main(path: str) -> int:
    """Runs the node that the file at `path` describes. The server and its API, the layers above this one,
    are found by name, as the command line does."""
    order = Order(**json.loads(Path(path).read_text()))
    if not end_with(order.parent):
        return 0
    settings = settings_of(load(order.config), order)
    run, build = resolve_name("mediaserver.serve:run"), resolve_name("api.app:build")
    status: int = asyncio.run(run(settings, build, reread=lambda: settings))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
