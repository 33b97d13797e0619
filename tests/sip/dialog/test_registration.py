"""REGISTER as a client: staying registered, whatever the registrar says."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from sip.auth.digest import Verdict, Verifier
from sip.dialog.registration import Registration, RegistrationState
from sip.message.headers import Headers
from sip.message.message import Request, Response, parse, response_to
from sip.message.uri import Uri
from sip.stack.admission import Admitted, Refused
from sip.stack.stack import Stack
from sip.transaction.hop import Hop, Transmission

CONTACT = "<sip:acme@192.0.2.1:5060>"
Answer = Callable[[Request], Response | None]


class Closed:
    def admit(self, request: Request, source: Hop, now: float) -> Admitted | Refused:
        return Refused(404)


class Registrars:
    """Registrars by host, and the client's clock."""

    def __init__(self, **hosts: Answer) -> None:
        self.answers = hosts
        self.now = 0.0
        self.seen: list[tuple[float, str, Request]] = []
        self.changes: list[bool] = []
        self.stack = Stack(Closed(), lambda hop: ("192.0.2.1", 5060), random=random.Random(1))
        self.registration = Registration(
            self.stack,
            registrars=[Uri.parse(f"sip:{host}.example") for host in hosts],
            aor=Uri("sip", "acme", "one.example"),
            username="acme",
            password="secret",
            on_change=lambda registered, now: self.changes.append(registered),
        )

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        self.exchange()
        while (at := self.stack.timer_at()) is not None and at <= end:
            self.now = max(self.now, at)
            self.stack.handle_timer(self.now)
            self.exchange()
        self.now = end

    def exchange(self) -> None:
        while waiting := self.stack.transmissions():
            for each in waiting:
                self.answer(each)

    def answer(self, transmission: Transmission) -> None:
        request = parse(transmission.data)
        assert isinstance(request, Request)
        host = transmission.hop.host.partition(".")[0]
        self.seen.append((self.now, host, request))
        response = self.answers[host](request)
        if response is not None:
            self.stack.receive(response.to_bytes(), transmission.hop, self.now)

    @property
    def expiries(self) -> list[str | None]:
        return [request.header("Expires") for _, _, request in self.seen]


def started(run_s: float, **hosts: Answer) -> Registrars:
    """Registrars whose client has run for so long."""
    world = Registrars(**hosts)
    world.registration.start(0.0)
    world.run(run_s)
    return world


def granting(seconds: int) -> Answer:
    def answer(request: Request) -> Response:
        others = f'"other" <sip:acme@198.51.100.9>;expires=5, {CONTACT};expires={seconds}'
        return response_to(request, 200, to_tag="r", headers=[("Contact", others)])

    return answer


def refusing(status: int, *headers: tuple[str, str]) -> Answer:
    return lambda request: response_to(request, status, to_tag="r", headers=headers)


def silent(request: Request) -> None:
    return None


def test_it_registers_stays_registered_and_takes_itself_back() -> None:
    world = started(3000, one=granting(600))
    assert world.registration.registered
    assert world.changes == [True]
    times = [at for at, _, _ in world.seen]
    assert all(later - earlier < 600 for earlier, later in pairwise(times))
    assert len(times) <= 8
    first, last = world.seen[0][2], world.seen[-1][2]
    assert str(first.uri) == "sip:one.example"
    assert first.call_id == last.call_id
    assert last.cseq.number == len(times)
    world.registration.stop(world.now)
    world.run(50)
    assert world.expiries[-1] == "0"
    assert world.changes == [True, False]
    assert not world.registration.registered
    assert (world.stack.transactions, len(world.stack.clock)) == (0, 0)


@pytest.mark.parametrize("algorithms", [("MD5",), ("SHA-256", "MD5")])
def test_challenges_are_answered_and_the_nonce_used_again(algorithms: tuple[str, ...]) -> None:
    verifier = Verifier("one.example", algorithms=algorithms, lifetime_s=1e6)
    verdicts: list[Verdict] = []

    def challenge(request: Request) -> Response:
        verdict, _ = verifier.verify(request, lambda user: "secret" if user == "acme" else None, 0.0)
        verdicts.append(verdict)
        if verdict is Verdict.OK:
            return granting(600)(request) or response_to(request, 500)
        headers = [("WWW-Authenticate", each) for each in verifier.challenges(0.0)]
        return response_to(request, 401, to_tag="r", headers=headers)

    world = started(1500, one=challenge)
    assert world.registration.registered
    assert verdicts[:2] == [Verdict.MISSING, Verdict.OK]
    assert set(verdicts[1:]) == {Verdict.OK}
    assert len(verdicts) >= 4


def test_a_wrong_password_is_not_hammered() -> None:
    world = started(3600, one=refusing(401, ("WWW-Authenticate", 'Digest realm="r", nonce="n", qop="auth"')))
    assert not world.registration.registered
    assert world.registration.state is RegistrationState.WAITING
    assert len(world.seen) <= 30
    assert world.changes == []


def test_too_brief_an_interval_is_lengthened() -> None:
    def brief(request: Request) -> Response | None:
        asked = int(request.header("Expires") or 0)
        return granting(asked)(request) if asked >= 7200 else refusing(423, ("Min-Expires", "7200"))(request)

    world = started(10, one=brief)
    assert world.registration.registered
    assert world.expiries == ["3600", "7200"]


def test_a_423_that_asks_for_no_more_is_a_failure() -> None:
    world = started(10, one=refusing(423, ("Min-Expires", "60")))
    assert len(world.seen) == 1
    assert world.registration.state is RegistrationState.WAITING


def test_the_next_registrar_takes_over_at_once() -> None:
    world = started(1, one=refusing(503), two=granting(600))
    assert world.registration.registered
    assert world.registration.index == 1
    assert [host for _, host, _ in world.seen] == ["one", "two"]


def test_a_registrar_that_falls_silent_is_left_before_the_registration_is_lost() -> None:
    world = started(10, one=granting(600), two=granting(600))
    world.answers["one"] = silent
    world.run(700)
    assert world.registration.registered
    assert world.registration.index == 1
    assert world.changes == [True]


def test_when_all_are_silent_the_loss_is_told_and_the_pause_grows() -> None:
    world = started(10, one=granting(600))
    world.answers["one"] = silent
    world.run(700)
    assert world.changes == [True, False]
    world.run(20_000)
    attempts = sorted({request.cseq.number: at for at, _, request in reversed(world.seen)}.items())
    gaps = [later[1] - earlier[1] for earlier, later in pairwise(attempts)]
    assert max(gaps) > 900
    world.answers["one"] = granting(600)
    world.run(2000)
    assert world.changes == [True, False, True]


def test_retry_after_is_respected() -> None:
    world = started(499, one=refusing(503, ("Retry-After", "500 (maintenance)")))
    assert len(world.seen) == 1
    world.answers["one"] = granting(600)
    world.run(2)
    assert world.registration.registered


def test_an_answer_without_our_contact_does_not_count_for_long() -> None:
    world = started(5, one=lambda request: response_to(request, 200, headers=[("Expires", "0")]))
    assert not world.registration.registered


def test_headers_are_complete() -> None:
    world = started(1, one=granting(600))
    request = world.seen[0][2]
    assert request.header("Contact") == CONTACT
    assert request.header("Max-Forwards") == "70"
    assert isinstance(request.headers, Headers)
    assert str(request.to.uri) == str(request.from_.uri) == "sip:acme@one.example"
