"""The messages of Azure's speech services: a head of fields such as `Path`, then a body, in text; for sound,
two octets with the length of the head before it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from pipeline.net.untrusted import NotJson, read_json

_HEAD_LIMIT: Final = 4096
_LINE: Final = "\r\n"
_BODY: Final = "body"


def written(message: Mapping[str, Any], now: datetime) -> str:
    """The text of a message: its fields are the head's but for `body`, which is a text or an object. `now`:
    for the field `X-Timestamp`."""
    body = message.get(_BODY, "")
    kind = "text/plain" if isinstance(body, str) else "application/json"
    head = {name: str(value) for name, value in message.items() if name != _BODY}
    stamp = now.strftime("%Y-%m-%dT%H:%M:%S.") + f"{now.microsecond // 1000:03}Z"
    fields = {**head, "X-Timestamp": stamp, "Content-Type": f"{kind}; charset=utf-8"}
    lines = [f"{name}:{' '.join(value.split())}" for name, value in fields.items()]
    return _LINE.join((*lines, "", body if isinstance(body, str) else json.dumps(body)))


def read(content: str | bytes) -> Mapping[str, Any]:
    """The fields of a message's head, with its `body` where that is JSON, or its `sound`. Raises `NotJson`
    for what is no such message."""
    if isinstance(content, str):
        head, blank, body = content.partition(2 * _LINE)
        if not blank or len(head) > _HEAD_LIMIT:
            raise NotJson("a message without a head")
        found: dict[str, Any] = _fields(head)
        if "json" in found.get("Content-Type", "") and body:
            found[_BODY] = read_json(body)
        return found
    size = int.from_bytes(content[:2], "big")
    if len(content) < 2 or len(content) < 2 + size or size > _HEAD_LIMIT:
        raise NotJson("sound without a head")
    return {**_fields(content[2 : 2 + size].decode("utf-8", "replace")), "sound": content[2 + size :]}


def _fields(head: str) -> dict[str, Any]:
    parts = (line.partition(":") for line in head.split(_LINE))
    return {name.strip(): value.strip() for name, colon, value in parts if colon and name.strip() != _BODY}
