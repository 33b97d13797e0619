"""Takes secrets out of SIP messages that people will read: digest responses, passwords, keys, digits."""

from __future__ import annotations

import re

HIDDEN = b"***"

_CREDENTIALS = re.compile(rb"(?im)^(?:Proxy-)?Authorization[ \t]*:[^\r\n]*")
# The digest of a password can be guessed at leisure; the challenge alone cannot.
_DIGEST_SECRET = re.compile(rb'(?i)\b(response|cnonce|auts|password)([ \t]*=[ \t]*)("[^"\r\n]*"|[^\s,;]+)')
_OTHER_SCHEME = re.compile(rb"(?i)(Authorization[ \t]*:[ \t]*)(?!Digest\b)(\S+[ \t]+)[^\r\n]+")
_URI_PASSWORD = re.compile(rb"(?i)(\bsips?:[^\s:@<>\r\n]+):[^\s@<>\r\n/]+@")
_MEDIA_KEY = re.compile(rb"(?im)(\binline:|^a=ice-pwd:|^k=[a-z]+:|^a=key-mgmt:\S+ )[^\s;|]+")
_DTMF_TYPE = re.compile(
    rb"(?im)^(?:Content-Type|c)[ \t]*:[ \t]*application/(?:dtmf|vnd\.\S*dtmf|telephone-event)"
)
_INFO = re.compile(rb"(?im)^INFO[ \t]|^CSeq[ \t]*:[ \t]*\d+[ \t]+INFO\b")
_FOLD = re.compile(rb"[ \t]*\r?\n[ \t]+")
_SIGNAL = re.compile(rb"(?im)^([ \t]*Signal[ \t]*=[ \t]*)[^\r\n]+")


def redacted(data: bytes) -> bytes:
    """Returns a SIP message without secrets. Digits that a caller keyed by INFO are always hidden: an agent
    may have masked them. Content-Length stays as it was on the wire."""
    head, separator, body = data.partition(b"\r\n\r\n")
    head = _FOLD.sub(b" ", head)  # RFC 3261 7.3.1: a header field may go on in the next line
    head = _CREDENTIALS.sub(lambda line: _DIGEST_SECRET.sub(rb'\1\2"***"', line[0]), head)
    head = _URI_PASSWORD.sub(rb"\1:***@", _OTHER_SCHEME.sub(rb"\1\2***", head))
    digits = _DTMF_TYPE.search(head) or _DTMF_TYPE.search(_FOLD.sub(b" ", body))
    if body and (digits or _INFO.search(head)):
        hidden = _SIGNAL.sub(rb"\1*", body)
        body = hidden if hidden != body or not digits else HIDDEN
    return head + separator + _MEDIA_KEY.sub(rb"\1***", body)
