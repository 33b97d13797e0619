"""`mediaserver doctor --sip`: faults planted one by one at a carrier, each named by the step that fails."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from mediaserver.cli import doctor_trunk
from mediaserver.cli.doctor_trunk import examine_trunk
from mediaserver.settings import load
from sip.endpoint import Endpoint, EndpointSettings
from tests.support.authority import Authority, serving
from tests.support.command_line import mediaserver
from tests.support.hostile.rogue import CLOSED, Rogue, rogue, sdp
from tests.support.node.node import Site, write_site
from tests.support.ports import free_port, free_rtp_range
from tests.support.sip.name_server import NameServer
from tests.support.udp import bound

NUMBER = "+14155550123"


@dataclass
class Fault:
    """One fault: what the carrier says, what the configuration says, and the step that is named."""

    step: str
    says: Callable[[Rogue], None] = lambda far: None
    keys: str = ""
    uri: str = ""
    number: str = NUMBER


def refuses(status: int, *lines: str) -> Callable[[Rogue], None]:
    return lambda far: far.say(status, *lines)


CHALLENGE = 'WWW-Authenticate: Digest realm="carrier", nonce="n", algorithm=MD5, qop="auth"'
ACCOUNT = 'username = "acme"\npassword = "wrong"'


def _challenges(far: Rogue) -> None:
    far.say(401, CHALLENGE)
    far.say(401, CHALLENGE)


def _other_codec(far: Rogue) -> None:
    far.say(200, far.contact, body=sdp(("127.0.0.1", far.rtp.port)).replace(b"RTP/AVP 0", b"RTP/AVP 18"))


def _closed_media(far: Rogue) -> None:
    far.say(200, far.contact, body=sdp((CLOSED, 4000)))


def _no_audio(far: Rogue) -> None:
    far.say(200, far.contact, body=far.media)


def _forges(far: Rogue) -> None:
    key = f"a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:{'A' * 40}\r\n".encode()
    far.say(200, far.contact, body=far.media.replace(b"RTP/AVP", b"RTP/SAVP") + key)
    far.rtp.on_datagram = far.rtp.transport.sendto  # what came, which is under our key


FAULTS = {
    "not a number": Fault("number", number="nobody"),
    "not what the trunk accepts": Fault("number", number="+14159990123"),
    "a name that does not exist": Fault("DNS", uri="sip:nowhere.test"),
    "a name without addresses": Fault("DNS", uri="sip:empty.test"),
    "SRV to a name without addresses": Fault("DNS", uri="sip:dangling.test;transport=udp"),
    "a port where nobody listens": Fault("route", uri="sip:127.0.0.1:{free};transport=udp"),
    "a TCP port where nobody listens": Fault("route", uri="sip:127.0.0.1:{free};transport=tcp"),
    "a carrier that says nothing": Fault("route"),
    "503": Fault("route", refuses(503)),
    "500": Fault("route", refuses(500)),
    "no password": Fault("credentials", refuses(401, CHALLENGE)),
    "a wrong password": Fault("credentials", _challenges, keys=ACCOUNT),
    "403": Fault("credentials", refuses(403)),
    "488": Fault("codec", refuses(488)),
    "415": Fault("codec", refuses(415)),
    "an answer with another codec": Fault("codec", _other_codec),
    "488 to SRTP": Fault("SRTP", refuses(488), keys='srtp = "sdes"'),
    "an answer without a key": Fault("SRTP", _no_audio, keys='srtp = "sdes"'),
    "packets under another key": Fault("SRTP", _forges, keys='srtp = "sdes"'),
    "404": Fault("number", refuses(404)),
    "484": Fault("number", refuses(484)),
    "604": Fault("number", refuses(604)),
    "no audio": Fault("NAT", _no_audio),
    "media at a closed address": Fault("NAT", _closed_media),
}


def configured(site: Site, fault: Fault, far: Rogue, names: str) -> Site:
    uri = (fault.uri or far.uri).format(free=free_port())
    site.change(f"sip:127.0.0.1:{site.carrier};transport=udp", uri)
    site.add("[sip]", f'dns = "{names}"')
    return site.add('[[trunk]]\nid = "carrier"', fault.keys) if fault.keys else site


ZONE = {
    ("empty.test", "TXT"): (60, ['"nothing"']),
    ("_sip._udp.dangling.test", "SRV"): (60, ["1 1 5060 gone.test."]),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_a_planted_fault_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_trunk, "RING_S", 2.0)
    monkeypatch.setattr(doctor_trunk, "PROBE_S", 1.0)
    monkeypatch.setattr(doctor_trunk, "AUDIO_S", 1.0)
    fault = FAULTS[name]
    async with bound(NameServer(ZONE)) as names, rogue() as far:
        fault.says(far)
        site = configured(write_site(tmp_path), fault, far, names.address)
        findings = await examine_trunk(load(site.path), "carrier", fault.number)
    wrong = [finding for finding in findings if not finding.ok]
    assert [finding.name for finding in wrong] == [fault.step], [str(each) for each in findings]
    assert wrong[0].text


@pytest.mark.parametrize("name", ["untrusted", "expired", "another name", "version", "not TLS"])
async def test_a_fault_of_tls_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_trunk, "PROBE_S", 2.0)
    ours, others = Authority(tmp_path / "ours"), Authority(tmp_path / "others")
    pair = ours.issue(
        "other.test" if name == "another name" else "carrier.test", days=-1 if name == "expired" else 1
    )
    newest = ssl.TLSVersion.TLSv1_2 if name == "version" else None
    keys = f'tls_ca = "{(others if name == "untrusted" else ours).ca}"\ntls_min_version = "1.3"'
    settings = EndpointSettings(
        tls="127.0.0.1:0",
        tcp="127.0.0.1:0",
        tls_server=serving(pair, newest=newest),
        rtp_ports=free_rtp_range(),
    )
    zone = {("carrier.test", "A"): (60, ["127.0.0.1"])}
    async with Endpoint(settings) as carrier, bound(NameServer(zone)) as names, rogue() as far:
        listening = carrier.tcp_address if name == "not TLS" else carrier.tls_address
        assert listening is not None
        fault = Fault("TLS", uri=f"sip:carrier.test:{listening[1]};transport=tls", keys=keys)
        site = configured(write_site(tmp_path), fault, far, names.address)
        findings = await examine_trunk(load(site.path), "carrier", NUMBER)
    assert [finding.name for finding in findings if not finding.ok] == ["TLS"]


@pytest.mark.parametrize("status", [486, 480, 603])
async def test_a_person_who_does_not_answer_is_no_fault(status: int, tmp_path: Path) -> None:
    async with rogue() as far, bound(NameServer({})) as names:
        far.say(180, far.contact)
        far.say(status)
        site = configured(write_site(tmp_path), Fault("", keys=""), far, names.address)
        findings = await examine_trunk(load(site.path), "carrier", NUMBER)
    assert all(finding.ok for finding in findings)
    assert findings[-1].name == "call"


def test_the_command_names_the_trunks_that_there_are_not(tmp_path: Path) -> None:
    site = write_site(tmp_path)
    result = mediaserver("doctor", "--config", site.path, "--sip", "nobody's", "--to", NUMBER)
    assert result.returncode == 2
    assert "there is no trunk" in result.stdout + result.stderr
