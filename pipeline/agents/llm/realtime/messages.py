"""Messages of the Realtime protocol. Sans I/O."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pipeline.agents.llm.history import Message, ToolCall
from pipeline.agents.llm.realtime.table import RealtimeSettings

WIDE_HZ: Final = 24000
NARROW_HZ: Final = 8000

COMMIT: Final[Message] = {"type": "input_audio_buffer.commit"}
CLEAR: Final[Message] = {"type": "input_audio_buffer.clear"}


def is_narrow(settings: RealtimeSettings, rate_hz: int) -> bool:
    """Whether the audio of a leg at `rate_hz` is sent as µ-law, and the answers come as such."""
    return settings.audio == "pcmu" or (settings.audio == "auto" and rate_hz == NARROW_HZ)


def session(
    settings: RealtimeSettings,
    *,
    narrow: bool,
    instructions: str,
    tools: Sequence[Message],
) -> dict[str, Any]:
    """The session of a call. Turns are this server's matter: the service detects none."""
    form = {"type": "audio/pcmu"} if narrow else {"type": "audio/pcm", "rate": WIDE_HZ}
    heard: dict[str, Any] = {"format": form, "turn_detection": None}
    made: dict[str, Any] = {
        "type": "realtime",
        "instructions": instructions,
        "output_modalities": ["audio"],
        "audio": {"input": heard, "output": {"format": form}},
        "tools": functions(tools),
        "tool_choice": "auto",
    }
    if settings.voice:
        made["audio"]["output"]["voice"] = settings.voice
    return _merged(made, settings.extra_body)


def functions(tools: Sequence[Message]) -> list[Message]:
    """The tools of the chat API as those of a session."""
    return [{"type": "function", **tool["function"]} for tool in tools]


def create(number: str, more: Mapping[str, Any]) -> Message:
    """Asks for an answer, known by its `number`."""
    return {"type": "response.create", "event_id": number, "response": {"metadata": {"turn": number}, **more}}


def cancel(response_id: str) -> Message:
    """Stops an answer; the one under way without an id."""
    return {"type": "response.cancel"} | ({"response_id": response_id} if response_id else {})


def append(audio: bytes) -> Message:
    """Adds a piece of the caller's audio."""
    return {"type": "input_audio_buffer.append", "audio": b64encode(audio).decode()}


def truncate(item_id: str, content_index: int, audio_end_ms: int) -> Message:
    """Cuts what the model said to what was heard of it."""
    return {
        "type": "conversation.item.truncate",
        "item_id": item_id,
        "content_index": content_index,
        "audio_end_ms": audio_end_ms,
    }


def delete(item_id: str) -> Message:
    """Takes an item of the conversation back."""
    return {"type": "conversation.item.delete", "item_id": item_id}


def said(role: str, text: str, *, item_id: str = "") -> Message:
    """Words of the role "user", or those that this server said as the "assistant"."""
    kind = "input_text" if role == "user" else "output_text"
    own = {"id": item_id} if item_id else {}
    return _item({"type": "message", "role": role, "content": [{"type": kind, "text": text}], **own})


def called(call: ToolCall) -> Message:
    """A call of a tool that the service does not know of."""
    return _item(
        {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}
    )


def result(call_id: str, text: str) -> Message:
    """The result of a call of a tool."""
    return _item({"type": "function_call_output", "call_id": call_id, "output": text})


def _item(item: Message) -> Message:
    return {"type": "conversation.item.create", "item": item}


def _merged(made: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(made)
    for key, value in own.items():
        before = merged.get(key)
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        merged[key] = _merged(before or {}, value) if both else value
    return merged
