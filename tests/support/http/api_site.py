"""A configuration with every kind of key, two countries and both duplicate policies, for the API's tests."""

from __future__ import annotations

from pathlib import Path

from tests.support.node.node import FAKE_ENGINES, Site, write_site

SERVER_KEY = "the-servers-own-admin-key"
ADMIN_KEY = "acme-admin-key"
WEB_KEY = "acme-web-key"
OTHER_ADMIN_KEY = "other-admin-key"
SAUDI_KEY = "saudi-calls-key"
SAUDI_AGENT = "e6d8e2a0-93a8-4a55-8f6c-9f5f3f5f1a04"
ROOMS_SECRET = "a-secret-that-signs-participant-tokens"

_SAUDI = """
[[company]]
id = "saudi"
duplicate_policy = "SPACED"
contact_limit = {{ calls = 3, per_minutes = 60 }}
country = "SA"
[[company.key]]
key = "saudi-calls-key"
scopes = ["calls"]

[[trunk]]
id = "riyadh"
company = "saudi"
uri = "sip:127.0.0.1:{carrier};transport=tcp"
caller_id = "+966110000000"
accepts = "^\\\\+9665\\\\d{{8}}$"

[[agent]]
id = "e6d8e2a0-93a8-4a55-8f6c-9f5f3f5f1a04"
company = "saudi"
trunk = "riyadh"
phone_number = "+966110000000"
{engines}
{goodbye}

[rooms]
api_secret = "a-secret-that-signs-participant-tokens"
udp_ports = "{rooms}"
"""

_KEYS = """
[[company.key]]
key = "acme-admin-key"
scopes = ["admin"]
[[company.key]]
key = "acme-web-key"
scopes = ["web-calls"]
"""


def write_api_site(
    directory: Path,
    *,
    rooms: str = "31000-31999",
    more: str = "",
    engines: str = FAKE_ENGINES,
    database: str = "",
) -> Site:
    """A site on free ports; nobody is at the carriers' addresses, and they refuse at once."""
    site = write_site(
        directory, engines=engines, transport="tcp", more=_SAUDI, database=database, rooms=rooms
    )
    site.reach_this_machine().add("[server]", f'admin_key = "{SERVER_KEY}"\n{more}')
    site.change('name = "Acme"\n', 'name = "Acme"\nweb_calls = true\n')
    site.change('[[company]]\nid = "other"\n', f'{_KEYS}\n[[company]]\nid = "other"\n')
    key = '[[company.key]]\nkey = "other-calls-key"\n'
    return site.change(key, f'[[company.key]]\nkey = "{OTHER_ADMIN_KEY}"\nscopes = ["admin"]\n{key}')
