"""Offer and answer (RFC 3264) for one audio stream of plain RTP: descriptions in, a MediaPlan out.

What is refused, always as MalformedSdp 488: no audio, only encrypted audio (SAVP, DTLS), no codec in common,
an address of the other family. A best-effort offer (plain RTP/AVP with a=crypto or a=fingerprint beside it)
is answered without encryption, as RFC 8643 3.1 lets an answerer that has none do. Streams that we do not
speak are declined with port 0, in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address

from sip.errors import MalformedSdp, MediaRefused
from sip.sdp.media_plan import CODECS, Codec, MediaPlan
from sip.sdp.sdp import Attribute, MediaDescription, Origin, RtpMap, SessionDescription

TELEPHONE_EVENT = "telephone-event"
FIRST_EVENT_TYPE = 101
"""The payload type that everybody uses for telephone events, and old gateways insist on."""

_PROTOCOLS = ("RTP/AVP", "RTP/AVPF")
_PTIMES_MS = (10, 20, 30, 40, 50, 60)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What we can do in a call: where RTP is to come to, codecs in our order of preference, RFC 4733 digits
    or not, and the packet time that we like to receive. `reaches`: whether media may be sent to an address;
    None, to any."""

    host: str
    port: int
    codecs: tuple[Codec, ...]
    dtmf: bool = True
    ptime_ms: int = 20
    reaches: Callable[[str], bool] | None = None


@dataclass(frozen=True, slots=True)
class _Flow:
    """A direction, from the view of whoever says it."""

    sends: bool
    receives: bool

    @classmethod
    def of(cls, direction: str) -> _Flow:
        return cls(direction in ("sendrecv", "sendonly"), direction in ("sendrecv", "recvonly"))

    def against(self, theirs: _Flow) -> _Flow:
        """What is left of ours, given theirs."""
        return _Flow(self.sends and theirs.receives, self.receives and theirs.sends)

    def __str__(self) -> str:
        names = {(True, True): "sendrecv", (True, False): "sendonly", (False, True): "recvonly"}
        return names.get((self.sends, self.receives), "inactive")


@dataclass(frozen=True, slots=True)
class _Formats:
    """The payload types of one m= line that mean something to us, in its order."""

    codecs: tuple[Codec, ...]  # the first type of each codec, with the number used there
    events: Mapping[int, int]  # clock rate to the payload type of its telephone events

    def event_type(self, codec: Codec) -> tuple[int | None, int]:
        """(payload type, clock rate) of the digits beside `codec`: at its clock rate (RFC 4733 2.1), or at
        another where a sloppy peer names no better."""
        if codec.clock_rate_hz in self.events or not self.events:
            return self.events.get(codec.clock_rate_hz), codec.clock_rate_hz
        clock_rate_hz = next(iter(self.events))
        return self.events[clock_rate_hz], clock_rate_hz


def make_offer(
    capabilities: Capabilities, *, session_id: int, version: int, direction: str = "sendrecv"
) -> bytes:
    """Our offer: every codec, telephone events at each of their clock rates. `direction` is ours
    ("sendonly" puts the far end on hold); `version` must grow by one whenever the offer changes."""
    events: dict[int, int] = {}
    if capabilities.dtmf:
        taken = {codec.payload_type for codec in capabilities.codecs}
        free = (number for number in range(FIRST_EVENT_TYPE, 128) if number not in taken)
        for codec in capabilities.codecs:
            if codec.clock_rate_hz not in events:
                events[codec.clock_rate_hz] = next(free)
    formats = _Formats(capabilities.codecs, events)
    media = _describe(capabilities, formats, _Flow.of(direction))
    return _session(capabilities, [media], session_id, version).to_bytes()


def answer(
    offer: bytes,
    capabilities: Capabilities,
    *,
    session_id: int,
    version: int,
    direction: str = "sendrecv",
) -> tuple[bytes, MediaPlan]:
    """Our answer to `offer`, and what it agrees on: every codec in common, in the offerer's order, of which
    we send the first; the payload types are the offerer's. `direction` is what we want, of which the
    answer says what theirs leaves.

    Raises MalformedSdp: 400 for what is no description, 488 for one that we cannot accept.
    """
    session = SessionDescription.parse(offer)
    place, formats = _choose(session, capabilities)
    media = session.media[place]
    host = _reachable(session.address_of(media), capabilities.host, capabilities.reaches)
    flow = _Flow.of(direction).against(_their_flow(session, media, host))
    mux = media.attribute("rtcp-mux") is not None
    extra: list[Attribute] = [("rtcp-mux", None)] if mux else []
    described = _describe(capabilities, formats, flow, extra)
    blocks = [
        replace(described, protocol=media.protocol) if index == place else _declined(other)
        for index, other in enumerate(session.media)
    ]
    codec = formats.codecs[0]
    event_type, event_rate_hz = formats.event_type(codec)
    plan = MediaPlan(
        remote_host=host,
        remote_port=media.port,
        codec=codec,
        send_payload_type=codec.payload_type,
        receive={each.payload_type: each for each in formats.codecs},
        dtmf_send=event_type,
        dtmf_receive=event_type,
        dtmf_clock_rate_hz=event_rate_hz,
        sends=flow.sends,
        receives=flow.receives,
        ptime_ms=_ptime_ms(media, capabilities.ptime_ms),
        rtcp_port=_rtcp_port(media, host, mux=mux),
        rtcp_mux=mux,
        options=_options(media, codec),
    )
    return _session(capabilities, blocks, session_id, version).to_bytes(), plan


def accept(answer: bytes, offer: bytes, *, reaches: Callable[[str], bool] | None = None) -> MediaPlan:
    """What the far end's `answer` to our `offer` agrees on.

    We send the answer's first codec with the answer's payload type, and receive with the types that we
    offered (RFC 3264 5.1: each side's numbers are those it wants to receive). `options` has the answer's
    fmtp parameters of that codec. Raises MalformedSdp: 400 for what is no description, 488 for an answer
    that does not fit the offer, that declines the stream, or that names a codec that was not offered.
    """
    ours = SessionDescription.parse(offer)
    theirs = SessionDescription.parse(answer)
    if [each.kind for each in theirs.media] != [each.kind for each in ours.media]:
        raise MalformedSdp("answer with other media than the offer")
    offered, media = ours.media[0], theirs.media[0]
    if media.port == 0:
        raise MalformedSdp("audio declined")
    if media.protocol.upper() not in _PROTOCOLS:
        raise MalformedSdp("answer with another transport than the offer")
    wanted, formats = _formats(offered, CODECS.values()), _answered(media, offered)
    host = _reachable(theirs.address_of(media), ours.address_of(offered), reaches)
    flow = _Flow.of(ours.direction_of(offered)).against(_their_flow(theirs, media, host))
    codec = formats.codecs[0]
    event_type, event_rate_hz = formats.event_type(codec)
    mux = media.attribute("rtcp-mux") is not None and offered.attribute("rtcp-mux") is not None
    return MediaPlan(
        remote_host=host,
        remote_port=media.port,
        codec=codec,
        send_payload_type=codec.payload_type,
        receive=_receivable(wanted, formats),
        dtmf_send=event_type,
        dtmf_receive=wanted.events.get(event_rate_hz) if event_type is not None else None,
        dtmf_clock_rate_hz=event_rate_hz,
        sends=flow.sends,
        receives=flow.receives,
        ptime_ms=_ptime_ms(media, _ptime_ms(offered, 20)),
        rtcp_port=_rtcp_port(media, host, mux=mux),
        rtcp_mux=mux,
        options=_options(media, codec),
    )


def _choose(session: SessionDescription, capabilities: Capabilities) -> tuple[int, _Formats]:
    """The place of the first stream that we can speak, and what it shares with us."""
    reason = "no audio offered"
    for place, media in enumerate(session.media):
        if media.kind != "audio" or media.port == 0:
            continue
        if media.protocol.upper() not in _PROTOCOLS:
            reason = "audio over a transport that is not plain RTP"
            continue
        formats = _formats(media, capabilities.codecs)
        if formats.codecs:
            return place, formats if capabilities.dtmf else replace(formats, events={})
        reason = "no codec in common"
    raise MalformedSdp(reason)


def _formats(media: MediaDescription, codecs: Iterable[Codec]) -> _Formats:
    known = tuple(codecs)
    found: dict[str, Codec] = {}
    events: dict[int, int] = {}
    mappings = media.rtpmaps()
    for payload_type in _payload_types(media):
        mapped = mappings.get(payload_type)
        if mapped is None:
            continue
        codec = _match(mapped, known)
        if codec is not None:
            found.setdefault(codec.name, replace(codec, payload_type=payload_type))
        elif mapped.name.lower() == TELEPHONE_EVENT:
            events.setdefault(mapped.clock_rate_hz, payload_type)
    return _Formats(tuple(found.values()), events)


def _answered(media: MediaDescription, offered: MediaDescription) -> _Formats:
    """The formats of an answer. A payload type without an rtpmap means what we offered under that number;
    comfort noise is let through, because common gateways answer with it unasked."""
    meant, ours = media.rtpmaps(), offered.rtpmaps()
    mappings = {number: meant.get(number) or ours.get(number) for number in _payload_types(media)}
    allowed = {_key(ours[number]) for number in _payload_types(offered) if number in ours}
    for mapped in mappings.values():
        if mapped is None or (_key(mapped) not in allowed and mapped.name.upper() != "CN"):
            raise MalformedSdp("answer with a codec that was not offered")
    named = [
        ("rtpmap", f"{number} {mapped.name}/{mapped.clock_rate_hz}/{mapped.channels}")
        for number, mapped in mappings.items()
        if mapped is not None
    ]
    formats = _formats(replace(media, attributes=(*named, *media.attributes)), CODECS.values())
    if not formats.codecs:
        raise MalformedSdp("answer without a codec")
    return formats


def _receivable(wanted: _Formats, answered: _Formats) -> dict[int, Codec]:
    """What may come: the answered codecs under our numbers, and under theirs where a peer that renumbers
    sends with those and we use them for nothing else."""
    names = [codec.name for codec in answered.codecs]
    ours = {codec.payload_type: codec for codec in wanted.codecs if codec.name in names}
    taken = {codec.payload_type for codec in wanted.codecs} | set(wanted.events.values())
    theirs = {codec.payload_type: codec for codec in answered.codecs if codec.payload_type not in taken}
    return {**ours, **theirs}


def _payload_types(media: MediaDescription) -> list[int]:
    return [int(each) for each in media.formats if each.isascii() and each.isdigit() and len(each) <= 3]


def _match(mapped: RtpMap, codecs: Sequence[Codec]) -> Codec | None:
    for codec in codecs:
        same = codec.name.lower() == mapped.name.lower() and codec.clock_rate_hz == mapped.clock_rate_hz
        # "opus/48000" without its "/2" is wrong (RFC 7587 section 7), harmless, and seen.
        if same and mapped.channels in (1, codec.channels):
            return codec
    return None


def _key(mapped: RtpMap) -> tuple[str, int]:
    return mapped.name.lower(), mapped.clock_rate_hz


def _their_flow(session: SessionDescription, media: MediaDescription, host: str) -> _Flow:
    """Their direction; the unspecified address is the hold of RFC 2543 (RFC 3264 8.4): they send perhaps,
    but receive nothing."""
    flow = _Flow.of(session.direction_of(media))
    return replace(flow, receives=False) if ip_address(host).is_unspecified else flow


def _reachable(theirs: str, ours: str, reaches: Callable[[str], bool] | None) -> str:
    address = ip_address(theirs)
    if address.is_unspecified:
        return theirs
    if address.version != (6 if ":" in ours else 4):
        raise MalformedSdp("media address of another IP version")
    if reaches is not None and not reaches(theirs):
        raise MediaRefused(theirs)
    return theirs


def _ptime_ms(media: MediaDescription, default_ms: int) -> int:
    """What they want to receive, where it is something that we can send."""
    wanted_ms = _integer(media.attribute("ptime")) or default_ms
    most_ms = _integer(media.attribute("maxptime")) or _PTIMES_MS[-1]
    return max((each for each in _PTIMES_MS if each <= min(wanted_ms, most_ms)), default=_PTIMES_MS[0])


def _rtcp_port(media: MediaDescription, host: str, *, mux: bool) -> int | None:
    """RFC 3550 11, 3605, 5761; none where b= says that nobody may send any (RFC 3556)."""
    if media.bandwidths.get("RS") == 0 and media.bandwidths.get("RR") == 0:
        return None
    if mux:
        return media.port
    value = media.attribute("rtcp")
    if value is None:
        return media.port + 1 if media.port < 65535 else None
    port, _, address = value.partition(" ")
    number = _integer(port)
    # An RTCP address of its own would be a second place to send to that nobody has checked: no RTCP then.
    elsewhere = bool(address) and address.split()[-1] != host
    return number if number is not None and number <= 65535 and not elsewhere else None


def _integer(text: str | None) -> int | None:
    """A positive number, or None for anything else."""
    if text is None or not (text.isascii() and text.isdigit() and len(text) <= 9):
        return None
    return int(text) or None


def _options(media: MediaDescription, codec: Codec) -> dict[str, str]:
    pairs = (part.partition("=") for part in media.fmtp(codec.payload_type).split(";"))
    return {name.strip().lower(): value.strip() for name, _, value in pairs if name.strip()}


def _describe(
    capabilities: Capabilities,
    formats: _Formats,
    flow: _Flow,
    extra: Sequence[Attribute] = (),
) -> MediaDescription:
    attributes: list[Attribute] = []
    for codec in formats.codecs:
        channels = f"/{codec.channels}" if codec.channels > 1 else ""
        attributes.append(("rtpmap", f"{codec.payload_type} {codec.name}/{codec.clock_rate_hz}{channels}"))
        if codec.fmtp:
            attributes.append(("fmtp", f"{codec.payload_type} {codec.fmtp}"))
    for clock_rate_hz, payload_type in formats.events.items():
        attributes.append(("rtpmap", f"{payload_type} {TELEPHONE_EVENT}/{clock_rate_hz}"))
        attributes.append(("fmtp", f"{payload_type} 0-15"))
    attributes += [("ptime", str(capabilities.ptime_ms)), *extra, (str(flow), None)]
    numbers = [codec.payload_type for codec in formats.codecs] + list(formats.events.values())
    return MediaDescription(
        "audio", capabilities.port, "RTP/AVP", tuple(map(str, numbers)), attributes=tuple(attributes)
    )


def _declined(media: MediaDescription) -> MediaDescription:
    return MediaDescription(media.kind, 0, media.protocol, media.formats or ("0",))


def _session(
    capabilities: Capabilities, media: Sequence[MediaDescription], session_id: int, version: int
) -> SessionDescription:
    origin = Origin(session_id, version, capabilities.host)
    return SessionDescription(origin, tuple(media), connection=capabilities.host)
