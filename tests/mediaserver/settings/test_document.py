"""The configuration file: what is accepted, what is refused and how clearly, and that the reference is
complete."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from mediaserver.admin.sealing import kept_admin_key
from mediaserver.errors import SettingsError
from mediaserver.settings import (
    Settings,
    defaults_document,
    load,
    reveal,
    split_address,
    split_ports,
)
from mediaserver.settings.document import REQUIRED
from mediaserver.wiring import trunk_settings
from tests.support.paths import ROOT

REFERENCE = ROOT / "config" / "mediaserver.toml"
AGENT = "2f1c1a34-6f3e-4f0e-9a63-0d8f2f0f7a11"

# The configuration of the documentation, word for word where it matters.
CONTRACT = f"""
[server]
http = "127.0.0.1:8080"
public_url = "http://127.0.0.1:8080"
data_dir = "var"
database = "sqlite:///var/mediaserver.db"
admin_key = "env:ADMIN"
allow_networks = ["127.0.0.0/8"]

[sip]
engine = "native"
udp = "127.0.0.1:5060"
tcp = "127.0.0.1:5060"
rtp_ports = "20000-21999"

[rooms]
udp_ports = "30000-30099"
ice_servers = []
api_key = "devkey"
api_secret = "env:ROOMS_SECRET"

[[company]]
id = "acme"
name = "Acme"
duplicate_policy = "DEDUPE"
contact_limit = {{ calls = 3, per_minutes = 60 }}
dial_prefixes = ["966", "1415"]
max_concurrent_calls = 20
web_calls = true
country = "SA"
[[company.key]]
key = "acme-calls-key"
scopes = ["calls", "speech"]
[[company.key]]
key = "acme-web-key"
scopes = ["web-calls"]
[[company.webhook]]
url = "http://127.0.0.1:9000/hook"
secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
events = ["*"]

[[trunk]]
id = "carrier"
company = "acme"
uri = "sip:127.0.0.1:5080;transport=udp"
caller_id = "+966110000000"
number_format = "+{{e164}}"
accepts = "^\\\\+9665\\\\d{{8}}$"
username = "acme"
password = "env:TRUNK_PASSWORD"
register = false
allow_from = ["127.0.0.1/32"]

[[agent]]
id = "{AGENT}"
company = "acme"
name = "Appointment reminder"
direction = "outbound"
trunk = "carrier"
phone_number = "+966110000000"
language = "en"
greeting = "Hello {{{{name}}}}, this is the clinic."
[agent.llm]
base_url = "http://127.0.0.1:9100/v1"
model = "any"
api_key = "env:LLM_KEY"
prompt = "You remind {{{{name}}}} of an appointment on {{{{date}}}}."
[agent.stt]
engine = "openai"
base_url = "http://127.0.0.1:9200/v1"
api_key = "env:STT_KEY"
[agent.tts]
engine = "openai"
base_url = "http://127.0.0.1:9300/v1"
"""
SECRETS = {
    "ADMIN": "canary-admin-key-that-is-long",
    "ROOMS_SECRET": "canary-rooms",
    "TRUNK_PASSWORD": "canary-trunk",
    "LLM_KEY": "canary-llm",
    "STT_KEY": "canary-stt",
}


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "media.toml"
    path.write_text(text)
    return path


def problems(tmp_path: Path, text: str, environment: Mapping[str, str] | None = None) -> list[str]:
    """The problems of a file, without its name in front."""
    path = written(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        load(path, environment=SECRETS if environment is None else environment)
    for problem in caught.value.problems:
        assert problem.startswith(f"{path}: ")
    return [problem.removeprefix(f"{path}: ") for problem in caught.value.problems]


@pytest.fixture
def contract(tmp_path: Path) -> Settings:
    return load(written(tmp_path, CONTRACT), environment=SECRETS)


def test_the_documented_file_loads(contract: Settings) -> None:
    company, trunk, agent = contract.companies[0], contract.trunks[0], contract.agents[0]
    assert contract.server.allow_networks == ("127.0.0.0/8",)
    assert reveal(contract.server.admin_key) == SECRETS["ADMIN"]
    assert company.prefixes == ("966", "1415")
    assert company.contact_limit is not None
    assert company.contact_limit.per_minutes == 60
    assert [key.scopes for key in company.keys] == [("calls", "speech"), ("web-calls",)]
    assert reveal(trunk.password) == "canary-trunk"
    assert trunk.register_ is False
    assert agent.llm is not None
    assert agent.stt.options == {"base_url": "http://127.0.0.1:9200/v1", "api_key": "canary-stt"}
    assert contract.company("acme") is company
    assert contract.trunk("carrier") is trunk
    assert contract.agent(AGENT) is agent
    assert contract.agent("somebody") is None


def test_no_secret_shows_in_the_settings_text(contract: Settings) -> None:
    assert "canary" not in repr(contract)
    assert "canary" not in str(contract)


def test_a_transport_can_be_switched_off(tmp_path: Path) -> None:
    text = edited('tcp = "127.0.0.1:5060"', 'tcp = ""')
    assert load(written(tmp_path, text), environment=SECRETS).sip.tcp is None
    text = text.replace('udp = "127.0.0.1:5060"', 'udp = ""')
    assert problems(tmp_path, text) == ["sip.udp: trunks need udp, tcp or tls"]


def test_settings_do_not_change(contract: Settings) -> None:
    with pytest.raises(ValueError, match="frozen"):
        contract.server.http = "0.0.0.0:1"


def test_an_empty_file_is_all_defaults(tmp_path: Path) -> None:
    settings = load(written(tmp_path, ""), environment={})
    assert settings == Settings()
    assert settings.sip.udp == "127.0.0.1:5060"
    assert settings.companies == ()


def edited(old: str, new: str) -> str:
    assert CONTRACT.count(old) >= 1, old
    return CONTRACT.replace(old, new, 1)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("[sip]", "[sip]\nport = 5060", "sip.port: unknown key"),
        ("[sip]", "[telephony]\n[sip]", "telephony: unknown key"),
        ('engine = "native"', 'engine = "freeswitch"', "sip.engine: input should be 'native' or 'pjsua2'"),
        ('udp = "127.0.0.1:5060"', 'udp = "localhost"', 'sip.udp: must be "address:port"'),
        ('udp = "127.0.0.1:5060"', 'udp = "127.0.0.1:99999"', 'sip.udp: must be "address:port"'),
        ('"20000-21999"', '"21999-20000"', "sip.rtp_ports: ports must rise"),
        ('"127.0.0.0/8"', '"127.0.0.1/8"', "server.allow_networks[0]: must be a network"),
        ("ice_servers = []", 'ice_servers = ["stun.example"]', "rooms.ice_servers[0]: must be"),
        (
            "ice_servers = []",
            'ice_servers = ["turn:turn.example"]',
            "rooms.ice_servers: turn:turn.example needs a user",
        ),
        ('"sqlite:///var/mediaserver.db"', '"mysql://x"', "server.database: must begin with"),
        ('public_url = "http://', 'public_url = "ftp://', "server.public_url: must be a URL"),
        ('id = "acme"', 'id = "a c m e"', "company[0].id: must be 1 to 64 letters"),
        (
            'duplicate_policy = "DEDUPE"',
            'duplicate_policy = "TWICE"',
            "company[0].duplicate_policy: input should",
        ),
        ("calls = 3", "calls = 0", "company[0].contact_limit.calls: input should be greater than"),
        (
            'id = "acme"',
            'id = "acme"\ntalk_origins = ["http://a:65536"]',
            "company[0].talk_origins[0]: port out",
        ),
        ('"966"', '"+966"', "company[0].dial_prefixes[0]: must be digits"),
        ('country = "SA"', 'country = "Saudi"', "company[0].country: must be a country of two capital"),
        ('scopes = ["web-calls"]', 'scopes = ["everything"]', "company[0].key[1].scopes[0]: input should be"),
        (
            'key = "acme-web-key"',
            'key = "acme-calls-key"',
            "company[0].key[1].key: the same key as company[0].key",
        ),
        ('key = "acme-web-key"', 'key = "short"', "company[0].key[1].key: must have at least 8"),
        ('secret = "whsec_MfK', 'secret = "whsec_!!M', "company[0].webhook[0].secret: must be"),
        ('events = ["*"]', 'events = ["call completed"]', "company[0].webhook[0].events: must be"),
        (
            'url = "http://127.0.0.1:9000/hook"',
            'url = "file:///etc/passwd"',
            "company[0].webhook[0].url: must be",
        ),
        ('uri = "sip:127.0.0.1:5080;transport=udp"', 'uri = "127.0.0.1"', "trunk[0].uri: must be a SIP URI"),
        ("transport=udp", "transport=pigeon", "trunk[0].uri: transport must be udp, tcp or tls"),
        ('number_format = "+{e164}"', 'number_format = "{number}"', "trunk[0].number_format: must be"),
        ('number_format = "+{e164}"', 'number_format = "{e164.x}"', "trunk[0].number_format: must be"),
        ('accepts = "^', 'accepts = "(', "trunk[0].accepts: not a regular expression"),
        ('username = "acme"\n', "", "trunk[0].password: has no use without username"),
        ('password = "env:TRUNK_PASSWORD"\nregister = false', "register = true", ""),
        (
            'allow_from = ["127.0.0.1/32"]',
            'allow_from = ["carrier"]',
            "trunk[0].allow_from[0]: must be a network",
        ),
        ('uri = "sip:', 'register_ = true\nuri = "sip:', "trunk[0].register_: unknown key"),
        ('uri = "sip:', 'srtp = "zrtp"\nuri = "sip:', "trunk[0].srtp: input should be"),
        ('uri = "sip:', 'srtp = true\nuri = "sip:', "trunk[0].srtp: input should be"),
        (f'id = "{AGENT}"', 'id = "reminder"', "agent[0].id: must be a UUID"),
        ('trunk = "carrier"', 'trunk = "none"', "agent[0].trunk: company 'acme' has no trunk 'none'"),
        (
            'trunk = "carrier"',
            'trunk = "carrier"\ntrunks = ["none"]',
            "agent[0].trunks: company 'acme' has no trunk 'none'",
        ),
        ('trunk = "carrier"', 'trunk = "carrier"\ntrunks = ["carrier"]', "agent[0].trunks: names one twice"),
        ('uri = "sip:', 'dial_prefixes = ["+966"]\nuri = "sip:', "trunk[0].dial_prefixes[0]: must be digits"),
        (
            'uri = "sip:',
            'public_address = "stun:"\nuri = "sip:',
            "trunk[0].public_address: must be an address",
        ),
        ('uri = "sip:', 'public_address = "here"\nuri = "sip:', "trunk[0].public_address: must be an IP"),
        ('trunk = "carrier"\n', "", "agent[0].trunk: an agent with a phone number needs the trunk"),
        ('phone_number = "+966110000000"', 'phone_number = "0110"', "agent[0].phone_number: must begin with"),
        ('direction = "outbound"', 'direction = "sideways"', "agent[0].direction: input should be"),
        ('engine = "openai"', "", "agent[0].stt.engine: missing"),
        ('model = "any"', "", "agent[0].llm.model: missing"),
        ("[agent.stt]", '[agent.script]\nstart = "x"\n[agent.stt]', "agent[0].llm: an agent has either"),
        (
            "[agent.stt]",
            '[agent.session]\nrescue = "desk"\n[agent.stt]',
            "agent[0].session.rescue: not one of",
        ),
        ('company = "acme"\nuri', 'company = "other"\nuri', "trunk[0].company: there is no company 'other'"),
        (
            'company = "acme"\nname',
            'company = "other"\nname',
            "agent[0].company: there is no company 'other'",
        ),
    ],
)
def test_a_mistake_is_named_by_key_and_reason(tmp_path: Path, old: str, new: str, problem: str) -> None:
    text = edited(old, new)
    if not problem:
        assert load(written(tmp_path, text), environment=SECRETS).trunks[0].register_ is True
        return
    found = problems(tmp_path, text)
    assert any(line.startswith(problem) for line in found), found


def test_every_mistake_is_named_at_once(tmp_path: Path) -> None:
    found = problems(
        tmp_path, edited("[sip]", "[sip]\nport = 5060").replace('engine = "native"', "engine = 7")
    )
    assert [line.partition(":")[0] for line in found] == ["sip.engine", "sip.port"]


def test_no_secret_shows_in_a_mistake(tmp_path: Path) -> None:
    text = edited('key = "acme-web-key"', "key = 12345678").replace(
        "register = false", 'register = "canary-x"'
    )
    found = "\n".join(
        problems(tmp_path, text.replace('secret = "whsec_MfK', 'secret = "canary-secret"\nx = "whsec_'))
    )
    assert "company[0].key[1].key: " in found
    assert "canary" not in found
    assert "12345678" not in found


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("ADMIN", "server.admin_key"),
        ("TRUNK_PASSWORD", "trunk[0].password"),
        ("LLM_KEY", "agent[0].llm.api_key"),
        ("STT_KEY", "agent[0].stt.api_key"),
    ],
)
def test_a_missing_environment_variable_is_named(tmp_path: Path, name: str, key: str) -> None:
    without = {other: value for other, value in SECRETS.items() if other != name}
    assert problems(tmp_path, CONTRACT, without) == [f"{key}: the environment variable {name} is not set"]
    assert problems(tmp_path, CONTRACT, {**SECRETS, name: ""}) == [
        f"{key}: the environment variable {name} is empty"
    ]


@pytest.mark.parametrize("key", ["a", "short-of-24-characters-"])
def test_an_admin_key_that_can_be_guessed_is_refused_wherever_it_stands(tmp_path: Path, key: str) -> None:
    refused = ['server.admin_key: must have at least 24 characters, or be "generated"']
    assert problems(tmp_path, CONTRACT, {**SECRETS, "ADMIN": key}) == refused
    assert problems(tmp_path, CONTRACT.replace('"env:ADMIN"', f'"{key}"')) == refused
    long_enough = {**SECRETS, "ADMIN": key.ljust(24, "x")}
    assert load(written(tmp_path, CONTRACT), environment=long_enough).server.admin_key is not None


def test_an_admin_key_may_be_made_by_the_server_once(tmp_path: Path) -> None:
    settings = load(written(tmp_path, CONTRACT.replace('"env:ADMIN"', '"generated"')), environment=SECRETS)
    made = kept_admin_key(tmp_path, settings.server)
    assert len(made) >= 40
    assert kept_admin_key(tmp_path, settings.server) == made == (tmp_path / "admin.key").read_text()
    assert (tmp_path / "admin.key").stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_not_toml_is_refused_with_the_line(tmp_path: Path) -> None:
    (found,) = problems(tmp_path, "[server]\nhttp = \n")
    assert re.match(r"\(file\): not TOML: .*line 2", found)


def test_a_file_of_binary_rubbish_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(b"\xff\xfe\x00rubbish")
    with pytest.raises(SettingsError, match="not TOML"):
        load(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "missing.toml"
    with pytest.raises(SettingsError) as caught:
        load(path)
    assert caught.value.problems == (f"{path}: (file): no such file or directory",)


def test_two_of_one_id_are_refused(tmp_path: Path) -> None:
    second = CONTRACT[CONTRACT.index("[[trunk]]") : CONTRACT.index("[[agent]]")]
    assert problems(tmp_path, CONTRACT + second) == ["trunk[1].id: already used by trunk[0].id"]


def test_two_agents_cannot_answer_one_number(tmp_path: Path) -> None:
    first = CONTRACT[CONTRACT.index("[[agent]]") :].replace("outbound", "inbound")
    second = first.replace(AGENT, AGENT.replace("2f1c", "3f1c"))
    text = CONTRACT[: CONTRACT.index("[[agent]]")] + first + second
    assert problems(tmp_path, text) == [
        "agent[1].phone_number: agent[0] answers this number on the same trunk already"
    ]


@pytest.mark.parametrize(
    ("first", "second", "clash"),
    [
        ([], ["mon 09:00-17:00"], False),
        (["mon 09:00-17:00"], ["mon 17:00-24:00", "tue 00:00-24:00"], False),
        (["mon-fri 09:00-17:00"], ["fri 16:00-18:00"], True),
    ],
)
def test_agents_share_a_number_at_different_times(
    tmp_path: Path, first: list[str], second: list[str], clash: bool
) -> None:
    agent = CONTRACT[CONTRACT.index("[[agent]]") :].replace("outbound", "inbound")
    texts = [
        agent.replace("phone_number =", f"answering_windows = {windows}\nphone_number =".replace("'", '"'))
        for windows in (first, second)
    ]
    texts[1] = texts[1].replace(AGENT, AGENT.replace("2f1c", "3f1c"))
    text = CONTRACT[: CONTRACT.index("[[agent]]")] + "".join(texts)
    if clash:
        assert [each.partition(":")[0] for each in problems(tmp_path, text)] == ["agent[1].phone_number"]
    else:
        assert len(load(written(tmp_path, text), environment=SECRETS).agents) == 2


def test_a_company_that_may_dial_nothing_cannot_have_an_outbound_agent(tmp_path: Path) -> None:
    text = edited('dial_prefixes = ["966", "1415"]\n', "").replace('country = "SA"\n', "")
    (found,) = problems(tmp_path, text)
    assert found.startswith("agent[0].trunk: company 'acme' may dial nothing")


def test_without_prefixes_only_the_companys_country_is_dialled(tmp_path: Path) -> None:
    settings = load(written(tmp_path, edited('dial_prefixes = ["966", "1415"]\n', "")), environment=SECRETS)
    assert settings.companies[0].prefixes == ("SA",)


def test_a_script_comes_through_as_it_was_written(tmp_path: Path) -> None:
    text = CONTRACT[: CONTRACT.index("[agent.llm]")] + (
        '[agent.script]\nstart = "a"\n[[agent.script.step]]\nid = "a"\nsay = "Hello {{name}}"\n'
        'answers = { later = ["tomorrow", "not now"] }\ndigits = 4\n'
    )
    settings = load(written(tmp_path, text), environment=SECRETS)
    step = {"id": "a", "say": "Hello {{name}}", "answers": {"later": ["tomorrow", "not now"]}, "digits": 4}
    assert settings.agents[0].script == {"start": "a", "step": [step]}


def test_a_date_in_a_free_table_is_refused(tmp_path: Path) -> None:
    text = CONTRACT[: CONTRACT.index("[agent.llm]")] + "[agent.script]\nstart = 2026-01-01\n"
    assert problems(tmp_path, text) == ["agent[0].script.start: dates and times must be written as strings"]


def test_a_check_of_an_engine_is_part_of_loading(tmp_path: Path) -> None:
    def unknown_voice(settings: Settings) -> Iterator[tuple[str, str]]:
        for place, agent in enumerate(settings.agents):
            yield f"agent[{place}].tts.voice", f"no such voice for {agent.language}"

    path = written(tmp_path, CONTRACT)
    with pytest.raises(SettingsError) as caught:
        load(path, checks=[unknown_voice], environment=SECRETS)
    assert caught.value.problems == (f"{path}: agent[0].tts.voice: no such voice for en",)


@pytest.mark.parametrize("table", ["sip", "trunk"])
def test_what_pjsip_cannot_do_is_refused_by_key(tmp_path: Path, table: str) -> None:
    named = CONTRACT if table == "trunk" else CONTRACT.replace('engine = "native"', 'engine = "pjsua2"', 1)
    of_trunk = 'engine = "pjsua2"\n' if table == "trunk" else ""
    asked = 'follow_redirects = 2\naccept_register = true\nbackup_uris = ["sips:b.test"]\n'
    document = named.replace("[[trunk]]\n", f"[[trunk]]\n{of_trunk}{asked}", 1)
    with pytest.raises(SettingsError) as refused:
        load(written(tmp_path, document), environment=SECRETS)
    text = str(refused.value)
    for key in ("follow_redirects", "accept_register", "backup_uris"):
        assert f"trunk[0].{key}: " in text
    assert 'engine "pjsua2" follows no redirections' in text


def test_an_engine_that_is_not_installed_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sip.pjsip.refused.MODULE", "pjsua2_that_is_not_there")
    document = CONTRACT.replace('engine = "native"', 'engine = "pjsua2"', 1)
    with pytest.raises(
        SettingsError, match=r'trunk\[0\]\.engine: "pjsua2" is not installed here: pip install'
    ):
        load(written(tmp_path, document), environment=SECRETS)


def test_addresses_and_ports_come_apart() -> None:
    assert split_address("127.0.0.1:5060") == ("127.0.0.1", 5060)
    assert split_address("[::1]:0") == ("::1", 0)
    assert split_ports("20000-21999") == (20000, 21999)


# The reference file -----------------------------------------------------------------------------------------

_COMMENTED_KEY = re.compile(r"^# ((?:[a-z0-9_]+ = |\[).*)$", re.MULTILINE)


FREE = frozenset(
    {
        "script",
        "send_headers",
        "headers",
        "query",
        "extra_body",
        "variables",
        "parameters",
        "fixed",
        "schema",
        "confirm",
        "transfer_targets",
        "words",
        "pronunciation",
    }
)
"""Tables whose keys are the user's."""


def flat(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted key to value; tables in lists once; free tables and options whole."""
    for key, value in document.items():
        if (
            key in FREE
            or not isinstance(value, dict | list)
            or (value and not isinstance(value, dict | list))
        ):
            yield prefix + key, value
        elif isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        elif value and isinstance(value[0], dict):
            yield from flat(value[0], f"{prefix}{key}.")
        else:
            yield prefix + key, tuple(value)


def test_the_reference_file_loads() -> None:
    settings = load(REFERENCE, environment={})
    assert settings.companies[0].id == "acme"


def test_the_reference_file_names_every_key_and_no_other() -> None:
    shown = dict(flat(tomllib.loads(_COMMENTED_KEY.sub(r"\1", REFERENCE.read_text()))))
    assert set(shown) == set(defaults_document())


def test_the_reference_file_shows_the_defaults() -> None:
    live = dict(flat(tomllib.loads(REFERENCE.read_text())))
    defaults = {key: value for key, value in defaults_document().items() if value is not REQUIRED}
    wrong = {
        key: (live.get(key), value)
        for key, value in defaults.items()
        if value is not None and live.get(key, value) != value
    }
    assert wrong == {}
    without_default = {key for key, value in defaults.items() if value is None}
    assert without_default & set(live) == {"agent.script"}


def test_every_key_of_the_reference_file_is_explained() -> None:
    explained_by_name = {
        "tcp",
        "company",
        "name",
        "password",
        "engine",
        "base_url",
        "model",
        "api_key",
        "prompt",
    }
    bare = [
        line
        for line in REFERENCE.read_text().splitlines()
        if re.match(r"(# )?[a-z_]+ = ", line)
        and "  # " not in line
        and line.split(" = ")[0].lstrip("# ") not in explained_by_name | {"start", "step", "timeout_s"}
    ]
    assert bare == []


@pytest.mark.parametrize(
    ("knobs", "problem"),
    [
        ("eot_threshold = 0.0", "greater than 0"),
        ("eot_action_delay_ms = 900\neot_timeout_ms = 800", "must not be below the action delay"),
        ("endpoint_ms = 3000\neot_timeout_ms = 1000", "must not be below the action delay"),
    ],
)
def test_the_knobs_of_the_end_of_a_turn_are_checked(tmp_path: Path, knobs: str, problem: str) -> None:
    (line,) = problems(tmp_path, f"{CONTRACT}\n[agent.session]\n{knobs}\n")
    assert "agent[0].session" in line
    assert problem in line


RECIPES = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "telephony.md").read_text(), re.DOTALL)


def named(recipe: str) -> str:
    tables = tomllib.loads(recipe)
    return str(tables["trunk"][0]["id"] if "trunk" in tables else tables["sip"]["user"][0]["name"])


@pytest.mark.parametrize("recipe", RECIPES, ids=named)
def test_the_recipes_for_peers_are_valid(tmp_path: Path, recipe: str) -> None:
    """Each as it stands, for a company that there is."""
    company = '[server]\nadmin_key = "generated"\n[[company]]\nid = "acme"\ncountry = "US"\n'
    loaded = load(written(tmp_path, company + recipe), environment={})
    (trunk,) = (*loaded.trunks, *loaded.lines)
    assert trunk_settings(trunk).uri == trunk.uri
