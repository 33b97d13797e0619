"""Tools for the engines behind the protocols of `pipeline.speech` and `pipeline.agent`: circuit breakers,
settings, local weights."""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # since 1.32 onnxruntime has a thread for it
