"""Digest access authentication (RFC 2617, 7616, 8760): `Authorizer` answers challenges, `Verifier` makes
them."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from sip.auth.challenge import (
    Challenge,
    Credentials,
    base_algorithm,
    best,
    digest_response,
    format_fields,
    hash_text,
    parse_fields,
)
from sip.errors import MalformedMessage
from sip.message.message import Request, Response
from sip.message.uri import Uri

__all__ = ["Authorizer", "Challenge", "Credentials", "Verdict", "Verifier", "best", "digest_response"]

_MAX_STALE = 2
"""New nonces in a row that a server may call stale; after these the challenge counts as a refusal."""


@dataclass(slots=True)
class _Session:
    """State of one realm: the last challenge, how often its nonce was used, and stale nonces in a row."""

    challenge: Challenge
    uses: int = 0
    stale_in_a_row: int = 0


class Authorizer:
    """Answers digest challenges as a client: keeps the challenge of every realm, of servers and proxies, and
    signs requests. `known_realms_only`: a realm that has not challenged before gets no answer.

    Nonces are used again with a growing count, so that only the first request of a registration or a trunk is
    challenged."""

    def __init__(self, credentials: Credentials, *, make_cnonce: Callable[[], str] | None = None) -> None:
        self._credentials = credentials
        self._make_cnonce = make_cnonce or (lambda: secrets.token_hex(16))
        self.known_realms_only = False
        self._sessions: dict[tuple[str, str], _Session] = {}  # (header, realm); bounded by _MAX_REALMS

    def challenged(self, request: Request, response: Response) -> bool:
        """Takes the challenges of a 401 or 407 to `request`. True: sign the request again and send it. False:
        no challenge is usable, or the credentials were refused."""
        progress = False
        for challenge_header, header in _HEADERS.items():
            per_realm: dict[str, list[Challenge]] = {}
            for challenge in _challenges(response, challenge_header):
                per_realm.setdefault(challenge.realm, []).append(challenge)
            for offered in per_realm.values():
                chosen = best(offered)
                if chosen is not None and self._remember(header, chosen, request):
                    progress = True
        return progress

    def sign(self, request: Request) -> None:
        """Replaces Authorization and Proxy-Authorization in `request`, one for each realm that has
        challenged. Before the first challenge it only removes them."""
        for header in _HEADERS.values():
            request.headers.remove(header)
        for (header, _), session in self._sessions.items():
            session.uses += 1
            request.headers.add(header, self._authorization(session, request))

    def _remember(self, header: str, challenge: Challenge, request: Request) -> bool:
        key = (header, challenge.realm)
        session = self._sessions.get(key)
        tried = _nonce_of(request, header, challenge.realm)
        if session is None or tried is None or tried != session.challenge.nonce or session.uses > 1:
            # Never answered, or answered with a nonce that had served before: the challenge may simply be
            # newer.
            if session is None and (self.known_realms_only or len(self._sessions) >= _MAX_REALMS):
                return False
            self._sessions[key] = _Session(challenge)
            return True
        if challenge.stale and session.stale_in_a_row < _MAX_STALE:
            self._sessions[key] = _Session(challenge, stale_in_a_row=session.stale_in_a_row + 1)
            return True
        del self._sessions[key]  # refused: the next request asks for a challenge again
        return False

    def _authorization(self, session: _Session, request: Request) -> str:
        challenge, uri = session.challenge, str(request.uri)
        qop = next((each for each in ("auth", "auth-int") if each in challenge.qop), None)
        needs_cnonce = qop is not None or challenge.algorithm.upper().endswith("-SESS")
        cnonce = self._make_cnonce() if needs_cnonce else ""
        response = digest_response(
            self._credentials,
            challenge,
            method=request.method,
            uri=uri,
            body=request.body,
            qop=qop,
            nonce_count=session.uses,
            cnonce=cnonce,
        )
        fields = {
            "username": self._username(challenge),
            "realm": challenge.realm,
            "nonce": challenge.nonce,
            "uri": uri,
            "response": response,
            "algorithm": challenge.algorithm,
        }
        if needs_cnonce:
            fields["cnonce"] = cnonce
        if challenge.opaque is not None:
            fields["opaque"] = challenge.opaque
        if qop is not None:
            fields |= {"qop": qop, "nc": f"{session.uses:08x}"}
        if challenge.userhash:
            fields["userhash"] = "true"
        return format_fields(fields)

    def _username(self, challenge: Challenge) -> str:
        name = self._credentials.username
        return (
            hash_text(base_algorithm(challenge.algorithm), f"{name}:{challenge.realm}")
            if challenge.userhash
            else name
        )


_MAX_REALMS = 8
"""Realms that may challenge one request; the limit bounds memory."""

_HEADERS: Mapping[str, str] = {
    "WWW-Authenticate": "Authorization",
    "Proxy-Authenticate": "Proxy-Authorization",
}


class Verdict(Enum):
    """Outcome of verifying a request's credentials."""

    OK = auto()
    MISSING = auto()  # none for this realm: challenge
    STALE = auto()  # a nonce not made here, too old, or used before: challenge with stale=true
    WRONG = auto()  # unknown user, wrong password or other URI, with a nonce made here: challenge and count


ANSWER_S = 32.0
"""Seconds in which a client answers a challenge: the life of a request (RFC 3261 17.1.2.2, timer F)."""


class Verifier:
    """Verifies credentials as a server.

    Nonces are not stored but signed, with the time and the host that received them. Of the nonces in use the
    highest count is kept, for the newest `table_size`; older nonces count as stale, so a replay never passes.
    The password is checked only with a nonce made here: an answer to one proves that its sender received the
    challenge, so nobody guesses passwords from a forged address."""

    def __init__(
        self,
        realm: str,
        *,
        algorithms: Sequence[str] = ("SHA-256", "MD5"),
        lifetime_s: float = 300.0,
        table_size: int = 10_000,
        key: bytes | None = None,
    ) -> None:
        self.realm = realm
        self._algorithms = tuple(algorithms)
        self._lifetime_s = lifetime_s
        self._table_size = table_size
        self._key = key or secrets.token_bytes(32)
        self._counts: OrderedDict[str, int] = OrderedDict()
        self._oldest_ms = -(2**63)  # nonces made before this may have been dropped, so they count as stale

    def challenges(
        self, now: float, *, host: str = "", stale: bool = False, only: Sequence[str] | None = None
    ) -> list[str]:
        """Returns the values of WWW-Authenticate headers to `host`, one per algorithm, strongest first (RFC
        8760 2.4), of `only` these. `stale`: the credentials were right but the nonce too old."""
        return [
            str(Challenge(self.realm, self._nonce(now, host), name, ("auth",), stale=stale))
            for name in self._algorithms
            if only is None or name in only
        ]

    def verify(
        self,
        request: Request,
        password_of: Callable[[str], str | Mapping[str, str] | None],
        now: float,
        *,
        host: str = "",
    ) -> tuple[Verdict, str | None]:
        """Returns the verdict on the credentials of a request from `host`, and with OK the username.

        `password_of` returns the password of a username, or its HA1 by the name of the hash, or None. The
        digest's URI must name the same user as the Request-URI: proxies rewrite hosts and parameters, but a
        captured digest must not dial another number. Never raises for what a peer sent."""
        fields = self._credentials_of(request)
        if fields is None:
            return Verdict.MISSING, None
        made_ms = self._made_ms(fields["nonce"], host)
        if made_ms is None:
            return Verdict.STALE, None
        username = fields["username"]
        password = password_of(username)
        # An unknown user costs the same time as a wrong password.
        text = password if isinstance(password, str) else secrets.token_hex(8)
        known = Credentials(username, text, password if isinstance(password, Mapping) else {})
        expected = self._expected(fields, known, request)
        same = hmac.compare_digest(expected.encode(), fields["response"].lower().encode("utf-8", "replace"))
        if not same or password is None or not _same_user(fields["uri"], request.uri):
            return Verdict.WRONG, None
        if not self._fresh(fields, made_ms, now):
            return Verdict.STALE, None
        return Verdict.OK, username

    def asked(self, nonce: str, host: str, now: float) -> bool:
        """Whether `nonce` was made for `host` a moment ago, so that whoever has it answers a challenge."""
        made_ms = self._made_ms(nonce, host)
        return made_ms is not None and 0 <= now * 1000 - made_ms + 1 <= ANSWER_S * 1000

    def claimed(self, request: Request) -> str | None:
        """Returns the username that a request claims; None without credentials for this realm."""
        fields = self._credentials_of(request)
        return None if fields is None else fields["username"]

    def _credentials_of(self, request: Request) -> dict[str, str] | None:
        for value in request.headers.get_all("Authorization"):
            try:
                fields = parse_fields(value)
            except MalformedMessage:
                continue
            complete = all(name in fields for name in ("username", "realm", "nonce", "uri", "response"))
            offered = any(fields.get("algorithm", "MD5").upper() == name.upper() for name in self._algorithms)
            if complete and offered and fields["realm"] == self.realm and fields.get("qop", "auth") == "auth":
                return fields
        return None

    def _expected(self, fields: Mapping[str, str], credentials: Credentials, request: Request) -> str:
        challenge = Challenge(self.realm, fields["nonce"], fields.get("algorithm", "MD5"))
        return digest_response(
            credentials,
            challenge,
            method=request.method,
            uri=fields["uri"],
            qop=fields.get("qop"),
            nonce_count=_count(fields),
            cnonce=fields.get("cnonce", ""),
        )

    def _nonce(self, now: float, host: str) -> str:
        text = f"{round(now * 1000):x}.{secrets.token_hex(8)}"
        return f"{text}.{self._signature(text, host)}"

    def _signature(self, text: str, host: str) -> str:
        signed = f"{text} {host}".encode("utf-8", "replace")
        return hmac.new(self._key, signed, hashlib.sha256).hexdigest()[:32]

    def _fresh(self, fields: Mapping[str, str], made_ms: int, now: float) -> bool:
        nonce, count = fields["nonce"], _count(fields)
        if not 0 <= now * 1000 - made_ms + 1 <= self._lifetime_s * 1000:
            return False
        if nonce not in self._counts and made_ms <= self._oldest_ms:
            return False
        if count <= self._counts.get(nonce, 0):
            return False
        self._counts[nonce] = count
        while len(self._counts) > self._table_size:
            forgotten, _ = self._counts.popitem(last=False)
            self._oldest_ms = max(self._oldest_ms, _time_ms(forgotten))
        return True

    def _made_ms(self, nonce: str, host: str) -> int | None:
        """Returns when a nonce was made for `host`, in milliseconds; None for a nonce that was not made
        here."""
        text, _, signature = nonce.rpartition(".")
        ours = self._signature(text, host)
        if not hmac.compare_digest(ours.encode(), signature.encode("utf-8", "replace")):
            return None
        return _time_ms(nonce)


def _time_ms(nonce: str) -> int:
    """Returns when a nonce with a valid signature was made, in milliseconds."""
    return int(nonce.partition(".")[0], 16)


def _challenges(response: Response, header: str) -> list[Challenge]:
    """Returns every challenge of a response that parses; another scheme is skipped."""
    found: list[Challenge] = []
    for value in response.headers.get_all(header):
        try:
            found.append(Challenge.parse(value))
        except MalformedMessage:
            continue
    return found


def _nonce_of(request: Request, header: str, realm: str) -> str | None:
    for value in request.headers.get_all(header):
        try:
            fields = parse_fields(value)
        except MalformedMessage:
            continue
        if fields.get("realm") == realm:
            return fields.get("nonce")
    return None


def _count(fields: Mapping[str, str]) -> int:
    """Returns nc as a number: 1 without one (RFC 2069, one use for each nonce), 0 for a malformed one."""
    text = fields.get("nc")
    if text is None:
        return 1
    return int(text, 16) if re.fullmatch(r"[0-9A-Fa-f]{8}", text) else 0


def _same_user(text: str, uri: Uri) -> bool:
    try:
        return Uri.parse(text).user == uri.user
    except MalformedMessage:
        return False
