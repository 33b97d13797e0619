"""Checks the hosts of what customers manage over the API, before it is saved.

A name may resolve to another address later, so each connection checks again (`pipeline.net.egress`,
`sip.endpoint`). This check tells the customer at once, instead of failing every call."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from mediaserver.errors import InvalidRequest
from mediaserver.settings import AgentSettings, TrunkSettings
from pipeline.net.egress import EgressPolicy
from sip.message.uri import Uri
from sip.transaction.hop import hop_of

LOOK_UP_S = 2.0

NOT_THERE = "this server does not connect to that address"

_TABLES = {
    "llm": "llm",
    "realtime": "realtime",
    "stt": "stt",
    "tts": "tts",
    "tts_fallback": "ttsFallback",
    "pre_call_tools": "preCallTools",
}
"""The parts of an agent that may name addresses, with their names in the API."""


async def check_trunk(egress: EgressPolicy, trunk: TrunkSettings) -> None:
    """Raises `InvalidRequest` for a trunk with an address that `egress` does not allow."""
    proxies = (trunk.outbound_proxy,) if trunk.outbound_proxy else ()
    named = {"uri": (trunk.uri,), "backupUris": trunk.backup_uris, "outboundProxy": proxies}
    for key, uris in named.items():
        for uri in uris:
            await _check(egress, key, hop_of(Uri.parse(uri)).host)
    if trunk.stir is not None:
        await check_url(egress, "stir", trunk.stir.url)


async def check_agent(egress: EgressPolicy, agent: AgentSettings) -> None:
    """Raises `InvalidRequest` for an agent with an engine or a tool at an address that `egress` does not
    allow."""
    document = agent.model_dump(include=set(_TABLES))
    for name, key in _TABLES.items():
        for url in sorted(set(_urls(document.get(name)))):
            await check_url(egress, key, url)


async def check_url(egress: EgressPolicy, key: str, url: str) -> None:
    """Raises `InvalidRequest` for a URL with an address that `egress` does not allow."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        raise InvalidRequest(f"{key}: not a URL") from None
    await _check(egress, key, host)


async def _check(egress: EgressPolicy, key: str, host: str) -> None:
    """Passes a name that does not resolve: it may when it is needed."""
    try:
        async with asyncio.timeout(LOOK_UP_S):
            found = await asyncio.get_running_loop().getaddrinfo(
                host.strip("[]"), None, type=socket.SOCK_STREAM
            )
    except (OSError, UnicodeError):  # TimeoutError is an OSError
        return
    if not all(egress.allows(str(each[4][0])) for each in found):
        raise InvalidRequest(f"{key}: {NOT_THERE}")


def _urls(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _urls(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _urls(inner)
    elif isinstance(value, str) and value.startswith(("http://", "https://", "ws://", "wss://")):
        yield value
