"""Serves text-to-speech and speech-to-text over HTTP (sections 4.5 and 4.6 of the specification)."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from pydantic import ValidationError

from api.http.auth import SERVER, authenticate, caller_of
from api.http.bodies import complaint, json_object
from api.http.operation import About, Operation, Scope
from api.http.peer import neighbourhood
from api.schemas.speech import SpeechBody, TranscriptionForm, TranscriptionResponse
from mediaserver.admission.rate_limits import RateLimit
from mediaserver.errors import (
    InvalidRequest,
    SpeechFailed,
    TooLarge,
    TooMany,
    TooSlow,
    UnknownKey,
    Unprocessable,
)
from mediaserver.speech.service import Speaker, SpeechRequest, SpokenFile, Upload

log = logging.getLogger(__name__)

KEYLESS: web.AppKey[RateLimit] = web.AppKey("keyless", RateLimit)
"""The request limit of clients without a key."""

STALLED_S = 30.0
"""Seconds that a client may take for one piece; then the connection is aborted, so that it holds no voice."""

PARTS_LIMIT = 16
"""Parts of a form; `file`, `job_id` and `language` are read."""

FIELD_LIMIT = 4096
"""Octets of one field of a form."""

UNREADABLE = (ValueError, AssertionError, TimeoutError, aiohttp.ClientPayloadError, HttpProcessingError)
"""What aiohttp raises for a malformed form."""

_PIECE = 64 * 1024

routes = web.RouteTableDef()


def set_up(app: web.Application) -> None:
    """Adds the speech routes, and the limit for clients without a key where there is one."""
    per_minute = app[SERVER].settings.speech.keyless_requests_per_minute
    if per_minute:
        app[KEYLESS] = RateLimit(per_minute)
    app.add_routes(routes)


# Text to speech -------------------------------------------------------------------------------------------


@routes.post("/v1/text-to-speech/generate")
@Operation(
    summary="Speaks a text, sent while it is made. No key is needed; with one, limits are higher",
    body=SpeechBody,
    key_optional=True,
    media=("audio/wav", "audio/mp3", "audio/ogg", "audio/flac", "audio/pcm", "audio/mulaw"),
    errors=(400, 401, 403, 413, 422, 429, 500, 503),
)
async def generate(request: web.Request) -> web.StreamResponse:
    """Streams the speech of a text, in the format that the body names."""
    request.app[SERVER].load.check()
    speaker = await speaker_of(request)
    body = await _speech_body(request)
    wanted = SpeechRequest(
        text=body.text, format=body.format, chunk_ms=round(body.chunk_size), language=body.language or ""
    )
    async with request.app[SERVER].speech.speak(speaker, wanted) as file:
        first = await anext(file.pieces, b"")
        response = web.StreamResponse(
            headers={
                "Content-Type": file.content_type,
                "X-Sample-Rate": str(file.rate_hz),
                "Cache-Control": "no-store",
            }
        )
        await response.prepare(request)
        await _send(request, response, first, file)
    return response


async def _send(request: web.Request, response: web.StreamResponse, first: bytes, file: SpokenFile) -> None:
    """Sends all pieces. On a failure the headers are sent already: the connection is aborted without the last
    chunk, so that the client sees that the file is incomplete."""
    try:
        await _write(response, first)
        async for piece in file.pieces:
            await _write(response, piece)
        await response.write_eof()
    except (SpeechFailed, TimeoutError, ConnectionError) as error:
        log.warning("speech broken off", extra={"reason": type(error).__name__})
        if request.transport is not None:
            request.transport.abort()


async def _write(response: web.StreamResponse, piece: bytes) -> None:
    async with asyncio.timeout(STALLED_S):
        await response.write(piece)


async def speaker_of(request: web.Request) -> Speaker:
    """Returns who pays for the speech: the key's company or, without a key, the client address.

    Raises `UnknownKey` for a wrong key too, as its sender expects the limits of a key, and `TooMany`."""
    if "Authorization" in request.headers:
        caller = await authenticate(request, Scope.SPEECH)
        return Speaker(caller.company_id, has_key=True)
    limit = request.app.get(KEYLESS)
    if limit is None:
        raise UnknownKey("Missing API key")
    name = neighbourhood(request)
    wait_s = limit.take(name, asyncio.get_running_loop().time())
    if wait_s > 0:
        raise TooMany("Too many requests without an API key", retry_after_s=int(wait_s) + 1)
    return Speaker(name, has_key=False)


async def _speech_body(request: web.Request) -> SpeechBody:
    body = await json_object(request)
    try:
        return SpeechBody.model_validate(body)
    except ValidationError as error:
        raise Unprocessable(complaint(error)) from None


# Speech to text -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Form:
    """The upload so far. `file`: descriptor of a memfd, -1 before the file begins. `size` and `limit` in
    octets."""

    limit: int
    file: int = -1
    size: int = 0
    digest: hashlib._Hash = field(default_factory=hashlib.sha256)
    fields: dict[str, str] = field(default_factory=dict)

    def open(self) -> None:
        """Begins the uploaded file in a memfd. Raises `InvalidRequest` for a second file."""
        if self.file >= 0:
            raise InvalidRequest("Only one file can be transcribed at a time")
        self.file = os.memfd_create("upload", os.MFD_CLOEXEC)

    def add(self, piece: bytes) -> None:
        """Appends octets to the file. Raises `TooLarge`."""
        self.size += len(piece)
        if self.size > self.limit:
            raise TooLarge(f"The file is larger than {self.limit // (1024 * 1024)} MiB")
        self.digest.update(piece)
        os.write(self.file, piece)


@routes.post("/transcribe")
@Operation(
    summary="Understands an audio file",
    body=TranscriptionForm,
    body_type="multipart/form-data",
    answer=TranscriptionResponse,
    scopes=(Scope.SPEECH,),
    about=About.REQUEST,
    errors=(400, 401, 403, 409, 413, 429, 500, 503),
)
async def transcribe(request: web.Request) -> web.Response:
    """Answers the transcript of an uploaded audio file, with its confidence."""
    request.app[SERVER].load.check()
    caller = caller_of(request)
    speech = request.app[SERVER].speech
    async with _uploaded(request, limit=speech.settings.upload_mb * 1024 * 1024) as form:
        wanted = _fields(form)
        outcome = await speech.transcribe(
            caller.company_id,
            Upload(file=form.file, sha256=form.digest.hexdigest()),
            job_id=wanted.job_id or "",
            language=wanted.language or "",
        )
    answer = TranscriptionResponse(
        transcription=outcome.text, confidence=outcome.confidence, job_id=wanted.job_id
    )
    return web.Response(
        text=answer.model_dump_json(exclude_none=True),
        content_type="application/json",
        headers={"Cache-Control": "no-store"},
    )


def _fields(form: Form) -> TranscriptionForm:
    if form.file < 0:
        raise InvalidRequest("file: required")
    try:
        return TranscriptionForm.model_validate({"file": "", **form.fields})
    except ValidationError as error:
        raise InvalidRequest(complaint(error)) from None


@asynccontextmanager
async def _uploaded(request: web.Request, *, limit: int) -> AsyncIterator[Form]:
    """Reads the form of a request piece by piece; its file is closed after the block."""
    if (request.content_length or 0) > limit + PARTS_LIMIT * FIELD_LIMIT:
        raise TooLarge(f"The file is larger than {limit // (1024 * 1024)} MiB")
    if request.content_type != "multipart/form-data":
        raise InvalidRequest("Content-Type must be multipart/form-data")
    form = Form(limit)
    try:
        try:
            async for part in _parts(request):
                await _take(form, part)
        except TooSlow:
            raise
        except UNREADABLE:
            raise InvalidRequest("The form cannot be read") from None
        yield form
    finally:
        if form.file >= 0:
            os.close(form.file)


async def _parts(request: web.Request) -> AsyncGenerator[aiohttp.BodyPartReader, None]:
    reader = await request.multipart()
    for _ in range(PARTS_LIMIT):
        async with asyncio.timeout(STALLED_S):
            part = await reader.next()
        if part is None:
            return
        if not isinstance(part, aiohttp.BodyPartReader):
            raise InvalidRequest("The form cannot be read")
        yield part
    raise InvalidRequest(f"The form has more than {PARTS_LIMIT} parts")


async def _take(form: Form, part: aiohttp.BodyPartReader) -> None:
    if part.name == "file":
        form.open()
    value = bytearray()
    while True:
        async with asyncio.timeout(STALLED_S):
            piece = await part.read_chunk(_PIECE)
        if not piece:
            break
        if part.name == "file":
            form.add(piece)
            continue
        value += piece
        if len(value) > FIELD_LIMIT:
            raise InvalidRequest(f"{part.name or 'a field'}: too long")
    if part.name in ("job_id", "language") and value:
        if 0 in value:
            raise InvalidRequest(f"{part.name}: must not contain NUL characters")
        form.fields[part.name] = value.decode()
