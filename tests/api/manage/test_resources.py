"""Management over HTTP: what a company and an operator make, change and take away while calls go on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from mediaserver.server import Server
from mediaserver.store.managed import Kind
from tests.support.http.api_site import (
    ADMIN_KEY,
    OTHER_ADMIN_KEY,
    SAUDI_AGENT,
    SAUDI_KEY,
    SERVER_KEY,
    write_api_site,
)
from tests.support.node.node import (
    DATABASES,
    KEY,
    OUTBOUND,
    Client,
    bearer,
    database_on,
    rows_of,
    running,
    until_final,
)
from tests.support.ports import free_port

pytestmark = pytest.mark.asyncio(loop_scope="module")

API = "/api/v1"
MASK = "**********"

SCRIPT = {"start": "bye", "step": [{"id": "bye", "say": "Goodbye.", "action": "hang_up"}]}
ENGINES = {"stt": {"engine": "test-ears"}, "tts": {"engine": "test-voice"}}


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=DATABASES)
async def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Server, Client, Path]]:
    with database_on(request.param) as database:
        where = write_api_site(tmp_path_factory.mktemp("manage"), database=database)
        async with running(where) as (server, client):
            yield server, client, where.data_dir


@pytest.fixture
def client(site: tuple[Server, Client, Path]) -> Client:
    return site[1]


async def ask(
    client: Client, method: str, path: str, body: Any = None, key: str = ADMIN_KEY
) -> tuple[int, Any]:
    async with client.request(method, API + path, json=body, headers=bearer(key)) as answer:
        return answer.status, await answer.json()


def agent_of(trunk: str | None, **more: Any) -> dict[str, Any]:
    phone = {"trunk": trunk, "phoneNumber": "+14155550100"} if trunk else {}
    return {"name": "Made", "script": SCRIPT, **ENGINES, **phone, **more}


def trunk_to(port: int, **more: Any) -> dict[str, Any]:
    return {"uri": f"sip:127.0.0.1:{port};transport=tcp", "numberFormat": "00{e164}", **more}


async def test_a_trunk_and_an_agent_made_now_place_a_call_now(client: Client) -> None:
    """The carrier is a bare TCP listener: what it is sent says which trunk and which format were used."""
    invites: list[bytes] = []
    heard = asyncio.Event()

    async def carrier(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        invites.append(request[0])
        heard.set()
        kept = [
            line for line in request if line.split(b":")[0] in (b"Via", b"From", b"To", b"Call-ID", b"CSeq")
        ]
        kept = [line + b";tag=1" if line.startswith(b"To:") else line for line in kept]
        writer.write(b"\r\n".join([b"SIP/2.0 486 Busy Here", *kept, b"Content-Length: 0", b"", b""]))
        await reader.read()
        writer.close()

    listener = await asyncio.start_server(carrier, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    status, trunk = await ask(client, "POST", "/trunks", trunk_to(port))
    assert status == 201
    status, agent = await ask(client, "POST", "/agents", agent_of(trunk["id"]))
    assert (status, agent["missing"], agent["managedBy"]) == (201, None, "api")
    body = {"agentId": agent["id"], "phoneNumber": "+14155550177"}
    status, placed = await ask(client, "POST", "/calls/outbound", body, KEY)
    assert status == 200
    async with asyncio.timeout(10):
        await heard.wait()
    assert invites[0].startswith(b"INVITE sip:0014155550177@127.0.0.1")
    report = await until_final(client, placed["data"]["callTaskId"])
    listener.close()
    assert (report["status"], report["attempts"][0]["dialedNumber"]) == ("BUSY", "0014155550177")

    # And another carrier, without a restart.
    elsewhere = free_port()
    status, changed = await ask(
        client, "PATCH", f"/trunks/{trunk['id']}", {"uri": trunk_to(elsewhere)["uri"]}
    )
    assert (status, changed["numberFormat"]) == (200, "00{e164}")
    assert str(elsewhere) in changed["uri"]
    assert (await ask(client, "DELETE", f"/trunks/{trunk['id']}"))[0] == 409
    assert (await ask(client, "DELETE", f"/agents/{agent['id']}"))[0] == 200
    assert (await ask(client, "DELETE", f"/trunks/{trunk['id']}"))[0] == 200
    assert (await ask(client, "GET", f"/trunks/{trunk['id']}"))[0] == 404
    status, refused = await ask(client, "POST", "/calls/outbound", body, KEY)
    assert (status, refused["error"]) == (404, "Agent not found or does not belong to your company")


async def test_an_agent_takes_an_installed_judge_of_turns_and_no_class_or_file(client: Client) -> None:
    status, agent = await ask(
        client, "POST", "/agents", agent_of(None, session={"turnModel": "built-in", "endpointMs": 500})
    )
    assert (status, agent["missing"], agent["session"]["turnModel"]) == (201, None, "built-in")
    path = f"/agents/{agent['id']}"
    assert (await ask(client, "PATCH", path, {"name": "Other"}))[0] == 200
    for name in ("os:system", "/etc/passwd", "nothing-installed"):
        status, refused = await ask(client, "PATCH", path, {"session": {"turnModel": name}})
        assert (status, refused["error"].split(":")[0]) == (400, "turnModel")
    assert (await ask(client, "PATCH", path, {"session": {"turnModel": ""}}))[0] == 200
    assert (await ask(client, "DELETE", path))[0] == 200


async def test_what_the_file_manages_is_shown_and_left_alone(client: Client) -> None:
    status, agent = await ask(client, "GET", f"/agents/{OUTBOUND}")
    assert (status, agent["managedBy"], agent["greeting"]) == (200, "file", "Hello.")
    for method, body in (("PATCH", {"name": "Mine"}), ("DELETE", None)):
        status, answer = await ask(client, method, f"/agents/{OUTBOUND}", body)
        assert (status, answer) == (409, {"error": "It is managed by the configuration file"})


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/agents", {"name": "x"}, "llm: an agent has either"),
        ("/agents", agent_of("nowhere"), "trunk: company 'acme' has no trunk"),
        ("/agents", agent_of("riyadh"), "trunk: company 'acme' has no trunk"),
        ("/agents", agent_of(None, language="English"), "language:"),
        ("/agents", agent_of(None, phone_number="+14155550100"), "phone_number: unknown field"),
        ("/agents", agent_of(None, stt={"engine": "no-such"}), "stt.engine: no engine is called"),
        (
            "/agents",
            {"name": "x", "own": {"engine": "os:system"}},
            "engine: only the server's own administrator may name classes",
        ),
        (
            "/agents",
            agent_of(None, session={"turnModel": "os:system"}),
            "turnModel: only the server's own administrator may name files and classes",
        ),
        (
            "/agents",
            agent_of(None, stt={"engine": "os:system"}),
            "engine: only the server's own administrator may name classes",
        ),
        (
            "/agents",
            agent_of(None, stt={"engine": "websocket", "url": "ws://169.254.169.254/x", "final": {}}),
            "stt: this server does not connect to that address",
        ),
        (
            "/agents",
            agent_of(None, stt={"engine": "test-ears", "model": "/etc/passwd"}),
            "stt: only the server's own administrator may name files",
        ),
        (
            "/agents",
            {"llm": {"baseUrl": "http://169.254.169.254/v1", "model": "x", "prompt": "y"}, **ENGINES},
            "llm: this server does not connect to that address",
        ),
        ("/agents", agent_of(None, script={"start": "nowhere", "step": []}), "script"),
        ("/trunks", {}, "uri: required"),
        ("/trunks", {"uri": "http://carrier.example"}, "uri: must be a SIP URI"),
        ("/trunks", trunk_to(5060, accepts="(\\d|\\d|\\d)+x"), "accepts: at most"),
        ("/trunks", trunk_to(5060, accepts="(?x)(\\d|\\d) +x"), "accepts: at most"),
        ("/trunks", trunk_to(5060, accepts="\\d*\\d*\\d*\\d*\\d*x"), "accepts: at most"),
        ("/trunks", trunk_to(5060, accepts="("), "accepts: not a regular expression"),
        ("/trunks", {"uri": "sip:10.0.0.7"}, "uri: this server does not connect to that address"),
        (
            "/trunks",
            {"uri": "sip:carrier.example", "outboundProxy": "sip:10.0.0.7;lr"},
            "outboundProxy: this server does not connect to that address",
        ),
        (
            "/trunks",
            {"uri": "sip:carrier.example", "optionsPingS": 0.001},
            "options_ping_s: 0, or at least 10",
        ),
        ("/trunks", {"uri": "sip:0"}, "uri: this server does not connect to that address"),
        ("/trunks", {"uri": "sip:167772161"}, "uri: this server does not connect to that address"),
        ("/trunks", {"uri": "sip:carrier.example;maddr=10.1"}, "uri: this server does not connect"),
        (
            "/trunks",
            {"uri": "sip:carrier.example", "backupUris": ["sip:0x0a000001"]},
            "backupUris: this server does not connect to that address",
        ),
        ("/webhooks", {"url": "http://10.1/hook"}, "url: this server does not connect to that address"),
        (
            "/agents",
            {"llm": {"baseUrl": "http://167772161/v1", "model": "x", "prompt": "y"}, **ENGINES},
            "llm: this server does not connect to that address",
        ),
        (
            "/agents",
            agent_of(None, tts={"engine": "test-voice", "fallback": [{"engine": "kokoro", "model": "/etc"}]}),
            "tts: only the server's own administrator may name files",
        ),
        (
            "/agents",
            agent_of(None, preCallTools=[{"name": "crm", "url": "http://10.0.0.7/crm"}]),
            "preCallTools: this server does not connect to that address",
        ),
        ("/trunks", trunk_to(5060, password="p"), "password: has no use without username"),
        ("/trunks", trunk_to(5060, username="u", password="env:PATH"), "password: the environment variable"),
        ("/trunks", trunk_to(5060, username="u", password=MASK), "password: is what a secret is shown as"),
        ("/webhooks", {"url": "http://10.0.0.7/hook"}, "url: this server does not connect"),
        ("/webhooks", {"url": "https://hooks.example/x", "events": ["call"]}, "events"),
        ("/webhooks", {"url": "https://hooks.example/x", "secret": "short!"}, "secret: must be"),
        ("/keys", {"scopes": ["everything"]}, "scopes[0]"),
        (
            "/keys",
            {"scopes": ["calls", "admin"], "agentIds": [OUTBOUND]},
            "agentIds: a key that manages the company is for all of its agents",
        ),
        ("/keys", {"scopes": ["calls"], "agentIds": ["c4b8e2a0-93a8-4a55-8f6c-9f5f3f5f1a02"]}, "agentIds"),
        ("/do-not-call", {"phoneNumbers": ["+14155550123", "nobody"]}, "Invalid phone number format"),
        ("/deliveries/replay", {}, "deliveryId, callTaskId"),
        ("/deliveries/replay", {"since": "yesterday"}, "since: must be a time"),
    ],
)
async def test_what_is_refused_and_why(client: Client, path: str, body: Any, message: str) -> None:
    status, answer = await ask(client, "POST", path, body)
    assert status == 400
    assert answer["error"].startswith(message)


async def test_a_company_cannot_take_the_way_in_of_another(client: Client) -> None:
    """acme's trunk of the file is reached from 127.0.0.1; whose that is, is not told."""
    body = {"uri": "sip:carrier.example", "allowFrom": ["127.0.0.0/8"]}
    status, answer = await ask(client, "POST", "/trunks", body, OTHER_ADMIN_KEY)
    assert status == 409
    assert "acme" not in answer["error"]
    status, trunk = await ask(client, "POST", "/trunks?company=other", body, SERVER_KEY)
    assert status == 201
    assert (await ask(client, "DELETE", f"/trunks/{trunk['id']}", None, OTHER_ADMIN_KEY))[0] == 200


async def test_a_secret_is_used_and_never_shown(site: tuple[Server, Client, Path]) -> None:
    server, client, data_dir = site
    canary = "canary-of-the-trunk"
    option = "canary-of-the-engine"
    status, trunk = await ask(
        client, "POST", "/trunks", {"uri": "sip:carrier.example", "username": "acme-1", "password": canary}
    )
    assert (status, trunk["password"]) == (201, MASK)
    settings = server.directory.trunk(trunk["id"])
    assert settings is not None
    assert settings.password is not None
    assert settings.password.get_secret_value() == canary
    stt = {"engine": "test-ears", "api_key": option}
    behind = {"engine": "openai", "base_url": "https://models.example/v1", "api_key": option}
    status, agent = await ask(client, "POST", "/agents", agent_of(None, stt=stt | {"fallback": [behind]}))
    shown = stt | {"api_key": MASK, "fallback": [behind | {"api_key": MASK}]}
    assert (status, agent["stt"]) == (201, shown)
    status, changed = await ask(client, "PATCH", f"/trunks/{trunk['id']}", {"callerId": "+14155550100"})
    assert (status, changed["password"]) == (200, MASK)
    settings = server.directory.trunk(trunk["id"])
    assert settings is not None
    assert settings.password is not None
    assert settings.password.get_secret_value() == canary
    content = b"".join(path.read_bytes() for path in data_dir.glob("mediaserver.db*"))
    assert canary.encode() not in content
    assert option.encode() not in content


async def test_a_key_is_shown_once_works_and_is_replaced_with_an_overlap(client: Client) -> None:
    status, made = await ask(client, "POST", "/keys", {"scopes": ["calls"], "name": "Dialler"})
    assert status == 201
    assert made["key"].startswith(made["hint"])
    assert (await ask(client, "GET", "/calls", None, made["key"]))[0] == 200
    status, shown = await ask(client, "GET", f"/keys/{made['id']}")
    assert (shown["key"], shown["name"], shown["expiresAt"]) == (None, "Dialler", None)
    status, rotated = await ask(client, "POST", f"/keys/{made['id']}/rotate", {"overlapS": 600})
    assert (status, rotated["name"], rotated["scopes"]) == (201, "Dialler", ["calls"])
    for key in (made["key"], rotated["key"]):
        assert (await ask(client, "GET", "/calls", None, key))[0] == 200
    assert (await ask(client, "GET", f"/keys/{made['id']}"))[1]["expiresAt"] is not None
    status, last = await ask(client, "POST", f"/keys/{rotated['id']}/rotate", {"overlapS": 0})
    assert (await ask(client, "GET", "/calls", None, rotated["key"]))[0] == 401
    assert (await ask(client, "DELETE", f"/keys/{last['id']}"))[0] == 200
    assert (await ask(client, "GET", "/calls", None, last["key"]))[0] == 401
    assert (await ask(client, "DELETE", f"/keys/{last['id']}"))[0] == 404


async def test_the_last_use_of_a_key_is_noted(site: tuple[Server, Client, Path]) -> None:
    server, client, _ = site
    _, made = await ask(client, "POST", "/keys", {"scopes": ["calls"]})
    assert made["lastUsedAt"] is None
    await ask(client, "GET", "/calls", None, made["key"])
    assert server._watching is not None
    await server._watching.observe()
    assert (await ask(client, "GET", f"/keys/{made['id']}"))[1]["lastUsedAt"] is not None


async def test_a_key_for_one_agent_is_for_no_other(client: Client) -> None:
    _, made = await ask(client, "POST", "/keys", {"scopes": ["calls"], "agentIds": [OUTBOUND]})
    _, other = await ask(client, "POST", "/agents", agent_of("carrier"))
    number = {"phoneNumber": "+14155550188", "promptVariables": {"name": "Bo"}}
    status, answer = await ask(
        client, "POST", "/calls/outbound", {"agentId": other["id"], **number}, made["key"]
    )
    assert (status, answer) == (403, {"error": "Access denied to this agent"})
    assert (await ask(client, "POST", "/calls/outbound", {"agentId": OUTBOUND, **number}, made["key"]))[
        0
    ] == 200
    await ask(client, "DELETE", f"/agents/{other['id']}")


async def test_a_key_for_one_agent_touches_no_call_of_another(client: Client) -> None:
    """The second call to a number waits for ten minutes, and so does whoever may cancel it."""
    _, other = await ask(client, "POST", "/agents?company=saudi", agent_of("riyadh"), SERVER_KEY)
    wanted = {"scopes": ["calls"], "agentIds": [other["id"]]}
    _, made = await ask(client, "POST", "/keys?company=saudi", wanted, SERVER_KEY)
    number = "+966500000077"
    batch = {"agentId": SAUDI_AGENT, "calls": [{"phoneNumber": number}] * 2}
    _, placed = await ask(client, "POST", "/calls/outbound", batch, SAUDI_KEY)
    first, call = (item["callTaskId"] for item in placed["data"]["items"])
    of_batch = f"/batches/{placed['data']['batchId']}"
    await until_final(client, first, key=SAUDI_KEY)
    for method, path, status in (
        ("GET", f"/calls/{call}", 404),
        ("GET", f"/calls/{call}/recording", 404),
        ("POST", f"/calls/{call}/hangup", 404),
        ("GET", of_batch, 404),
        ("POST", f"{of_batch}/pause", 404),
        ("POST", f"{of_batch}/cancel", 404),
    ):
        assert (await ask(client, method, path, None, made["key"]))[0] == status, path
    assert (await ask(client, "GET", "/calls", None, made["key"]))[1]["calls"] == []
    assert (await ask(client, "GET", "/batches", None, made["key"]))[1]["batches"] == []
    cancel = f"/calls/queue/cancel/{number}"
    status, answer = await ask(client, "POST", cancel, None, made["key"])
    assert (status, answer["data"]["cancelled"]) == (200, False)
    status, answer = await ask(client, "POST", cancel, {"agentId": SAUDI_AGENT}, made["key"])
    assert (status, answer) == (403, {"error": "Access denied to this agent"})
    status, answer = await ask(client, "POST", cancel, {"agentId": SAUDI_AGENT}, SAUDI_KEY)
    assert (status, answer["data"]["callQueueId"], answer["data"]["cancelled"]) == (200, call, True)


async def test_the_keys_of_the_file_are_listed_and_left_alone(client: Client) -> None:
    _, page = await ask(client, "GET", "/keys?limit=100")
    of_file = [key for key in page["keys"] if key["managedBy"] == "file"]
    assert len(of_file) == 4
    assert (await ask(client, "DELETE", f"/keys/{of_file[0]['id']}"))[0] == 409


async def test_companies_are_the_servers_to_make(client: Client) -> None:
    body = {"id": "new-one", "country": "US", "maxConcurrentCalls": 3}
    assert (await ask(client, "POST", "/companies", body))[0] == 403
    status, made = await ask(client, "POST", "/companies", body, SERVER_KEY)
    assert (status, made["maxConcurrentCalls"], made["managedBy"]) == (201, 3, "api")
    assert (await ask(client, "POST", "/companies", body, SERVER_KEY))[0] == 409
    status, key = await ask(client, "POST", "/keys?company=new-one", {"scopes": ["admin"]}, SERVER_KEY)
    assert status == 201
    status, page = await ask(client, "GET", "/companies", None, key["key"])
    assert [company["id"] for company in page["companies"]] == ["new-one"]
    assert (await ask(client, "PATCH", "/companies/new-one", {"maxConcurrentCalls": 9}, key["key"]))[0] == 403
    assert (await ask(client, "GET", "/companies/acme", None, key["key"]))[0] == 404
    status, changed = await ask(client, "PATCH", "/companies/new-one", {"webCalls": True}, SERVER_KEY)
    assert (status, changed["webCalls"], changed["maxConcurrentCalls"]) == (200, True, 3)
    assert (await ask(client, "DELETE", "/companies/new-one", None, SERVER_KEY))[0] == 200
    assert (await ask(client, "GET", "/companies", None, key["key"]))[0] == 401
    assert (await ask(client, "GET", "/trunks?company=new-one", None, SERVER_KEY))[0] == 404


async def test_a_webhook_is_made_rotated_and_told_of_calls(client: Client) -> None:
    status, hook = await ask(client, "POST", "/webhooks", {"url": "http://127.0.0.1:9/hook"})
    assert status == 201
    assert hook["secret"].startswith("whsec_")
    body = {"agentId": OUTBOUND, "phoneNumber": "+14155550166", "promptVariables": {"name": "Bo"}}
    _, placed = await ask(client, "POST", "/calls/outbound", body, KEY)
    call_id = placed["data"]["callTaskId"]
    _, page = await ask(client, "GET", f"/deliveries?callTaskId={call_id}&webhook={hook['id']}")
    first = page["deliveries"][-1]
    assert (first["type"], first["sequence"], first["url"]) == ("call.queued", 1, hook["url"])
    status, report = await ask(client, "GET", f"/deliveries/{first['id']}")
    assert (status, report["body"]["data"]["callTaskId"]) == (200, call_id)
    assert (await ask(client, "GET", f"/deliveries/{first['id']}", None, OTHER_ADMIN_KEY))[0] == 404
    status, rotated = await ask(client, "POST", f"/webhooks/{hook['id']}/rotate")
    assert (status, rotated["rotating"]) == (200, True)
    assert rotated["secret"] not in ("", None, hook["secret"])
    status, done = await ask(client, "PATCH", f"/webhooks/{hook['id']}", {"dropPreviousSecret": True})
    assert (status, done["rotating"], done["secret"]) == (200, False, None)
    assert (await ask(client, "POST", "/deliveries/replay", {"callTaskId": call_id}))[0] == 200
    assert (await ask(client, "DELETE", f"/webhooks/{hook['id']}"))[0] == 200


async def test_numbers_on_the_list_are_never_dialled(client: Client) -> None:
    status, added = await ask(client, "POST", "/do-not-call", {"phoneNumbers": ["(415) 555-0144"]})
    assert (status, added["added"]) == (200, 1)
    _, page = await ask(client, "GET", "/do-not-call", None, KEY)
    assert [row["phoneNumber"] for row in page["numbers"]] == ["+14155550144"]
    body = {"agentId": OUTBOUND, "phoneNumber": "+14155550144", "promptVariables": {"name": "Bo"}}
    status, refused = await ask(client, "POST", "/calls/outbound", body, KEY)
    assert (status, set(refused)) == (400, {"error"})
    assert (await ask(client, "DELETE", "/do-not-call/4155550144", None, KEY))[0] == 200
    assert (await ask(client, "DELETE", "/do-not-call/4155550144", None, KEY))[0] == 404


async def test_a_list_is_read_page_by_page(client: Client) -> None:
    made = [(await ask(client, "POST", "/trunks", {"uri": "sip:carrier.example"}))[1]["id"] for _ in range(3)]
    seen: list[str] = []
    cursor = ""
    while True:
        _, page = await ask(client, "GET", f"/trunks?limit=1&cursor={cursor}")
        seen += [trunk["id"] for trunk in page["trunks"]]
        cursor = page["cursor"]
        if cursor is None:
            break
    assert seen == sorted(seen)
    assert {*made, "carrier"} <= set(seen)
    for trunk_id in made:
        await ask(client, "DELETE", f"/trunks/{trunk_id}")


@pytest.mark.parametrize("engine", DATABASES)
async def test_what_was_made_is_there_after_a_restart_and_on_another_node(
    tmp_path: Path, engine: str
) -> None:
    with database_on(engine) as database:
        site = write_api_site(tmp_path, database=database)
        async with running(site) as (first, client):
            _, trunk = await ask(
                client, "POST", "/trunks", {"uri": "sip:carrier.example", "username": "u", "password": "pw-1"}
            )
            _, agent = await ask(client, "POST", "/agents", agent_of(trunk["id"]))
            # Another node changes the same database: this one sees it when it looks.
            revision = first.directory.revision
            await first.store.remove(Kind.AGENT, agent["id"])
            await first.administration.refresh()
            assert first.directory.agent(agent["id"]) is None
            assert first.directory.revision == revision + 1
        async with running(site) as (second, client):
            settings = second.directory.trunk(trunk["id"])
            assert settings is not None
            assert trunk["id"] in second.endpoint.trunks
            assert second.endpoint.trunks[trunk["id"]].settings.password == "pw-1"
        rows = await rows_of(site, "SELECT document FROM trunks")
        assert len(rows) == 3
        assert "pw-1" not in json.dumps(rows)


async def test_a_trunk_whose_name_is_led_elsewhere_later_is_not_dialled(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is of nobody when the trunk is made, and leads into a private network when it is dialled."""
    name = "rebound.carrier.example"
    _, trunk = await ask(client, "POST", "/trunks", {"uri": f"sip:{name}:5060;transport=tcp"})
    _, agent = await ask(client, "POST", "/agents", agent_of(trunk["id"]))
    loop = asyncio.get_running_loop()
    resolve = loop.getaddrinfo

    async def rebound(host: Any, *more: Any, **named: Any) -> Any:
        return await resolve("10.20.30.40" if host == name else host, *more, **named)

    monkeypatch.setattr(loop, "getaddrinfo", rebound)
    body = {"agentId": agent["id"], "phoneNumber": "+14155550178"}
    _, placed = await ask(client, "POST", "/calls/outbound", body, KEY)
    report = await until_final(client, placed["data"]["callTaskId"])
    assert (report["status"], report["hangupCause"]) == ("FAILED", "address_refused")
    assert report["error"] == "the trunk's address is refused"
    assert (await ask(client, "DELETE", f"/agents/{agent['id']}"))[0] == 200
