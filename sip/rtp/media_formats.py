"""A plan of media in the terms of the media plane."""

from __future__ import annotations

from typing import Final

from pipeline.audio.opus import OpusMissing, library
from pipeline.plane.rows import Kind
from pipeline.plane.setup import PayloadFormat, Receiving, Sending
from sip.errors import LocalError
from sip.rtp.packet import COMFORT_NOISE
from sip.sdp.media_plan import Codec, MediaPlan

_KINDS: Final = {"pcmu": Kind.PCMU, "pcma": Kind.PCMA, "g722": Kind.G722, "opus": Kind.OPUS}
_NOT_AUDIO: Final = PayloadFormat(Kind.NOT_AUDIO, 0, 0)


def receiving(plan: MediaPlan) -> Receiving:
    """What the far end may send. Raises LocalError for a codec that the plane has not."""
    formats = {number: payload_format(codec) for number, codec in plan.receive.items()}
    formats.setdefault(COMFORT_NOISE, _NOT_AUDIO)
    events = -1 if plan.dtmf_receive is None else plan.dtmf_receive
    if events >= 0:
        formats[events] = _NOT_AUDIO
    return Receiving(
        formats=formats, events_type=events, events_hz=plan.dtmf_clock_rate_hz, receives=plan.receives
    )


def sending(plan: MediaPlan) -> Sending:
    """What we send. Raises LocalError for a codec that the plane has not."""
    return Sending(
        payload_type=plan.send_payload_type,
        format=payload_format(plan.codec),
        events_type=-1 if plan.dtmf_send is None else plan.dtmf_send,
        events_hz=plan.dtmf_clock_rate_hz,
        sends=plan.sends,
    )


def payload_format(codec: Codec) -> PayloadFormat:
    """What the plane makes of `codec`. Raises LocalError for one that it has not, and for Opus without
    libopus."""
    kind = _KINDS.get(codec.name.lower())
    if kind is None:
        raise LocalError(f"no codec {codec.name}")
    if kind is Kind.OPUS:
        try:
            library()
        except OpusMissing as error:
            raise LocalError(f"no codec opus: {error}") from error
    return PayloadFormat(kind, codec.clock_rate_hz, codec.rate_hz)
