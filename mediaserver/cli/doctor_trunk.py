"""`mediaserver doctor --sip TRUNK`: rings a number over a trunk, and says which step fails: number, DNS,
route, TLS, credentials, codec, SRTP or NAT."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum

from mediaserver.admin.directory import Directory
from mediaserver.cli.finding import Finding
from mediaserver.errors import InvalidNumber, LocalError
from mediaserver.node.trunks import sip_settings
from mediaserver.numbers.e164 import accepted, format_for_trunk, normalise
from mediaserver.settings import Settings, TrunkSettings
from mediaserver.wiring import endpoint_settings
from sip.call import Call, CallFailed
from sip.client_tls import ClientTls
from sip.endpoint import Endpoint
from sip.errors import SipError
from sip.message.message import Response, parse
from sip.message.uri import Uri
from sip.sdp.security import Srtp
from sip.stack.dns import Dns
from sip.stack.resolver import Names
from sip.stack.router import Router
from sip.states import CallState, HangupCause
from sip.transaction.hop import Hop
from sip.trunk_settings import TrunkSettings as SipTrunkSettings

RING_S = 12.0
"""How long the number may ring; a phone that rings shows that everything before the audio is right."""

AUDIO_S = 3.0
PROBE_S = 5.0


class Step(StrEnum):
    """What a call needs, in the order in which it fails."""

    NUMBER = "number"
    DNS = "DNS"
    ROUTE = "route"
    TLS = "TLS"
    CREDENTIALS = "credentials"
    CODEC = "codec"
    SRTP = "SRTP"
    NAT = "NAT"


class Failed(Exception):
    """A step of the call that fails, with what to do."""

    def __init__(self, step: Step, text: str) -> None:
        super().__init__(text)
        self.step = step


_PASSWORD = "the carrier asks for a password, or refuses this one: check username and password"
_NONE_OF_THESE = "the carrier has none of these codecs, or wants SRTP: check codecs and srtp"
_NOT_THIS_SRTP = "the carrier takes no SRTP of this kind, or none of these codecs: check srtp and codecs"
OF_STATUS = {
    401: (
        Step.CREDENTIALS,
        _PASSWORD,
    ),
    403: (
        Step.CREDENTIALS,
        "the carrier forbids it: check username, caller_id, and that it knows us",
    ),
    407: (
        Step.CREDENTIALS,
        _PASSWORD,
    ),
    404: (Step.NUMBER, "the carrier does not know it: check number_format"),
    410: (Step.NUMBER, "the carrier does not have it any more"),
    484: (Step.NUMBER, "the carrier finds it incomplete: check number_format"),
    604: (Step.NUMBER, "the carrier knows it nowhere: check number_format"),
    415: (Step.CODEC, "the carrier does not take this description of media: check codecs"),
    488: (Step.CODEC, _NONE_OF_THESE),
    606: (Step.CODEC, _NONE_OF_THESE),
}
"""What a refusal says about the trunk; busy, declined and not answered say that it works."""


async def examine_trunk(settings: Settings, trunk_id: str, number: str) -> list[Finding]:
    """Rings `number` over a trunk of the file, from a port of its own, and hangs up. Raises `LocalError` for
    an unknown trunk."""
    directory = Directory(settings)
    trunk = directory.trunks.get(trunk_id)
    if trunk is None:
        raise LocalError(f"--sip: there is no trunk {trunk_id!r} in the file")
    try:
        said = await _ring(settings, directory, trunk, number)
    except Failed as failed:
        return list(_findings(failed, trunk))
    return [*_findings(None, trunk), Finding("call", True, said)]


def _findings(failed: Failed | None, trunk: TrunkSettings) -> Iterator[Finding]:
    left_out = {Step.TLS} if not _secure(trunk) else set()
    if trunk.srtp == "off":
        left_out.add(Step.SRTP)
    for step in Step:
        if failed is not None and step is failed.step:
            yield Finding(step, False, str(failed))
            return
        if step not in left_out:
            yield Finding(step, True, _KEYS_SEEN if _shows_keys(step, trunk) else "as it should be")


_KEYS_SEEN = "as it should be, but who reads the signalling reads the keys: ;transport=tls in uri"


def _shows_keys(step: Step, trunk: TrunkSettings) -> bool:
    return step is Step.SRTP and trunk.srtp in ("sdes", "optional") and not _secure(trunk)


def _secure(trunk: TrunkSettings) -> bool:
    return trunk.uri.startswith("sips:") or "transport=tls" in trunk.uri


async def _ring(settings: Settings, directory: Directory, trunk: TrunkSettings, number: str) -> str:
    dialled = _number(directory, trunk, number)
    hops = await _hops(settings, trunk)
    line = replace(sip_settings(directory, trunk.id), register=False, options_ping_s=0, ring_timeout_s=RING_S)
    here = endpoint_settings(settings.sip)
    own = replace(
        here, udp=_any_port(here.udp), tcp=_any_port(here.tcp), tls=None, tls_server=None, trace=True
    )
    async with Endpoint(own) as phone:
        try:
            call = await phone.add_trunk(line).call(dialled)
        except CallFailed as failed:
            raise Failed(Step.ROUTE, _closed(failed)) from None
        except SipError as error:
            raise Failed(Step.TLS if "tls_" in str(error) else Step.ROUTE, str(error)) from None
        return await _outcome(call, line, hops)


def _number(directory: Directory, trunk: TrunkSettings, number: str) -> str:
    company = directory.company(trunk.company)
    try:
        dialled = format_for_trunk(
            normalise(number, company.country if company is not None else None), trunk.number_format
        )
    except InvalidNumber as error:
        raise Failed(Step.NUMBER, str(error)) from None
    if not accepted(dialled, trunk.accepts):
        raise Failed(Step.NUMBER, f"{dialled} does not match accepts = {trunk.accepts!r}")
    return dialled


async def _hops(settings: Settings, trunk: TrunkSettings) -> list[Hop]:
    loop = asyncio.get_running_loop()
    dns = Dns(loop, server=settings.sip.dns)
    names = Names(loop, lambda: None, dns)
    try:
        proxy = Uri.parse(trunk.outbound_proxy) if trunk.outbound_proxy else None
        targets = await Router(dns, names).targets([Uri.parse(trunk.uri)], proxy=proxy)
    except OSError:
        host = Uri.parse(trunk.outbound_proxy or trunk.uri).host
        raise Failed(Step.DNS, f"{host} leads to no address: check uri and sip.dns") from None
    finally:
        await names.close()
    return [each.hop for each in targets]


def _closed(failed: CallFailed) -> str:
    if failed.cause is HangupCause.ADDRESS_REFUSED:
        return "its address is closed to the trunk: docs/trunks.md, server.allow_networks"
    return str(failed)


async def _outcome(call: Call, line: SipTrunkSettings, hops: list[Hop]) -> str:
    try:
        await asyncio.wait_for(call.answered(), RING_S + PROBE_S)
    except TimeoutError:
        if any(_answers(call)):
            return "rang, and nobody answered"
        silence = CallFailed("no answer", 0, HangupCause.UNREACHABLE)
        await _blame(call, silence, line, hops)
    except CallFailed as failed:
        await _blame(call, failed, line, hops)
        return f"rang: {failed.code} {failed.cause}"
    try:
        await asyncio.sleep(AUDIO_S)
        _check_nat(call)
        _check_srtp(call)
        if call.state is CallState.ANSWERED and not call.stats.packets_received:
            raise Failed(
                Step.NAT, "no audio arrives: set public_address, open rtp_ports, or try symmetric_rtp"
            )
        return "answered, and audio came"
    finally:
        await call.hang_up()


async def _blame(call: Call, failed: CallFailed, line: SipTrunkSettings, hops: list[Hop]) -> None:
    """Raises `Failed` unless the refusal is that of a person or a phone."""
    if failed.cause is HangupCause.ADDRESS_REFUSED:
        raise Failed(
            Step.NAT, "the carrier's media or contact is at an address closed to the trunk: docs/trunks.md"
        )
    if line.srtp in (Srtp.SDES, Srtp.DTLS) and failed.cause is HangupCause.INCOMPATIBLE:
        raise Failed(Step.SRTP, _NOT_THIS_SRTP)
    if failed.cause is HangupCause.INCOMPATIBLE and failed.code not in OF_STATUS:
        raise Failed(Step.CODEC, "the carrier's answer has no codec in common: check codecs")
    if failed.code in OF_STATUS:
        raise Failed(*OF_STATUS[failed.code])
    answers = list(_answers(call))
    if not answers:
        for hop in hops:
            await _probe(hop, line)
        raise Failed(Step.ROUTE, f"no answer from {hops[0].host}:{hops[0].port} by {hops[0].transport}")
    _check_nat(call)
    if failed.cause in (HangupCause.UNREACHABLE, HangupCause.REMOTE_ERROR):
        raise Failed(Step.ROUTE, f"the carrier's server says {failed.code}")


async def _probe(hop: Hop, line: SipTrunkSettings) -> None:
    """Raises `Failed` where a connection over TLS cannot be made."""
    if hop.transport != "tls":
        return
    own = ClientTls.of(line.tls) if line.tls is not None else None
    context = own.context if own is not None else ssl.create_default_context()
    name = (own.server_name if own is not None else "") or hop.domain
    try:
        async with asyncio.timeout(PROBE_S):
            _, writer = await asyncio.open_connection(hop.host, hop.port)
            writer.close()
    except OSError as error:  # TimeoutError is one
        text = f"no connection to {hop.host}:{hop.port}: {error.strerror or 'no answer'}"
        raise Failed(Step.ROUTE, text) from None
    try:
        async with asyncio.timeout(PROBE_S):
            reader, writer = await asyncio.open_connection(
                hop.host, hop.port, ssl=context, server_hostname=name
            )
            writer.write(b"\r\n\r\n")
            await reader.read(1)  # with TLS 1.3 a refusal of our certificate comes after the handshake
            writer.close()
    except ssl.SSLCertVerificationError as error:
        text = f"the carrier's certificate: {error.verify_message}: check tls_ca, tls_server_name"
        raise Failed(Step.TLS, text) from None
    except OSError as error:
        why = getattr(error, "reason", None) or "no handshake"
        text = f"{why}: check the port, tls_certificate, tls_min_version"
        raise Failed(Step.TLS, text) from None


def _answers(call: Call) -> Iterator[Response]:
    for each in call.trace or ():
        message = None if each.sent else parse(each.data)
        if isinstance(message, Response):
            yield message


def _check_srtp(call: Call) -> None:
    """Raises `Failed` where what comes is not authentic, or keys were to come by a handshake and did not."""
    if call.stats.forged and not call.stats.packets_received:
        raise Failed(Step.SRTP, "the carrier's packets are not authentic: it uses other keys than it names")
    if call.state is CallState.ENDED and call.cause is HangupCause.INCOMPATIBLE:
        raise Failed(Step.SRTP, "no keys: the handshake of DTLS failed")


def _check_nat(call: Call) -> None:
    """Raises `Failed` where the carrier saw us at another address than we write (RFC 3581)."""
    for response in _answers(call):
        seen = response.via.received
        if seen and seen != response.via.host:
            raise Failed(
                Step.NAT,
                f"the carrier sees us at {seen}, we write {response.via.host}: set sip.public_address",
            )


def _any_port(address: str | None) -> str | None:
    return None if address is None else f"{address.rpartition(':')[0]}:0"
