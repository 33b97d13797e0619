"""STUN and TURN servers as the file names them, and as a WHIP client is told of them."""

from __future__ import annotations

import pytest

from mediaserver.settings.ice_servers import IceServer


@pytest.mark.parametrize(
    ("text", "link"),
    [
        ("stun:stun.example.net", '<stun:stun.example.net>; rel="ice-server"'),
        ("stun:[2001:db8::1]:3478", '<stun:[2001:db8::1]:3478>; rel="ice-server"'),
        (
            "turn:user:pass@turn.example.net?transport=udp",
            '<turn:turn.example.net?transport=udp>; rel="ice-server"; username="user"; credential="pass"; '
            'credential-type="password"',
        ),
        (
            'turns:1790000000%3Aann:a"b\\c%40d@turn.example.net:5349',
            '<turns:turn.example.net:5349>; rel="ice-server"; username="1790000000:ann"; '
            'credential="a\\"b\\\\c@d"; credential-type="password"',
        ),
    ],
)
def test_a_server_is_told_of_as_rfc_9725_has_it(text: str, link: str) -> None:
    assert IceServer.parse(text).link() == link


@pytest.mark.parametrize(
    "text",
    ["", "stun.example", "stun:", "http://stun.example", "stun:a:b@stun.example",
     "stun:stun.example?transport=udp", "turn:a:b@turn.example?transport=pigeon", "turn:a:b@x y"],
)  # fmt: skip
def test_what_a_browser_would_refuse_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be|has neither"):
        IceServer.parse(text)


def test_credentials_are_those_of_the_turn_rest_api() -> None:
    """Computed by openssl: dgst -binary -sha1 -hmac logen | base64."""
    server = IceServer.parse("turn:turn.example.net:3478")
    lent = server.lent("logen", "PA_ann", until_s=1790003600)
    assert server.lends
    assert (lent.url, lent.username, lent.credential) == (
        server.url,
        "1790003600:PA_ann",
        "HsPzOn7t+2kdcRhbRaqWMnhM5YY=",
    )
    assert not lent.lends
    assert not IceServer.parse("stun:stun.example.net").lends
