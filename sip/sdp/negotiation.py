"""Negotiates one audio stream by offer and answer (RFC 3264): descriptions in, a MediaPlan out.

Refused with MalformedSdp 488: no audio, audio protected in another way than the trunk takes
(`sip.sdp.security`), no codec in common, an address of the other family. Unsupported streams are declined
with port 0, in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_address

from sip.errors import MalformedSdp, MediaRefused
from sip.sdp.ice import LITE, IceCredentials
from sip.sdp.media_plan import CODECS, Codec, MediaPlan
from sip.sdp.sdp import Attribute, MediaDescription, Origin, RtpMap, SessionDescription
from sip.sdp.security import HANDSHAKEN, Agreed, LocalSecurity, Security, accepted

TELEPHONE_EVENT = "telephone-event"
FIRST_EVENT_TYPE = 101
"""The usual payload type of telephone events, on which old gateways insist."""

_MUX: Sequence[Attribute] = (("rtcp-mux", None),)
BROWSERS = "UDP/TLS/RTP/SAVPF"
"""The transport of a browser's audio (RFC 8834)."""

_PTIMES_MS = (10, 20, 30, 40, 50, 60)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Local capabilities of a call: address and port for RTP, codecs in order of preference, RFC 4733 DTMF or
    not, and the preferred packet time. `reaches`: whether media may be sent to an address; None, to any.
    `security`: how media is protected, with the call's keys. `ice`: the far end is a browser, whose offers
    have ICE and whose offers from here need it (RFC 8834)."""

    host: str
    port: int
    codecs: tuple[Codec, ...]
    dtmf: bool = True
    ptime_ms: int = 20
    reaches: Callable[[str], bool] | None = None
    security: LocalSecurity = field(default_factory=LocalSecurity)
    ice: IceCredentials | None = None


@dataclass(frozen=True, slots=True)
class _Flow:
    """A media direction, from the view of the side that states it."""

    sends: bool
    receives: bool

    @classmethod
    def of(cls, direction: str) -> _Flow:
        return cls(direction in ("sendrecv", "sendonly"), direction in ("sendrecv", "recvonly"))

    def against(self, theirs: _Flow) -> _Flow:
        """Returns the local direction that remains, given that of the far end."""
        return _Flow(self.sends and theirs.receives, self.receives and theirs.sends)

    def __str__(self) -> str:
        names = {(True, True): "sendrecv", (True, False): "sendonly", (False, True): "recvonly"}
        return names.get((self.sends, self.receives), "inactive")


@dataclass(frozen=True, slots=True)
class _Formats:
    """The supported payload types of one m= line, in its order."""

    codecs: tuple[Codec, ...]  # the first payload type of each codec, with its number in this line
    events: Mapping[int, int]  # clock rate to the payload type of its telephone events

    def event_type(self, codec: Codec) -> tuple[int | None, int]:
        """Returns (payload type, clock rate) of the DTMF events beside `codec`: at its clock rate (RFC 4733
        2.1), or at another where the peer names only that."""
        if codec.clock_rate_hz in self.events or not self.events:
            return self.events.get(codec.clock_rate_hz), codec.clock_rate_hz
        clock_rate_hz = next(iter(self.events))
        return self.events[clock_rate_hz], clock_rate_hz


def make_offer(
    capabilities: Capabilities,
    *,
    session_id: int,
    version: int,
    direction: str = "sendrecv",
    agreed: Agreed | None = None,
) -> bytes:
    """Makes an offer: every codec, and telephone events at each of their clock rates. `direction` is that of
    this side ("sendonly" puts the far end on hold); `version` must grow by one whenever the offer changes.
    `agreed`: how the call's media is protected by now."""
    events: dict[int, int] = {}
    if capabilities.dtmf:
        taken = {codec.payload_type for codec in capabilities.codecs}
        free = (number for number in range(FIRST_EVENT_TYPE, 128) if number not in taken)
        for codec in capabilities.codecs:
            if codec.clock_rate_hz not in events:
                events[codec.clock_rate_hz] = next(free)
    formats = _Formats(capabilities.codecs, events)
    if capabilities.ice is not None:
        formats = _one_event(formats)
    protocol, protection = capabilities.security.offer(agreed)
    if protocol in HANDSHAKEN:
        protection += _MUX  # one handshake, not another for RTCP
    if capabilities.ice is not None:
        protocol = BROWSERS
        protection += [("mid", "0"), *capabilities.ice.attributes(capabilities.host, capabilities.port)]
    media = _describe(capabilities, formats, _Flow.of(direction), protection, protocol)
    bundled = ["0"] if capabilities.ice is not None else []
    return _session(capabilities, [media], session_id, version, bundled).to_bytes()


def answer(
    offer: bytes,
    capabilities: Capabilities,
    *,
    session_id: int,
    version: int,
    direction: str = "sendrecv",
    agreed: Agreed | None = None,
) -> tuple[bytes, MediaPlan]:
    """Answers `offer`, and returns the answer with the plan: every codec in common, in the offerer's order,
    of which the first is sent; payload types are the offerer's. `direction` is the one wanted here; the
    answer states what the offer's leaves of it. `agreed`: how the call's media is protected by now.

    Raises MalformedSdp: 400 for malformed SDP, 488 for an offer that cannot be accepted."""
    chosen = _choose(session := SessionDescription.parse(offer), capabilities, agreed)
    blocks, media = [_declined(each) for each in session.media], session.media[chosen.place]
    ice = capabilities.ice if _has_ice(session, media) else None
    host = _address_of(session, media, ice, capabilities.host, capabilities.reaches)
    flow = _Flow.of(direction).against(_their_flow(session, media, host, ice))
    formats = chosen.formats if ice is None else _one_event(chosen.formats)
    mux = media.attribute("rtcp-mux") is not None
    extra = [*chosen.protection, *_found_by(ice, capabilities, media)]
    blocks[chosen.place] = _describe(capabilities, formats, flow, extra, media.protocol)
    bundled = () if ice is None else (media.attribute("mid") or "",)
    body = _session(capabilities, blocks, session_id, version, bundled).to_bytes()
    codec, (events, events_hz) = formats.codecs[0], formats.event_type(formats.codecs[0])
    return body, MediaPlan(
        remote_host=host,
        remote_port=media.port,
        codec=codec,
        send_payload_type=codec.payload_type,
        receive={each.payload_type: each for each in formats.codecs},
        dtmf_send=events,
        dtmf_receive=events,
        dtmf_clock_rate_hz=events_hz,
        sends=flow.sends,
        receives=flow.receives,
        ptime_ms=_ptime_ms(media, capabilities.ptime_ms),
        rtcp_port=_rtcp_port(media, host, mux=mux),
        rtcp_mux=mux,
        options=_options(media, codec),
        protocol=media.protocol,
        security=chosen.security,
        ice=ice,
    )


def accept(
    answer: bytes,
    offer: bytes,
    *,
    agreed: Agreed | None = None,
    reaches: Callable[[str], bool] | None = None,
) -> MediaPlan:
    """Returns the plan of the far end's `answer` to `offer`; `agreed`: how the call's media was protected
    before that offer.

    The answer's first codec is sent with the answer's payload type; the types of the offer are received (RFC
    3264 5.1: each side's numbers are those that it wants to receive). `options` has the answer's fmtp
    parameters of that codec. Raises MalformedSdp: 400 for malformed SDP, 488 for an answer that does not fit
    the offer, that declines the stream, or that names a codec that was not offered."""
    ours, theirs = SessionDescription.parse(offer), SessionDescription.parse(answer)
    if [each.kind for each in theirs.media] != [each.kind for each in ours.media]:
        raise MalformedSdp("answer with other media than the offer")
    offered, media = ours.media[0], theirs.media[0]
    if media.port == 0:
        raise MalformedSdp("audio declined")
    security = accepted(theirs, media, offered, agreed)
    wanted, formats = _formats(offered, CODECS.values()), _answered(media, offered)
    ice = _own_ice(offered) if _has_ice(theirs, media) else None
    host = _address_of(theirs, media, ice, ours.address_of(offered), reaches)
    flow = _Flow.of(ours.direction_of(offered)).against(_their_flow(theirs, media, host, ice))
    codec = formats.codecs[0]
    event_type, event_rate_hz = formats.event_type(codec)
    mux = all(each.attribute("rtcp-mux") is not None for each in (media, offered))
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
        protocol=media.protocol,
        security=security,
        ice=ice,
    )


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The stream of an offer that is answered: its index, the formats in common, its protection and what the
    answer says of that."""

    place: int
    formats: _Formats
    security: Security | None
    protection: Sequence[Attribute]


def _choose(session: SessionDescription, capabilities: Capabilities, agreed: Agreed | None) -> _Chosen:
    """Returns the first stream that is taken, a protected one before a plain one. Raises MalformedSdp."""
    reason, plain = "no audio offered", None
    for place, media in enumerate(session.media):
        if media.kind != "audio" or media.port == 0:
            continue
        try:
            security, protection = capabilities.security.answer(session, media, agreed)
        except MalformedSdp as error:
            reason = str(error)
            continue
        formats = _formats(media, capabilities.codecs)
        if not formats.codecs:
            reason = "no codec in common"
            continue
        events = formats.events if capabilities.dtmf else {}
        chosen = _Chosen(place, replace(formats, events=events), security, protection)
        if security is not None:
            return chosen
        plain = plain or chosen
    if plain is None:
        raise MalformedSdp(reason)
    return plain


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
    """Returns the formats of an answer. A payload type without an rtpmap has the offer's meaning; comfort
    noise is accepted, because common gateways answer with it unasked. Raises MalformedSdp."""
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
    """Returns the payload types to receive: the answered codecs under the offer's numbers, and under the
    answer's where these are not otherwise used, for peers that send with their own numbers."""
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
        # "opus/48000" without its "/2" is wrong (RFC 7587 section 7), but some peers send it.
        if same and mapped.channels in (1, codec.channels):
            return codec
    return None


def _key(mapped: RtpMap) -> tuple[str, int]:
    return mapped.name.lower(), mapped.clock_rate_hz


def _their_flow(
    session: SessionDescription, media: MediaDescription, host: str, ice: IceCredentials | None
) -> _Flow:
    """Returns the far end's direction; with the unspecified address, the hold of RFC 2543 (RFC 3264 8.4), it
    may send but does not receive. With ICE the address says nothing."""
    flow = _Flow.of(session.direction_of(media))
    held = ice is None and ip_address(host).is_unspecified
    return replace(flow, receives=False) if held else flow


def _one_event(formats: _Formats) -> _Formats:
    """Leaves one payload type of telephone events: Chromium sends keys by that of 8000 Hz where it may,
    beside Opus too."""
    kind, clock_rate_hz = formats.event_type(formats.codecs[0])
    return formats if kind is None else replace(formats, events={clock_rate_hz: kind})


def _has_ice(session: SessionDescription, media: MediaDescription) -> bool:
    return (media.attribute("ice-ufrag") or session.attribute("ice-ufrag")) is not None


def _own_ice(offered: MediaDescription) -> IceCredentials | None:
    ufrag, password = offered.attribute("ice-ufrag"), offered.attribute("ice-pwd")
    return IceCredentials(ufrag, password) if ufrag and password else None


def _found_by(
    ice: IceCredentials | None, capabilities: Capabilities, media: MediaDescription
) -> Sequence[Attribute]:
    """Returns what an answer says of RTCP and, to a browser, its own name of the stream and how this side is
    reached."""
    muxed = _MUX if media.attribute("rtcp-mux") is not None else ()
    if ice is None:
        return muxed
    mid = media.attribute("mid")
    named: Sequence[Attribute] = () if mid is None else (("mid", mid),)
    return (*muxed, *named, *ice.attributes(capabilities.host, capabilities.port))


def _address_of(
    session: SessionDescription,
    media: MediaDescription,
    ice: IceCredentials | None,
    ours: str,
    reaches: Callable[[str], bool] | None,
) -> str:
    """Returns the address of the far end's media; with ICE the unspecified one, until it is found."""
    if ice is not None:
        return "::" if ":" in ours else "0.0.0.0"
    return _reachable(session.address_of(media), ours, reaches)


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
    """Returns the packet time that the far end wants to receive, as far as this side can send it."""
    wanted_ms = _integer(media.attribute("ptime")) or default_ms
    most_ms = _integer(media.attribute("maxptime")) or _PTIMES_MS[-1]
    return max((each for each in _PTIMES_MS if each <= min(wanted_ms, most_ms)), default=_PTIMES_MS[0])


def _rtcp_port(media: MediaDescription, host: str, *, mux: bool) -> int | None:
    """Returns the RTCP port (RFC 3550 11, 3605, 5761); None where b= forbids RTCP (RFC 3556)."""
    if media.bandwidths.get("RS") == 0 and media.bandwidths.get("RR") == 0:
        return None
    if mux:
        return media.port
    value = media.attribute("rtcp")
    if value is None:
        return media.port + 1 if media.port < 65535 else None
    port, _, address = value.partition(" ")
    number = _integer(port)
    # RTCP to another address than the media's would reach an address that was not checked: no RTCP then.
    elsewhere = bool(address) and address.split()[-1] != host
    return number if number is not None and number <= 65535 and not elsewhere else None


def _integer(text: str | None) -> int | None:
    """Returns a positive number, or None for any other text."""
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
    protocol: str = "RTP/AVP",
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
        "audio", capabilities.port, protocol, tuple(map(str, numbers)), attributes=tuple(attributes)
    )


def _declined(media: MediaDescription) -> MediaDescription:
    return MediaDescription(media.kind, 0, media.protocol, media.formats or ("0",))


def _session(
    capabilities: Capabilities,
    media: Sequence[MediaDescription],
    session_id: int,
    version: int,
    bundled: Sequence[str] = (),
) -> SessionDescription:
    """`bundled`: the names of a browser's streams that are taken."""
    origin = Origin(session_id, version, capabilities.host)
    lite: tuple[Attribute, ...] = (LITE,) if bundled else ()
    group: tuple[Attribute, ...] = tuple(("group", f"BUNDLE {each}") for each in bundled if each)
    return SessionDescription(origin, tuple(media), connection=capabilities.host, attributes=(*lite, *group))
