"""JSON schemas of the messages of streaming voices, made from the types of the vendors' own SDKs:

    pip install elevenlabs cartesia deepgram-sdk && python -m tests.support.speech.vendor_schemas

They are kept beside the tests, which then need no SDK. No object may have fields that its type does not name,
although the SDKs pass such fields over."""

from __future__ import annotations

import json
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_suffix(".json")

_CARTESIA = "cartesia.types.websocket_response"
_DEEPGRAM = "deepgram.speak.v1.types:SpeakV1"

TYPES: dict[str, dict[str, list[str]]] = {
    "elevenlabs": {
        "sent": [
            f"elevenlabs:{name}"
            for name in ("InitializeConnectionMulti", "SendTextMulti", "CloseContext", "CloseSocket")
        ],
        "taken": ["elevenlabs:AudioOutputMulti", "elevenlabs:FinalOutputMulti"],
    },
    "cartesia": {
        "sent": [
            "cartesia.types.generation_request:GenerationRequest",
            "cartesia.types.websocket_client_event:CancelContextRequest",
        ],
        "taken": [f"{_CARTESIA}:{name}" for name in ("Chunk", "Timestamps", "Done", "Error")],
    },
    "deepgram": {
        "sent": [f"{_DEEPGRAM}{name}" for name in ("Text", "Flush", "Clear", "Close")],
        "taken": [f"{_DEEPGRAM}{name}" for name in ("Flushed", "Cleared", "Metadata", "Warning")],
    },
}
SDKS = {"deepgram": "deepgram-sdk"}


def schemas() -> dict[str, Any]:
    """The schemas of every vendor, with the version of its SDK."""
    return {
        vendor: {
            "sdk": f"{vendor} {version(SDKS.get(vendor, vendor))}",
            **{way: {"anyOf": [_schema(name) for name in kinds[way]]} for way in ("sent", "taken")},
        }
        for vendor, kinds in TYPES.items()
    }


def _schema(name: str) -> Any:
    module, _, kind = name.partition(":")
    made = getattr(import_module(module), kind).model_json_schema(by_alias=True)
    return _strict(made, made.pop("$defs", {}))


def _strict(schema: Any, named: dict[str, Any]) -> Any:
    """A schema without references and without descriptions, whose objects have no further fields."""
    if isinstance(schema, list):
        return [_strict(each, named) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _strict(named[schema["$ref"].rpartition("/")[2]], named)
    left_out = ("description", "title", "default", "discriminator")
    kept = {
        key: inner
        for key, inner in schema.items()
        if key not in left_out or not isinstance(inner, str | dict)
    }
    if "properties" in schema:
        kept["properties"] = {key: _strict(inner, named) for key, inner in schema["properties"].items()}
        kept["additionalProperties"] = False
    return {key: inner if key == "properties" else _strict(inner, named) for key, inner in kept.items()}


if __name__ == "__main__":
    FILE.write_text(json.dumps(schemas(), indent=1, sort_keys=True) + "\n")
