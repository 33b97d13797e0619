"""STUN and TURN servers for clients (`rooms.ice_servers`), each as "stun:host:port",
"turn:user:password@host:port?transport=tcp" or "turns:..."."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

_SERVER: Final = re.compile(
    r"(?P<scheme>stuns?|turns?):"
    r"(?:(?P<user>[^\s:@]+):(?P<password>[^\s@]+)@)?"
    r"(?P<rest>(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?(?P<query>\?transport=(?:udp|tcp))?)"
)


@dataclass(frozen=True, slots=True)
class IceServer:
    """A STUN or TURN server. `url` is that of RFC 7064 or 7065; a TURN server has a user name and a
    credential."""

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
        if turn is not bool(found["user"]) or (found["query"] and not turn):
            raise ValueError("a TURN server needs a user and a password, a STUN server has none")
        user, password = unquote(found["user"] or ""), unquote(found["password"] or "")
        return cls(f"{found['scheme']}:{found['rest']}", user, password)

    def link(self) -> str:
        """Returns the value of a WHIP Link header (RFC 9725 section 4.6)."""
        parts = [f"<{self.url}>", 'rel="ice-server"']
        if self.username:
            parts += [f"username={_quoted(self.username)}", f"credential={_quoted(self.credential)}"]
            parts.append('credential-type="password"')
        return "; ".join(parts)


def _quoted(text: str) -> str:
    """Returns `text` as a quoted-string of RFC 9110."""
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'
