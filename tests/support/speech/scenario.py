"""SIPp scenarios in a few lines: `write(path, "busy", recv("INVITE"), first(reply(486)), recv("ACK"))`."""

from __future__ import annotations

import itertools
from pathlib import Path

_SERIALS = itertools.count(1)


def sdp(payload_type: int = 0, direction: str = "sendrecv", version: int = 1) -> str:
    """One G.711 stream (0: PCMU, 8: PCMA) with telephone events."""
    name = "PCMU" if payload_type == 0 else "PCMA"
    return (
        f"v=0\no=sipp 1 {version} IN IP[local_ip_type] [local_ip]\ns=-\nc=IN IP[media_ip_type] [media_ip]\n"
        f"t=0 0\nm=audio [auto_media_port] RTP/AVP {payload_type} 101\na=rtpmap:{payload_type} {name}/8000\n"
        f"a=rtpmap:101 telephone-event/8000\na={direction}"
    )


def recv(request: str, **headers: str) -> str:
    """Waits for a request whose headers (`_` for `-`) match regular expressions."""
    return f'<recv request="{request}" crlf="true">{_checks(headers)}</recv>{_used(headers)}'


def expect(status: int, *, body: str = "", optional: bool = False, **headers: str) -> str:
    """Waits for a response. `body` and headers are regular expressions."""
    if optional:
        return f'<recv response="{status}" optional="true"/>'
    found = {**headers, **({"body": body} if body else {})}
    return f'<recv response="{status}" rrs="true">{_checks(found)}</recv>{_used(found)}'


def reply(status: int, *lines: str, body: str = "") -> str:
    """Answers the last request. Its To gets a tag unless it has one."""
    return _send(
        f"SIP/2.0 {status} Reason\n[last_Via:]\n[last_From:]\n[last_To:]__TAG__\n[last_Call-ID:]\n"
        "[last_CSeq:]\n"
        "Contact: <sip:[local_ip]:[local_port];transport=[transport]>",
        lines,
        body,
        insist=False,
    )


def remember(received: str) -> str:
    """An INVITE that is answered after something else has arrived; see `recalled`."""
    found = "".join(
        f'<ereg regexp=".*" search_in="hdr" header="{name}:" assign_to="{name}"/>'
        for name in ("Via", "From", "To", "CSeq")
    )
    if "<action>" in received:
        return received.replace("<action>", f"<action>{found}")
    return received.replace("</recv>", f"<action>{found}</action></recv>")


def recalled(text: str) -> str:
    """A `reply` to the INVITE that was remembered."""
    for name in ("Via", "From", "CSeq"):
        text = text.replace(f"[last_{name}:]", f"{name}:[${name}]")
    return text.replace("[last_To:]__TAG__", "To:[$To];tag=[call_number]b")


def first(text: str) -> str:
    """A `reply` to a request outside any dialog: with a To tag of ours."""
    return text.replace("__TAG__", ";tag=[call_number]b")


def request(method: str, cseq: int, *lines: str, body: str = "", within: bool = True) -> str:
    """A request, within the dialog or beginning one."""
    uri = "[next_url]" if within else "sip:[service]@[remote_ip]:[remote_port]"
    tag = "[peer_tag_param]" if within else ""
    insist = method != "ACK"
    return _send(
        f"{method} {uri} SIP/2.0\nVia: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]\n"
        "From: <sip:+14155550123@[local_ip]:[local_port]>;tag=[call_number]a\n"
        f"To: <sip:[service]@[remote_ip]:[remote_port]>{tag}\nCall-ID: [call_id]\nCSeq: {cseq} {method}\n"
        "Contact: <sip:sipp@[local_ip]:[local_port];transport=[transport]>\nMax-Forwards: 70",
        lines,
        body,
        insist=insist,
    )


def as_called(text: str) -> str:
    """A `request` of the one who was called, in the dialog of the INVITE that was remembered."""
    for theirs, ours in (
        ("[next_url]", "sip:[remote_ip]:[remote_port]"),
        (
            "From: <sip:+14155550123@[local_ip]:[local_port]>;tag=[call_number]a",
            "From:[$To];tag=[call_number]b",
        ),
        ("To: <sip:[service]@[remote_ip]:[remote_port]>[peer_tag_param]", "To:[$From]"),
    ):
        text = text.replace(theirs, ours)
    return text


def pause(milliseconds: int) -> str:
    """Does nothing for a while."""
    return f'<pause milliseconds="{milliseconds}"/>'


def write(directory: Path, name: str, *steps: str) -> str:
    """Puts the scenario into a file; gives what `Sipp` takes."""
    text = "\n".join(steps).replace("__TAG__", "")
    path = directory / f"{name}.xml"
    path.write_text(
        f'<?xml version="1.0" encoding="ISO-8859-1" ?>\n<scenario name="{name}">\n{text}\n</scenario>\n'
    )
    return str(path.with_suffix(""))


def _send(head: str, lines: tuple[str, ...], body: str, *, insist: bool) -> str:
    content = ["Content-Type: application/sdp"] if body else []
    text = "\n".join([head, *lines, *content, "Content-Length: [len]", "", body])
    retrans = ' retrans="500"' if insist else ""
    return f"<send{retrans}><![CDATA[\n{text}\n]]></send>"


def _checks(headers: dict[str, str]) -> str:
    if not headers:
        return ""
    checks = []
    for name, pattern in headers.items():
        where = (
            'search_in="body"' if name == "body" else f'search_in="hdr" header="{name.replace("_", "-")}:"'
        )
        variable = f"v{next(_SERIALS)}"
        checks.append(f'<ereg regexp="{pattern}" {where} check_it="true" assign_to="{variable}"/>')
    return f"<action>{''.join(checks)}</action>"


def _used(headers: dict[str, str]) -> str:
    """SIPp refuses variables that nothing reads."""
    last = next(_SERIALS)
    names = ",".join(f"v{number}" for number in range(last - len(headers), last))
    return f'<Reference variables="{names}"/>' if headers else ""
