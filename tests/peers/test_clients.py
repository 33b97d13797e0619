"""Clients that generators make of `/openapi.json`: each places calls and speaks, once, as its user would."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.http.api_site import WEB_KEY, write_api_site
from tests.support.node.node import KEY, SPEECH_KEY, running
from tests.support.paths import SUPPORT

PROGRAMS = SUPPORT / "http" / "clients"
BIN = Path(sys.executable).parent
NPM = Path(sys.prefix) / "npm" / "clients"
PACKAGES = ("openapi-typescript@7.13.0", "openapi-fetch@0.17.0", "typescript@5.9.3", "@types/node@20.19.0")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

WHAT_EVERY_CLIENT_GETS = {
    "placed": [True, "+14155550123"],
    "batch": [True, 1],
    "trial": [True, "queued_now"],
    "calls": ["+14155550123", "+14155550124"],
    "call": True,
    "cancelled": [True, False],
    "token": 2,
    "audio": "RIFF",
    "job": "job-1",
}


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[str]:
    """The service's address; its document is at `tmp_path / "openapi.json"`."""
    async with running(write_api_site(tmp_path)) as (_, client):
        async with client.get("/openapi.json") as answer:
            (tmp_path / "openapi.json").write_text(await answer.text())
        yield str(client.make_url("/"))


@pytest.mark.nightly("ci")
async def test_the_python_client_of_openapi_generator(service: str, tmp_path: Path) -> None:
    await run(
        *(str(BIN / "openapi-generator-cli"), "generate", "-g", "python", "--package-name", "voice_agents"),
        *("-i", "openapi.json", "-o", "made"),
        at=tmp_path,
    )
    assert (
        await got_by(service, PROGRAMS / "openapi_generator.py", tmp_path / "made") == WHAT_EVERY_CLIENT_GETS
    )


async def test_the_client_of_openapi_python_client(service: str, tmp_path: Path) -> None:
    await run(
        *(str(BIN / "openapi-python-client"), "generate", "--meta", "none", "--overwrite"),
        *("--path", "openapi.json", "--output-path", "made/agents"),
        at=tmp_path,
    )
    program = PROGRAMS / "openapi_python_client.py"
    assert await got_by(service, program, tmp_path / "made") == WHAT_EVERY_CLIENT_GETS


@pytest.mark.nightly("ci")
async def test_the_types_of_openapi_typescript(service: str, tmp_path: Path) -> None:
    modules = await npm_packages()
    made = tmp_path / "made"
    made.mkdir()
    (made / "node_modules").symlink_to(modules)
    shutil.copy(PROGRAMS / "openapi_typescript.ts", made)
    commands = modules / ".bin"
    await run(str(commands / "openapi-typescript"), "../openapi.json", "-o", "service.d.ts", at=made)
    await run(
        *(str(commands / "tsc"), "--strict", "--skipLibCheck", "--module", "nodenext", "--target", "es2022"),
        *("--types", "node", "openapi_typescript.ts"),
        at=made,
    )
    printed = await run("node", "openapi_typescript.js", service, KEY, SPEECH_KEY, WEB_KEY, at=made)
    assert json.loads(printed) == WHAT_EVERY_CLIENT_GETS


async def npm_packages() -> Path:
    """The folder of node's modules, filled from npm the first time."""
    modules = NPM / "node_modules"
    if not (modules / ".bin" / "tsc").exists():
        NPM.mkdir(parents=True, exist_ok=True)
        await run("npm", "install", "--silent", "--no-audit", "--no-fund", *PACKAGES, at=NPM)
    return modules


async def got_by(service: str, program: Path, package: Path) -> Mapping[str, Any]:
    """What a Python program on the client in `package` got from the service."""
    arguments = (sys.executable, str(program), service, KEY, SPEECH_KEY, WEB_KEY)
    got: dict[str, Any] = json.loads(await run(*arguments, at=package))
    return got


async def run(*command: str, at: Path) -> str:
    """What a program prints that ends well, with generated packages in `at` to be imported."""
    process = await asyncio.create_subprocess_exec(
        *("env", f"PYTHONPATH={at}", f"PATH={BIN}:/usr/local/bin:/usr/bin:/bin", *command),
        cwd=at,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, said = await asyncio.wait_for(process.communicate(), 240)
    assert process.returncode == 0, (printed + said).decode()[-4000:]
    return printed.decode()
