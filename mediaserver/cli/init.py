"""`mediaserver init`: a first configuration, by asking or from options."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import click

from mediaserver.errors import InvalidNumber, SettingsError
from mediaserver.files import private
from mediaserver.numbers.e164 import country_of, normalise
from mediaserver.settings import load

TEXT = """\
# Written by `mediaserver init`. Every key there is, with its default: config/mediaserver.toml.
# mediaserver check --config FILE; mediaserver doctor --config FILE; mediaserver serve --config FILE

[server]
http = "127.0.0.1:8080"                    # for this machine, and a proxy with TLS in front
admin_key = "generated"                    # made at the first start, in data_dir/admin.key
data_dir = "var"

[sip]
udp = "0.0.0.0:5060"
tcp = "0.0.0.0:5060"
# public_address = "203.0.113.5"           # behind a one-to-one NAT: the address that the carrier sees

[[company]]
id = "main"
country = {country}
[[company.key]]
key = {key}
scopes = ["calls", "speech"]

[[trunk]]
id = "carrier"
company = "main"
uri = {uri}
caller_id = {number}
{account}
# Answers whoever calls the number.
[[agent]]
id = {inbound}
company = "main"
name = {agent}
direction = "inbound"
trunk = "carrier"
phone_number = {number}
greeting = {greeting}
{script}
# Calls others: mediaserver call --config FILE --agent ID --to NUMBER
[[agent]]
id = {outbound}
company = "main"
name = {agent}
direction = "outbound"
trunk = "carrier"
phone_number = {number}
greeting = {greeting}
{script}"""

SCRIPT = """\
[agent.script]                             # docs/agents.md; a model instead: [agent.llm], docs/llm.md
start = "help"
[[agent.script.step]]
id = "help"
say = "Would you like to be called back?"
expect = { kinds = ["yes_no"] }
collect = "call_back"
next = "bye"
[[agent.script.step]]
id = "bye"
say = "Thank you. Goodbye."
action = "hang_up"
goal = true
"""

ACCOUNT = """\
username = {username}
password = {password}
register = {register}
"""

ADDRESS = """\
allow_from = []                            # the networks that calls come from: ["203.0.113.0/24"]
"""

Ask = Callable[..., str]


@click.command()
@click.option("--to", type=click.Path(path_type=Path), default=Path("mediaserver.toml"), show_default=True)
@click.option("--trunk", help="The carrier's or PBX's SIP address: sip.example.com, or a sip: URI.")
@click.option("--username", help='The account at the carrier; "" where it knows this machine by its address.')
@click.option("--password", envvar="TRUNK_PASSWORD", show_envvar=True, help="Its password, or env:NAME.")
@click.option("--register/--no-register", default=True, help="Whether the trunk registers; with a username.")
@click.option("--number", help="The telephone number at that carrier: +14155550100.")
@click.option("--agent", help="The agent's name.")
@click.option("--greeting", help="What the agent says first.")
@click.option("--no-input", is_flag=True, help="Ask nothing: what is needed must be among the options.")
def init(to: Path, no_input: bool, register: bool, **given: str | None) -> None:
    """Writes a first configuration: one trunk, one number, one agent that answers and calls. Never
    overwrites a file."""
    if to.exists():
        raise click.ClickException(f"{to}: there is one already")
    text = _text(_asking(given, no_input=no_input), register=register)
    _write(to, text)
    click.echo(f"{to} is written, for your eyes only: it holds an API key.")
    click.echo(f"Next: mediaserver doctor --config {to}; mediaserver serve --config {to}")


def _asking(given: dict[str, str | None], *, no_input: bool) -> Ask:
    """Returns what answers a question: by its option, else by its default or the person at the terminal."""

    def ask(name: str, question: str, default: str | None = None, *, hidden: bool = False) -> str:
        answer = given[name]
        if answer is not None:
            return answer
        if not no_input:
            return str(click.prompt(question, default=default, hide_input=hidden, show_default=bool(default)))
        if default is None:
            raise click.UsageError(f"--{name} is needed")
        return default

    return ask


def _text(ask: Ask, *, register: bool) -> str:
    """Returns the file's text. Raises `ClickException` for an answer that cannot be."""
    trunk = ask("trunk", "The carrier's SIP address")
    username = ask("username", "The account there (none: it knows this machine by its address)", "")
    account, password = ADDRESS, ""
    if username:
        password = ask("password", "Its password", hidden=True)
        account = ACCOUNT
    try:
        number = normalise(ask("number", "Your telephone number there, as +14155550100"))
    except InvalidNumber as error:
        raise click.ClickException(f"--number: {error}") from None
    name = ask("agent", "The agent's name", "Front desk")
    answers: dict[str, object] = {
        "username": username,
        "password": password,
        "register": register,
        "uri": trunk if trunk.startswith(("sip:", "sips:")) else f"sip:{trunk}",
        "number": number,
        "country": country_of(number),
        "agent": name,
        "greeting": ask("greeting", "What it says first", f"Hello, this is {name}."),
        "key": f"ml_{secrets.token_urlsafe(32)}",
        "inbound": str(uuid4()),
        "outbound": str(uuid4()),
    }
    return _filled(TEXT.replace("{account}", account).replace("{script}", SCRIPT), **answers)


def _filled(text: str, **answers: object) -> str:
    """Returns `text` with its places filled by TOML values, for which JSON's strings and booleans do."""

    def value(found: re.Match[str]) -> str:
        return json.dumps(answers[found[1]]).replace("\x7f", "\\u007f")

    return re.sub("{(" + "|".join(answers) + ")}", value, text)


def _write(to: Path, text: str) -> None:
    """Writes the file if it is a good one. Raises `ClickException`: also where there is one by now."""
    partial = to.with_name(f"{to.name}.{uuid4().hex[:8]}")
    try:
        with contextlib.ExitStack() as undo:
            descriptor = os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, private.FILE_MODE)
            undo.callback(partial.unlink, missing_ok=True)
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            load(partial)
            os.link(partial, to)  # fails where there is one, unlike a renaming
    except SettingsError as error:
        problems = "\n".join(problem.removeprefix(f"{partial}: ") for problem in error.problems)
        raise click.ClickException(f"that makes no configuration:\n{problems}") from None
    except OSError as error:
        raise click.ClickException(f"{to}: {(error.strerror or str(error)).lower()}") from None
