"""The table [agent.realtime]: a model that hears the caller and speaks by itself."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pipeline.agents.llm.table import Headers
from pipeline.engines.tables import ExtraBody, Secret, Table, reveal
from pipeline.net.socket_service import SocketSettings, SocketUrl


class RealtimeSettings(Table):
    """[agent.realtime]: a model behind the OpenAI Realtime protocol, which hears and speaks in place of
    the recogniser, the model of [agent.llm] and the voice. These go on where it fails. `audio` "auto":
    µ-law on telephone lines of 8 kHz, which is not converted on the way, else 24 kHz. `extra_body`:
    further fields of the session. `timeout_s`: longest wait for the beginning of an answer (of the
    first one: from the moment that the session is there); `stall_s`: for each further part. The
    caller's words are written by the agent's own recogniser."""

    url: SocketUrl
    model: str = ""
    api_key: Secret | None = None
    headers: Headers = Field(default_factory=dict, repr=False)
    query: dict[str, str] = Field(default_factory=dict, max_length=20)
    voice: str = ""
    audio: Literal["auto", "pcmu", "pcm"] = "auto"
    extra_body: ExtraBody = Field(default_factory=dict, max_length=50)
    timeout_s: float = Field(default=1.5, ge=0.1, le=60)
    stall_s: float = Field(default=1.5, ge=0.1, le=60)

    def socket(self) -> SocketSettings:
        """The options of the socket. The session is configured by the first message, and ready when the
        service confirms it."""
        return SocketSettings(
            url=self.url,
            api_key=reveal(self.api_key),
            headers={name: value.get_secret_value() for name, value in self.headers.items()},
            query=({"model": self.model} if self.model else {}) | self.query,
            begin=({"type": "session.update", "event_id": "session", "session": "{session}"},),
            ready={"type": "session.updated"},
            keep_alive_s=60.0,
        )
