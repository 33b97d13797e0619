"""Recordings at rest: nothing of the audio on the disk with a key, all of it over HTTP."""

from __future__ import annotations

import asyncio
import io
import os
from pathlib import Path

import numpy as np
import pytest

from mediaserver.errors import LocalError
from mediaserver.files.sealed import PIECE, SealedFiles
from pipeline.audio import wav
from tests.support.http.models import fake_models
from tests.support.node.node import (
    ASKING_NUMBER,
    KEY,
    Client,
    Site,
    asking_agent,
    bearer,
    only_report,
    running,
    write_site,
)
from tests.support.sip.raw_call import RawCall
from tests.support.speech.media import speech_like

SECRET = "a-key-of-24-characters-or-more"
QUIET = np.zeros(8000, np.int16)


async def recorded(site: Site, client: Client) -> str:
    """The id of a call that was recorded."""
    async with RawCall(site.sip, ASKING_NUMBER) as call:
        await call.answered()
        await call.play(np.concatenate([QUIET, QUIET, speech_like(6000), QUIET]))
        call.reply(await call.asked("BYE"))
    report = await only_report(client)
    return str(report["callTaskId"])


async def fetched(client: Client, call_id: str, **headers: str) -> tuple[int, bytes]:
    url = f"/api/v1/calls/{call_id}/recording"
    async with client.get(url, headers=bearer(KEY) | headers) as answer:
        return answer.status, await answer.read()


async def test_a_recording_is_sealed_after_its_call_and_fetched_as_ever(tmp_path: Path) -> None:
    site = write_site(tmp_path, more=asking_agent("Is it you?")).add(
        "[server]", f'recordings_key = "{SECRET}"'
    )
    folder = site.data_dir / "recordings"
    with fake_models():
        async with running(site) as (_, client):
            call_id = await recorded(site, client)
            status, whole = await fetched(client, call_id)
            sound, _ = await asyncio.to_thread(wav.read_channels, io.BytesIO(whole))
            assert (status, np.abs(sound).max() > 1000) == (200, True)
            for asked, part in (
                ("bytes=0-43", whole[:44]),
                ("bytes=44-", whole[44:]),
                (f"bytes={PIECE - 3}-{PIECE + 3}", whole[PIECE - 3 : PIECE + 4]),
                ("bytes=-10", whole[-10:]),
            ):
                assert await fetched(client, call_id, Range=asked) == (206, part), asked
            assert (await fetched(client, call_id, Range=f"bytes={len(whole)}-"))[0] == 416
        [path] = folder.iterdir()
        stored = path.read_bytes()
        assert path.stat().st_mode & 0o077 == 0
        assert not any(
            whole[at : at + 16] in stored for at in range(0, len(whole) - 16, 997) if any(whole[at : at + 16])
        )
        site.change(SECRET, f"another-{SECRET}")
        async with running(site) as (_, client):
            assert (await fetched(client, call_id))[0] == 500


async def test_what_was_there_before_the_key_is_sealed_after_the_start(tmp_path: Path) -> None:
    site = write_site(tmp_path, more=asking_agent("Is it you?"))
    folder = site.data_dir / "recordings"
    with fake_models():
        async with running(site) as (_, client):
            call_id = await recorded(site, client)
            _, plain = await fetched(client, call_id)
        assert [path.suffix for path in folder.iterdir()] == [".wav"]
        site.add("[server]", f'recordings_key = "{SECRET}"')
        async with running(site) as (_, client):
            async with asyncio.timeout(20):
                while [path.suffix for path in folder.iterdir()] != [".enc"]:
                    await asyncio.sleep(0.02)
            assert await fetched(client, call_id) == (200, plain)


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE])
def test_any_part_of_a_sealed_file_is_read_by_itself(tmp_path: Path, size: int) -> None:
    files, plain = SealedFiles(SECRET), os.urandom(size)
    (tmp_path / "a.wav").write_bytes(plain)
    sealed = files.seal(tmp_path / "a.wav")
    assert [each.name for each in tmp_path.iterdir()] == ["a.wav.enc"]
    assert files.size(sealed) == size
    for start, end in ((0, size), (size // 3, size // 2), (max(0, size - 5), size)):
        assert b"".join(files.read(sealed, start, end)) == plain[start:end]


def test_what_was_changed_or_moved_within_is_refused(tmp_path: Path) -> None:
    files = SealedFiles(SECRET)
    (tmp_path / "a.wav").write_bytes(os.urandom(2 * PIECE))
    sealed = files.seal(tmp_path / "a.wav")
    content = bytearray(sealed.read_bytes())
    content[len(content) // 2 + 50] ^= 1
    sealed.write_bytes(content)
    with pytest.raises(LocalError, match="damaged"):
        b"".join(files.read(sealed, 0, 2 * PIECE))
    with pytest.raises(LocalError, match="another"):
        b"".join(SealedFiles("x" * 24).read(sealed, 0, 10))
