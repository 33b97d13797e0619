"""The result of offer and answer for the media path, which reads no SDP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sip.sdp.ice import IceCredentials
from sip.sdp.security import Security


@dataclass(frozen=True, slots=True)
class Codec:
    """An RTP audio format. `clock_rate_hz` is the rate of RTP timestamps (8000 for G.722, RFC 3551 4.5.2),
    `rate_hz` that of its PCM inside the server."""

    name: str
    payload_type: int
    clock_rate_hz: int
    rate_hz: int
    channels: int = 1
    fmtp: str = ""


PCMU = Codec("PCMU", 0, 8000, 8000)
PCMA = Codec("PCMA", 8, 8000, 8000)
G722 = Codec("G722", 9, 8000, 16000)
OPUS = Codec("opus", 111, 48000, 16000, channels=2, fmtp="useinbandfec=1;maxplaybackrate=16000;stereo=0")

CODECS: Mapping[str, Codec] = {codec.name.lower(): codec for codec in (PCMU, PCMA, G722, OPUS)}
"""Every supported codec, by lower-case encoding name."""


@dataclass(frozen=True, slots=True)
class MediaPlan:
    """The audio stream of a call after an offer/answer (RFC 3264).

    `codec` is sent, with payload type `send_payload_type`; `receive` maps every payload type that the far end
    may send to its codec. The DTMF payload types (RFC 4733) may differ between directions and are None where
    not negotiated. `sends` and `receives` are the directions of this side, after hold. `rtcp_port` None: no
    RTCP. `protocol` is the transport of the m= line, `security` what protects the stream.
    `ice`: the far end is found by ICE, with these credentials of ours; its address in SDP says nothing."""

    remote_host: str
    remote_port: int
    codec: Codec
    send_payload_type: int
    receive: Mapping[int, Codec]
    dtmf_send: int | None = None
    dtmf_receive: int | None = None
    dtmf_clock_rate_hz: int = 8000
    sends: bool = True
    receives: bool = True
    ptime_ms: int = 20
    rtcp_port: int | None = None
    rtcp_mux: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    protocol: str = "RTP/AVP"
    security: Security | None = None
    ice: IceCredentials | None = None
