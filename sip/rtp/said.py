"""Who hears a row of the media plane, and who speaks on it."""

from __future__ import annotations

import asyncio

from pipeline.leg import AudioSource, LegListener
from pipeline.media.playout import Playout
from pipeline.plane.outgoing import Outgoing
from sip.rtp.heard import Heard
from sip.rtp.pulled import Pulled


class Said:
    """Gives `line` to one source at a time. A playout hands its frames over; any other source is asked for
    them."""

    __slots__ = ("_line", "_loop", "_pulled", "_source")

    def __init__(self, line: Outgoing, loop: asyncio.AbstractEventLoop) -> None:
        self._line, self._loop = line, loop
        self._source: AudioSource | None = None
        self._pulled: Pulled | None = None

    @property
    def source(self) -> AudioSource | None:
        """The source; None: nothing is said. What another one said and has not left is taken back."""
        return self._source

    @source.setter
    def source(self, source: AudioSource | None) -> None:
        if self._pulled is not None:
            self._pulled.close()
            self._pulled = None
        elif isinstance(self._source, Playout):
            self._source.connect(None)
        self._source = source
        if isinstance(source, Playout):
            source.connect(self._line)
        elif source is not None:
            self._pulled = Pulled(source, self._line, self._loop)

    def left(self) -> None:
        """Frames of the source have left."""
        source = self._pulled or self._source
        if isinstance(source, Pulled | Playout):
            source.left()


class Attached:
    """The listener and the source of one stream. They are given to the row once there is one."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._heard: Heard | None = None
        self._said: Said | None = None
        self._listener: LegListener | None = None
        self._source: AudioSource | None = None

    def begin(self, heard: Heard, line: Outgoing) -> None:
        """Connects whom there is to the row."""
        self._heard, self._said = heard, Said(line, self._loop)
        self._connect()

    def attach(self, listener: LegListener | None, source: AudioSource | None) -> None:
        """Connects a conversation in place of the one before; None disconnects."""
        self._disconnect()
        self._listener, self._source = listener, source
        self._connect()

    def left(self) -> None:
        """Frames of the source have left."""
        if self._said is not None:
            self._said.left()

    def end(self) -> None:
        """Disconnects the conversation for good."""
        self._disconnect()
        self._heard = self._said = None

    def _connect(self) -> None:
        if self._heard is not None and self._said is not None:
            self._heard.listener = self._listener
            self._said.source = self._source

    def _disconnect(self) -> None:
        if self._heard is not None and self._said is not None:
            self._heard.listener = None
            self._said.source = None
