from __future__ import annotations

from collections.abc import Callable

import pytest

from sip.auth.digest import (
    Authorizer,
    Challenge,
    Credentials,
    Verdict,
    Verifier,
    best,
    digest_response,
)
from sip.errors import MalformedMessage
from sip.message.headers import Headers
from sip.message.message import Request, Response
from sip.message.uri import Uri

ALICE = Credentials("alice", "secret")
BY_SERVER_OR_PROXY = pytest.mark.parametrize("status", [401, 407])


def register(uri: str = "sip:+15550100@example.com") -> Request:
    return Request("REGISTER", Uri.parse(uri), Headers([("To", "<sip:alice@example.com>")]))


def challenged(*values: str, status: int = 401) -> Response:
    name = "WWW-Authenticate" if status == 401 else "Proxy-Authenticate"
    return Response(status, "Unauthorized", Headers((name, value) for value in values))


FIRST, SECOND = (f'Digest realm="r", nonce="{nonce}", qop="auth"' for nonce in ("one", "two"))


def once_challenged(status: int) -> tuple[Authorizer, Request]:
    """Who has been asked for credentials once, and the request."""
    authorizer, request = Authorizer(ALICE), register()
    assert authorizer.challenged(request, challenged(FIRST, status=status))
    return authorizer, request


def passwords(username: str) -> str | None:
    return {"alice": "secret"}.get(username)


# RFC 7616 section 3.9.1: one request, both algorithms.
MUFASA = Credentials("Mufasa", "Circle of Life")
RFC7616_NONCE = "7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v"
RFC7616_CNONCE = "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ"


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        ("MD5", "8ca523f5e9506fed4657c9700eebdbec"),
        ("SHA-256", "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"),
    ],
)
def test_vectors_of_rfc_7616(algorithm: str, expected: str) -> None:
    challenge = Challenge("http-auth@example.org", RFC7616_NONCE, algorithm, ("auth", "auth-int"))
    found = digest_response(
        MUFASA,
        challenge,
        method="GET",
        uri="/dir/index.html",
        qop="auth",
        nonce_count=1,
        cnonce=RFC7616_CNONCE,
    )
    assert found == expected


def test_vector_of_rfc_2617() -> None:
    challenge = Challenge("testrealm@host.com", "dcd98b7102dd2f0e8b11d0f600bfb0c093", "MD5", ("auth",))
    found = digest_response(
        Credentials("Mufasa", "Circle Of Life"),
        challenge,
        method="GET",
        uri="/dir/index.html",
        qop="auth",
        cnonce="0a4f113b",
    )
    assert found == "6629fae49393a05397450978507c4ef1"


def test_challenge_is_read_and_written() -> None:
    value = (
        'Digest realm="a \\"b\\"", nonce="n", opaque="o", algorithm=SHA-256, qop="auth,auth-int", stale=true'
    )
    challenge = Challenge.parse(value)
    assert challenge == Challenge('a "b"', "n", "SHA-256", ("auth", "auth-int"), opaque="o", stale=True)
    assert Challenge.parse(str(challenge)) == challenge


@pytest.mark.parametrize("value", ["", "Basic realm=x", 'Digest realm="x"', 'Digest realm="x, nonce="y"'])
def test_broken_challenges(value: str) -> None:
    with pytest.raises(MalformedMessage):
        Challenge.parse(value)


def test_strongest_challenge_is_answered() -> None:
    md5, sha = Challenge("r", "n", "MD5", ("auth",)), Challenge("r", "n", "SHA-256", ("auth",))
    strange = Challenge("r", "n", "SHA-3", ("auth",))
    assert best([strange, md5, sha]) == sha
    assert best([strange, md5]) == md5
    assert best([strange, Challenge("r", "n", "MD5", ("auth-conf",))]) is None


def test_nonce_is_used_again_with_a_growing_count() -> None:
    authorizer = Authorizer(ALICE)
    first = register()
    authorizer.sign(first)
    assert first.header("Authorization") is None
    assert authorizer.challenged(first, challenged('Digest realm="r", nonce="n", qop="auth"'))
    for count in (1, 2, 3):
        authorizer.sign(first)
        assert f"nc={count:08x}" in str(first.header("Authorization"))
    assert len(first.headers.get_all("Authorization")) == 1


@BY_SERVER_OR_PROXY
def test_refused_credentials_are_not_tried_again(status: int) -> None:
    authorizer, request = once_challenged(status)
    authorizer.sign(request)
    assert not authorizer.challenged(request, challenged(SECOND, status=status))


@BY_SERVER_OR_PROXY
def test_stale_nonce_is_replaced_but_not_for_ever(status: int) -> None:
    authorizer, request = once_challenged(status)
    outcomes = []
    for number in range(1, 6):
        authorizer.sign(request)
        stale = f'Digest realm="r", nonce="n{number}", qop="auth", stale=TRUE'
        outcomes.append(authorizer.challenged(request, challenged(stale, status=status)))
    assert outcomes[:2] == [True, True]
    assert False in outcomes


@BY_SERVER_OR_PROXY
def test_nonce_that_served_before_may_be_replaced_without_stale(status: int) -> None:
    authorizer, request = once_challenged(status)
    authorizer.sign(request)
    authorizer.sign(request)
    assert authorizer.challenged(request, challenged(SECOND, status=status))


def test_proxy_and_server_are_answered_together() -> None:
    authorizer = Authorizer(ALICE)
    request = register()
    assert authorizer.challenged(request, challenged('Digest realm="proxy", nonce="p"', status=407))
    authorizer.sign(request)
    assert authorizer.challenged(request, challenged('Digest realm="server", nonce="s"'))
    authorizer.sign(request)
    assert 'realm="proxy"' in str(request.header("Proxy-Authorization"))
    assert 'realm="server"' in str(request.header("Authorization"))


def test_only_schemes_that_we_cannot_answer() -> None:
    authorizer = Authorizer(ALICE)
    assert not authorizer.challenged(
        register(), challenged("Negotiate abc", 'Digest realm="r", nonce="n", algorithm=X')
    )
    assert not authorizer.challenged(register(), challenged())


def test_legacy_challenge_without_qop() -> None:
    authorizer = Authorizer(ALICE)
    request = register()
    authorizer.challenged(request, challenged('Digest realm="r", nonce="n", opaque="x\\"y"'))
    authorizer.sign(request)
    value = str(request.header("Authorization"))
    assert "qop" not in value
    assert "cnonce" not in value
    assert 'opaque="x\\"y"' in value


def handshake(verifier: Verifier, now: float, *, credentials: Credentials = ALICE) -> Request:
    """A request signed for the verifier's own challenge."""
    authorizer, request = Authorizer(credentials), register()
    assert authorizer.challenged(request, challenged(*verifier.challenges(now)))
    authorizer.sign(request)
    return request


@pytest.mark.parametrize(
    "algorithms", [("SHA-256", "MD5"), ("MD5",), ("SHA-512-256",), ("MD5-sess",), ("SHA-256-sess",)]
)
def test_client_and_server_agree(algorithms: tuple[str, ...]) -> None:
    verifier = Verifier("here", algorithms=algorithms)
    request = handshake(verifier, 100.0)
    assert f"algorithm={algorithms[0]}" in str(request.header("Authorization"))
    assert verifier.verify(request, passwords, 101.0) == (Verdict.OK, "alice")


def test_server_sees_what_is_wrong() -> None:
    verifier = Verifier("here")
    assert verifier.verify(register(), passwords, 1.0) == (Verdict.MISSING, None)
    for credentials in (Credentials("alice", "wrong"), Credentials("nobody", "secret")):
        request = handshake(verifier, 1.0, credentials=credentials)
        assert verifier.verify(request, passwords, 1.0) == (Verdict.WRONG, None)


def test_replay_is_stale() -> None:
    verifier = Verifier("here")
    request = handshake(verifier, 1.0)
    assert verifier.verify(request, passwords, 1.0)[0] is Verdict.OK
    assert verifier.verify(request, passwords, 1.0)[0] is Verdict.STALE


def test_nonce_expires() -> None:
    verifier = Verifier("here", lifetime_s=60.0)
    request = handshake(verifier, 1.0)
    assert verifier.verify(request, passwords, 62.0)[0] is Verdict.STALE
    assert "stale=true" in verifier.challenges(62.0, stale=True)[0]


@pytest.mark.parametrize("password", ["secret", "wrong"])
def test_nonce_of_somebody_else_is_stale_whatever_the_password(password: str) -> None:
    credentials = Credentials("alice", password)
    request = handshake(Verifier("here"), 1.0, credentials=credentials)
    assert Verifier("here").verify(request, passwords, 1.0)[0] is Verdict.STALE


@pytest.mark.parametrize("password", ["secret", "wrong"])
def test_nonce_of_another_host_is_stale_whatever_the_password(password: str) -> None:
    verifier, request = Verifier("here"), register()
    authorizer = Authorizer(Credentials("alice", password))
    assert authorizer.challenged(request, challenged(*verifier.challenges(1.0, host="192.0.2.1")))
    authorizer.sign(request)
    assert verifier.verify(request, passwords, 1.0, host="192.0.2.2")[0] is Verdict.STALE
    right = password == "secret"
    expected = Verdict.OK if right else Verdict.WRONG
    assert verifier.verify(request, passwords, 1.0, host="192.0.2.1")[0] is expected


def test_replay_does_not_pass_after_the_table_has_overflowed() -> None:
    verifier = Verifier("here", table_size=4)
    first = handshake(verifier, 1.0)
    assert verifier.verify(first, passwords, 1.0)[0] is Verdict.OK
    for number in range(10):
        assert verifier.verify(handshake(verifier, 2.0 + number), passwords, 2.0 + number)[0] is Verdict.OK
    assert verifier.verify(first, passwords, 13.0)[0] is Verdict.STALE


def test_captured_digest_does_not_dial_another_number() -> None:
    verifier = Verifier("here")
    request = handshake(verifier, 1.0)
    other = Request("REGISTER", Uri.parse("sip:+19005550100@example.com"), request.headers)
    assert verifier.verify(other, passwords, 1.0)[0] is Verdict.WRONG
    invite = Request("INVITE", request.uri, request.headers)
    assert verifier.verify(invite, passwords, 1.0)[0] is Verdict.WRONG


def test_proxy_may_have_rewritten_the_host() -> None:
    verifier = Verifier("here")
    request = handshake(verifier, 1.0)
    request.uri = Uri.parse("sip:+15550100@192.0.2.1:5080;transport=tcp")
    assert verifier.verify(request, passwords, 1.0)[0] is Verdict.OK


@pytest.mark.parametrize(
    "change",
    [
        lambda value: value.replace("nc=00000001", "nc=1"),
        lambda value: value.replace("nc=00000001", "nc=zzzzzzzz"),
        lambda value: value.replace('nonce="', 'nonce="٣.é'),
        lambda value: value.replace('uri="sip:', 'uri="'),
        lambda value: value.replace('response="', 'response="é'),
        lambda value: value.replace("algorithm=SHA-256", "algorithm=CRC32"),
        lambda value: value.replace("qop=auth", "qop=auth-int"),
        lambda value: value.replace('realm="here"', 'realm="there"'),
        lambda value: value[:-20],
        lambda value: "Digest",
        lambda value: "Digest " + "," * 500,
    ],
)
def test_nothing_escapes_from_tampered_credentials(change: Callable[[str], str]) -> None:
    verifier = Verifier("here")
    request = handshake(verifier, 1.0)
    request.headers.set("Authorization", change(str(request.header("Authorization"))))
    verdict, username = verifier.verify(request, passwords, 1.0)
    assert verdict is not Verdict.OK
    assert username is None


def test_digest_of_the_body() -> None:
    challenge = Challenge("r", "n", "MD5", ("auth-int",))
    authorizer, request = Authorizer(ALICE, make_cnonce=lambda: "c"), register()
    request.body = b"v=0\r\n"
    authorizer.challenged(request, challenged(str(challenge)))
    authorizer.sign(request)
    expected = digest_response(
        ALICE, challenge, method="REGISTER", uri=str(request.uri), body=b"v=0\r\n", qop="auth-int", cnonce="c"
    )
    assert f'response="{expected}"' in str(request.header("Authorization"))
