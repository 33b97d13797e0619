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
[agent.script]
start = "bye"
[[agent.script.step]]
id = "bye"
say = "Goodbye."
action = "hang_up"

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
    saudi = _SAUDI.replace("{rooms}", rooms)
    site = write_site(directory, engines=engines, transport="tcp", more=saudi, database=database)
    text = site.path.read_text()
    server = f'[server]\nadmin_key = "{SERVER_KEY}"\nallow_networks = ["127.0.0.0/8"]\n{more}'
    text = text.replace("[server]\n", server, 1)
    text = text.replace('country = "US"\n', f'country = "US"\nweb_calls = true\n{_KEYS}', 1)
    text = text.replace(
        '[[company.key]]\nkey = "other-calls-key"\n',
        f'[[company.key]]\nkey = "{OTHER_ADMIN_KEY}"\nscopes = ["admin"]\n'
        '[[company.key]]\nkey = "other-calls-key"\n',
        1,
    )
    site.path.write_text(text)
    return site
