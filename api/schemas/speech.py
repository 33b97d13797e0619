"""Defines the bodies of the speech endpoints."""

from __future__ import annotations

from pydantic import Field

from api.schemas.base import Model


class SpeechBody(Model):
    """Body of `POST /v1/text-to-speech/generate`. A value of the wrong type is answered with 422, a value
    outside its bounds with 400."""

    text: str = Field(description="What is to be said", json_schema_extra={"minLength": 1})
    format: str = Field(
        json_schema_extra={"enum": ["wav", "mp3", "ogg", "flac", "pcm", "mulaw"]},
        description="wav, mp3, ogg (Opus), flac (all with a header), pcm (16 bit, little-endian, 24000 Hz) or"
        " mulaw (8000 Hz); mono",
    )
    chunk_size: float = Field(
        json_schema_extra={"minimum": 10, "maximum": 10_000},
        description="Milliseconds of audio that are sent at a time, 10 to 10000: small values begin sooner,"
        " large ones cost less",
    )
    language: str | None = Field(
        default=None,
        pattern=r"^[a-z]{2,3}(-[A-Za-z0-9]{2,8})*$",
        description="Language of the text, such as en, ar or en-GB; the server's own if absent",
    )


class TranscriptionForm(Model):
    """Form (`multipart/form-data`) of `POST /transcribe`."""

    file: str = Field(
        description="An audio file of any common format, at least 10 ms long",
        json_schema_extra={"format": "binary"},
    )
    job_id: str | None = Field(
        default=None,
        min_length=1,
        max_length=128,
        description="Given back in the answer; a file sent again with its job_id is not transcribed again",
    )
    language: str | None = Field(
        default=None,
        pattern=r"^[a-z]{2,3}(-[A-Za-z0-9]{2,8})*$",
        description="Language spoken in the file; the server's own if absent",
    )


class TranscriptionResponse(Model):
    """Answer of `POST /transcribe`. `job_id` only where the request had one."""

    transcription: str
    confidence: float = Field(ge=0, le=1)
    job_id: str | None = None
