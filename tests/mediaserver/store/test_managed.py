"""What is managed over the API, below the API: sealed, shown, applied, and limited per key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mediaserver.admin.directory import Directory
from mediaserver.admin.sealing import FILE, Vault
from mediaserver.errors import LocalError
from mediaserver.queue.records import NewWebRoom
from mediaserver.store.managed import KEPT_MS, Kind, ManagedRow, NewKey
from tests.support.http.api_site import write_api_site
from tests.support.node.node import KEY, bearer, running
from tests.support.node.store import Clock, company, opened, query, settings

ANSWERING = "0c7de7b0-7d1c-4f6e-8f43-5f0f2c3f9f99"
SCRIPT = {"start": "a", "step": [{"id": "a", "say": "Hi.", "action": "hang_up"}]}


def test_a_sealed_text_opens_with_its_key_only() -> None:
    sealed = Vault("one").seal("the password")
    assert "password" not in sealed
    assert Vault("one").open(sealed) == "the password"
    with pytest.raises(LocalError, match="sealed with another"):
        Vault("two").open(sealed)
    with pytest.raises(LocalError):
        Vault("one").open(sealed[:-4] + "AAA=")


def test_the_key_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    sealed = Vault.at(tmp_path / "data").seal("x")
    path = tmp_path / "data" / FILE
    assert path.stat().st_mode & 0o777 == 0o600
    assert Vault.at(tmp_path / "data").open(sealed) == "x"
    path.write_text("")
    with pytest.raises(LocalError, match="is empty"):
        Vault.at(tmp_path / "data")


def row(vault: Vault, kind: Kind, thing_id: str, owner: str, **document: Any) -> ManagedRow:
    return ManagedRow(kind, thing_id, owner, vault.seal(json.dumps(document)))


def test_the_directory_shows_both_and_the_files_counts(tmp_path: Path) -> None:
    vault = Vault("key")
    directory = Directory(settings(company("acme")), vault)
    rows = [
        row(vault, Kind.COMPANY, "acme", "acme", name="Taken over"),
        row(vault, Kind.COMPANY, "new", "new", country="SA"),
        row(vault, Kind.TRUNK, "t-1", "new", uri="sip:carrier.example"),
        row(vault, Kind.TRUNK, "t-2", "gone", uri="sip:carrier.example"),
        row(vault, Kind.TRUNK, "t-3", "new", uri="no uri"),
        row(Vault("lost"), Kind.TRUNK, "t-4", "new", uri="sip:carrier.example"),
        row(
            vault,
            Kind.AGENT,
            ANSWERING,
            "new",
            direction="inbound",
            trunk="t-1",
            phone_number="+966500000001",
            script=SCRIPT,
        ),
    ]
    directory.show(rows, 7)
    assert directory.revision == 7
    assert set(directory.companies) == {"acme", "new"}
    assert directory.companies["acme"].name == ""
    assert {name for name in directory.trunks if name.startswith("t-")} == {"t-1"}
    answering = directory.numbers.agent("+966500000001", ["t-1"])
    assert answering is not None
    assert answering.id == ANSWERING
    directory.show([], 8)
    assert set(directory.companies) == {"acme"}
    assert directory.numbers.agent("+966500000001", ["t-1"]) is None


async def test_a_key_that_asks_too_much_is_told_when_to_come_back(tmp_path: Path) -> None:
    async with running(write_api_site(tmp_path, more="requests_per_minute = 30\n")) as (_, client):
        statuses = []
        for _ in range(8):
            async with client.get("/api/v1/calls", headers=bearer(KEY)) as answer:
                statuses.append(answer.status)
                last, headers = await answer.json(), answer.headers
        assert statuses[:5] == [200] * 5
        assert statuses[-1] == 429
        assert headers["Retry-After"] in ("1", "2", "3")
        assert last == {"error": "Too many requests"}
        async with client.get("/api/v1/calls", headers=bearer("other-calls-key")) as answer:
            assert answer.status == 200


def room(name: str) -> NewWebRoom:
    return NewWebRoom(name=name, company_id="acme", agent_id="a", identity="p", life_ms=900_000)


async def test_rooms_that_nobody_can_join_any_more_are_forgotten(tmp_path: Path) -> None:
    clock = Clock()
    async with opened(tmp_path, clock) as store:
        await store.open_room(room("first"))
        clock.advance(900_000 + KEPT_MS)
        await store.open_room(room("second"))
        assert await query(tmp_path, "SELECT name FROM web_rooms") == [{"name": "second"}]


async def test_keys_that_open_nothing_any_more_are_forgotten(tmp_path: Path) -> None:
    clock = Clock()
    async with opened(tmp_path, clock) as store:
        old, _ = await store.make_key("acme", NewKey(frozenset({"calls"})))
        assert await store.rotate_key("acme", old.id, overlap_ms=1000) is not None
        assert await store.key("acme", old.id) is not None
        clock.advance(1000 + KEPT_MS)
        await store.make_key("acme", NewKey(frozenset({"calls"})))
        assert await store.key("acme", old.id) is None


async def test_a_key_of_the_file_is_the_same_after_a_restart(tmp_path: Path) -> None:
    clock = Clock()
    async with opened(tmp_path, clock) as store:
        (listed,) = (await store.keys("acme")).items
        await store.keys_used([listed.id])
        clock.advance(5000)
        await store.sync_file(settings())
        assert (await store.key("acme", listed.id)) == (await store.keys("acme")).items[0]
        assert (await store.keys("acme")).items[0].last_used_at_ms == clock.now_ms - 5000
        await store.sync_file(settings(company("other")))
        assert await store.find_key("acme-calls-key") is None
        assert await store.key("acme", listed.id) is None
