"""No secret of a message can be read from its trace, and everything else can."""

from __future__ import annotations

import pytest

from sip.message.redaction import redacted

HEAD = "INVITE sip:1@h SIP/2.0\r\nVia: SIP/2.0/UDP h;branch=z9hG4bK1\r\n"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (
            'Authorization: Digest username="u", realm="r", nonce="n", response="abc", cnonce="c"',
            'Authorization: Digest username="u", realm="r", nonce="n", response="***", cnonce="***"',
        ),
        (
            "proxy-authorization : Digest response=abc,qop=auth",
            'proxy-authorization : Digest response="***",qop=auth',
        ),
        ("Authorization: Basic dTpw", "Authorization: Basic ***"),
        (
            'Authorization: Digest username="u",\r\n response="abc",\r\n\tcnonce="c"',
            'Authorization: Digest username="u", response="***", cnonce="***"',
        ),
        ("Proxy-Authorization:\r\n Basic\r\n dTpw", "Proxy-Authorization: Basic ***"),
        ("Contact: <sip:user:secret@h:5060>", "Contact: <sip:user:***@h:5060>"),
        ("Contact: <sip:user@h:5060;transport=udp>", "Contact: <sip:user@h:5060;transport=udp>"),
        ('WWW-Authenticate: Digest realm="r", nonce="n"', 'WWW-Authenticate: Digest realm="r", nonce="n"'),
        ("X-Response: response=abc", "X-Response: response=abc"),
    ],
)
def test_header_fields(line: str, shown: str) -> None:
    assert redacted(f"{HEAD}{line}\r\n\r\n".encode()) == f"{HEAD}{shown}\r\n\r\n".encode()


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (
            "a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:d0RmdmcmVCspeEc3QGZiNWpVLFJhQX1cfHAwJSoj|2^20|1:32",
            "a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:***|2^20|1:32",
        ),
        (
            "a=crypto:1 F8 inline:AAAA|1:1;inline:BBBB|2:1 KDR=1",
            "a=crypto:1 F8 inline:***|1:1;inline:***|2:1 KDR=1",
        ),
        ("a=crypto:1 X\tINLINE:AAAA", "a=crypto:1 X\tINLINE:***"),
        ("a=ice-pwd:asd88fgpdd777uzjYhagZg", "a=ice-pwd:***"),
        ("k=clear:91jf", "k=clear:***"),
        ("a=rtpmap:0 PCMU/8000", "a=rtpmap:0 PCMU/8000"),
    ],
)
def test_session_descriptions(line: str, shown: str) -> None:
    head = f"{HEAD}Content-Type: application/sdp\r\n\r\nv=0\r\n"
    assert redacted(f"{head}{line}\r\n".encode()) == f"{head}{shown}\r\n".encode()


@pytest.mark.parametrize(
    ("kind", "body", "shown"),
    [
        ("application/dtmf-relay", "Signal=5\r\nDuration=160\r\n", "Signal=*\r\nDuration=160\r\n"),
        ("application/dtmf", "7", "***"),
        ("text/plain", "Signal=5\r\n", "Signal=*\r\n"),
        (
            "multipart/mixed;\r\n boundary=b",
            "--b\r\nContent-Type: application/dtmf-relay\r\n\r\nSignal= 5\r\nDuration=160\r\n--b--\r\n",
            "--b\r\nContent-Type: application/dtmf-relay\r\n\r\nSignal= *\r\nDuration=160\r\n--b--\r\n",
        ),
        ("multipart/mixed", "--b\r\nContent-Type: application/dtmf\r\n\r\n7\r\n--b--\r\n", "***"),
    ],
)
def test_digits_by_info(kind: str, body: str, shown: str) -> None:
    head = f"INFO sip:1@h SIP/2.0\r\nContent-Type: {kind}\r\n\r\n"
    assert redacted(f"{head}{body}".encode()) == f"{head}{shown}".replace(";\r\n ", "; ").encode()
