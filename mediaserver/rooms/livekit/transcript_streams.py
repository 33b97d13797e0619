"""Sends the transcript to one client, in both forms that LiveKit's SDKs know: as transcription segments, and
as text streams on the topic `lk.transcription`.

The agent's words are one stream for each segment, as LiveKit Agents sends it: chunks as the words are heard,
and a trailer whose attribute `lk.transcription_final` is "true". People's words, which a recogniser may
change, are a whole stream for each piece. A later stream of a segment replaces the earlier."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from livekit.protocol import models

from mediaserver.rooms.participant import Kind, Participant
from mediaserver.rooms.room import Words

TRANSCRIPTION: Final = "lk.transcription"
SEGMENT: Final = "lk.segment_id"
FINAL: Final = "lk.transcription_final"
TRACK: Final = "lk.transcribed_track_id"

CHUNK_BYTES: Final = 15_000
"""The size of a stream's packets, as in the SDKs; some take no more than 16 KiB."""

SendAs = Callable[[models.DataPacket, Participant], None]
"""Sends a reliable packet in the name of a participant."""


@dataclass(slots=True)
class _Stream:
    """A stream that has begun. `text`: what of it was sent; `dropped`: packets that the client's channel had
    not taken before."""

    segment: str
    speaker: Participant
    dropped: int
    stream_id: str
    text: str = ""
    chunks: int = 0


class TranscriptStreams:
    """The transcript as one client gets it. `dropped`: gives the number of packets that the client's channel
    did not take."""

    def __init__(self, send: SendAs, dropped: Callable[[], int]) -> None:
        self._send = send
        self._dropped = dropped
        self._growing: _Stream | None = None

    def add(self, words: Words) -> None:
        """Sends a piece of the transcript."""
        attributes = {SEGMENT: words.segment}
        track = next(iter(words.speaker.tracks), "")
        if track:  # a participant who only writes has no track: a segment without one crashes the Rust SDK
            attributes[TRACK] = track
            segment = models.TranscriptionSegment(id=words.segment, text=words.text, final=words.final)
            transcription = models.Transcription(
                transcribed_participant_identity=words.speaker.identity, track_id=track, segments=[segment]
            )
            self._send(models.DataPacket(transcription=transcription), words.speaker)
        if words.speaker.kind is Kind.AGENT:
            self._grow(words, attributes)
        else:
            attributes[FINAL] = _told(words.final)
            self.send_text(TRANSCRIPTION, words.text, attributes, speaker=words.speaker)

    def _grow(self, words: Words, attributes: Mapping[str, str]) -> None:
        """Adds the words that are new to the stream of their segment. Where the client has others than those
        that are final, since the voice was cut within a word or the channel was full, a stream of its own
        replaces that one."""
        stream = self._growing
        if stream is not None and not self._continues(stream, words):
            self._end(stream, {})
            stream = None
        if stream is None and words.final:
            self.send_text(
                TRANSCRIPTION, words.text, {**attributes, FINAL: _told(True)}, speaker=words.speaker
            )
            return
        if stream is None:
            stream = self._growing = _Stream(
                words.segment, words.speaker, self._dropped(), secrets.token_hex(8)
            )
            header = _header(stream.stream_id, TRANSCRIPTION, {**attributes, FINAL: _told(False)})
            self._send(models.DataPacket(stream_header=header), words.speaker)
        for piece in _pieces(words.text[len(stream.text) :].encode()):
            chunk = models.DataStream.Chunk(
                stream_id=stream.stream_id, chunk_index=stream.chunks, content=piece
            )
            self._send(models.DataPacket(stream_chunk=chunk), words.speaker)
            stream.chunks += 1
        stream.text = words.text
        if words.final:
            self._end(stream, {**attributes, FINAL: _told(True)})

    def _continues(self, stream: _Stream, words: Words) -> bool:
        whole = stream.dropped == self._dropped() or not words.final
        return whole and stream.segment == words.segment and words.text.startswith(stream.text)

    def _end(self, stream: _Stream, attributes: Mapping[str, str]) -> None:
        self._growing = None
        trailer = models.DataStream.Trailer(stream_id=stream.stream_id, attributes=attributes)
        self._send(models.DataPacket(stream_trailer=trailer), stream.speaker)

    def send_text(
        self, topic: str, text: str, attributes: Mapping[str, str], *, speaker: Participant
    ) -> None:
        """Sends a whole text stream: one header, as many chunks as needed, and a trailer."""
        stream_id, content = secrets.token_hex(8), text.encode()
        header = _header(stream_id, topic, attributes)
        header.total_length = len(content)
        self._send(models.DataPacket(stream_header=header), speaker)
        for index, piece in enumerate(_pieces(content)):
            chunk = models.DataStream.Chunk(stream_id=stream_id, chunk_index=index, content=piece)
            self._send(models.DataPacket(stream_chunk=chunk), speaker)
        trailer = models.DataStream.Trailer(stream_id=stream_id)
        self._send(models.DataPacket(stream_trailer=trailer), speaker)


def _told(final: bool) -> str:
    return "true" if final else "false"


def _header(stream_id: str, topic: str, attributes: Mapping[str, str]) -> models.DataStream.Header:
    return models.DataStream.Header(
        stream_id=stream_id,
        timestamp=int(time.time() * 1000),
        topic=topic,
        mime_type="text/plain",
        attributes=attributes,
        text_header=models.DataStream.TextHeader(),
    )


def _pieces(content: bytes) -> list[bytes]:
    """Cuts UTF-8 into pieces of at most `CHUNK_BYTES`, between characters."""
    pieces, start = [], 0
    while start < len(content):
        end = min(start + CHUNK_BYTES, len(content))
        while end < len(content) and content[end] & 0xC0 == 0x80:
            end -= 1
        pieces.append(content[start:end])
        start = end
    return pieces
