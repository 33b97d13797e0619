"""TLS of a trunk: whom it believes, what it shows, and which connections are not shared."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest

from mediaserver.settings import load
from sip.client_tls import ClientTlsSettings
from sip.endpoint import Endpoint, EndpointSettings
from sip.errors import LocalError
from sip.message.message import Request, parse, response_to
from sip.states import HangupCause
from sip.trunk_settings import TrunkSettings
from tests.support.authority import Authority, serving
from tests.support.hostile.rogue import rogue
from tests.support.node.node import running, write_site
from tests.support.ports import free_rtp_range
from tests.support.sip.name_server import NameServer
from tests.support.udp import bound

PATIENCE_S = 20.0
ZONE = {("carrier.test", "A"): (60, ["127.0.0.1"])}


@asynccontextmanager
async def carrier(context: ssl.SSLContext) -> AsyncIterator[int]:
    """A carrier over TLS that is always busy, at the port."""
    settings = EndpointSettings(tls="127.0.0.1:0", tls_server=context, rtp_ports=free_rtp_range())
    async with Endpoint(settings) as phone:
        phone.add_trunk(TrunkSettings(id="us", uri="sip:127.0.0.1:9", allow_from=("127.0.0.0/8",)))

        async def refuse() -> None:
            async for call in phone.incoming():
                await call.reject(486)

        task = asyncio.create_task(refuse())
        bound = phone.tls_address
        assert bound is not None
        try:
            yield bound[1]
        finally:
            task.cancel()


@contextmanager
def refusing(context: ssl.SSLContext) -> Iterator[int]:
    """A server that shakes hands as OpenSSL does, and says why it does not."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with context.wrap_socket(
                        connection, server_side=True, do_handshake_on_connect=False
                    ) as secured:
                        with suppress(OSError):
                            secured.do_handshake()
                        closing.wait(2.0)  # the alert is read before the connection goes

        closing = threading.Event()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            closing.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@asynccontextmanager
async def phone(udp: str | None = None) -> AsyncIterator[Endpoint]:
    async with bound(NameServer(ZONE)) as names:
        settings = EndpointSettings(udp=udp, tcp="127.0.0.1:0", rtp_ports=free_rtp_range(), dns=names.address)
        async with Endpoint(settings) as made:
            yield made


async def ended(ours: Endpoint, trunk_id: str, uri: str, **tls: str) -> HangupCause:
    settings = ClientTlsSettings(**tls) if tls else None
    trunk = ours.add_trunk(TrunkSettings(id=trunk_id, uri=uri, tls=settings))
    call = await trunk.call("100")
    return await asyncio.wait_for(call.ended(), PATIENCE_S)


BUSY, UNREACHABLE = HangupCause.BUSY, HangupCause.UNREACHABLE


async def test_a_trunk_believes_its_own_authority_and_no_other(tmp_path: Path) -> None:
    ours, others = Authority(tmp_path / "ours"), Authority(tmp_path / "others")
    async with carrier(serving(ours.issue("carrier.test"))) as port, phone() as caller:
        uri = f"sip:carrier.test:{port};transport=tls"
        assert await ended(caller, "ours", uri, ca=ours.ca) is BUSY
        # The connection of that trunk is still up: whoever does not believe the authority must not use it.
        assert await ended(caller, "others", uri, ca=others.ca) is UNREACHABLE
        assert await ended(caller, "system", uri) is UNREACHABLE
        elsewhere = f"sip:127.0.0.1:{port};transport=tls"
        assert await ended(caller, "by address", elsewhere, ca=ours.ca) is UNREACHABLE
        assert await ended(caller, "named", elsewhere, ca=ours.ca, server_name="carrier.test") is BUSY


async def test_an_expired_certificate_and_one_for_another_name_are_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    for pair in (authority.issue("carrier.test", days=-1), authority.issue("other.test")):
        async with carrier(serving(pair)) as port, phone() as caller:
            uri = f"sips:carrier.test:{port}"
            assert await ended(caller, "out", uri, ca=authority.ca) is UNREACHABLE


async def test_a_carrier_that_asks_is_shown_the_trunk_s_certificate(tmp_path: Path) -> None:
    authority, strangers = Authority(tmp_path / "ca"), Authority(tmp_path / "strangers")
    mine, theirs = authority.issue("customer.test"), strangers.issue("stranger.test")
    context = serving(authority.issue("carrier.test"), asks=authority.ca)
    async with carrier(context) as port, phone() as caller:
        uri = f"sip:carrier.test:{port};transport=tls"
        shown = {"certificate": mine.certificate, "key": mine.key}
        assert await ended(caller, "known", uri, ca=authority.ca, **shown) is BUSY
    with refusing(context) as port:
        async with phone() as caller:
            uri = f"sip:carrier.test:{port};transport=tls"
            wrong = {"certificate": theirs.certificate, "key": theirs.key}
            assert await ended(caller, "stranger", uri, ca=authority.ca, **wrong) is UNREACHABLE
            assert await ended(caller, "nobody", uri, ca=authority.ca) is UNREACHABLE


@contextmanager
def breaking(context: ssl.SSLContext, *, answers: int) -> Iterator[tuple[int, list[bytes]]]:
    """A server that refuses the first `answers` INVITEs with 486, reads one more, and breaks TLS off there.
    Its port, and what it has read."""
    read: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            plain, _ = listener.accept()
            with context.wrap_socket(plain, server_side=True) as secured:
                invites = 0
                while invites <= answers:
                    data = secured.recv(65536)
                    if not data:
                        return
                    read.append(data)
                    if data.startswith(b"INVITE "):
                        invites += 1
                        request = parse(data)
                        if invites <= answers and isinstance(request, Request):
                            secured.sendall(response_to(request, 486, to_tag="b").to_bytes())
                with socket.socket(fileno=os.dup(secured.fileno())) as beneath:
                    beneath.sendall(b"no record of TLS" * 4)
                closing.wait(PATIENCE_S)

        closing = threading.Event()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1], read
        finally:
            closing.set()
            thread.join()


@pytest.mark.parametrize("answers", [0, 1])
async def test_an_invite_that_was_read_before_tls_broke_goes_to_no_other_server(
    tmp_path: Path, answers: int
) -> None:
    authority = Authority(tmp_path / "ca")
    context = serving(authority.issue("carrier.test"))
    with breaking(context, answers=answers) as (port, read):
        async with phone(udp="127.0.0.1:0") as caller, rogue() as spare:
            spare.say(486)
            line = TrunkSettings(
                id="out",
                uri=f"sip:carrier.test:{port};transport=tls",
                backup_uris=(spare.uri,),
                failover_s=30.0,
                tls=ClientTlsSettings(ca=authority.ca),
            )
            trunk = caller.add_trunk(line)
            for _ in range(answers):
                call = await trunk.call("100")
                assert await asyncio.wait_for(call.ended(), PATIENCE_S) is BUSY
            connections = caller._driver.transport._connections
            last = await trunk.call("100")
            while sum(each.startswith(b"INVITE ") for each in read) <= answers or connections:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.3)
            assert spare.asked("INVITE") == []
            assert last.cause is None


async def test_a_trunk_may_insist_on_a_version(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    context = serving(authority.issue("carrier.test"), newest=ssl.TLSVersion.TLSv1_2)
    async with carrier(context) as port, phone() as caller:
        uri = f"sip:carrier.test:{port};transport=tls"
        assert await ended(caller, "old", uri, ca=authority.ca) is BUSY
        assert await ended(caller, "new", uri, ca=authority.ca, min_version="1.3") is UNREACHABLE


async def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    async with phone() as caller:
        with pytest.raises(LocalError, match="tls_ca"):
            await ended(caller, "out", "sip:carrier.test", ca=str(tmp_path / "missing.pem"))


async def test_the_server_reads_the_files_again_when_told_to(tmp_path: Path) -> None:
    right, wrong = Authority(tmp_path / "right"), Authority(tmp_path / "wrong")
    site = write_site(tmp_path)
    ca = tmp_path / "trunk-ca.pem"
    shutil.copy(wrong.ca, ca)
    async with carrier(serving(right.issue("carrier.test"))) as port:
        site.change(f"sip:127.0.0.1:{site.carrier};transport=udp", f"sip:127.0.0.1:{port};transport=tls")
        site.add('[[trunk]]\nid = "carrier"', f'tls_ca = "{ca}"\ntls_server_name = "carrier.test"')
        async with running(site) as (server, _):

            async def tried() -> HangupCause:
                call = await server.endpoint.trunks["carrier"].call("+14155550123")
                return await asyncio.wait_for(call.ended(), PATIENCE_S)

            assert await tried() is UNREACHABLE
            before = server.endpoint.trunks["carrier"]
            await server.reload(load(site.path))
            assert server.endpoint.trunks["carrier"] is before  # nothing has changed
            shutil.copy(right.ca, ca)
            await server.reload(load(site.path))
            assert await tried() is BUSY
            ca.write_text("no certificate")
            with pytest.raises(Exception, match="tls_ca"):
                await server.reload(load(site.path))
            assert await tried() is BUSY


@pytest.mark.parametrize(("shows", "heard"), [(True, True), (False, False)])
async def test_the_listener_may_ask_whoever_connects_for_a_certificate(
    tmp_path: Path, shows: bool, heard: bool
) -> None:
    authority = Authority(tmp_path / "ca")
    own, theirs = authority.issue("server.test"), authority.issue("carrier.test")
    site = write_site(tmp_path)
    lines = f'tls_certificate = "{own.certificate}"\ntls_key = "{own.key}"\ntls_client_ca = "{authority.ca}"'
    site.add("[sip]", f'tls = "127.0.0.1:0"\n{lines}')
    context = ssl.create_default_context(cafile=authority.ca)
    if shows:
        context.load_cert_chain(*theirs)
    async with running(site) as (server, _):
        bound = server.endpoint.tls_address
        assert bound is not None
        answered = b""
        try:
            reader, writer = await asyncio.open_connection(*bound, ssl=context, server_hostname="server.test")
            writer.write(
                b"OPTIONS sip:a@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/TLS h;branch=z9hG4bK1\r\n"
                b"Max-Forwards: 70\r\nFrom: <sip:x@h>;tag=f\r\nTo: <sip:a@h>\r\nCall-ID: c\r\n"
                b"CSeq: 1 OPTIONS\r\nContent-Length: 0\r\n\r\n"
            )
            answered = await asyncio.wait_for(reader.read(100), PATIENCE_S)
            writer.close()
        except (ssl.SSLError, ConnectionError):
            pass
        assert answered.startswith(b"SIP/2.0 200") is heard
