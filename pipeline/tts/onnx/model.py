"""Loads a voice's model with onnxruntime from its parts, with phoneme durations as an additional output.
Imported only in the process of a voice.

The published models compute the durations of phonemes and do not declare them as an output. Protobuf merges
a repeated message field, so a few bytes after the file declare one more output.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import onnxruntime

_GRAPH, _OUTPUT, _NAME = 7, 12, 1
"""Field numbers of ModelProto.graph, GraphProto.output and ValueInfoProto.name in onnx.proto."""

_PIPER_DURATIONS: Final = re.compile(rb"\x12.(/(?:[\w.]+/)*Ceil_output_\d)", re.DOTALL)
"""The output of the node that rounds durations up to frames, in a Piper voice."""

KOKORO_DURATIONS: Final = "/encoder/Clip_output_0"


def session(parts: Sequence[str], *, threads: int, sha256: str = "", durations: str = "") -> Any:
    """Makes an `InferenceSession` of the model in the files `parts`, joined in order, with the additional
    output `durations` ("": Piper's, where the model has it). `sha256`: of the joined files; "": not checked.
    Raises OSError, ValueError for a wrong hash, and RuntimeError (onnxruntime's)."""
    content = b"".join(Path(part).read_bytes() for part in parts)
    digest = hashlib.sha256(content).hexdigest() if sha256 else ""
    if digest != sha256:
        raise ValueError(f"{', '.join(parts)} together are not the model that we know (SHA-256 {digest})")
    content += declared(durations or piper_durations(content))
    onnxruntime.set_default_logger_severity(3)  # errors only: a machine without a GPU causes warnings
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    made = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    made._model_bytes = None  # frees 60 to 90 MB that only another provider needs
    return made


def piper_durations(content: bytes) -> str:
    """Gives the name of the output with the durations in a Piper voice, "" where there is none."""
    named = _PIPER_DURATIONS.search(content)
    return named.group(1).decode() if named else ""


def declared(output: str) -> bytes:
    """Gives the bytes that declare `output` when they are appended to a model; b"" for ""."""
    return _field(_GRAPH, _field(_OUTPUT, _field(_NAME, output.encode()))) if output else b""


def _field(number: int, body: bytes) -> bytes:
    assert len(body) < 128  # a length up to 127 takes one byte
    return bytes([number << 3 | 2, len(body)]) + body
