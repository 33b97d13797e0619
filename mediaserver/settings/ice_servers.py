"""STUN and TURN servers for clients (`rooms.ice_servers`), each as "stun:host:port", "turn:host:port" with
credentials of `rooms.turn_secret`, "turn:user:password@host:port?transport=tcp" or "turns:..."."""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias
from urllib.parse import unquote

_SERVER: Final = re.compile(
    r"(?P<scheme>stuns?|turns?):"
    r"(?:(?P<user>[^\s:@]+):(?P<password>[^\s@]+)@)?"
    r"(?P<rest>(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?(?P<query>\?transport=(?:udp|tcp))?)"
)


@dataclass(frozen=True, slots=True)
class IceServer:
    """A STUN or TURN server. `url` is that of RFC 7064 or 7065; a TURN server has a user name and a
    credential, or is told of with those that `lent` makes."""

    url: str
    username: str = ""
    credential: str = ""

    @classmethod
    def parse(cls, text: str) -> IceServer:
        """Parses a server of the configuration; ":" and "@" in a user name are percent-encoded. Raises
        ValueError: browsers refuse the whole connection for one malformed server."""
        found = _SERVER.fullmatch(text)
        if found is None:
            raise ValueError('must be "stun:host:port" or "turn:user:password@host:port"')
        turn = found["scheme"].startswith("turn")
        if not turn and (found["user"] or found["query"]):
            raise ValueError("a STUN server has neither a user nor a transport")
        user, password = unquote(found["user"] or ""), unquote(found["password"] or "")
        return cls(f"{found['scheme']}:{found['rest']}", user, password)

    @property
    def lends(self) -> bool:
        """Whether the server takes credentials made of a secret that it shares with this one."""
        return self.url.startswith("turn") and not self.username

    def lent(self, secret: str, participant: str, *, until_s: int) -> IceServer:
        """Returns the server as `participant` is told of it: with a user name that is valid until the UNIX
        time `until_s`, and its HMAC-SHA1 (draft-uberti-behave-turn-rest-00; coturn's `use-auth-secret`)."""
        username = f"{until_s}:{participant}"
        mac = hmac.digest(secret.encode(), username.encode(), "sha1")
        return replace(self, username=username, credential=base64.b64encode(mac).decode())

    def link(self) -> str:
        """Returns the value of a WHIP Link header (RFC 9725 section 4.6)."""
        parts = [f"<{self.url}>", 'rel="ice-server"']
        if self.username:
            parts += [f"username={_quoted(self.username)}", f"credential={_quoted(self.credential)}"]
            parts.append('credential-type="password"')
        return "; ".join(parts)


IceServersFor: TypeAlias = Callable[[str], Sequence[IceServer]]
"""Returns the servers as a participant of that sid is told of them."""


def _quoted(text: str) -> str:
    """Returns `text` as a quoted-string of RFC 9110."""
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'
