"""`mediaserver serve` and its signals: SIGHUP reads the file again, SIGTERM drains, a second one ends it.

Each server is a process of its own, the carrier and the callers are bare sockets.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.node.node import (
    ASKING_NUMBER,
    KEY,
    NUMBER,
    OUTBOUND,
    REAL_ENGINES,
    ServerProcess,
    Site,
    asking_agent,
    database_on,
    rows_of,
    server_of,
    write_site,
)
from tests.support.ports import free_port
from tests.support.sip.raw_call import RawCall
from tests.support.sip.raw_carrier import RawCarrier, raw_carrier, says, says_nothing
from tests.support.waiting import until

pytestmark = pytest.mark.peer

CALL = {"agentId": OUTBOUND, "phoneNumber": NUMBER, "promptVariables": {"name": "Bo"}}
RETRIES = 'name = "Reminder"\nretry = { no_answer = [3600] }'
NEW_NUMBER = "+14155550109"


@pytest.fixture(params=[pytest.param("sqlite", marks=pytest.mark.nightly("ci")), "postgresql"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    with database_on(request.param) as database:
        more = asking_agent("Who are you?")
        site = write_site(tmp_path, engines=REAL_ENGINES, database=database, more=more)
        rewrite(site, ("drain_s = 5\n", ""), ('name = "Reminder"', RETRIES))
        yield site


def rewrite(site: Site, *changes: tuple[str, str]) -> None:
    for old, new in changes:
        site.change(old, new)


async def signalled(server: ServerProcess, number: int, said: str) -> None:
    """Sends a signal and waits until the log says so once more."""
    before = server.log.read_text().count(said)
    server.process.send_signal(number)
    await until(lambda: server.log.read_text().count(said) > before)


async def still_heard(call: RawCall) -> None:
    """The agent's packets go on coming."""
    call.heard()
    async with asyncio.timeout(30):
        while len(call.heard()) < 3:  # since it was asked last
            await asyncio.sleep(0.1)


# SIGHUP -----------------------------------------------------------------------------------------------------


async def test_sighup_reads_the_file_again_and_ends_nothing(site: Site) -> None:
    async with server_of(site) as server, RawCall(site.sip, ASKING_NUMBER) as call:
        await call.answered()
        rewrite(
            site,
            ('log_format = "plain"', 'log_format = "plain"\nlog_level = "warning"'),
            ("max_calls = 20", "max_calls = 21"),
            ('name = "Other"', 'name = "Others"'),
            ('phone_number = "+14155550101"', f'phone_number = "{NEW_NUMBER}"'),
        )
        await signalled(server, signal.SIGHUP, "configuration reloaded")
        said = server.log.read_text()
        for told in ("server.log_level", "company other changed", "agent 7b0f7e7e", "sip.max_calls"):
            assert told in said.splitlines()[-1]
        await still_heard(call)
        async with RawCall(site.sip, NEW_NUMBER) as other:
            await other.answered()
        async with RawCall(site.sip, "+14155550101") as gone:
            gone.invite()
            assert (await gone.final()).status == 404
        await call.hang_up()
        calls = server.get("/api/v1/calls", KEY)[1]["calls"]
        assert len(calls) == 2
        names = await rows_of(site, "SELECT name FROM companies WHERE id = 'other'")
        assert names == [{"name": "Others"}]
        assert "call ended" not in server.log.read_text().replace(said, "")  # of level info
        assert server.process.poll() is None


async def test_a_file_that_cannot_be_used_is_told_and_changes_nothing(site: Site) -> None:
    async with server_of(site) as server, RawCall(site.sip, ASKING_NUMBER) as call:
        await call.answered()
        rewrite(site, ('name = "Other"', 'name = "Others"'), ('next = "done"', 'next = "nowhere"'))
        await signalled(server, signal.SIGHUP, "configuration not reloaded")
        assert "agent[0].script" in server.log.read_text()
        await still_heard(call)
        assert await rows_of(site, "SELECT name FROM companies WHERE id = 'other'") == [{"name": "Other"}]
        rewrite(site, ('next = "nowhere"', 'next = "done"'))
        await signalled(server, signal.SIGHUP, "configuration reloaded")
        await still_heard(call)
        await call.hang_up()


def certificate(folder: Path, name: str) -> None:
    command = [
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem"), "-days", "2"),
        *("-subj", f"/CN={name}"),
    ]
    subprocess.run(command, check=True, capture_output=True)


def shown(port: int) -> bytes:
    """The certificate that the phone shows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port), 5) as plain, context.wrap_socket(plain) as tls:
        return tls.getpeercert(binary_form=True) or b""


async def test_sighup_takes_new_certificates(tmp_path: Path) -> None:
    site, port = write_site(tmp_path, engines=REAL_ENGINES), free_port()
    certificate(tmp_path, "old.example")
    tls = f'[sip]\ntls = "127.0.0.1:{port}"\ntls_certificate = "{tmp_path}/cert.pem"\n'
    rewrite(site, ("[sip]\n", f'{tls}tls_key = "{tmp_path}/key.pem"\n'))
    async with server_of(site) as server:
        before = await asyncio.to_thread(shown, port)
        assert b"old.example" in before
        good = (tmp_path / "key.pem").read_bytes()
        (tmp_path / "key.pem").write_text("no key")
        await signalled(server, signal.SIGHUP, "configuration not reloaded")
        assert await asyncio.to_thread(shown, port) == before
        (tmp_path / "key.pem").write_bytes(good)
        certificate(tmp_path, "new.example")
        await signalled(server, signal.SIGHUP, "configuration reloaded")
        assert b"new.example" in await asyncio.to_thread(shown, port)


# SIGTERM ----------------------------------------------------------------------------------------------------


async def ended(server: ServerProcess) -> int:
    return await asyncio.to_thread(server.process.wait, 20)


async def test_a_drain_waits_for_calls_until_a_second_signal(site: Site) -> None:
    async with server_of(site) as server, RawCall(site.sip, ASKING_NUMBER) as call:
        await call.answered()
        server.process.send_signal(signal.SIGTERM)
        await until(lambda: server.get("/readyz")[0] == 503)
        async with RawCall(site.sip, ASKING_NUMBER) as late:
            late.invite()
            assert (await late.final()).status == 503
        await still_heard(call)
        server.process.send_signal(signal.SIGTERM)
        call.reply(await call.asked("BYE"))
        assert await ended(server) == 0
    rows = await rows_of(site, "SELECT status, stage FROM calls")
    assert rows == [{"status": "COMPLETED", "stage": "FINISHED"}]


async def cut_short(site: Site, carrier: RawCarrier) -> dict[str, Any]:
    """Places a call, lets the server go while it rings, and gives its row."""
    async with server_of(site) as server:
        status, _ = await asyncio.to_thread(server.ask, "POST", "/api/v1/calls/outbound", CALL, KEY)
        assert status == 200
        await until(lambda: carrier.seen)
        server.process.send_signal(signal.SIGTERM)
        await until(lambda: server.get("/readyz")[0] == 503)
        assert carrier.methods() == ["INVITE"]  # it rings on, until the drain is over
        server.process.send_signal(signal.SIGTERM)
        assert await ended(server) == 0
    (row,) = await rows_of(site, "SELECT status, stage, cause, not_before_ms FROM calls")
    return row


async def attempts_of(site: Site) -> list[tuple[Any, ...]]:
    rows = await rows_of(site, "SELECT status, cause, sip_status FROM attempts ORDER BY number")
    return [tuple(row.values()) for row in rows]


@pytest.mark.parametrize("answer", [487, pytest.param(486, marks=pytest.mark.nightly("ci"))])
async def test_what_still_rings_at_the_end_is_an_attempt_and_tried_again(site: Site, answer: int) -> None:
    async with raw_carrier(site.carrier, says(answer)) as carrier:
        row = await cut_short(site, carrier)
        assert carrier.methods() == ["INVITE", "CANCEL", "ACK"]
    assert (row["status"], row["stage"]) == ("PENDING", "QUEUED")
    assert row["not_before_ms"] > time.time() * 1000 + 3_000_000  # the agent's pause
    assert await attempts_of(site) == [("NO_ANSWER", "no_answer", answer)]


async def test_who_answers_in_that_moment_is_an_attempt_too(site: Site) -> None:
    async with raw_carrier(site.carrier, says(200)) as carrier:
        row = await cut_short(site, carrier)
        assert carrier.methods() == ["INVITE", "CANCEL", "ACK", "BYE"]
    assert (row["status"], row["stage"]) == ("PENDING", "QUEUED")
    assert await attempts_of(site) == [("NO_ANSWER", "no_answer", 200)]


@pytest.mark.nightly("ci")
async def test_without_a_rule_for_it_the_attempt_was_the_last(site: Site) -> None:
    rewrite(site, (RETRIES, 'name = "Reminder"'))
    async with raw_carrier(site.carrier, says(487)) as carrier:
        row = await cut_short(site, carrier)
    assert (row["status"], row["stage"], row["cause"]) == ("NO_ANSWER", "FINISHED", "no_answer")


async def test_without_a_final_answer_it_is_unknown_and_nobody_dials_it_again(site: Site) -> None:
    async with raw_carrier(site.carrier, says_nothing) as carrier:
        row = await cut_short(site, carrier)
        assert (row["status"], row["stage"]) == ("UNKNOWN", "FINISHED")
        assert carrier.methods() == ["INVITE", "CANCEL"]
        async with server_of(site):
            await asyncio.sleep(2)
        assert carrier.methods() == ["INVITE", "CANCEL"]
    assert await attempts_of(site) == [("UNKNOWN", "shutdown", 0)]


async def test_what_was_not_armed_stays_queued(site: Site) -> None:
    """A tool that is asked before the call does not answer."""
    with socket.create_server(("127.0.0.1", 0)) as tool:
        port = tool.getsockname()[1]
        table = f'{{ name = "crm", url = "http://127.0.0.1:{port}/", timeout_s = 10 }}'
        rewrite(
            site,
            ('log_format = "plain"', 'log_format = "plain"\nallow_networks = ["127.0.0.0/8"]'),
            (RETRIES, f'name = "Reminder"\npre_call_tool = [{table}]'),
        )
        async with raw_carrier(site.carrier, says(487)) as carrier, server_of(site) as server:
            assert server.ask("POST", "/api/v1/calls/outbound", CALL, KEY)[0] == 200
            asked, _ = await asyncio.to_thread(tool.accept)
            with asked:
                server.process.send_signal(signal.SIGTERM)
                await until(lambda: server.get("/readyz")[0] == 503)
                server.process.send_signal(signal.SIGTERM)
                assert await ended(server) == 0
            assert carrier.methods() == []
    rows = await rows_of(site, "SELECT status, stage, owner FROM calls")
    assert rows == [{"status": "PENDING", "stage": "QUEUED", "owner": ""}]
    assert await attempts_of(site) == []
