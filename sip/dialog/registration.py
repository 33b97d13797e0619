"""Registers a contact as a client (RFC 3261 section 10), at one registrar or the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum

from sip.auth.digest import Authorizer, Credentials
from sip.dialog.client_request import ClientRequest
from sip.dialog.session_timer import delta_seconds
from sip.dialog.ua_core import ALLOW, Core
from sip.egress import ANYWHERE, Egress
from sip.errors import MalformedMessage
from sip.message.headers import CSeq, Headers, NameAddr
from sip.message.message import Request, Response
from sip.message.uri import Uri
from sip.transaction.hop import Hop, hop_of
from sip.transaction.timers import Alarm

EXPIRES_S = 3600
LONGEST_S = 86400
BACKOFF_FIRST_S, BACKOFF_LAST_S = 30.0, 1800.0
"""Longest wait before a failed registrar is tried again; doubles each round, at random (RFC 5626 4.5)."""
_ELSEWHERE = frozenset({408, 480, 500, 502, 503, 504})
"""Statuses after which the next registrar is tried."""


class RegistrationState(StrEnum):
    """States of a registration, from before the first REGISTER to after the last."""

    IDLE = "idle"
    REGISTERING = "registering"  # the first time, or after it was lost
    REGISTERED = "registered"
    REFRESHING = "refreshing"  # still registered, asking for more time
    WAITING = "waiting"  # every registrar failed; the next round is timed
    STOPPED = "stopped"


class Registration:
    """One contact at one of several registrars. `on_change` is called for every gain and loss."""

    def __init__(
        self,
        core: Core,
        *,
        registrars: Sequence[Uri],
        aor: Uri,
        username: str,
        password: str,
        egress: Egress = ANYWHERE,
        on_change: Callable[[bool, float], None] = lambda registered, now: None,
    ) -> None:
        self.state = RegistrationState.IDLE
        self.index = 0
        self.status = 0
        self.keep_s: int | None = None
        """How often the registrar wants keep-alives (RFC 6223, RFC 5626 Flow-Timer); 0: as usual, None: it
        asked for none."""
        self._core = core
        self._registrars = registrars
        self._aor = aor
        self._egress = egress
        self._on_change = on_change
        self._call_id = core.token()
        self._tag = core.token()
        self._cseq = 0
        self._expires_s = EXPIRES_S
        self._failures = 0  # registrars in a row that failed
        self._rounds = 0
        self._alarm: Alarm | None = None
        self._lost: Alarm | None = None
        authorizer = Authorizer(Credentials(username, password)) if username else None
        self._client_request = ClientRequest(core, next_cseq=self._next_cseq, authorizer=authorizer)

    @property
    def registered(self) -> bool:
        """Whether a registrar holds the contact, by the last response."""
        return self.state in (RegistrationState.REGISTERED, RegistrationState.REFRESHING)

    @property
    def settled(self) -> bool:
        """Whether a registrar holds the contact, and no REGISTER is under way."""
        return self.state is RegistrationState.REGISTERED

    @property
    def hop(self) -> Hop:
        """The way to the registrar that is asked, or was asked last."""
        return hop_of(self._registrars[self.index], egress=self._egress)

    def start(self, now: float) -> None:
        """Sends REGISTER, and refreshes the binding until `stop`."""
        if self.state is RegistrationState.STOPPED:
            return
        self.state = RegistrationState.REFRESHING if self.registered else RegistrationState.REGISTERING
        self._send(self._expires_s, now)

    def stop(self, now: float) -> None:
        """Removes the binding (Expires 0). Idempotent."""
        was_registered = self.registered
        self.state = RegistrationState.STOPPED
        self._disarm()
        if was_registered:
            self._send(0, now)
            self._on_change(False, now)

    def response_received(self, response: Response, now: float) -> None:
        """Takes a response to REGISTER: granted, to be sent again with a longer expiry (423), or failed."""
        if response.status < 200 or self.state is RegistrationState.STOPPED:
            return
        self.status = response.status
        if response.status < 300:
            self._granted(response, now)
        elif response.status == 423 and self._longer(response):
            self._send(self._expires_s, now)
        else:
            self._failed(now, retry_after_s=delta_seconds(response.header("Retry-After")))

    def no_response(self, now: float, *, transport_failed: bool) -> None:
        """Notes 408, or 503 where the transport failed, and tries the next registrar."""
        self.status = 503 if transport_failed else 408
        if self.state is not RegistrationState.STOPPED:
            self._failed(now)

    def _next_cseq(self) -> int:
        self._cseq += 1
        return self._cseq

    def _send(self, expires_s: int, now: float) -> None:
        registrar, hop = self._registrars[self.index], self.hop
        headers = Headers()
        headers.add("Max-Forwards", "70")
        headers.add("From", str(NameAddr(self._aor, params={"tag": self._tag})))
        headers.add("To", str(NameAddr(self._aor)))
        headers.add("Call-ID", self._call_id)
        headers.add("CSeq", str(CSeq(self._next_cseq(), "REGISTER")))
        headers.add("Contact", self._contact(hop))
        headers.add("Expires", str(expires_s))
        headers.add("Allow", ALLOW)
        if self._core.user_agent:
            headers.add("User-Agent", self._core.user_agent)
        # RFC 3261 10.2: the Request-URI of a REGISTER has no user part.
        uri = Uri(registrar.scheme, "", registrar.host, port=registrar.port, params=registrar.params)
        self._client_request.send(Request("REGISTER", uri, headers), hop, self, now)

    def _contact(self, hop: Hop) -> str:
        return self._core.contact(hop, self._aor.user, secure=self._aor.scheme == "sips")

    def _granted(self, response: Response, now: float) -> None:
        expires_s = self._expiry(response)
        if expires_s == 0:
            self._failed(now)
            return
        self.keep_s = _keep_of(response)
        gained = not self.registered
        self.state = RegistrationState.REGISTERED
        self._failures = self._rounds = 0
        self._disarm()
        margin_s = 30 if expires_s >= 120 else expires_s / 4
        self._alarm = self._core.clock.at(now + min(expires_s - margin_s, 0.9 * expires_s), self.start)
        self._lost = self._core.clock.at(now + expires_s, self._expired)
        if gained:
            self._on_change(True, now)

    def _expiry(self, response: Response) -> int:
        """Returns the granted seconds; of several contacts in the response that of this contact counts."""
        mine = NameAddr.parse(self._contact(self.hop)).uri
        try:
            contacts = [each for each in response.contacts if not each.is_wildcard]
        except MalformedMessage:
            contacts = []
        for contact in contacts:
            same = contact.uri.user == mine.user and contact.uri.host == mine.host
            if same and contact.uri.port == mine.port:
                given_s = delta_seconds(contact.params.get("expires"))
                if given_s is not None:
                    return min(given_s, LONGEST_S)
        given_s = delta_seconds(response.header("Expires"))
        return min(self._expires_s if given_s is None else given_s, LONGEST_S)

    def _longer(self, response: Response) -> bool:
        minimum_s = delta_seconds(response.header("Min-Expires")) or 0
        if not self._expires_s < minimum_s <= LONGEST_S:
            return False
        self._expires_s = minimum_s
        return True

    def _failed(self, now: float, *, retry_after_s: int | None = None) -> None:
        """Tries the next registrar at once; after the last one waits."""
        self._failures += 1
        if self._failures < len(self._registrars) and self.status in _ELSEWHERE:
            self.index = (self.index + 1) % len(self._registrars)
            self._send(self._expires_s, now)
            return
        self._failures = 0
        self.index = (self.index + 1) % len(self._registrars)
        longest_s = min(BACKOFF_LAST_S, BACKOFF_FIRST_S * 2**self._rounds)
        self._rounds = min(self._rounds + 1, 16)
        wait_s = max(longest_s * self._core.random.uniform(0.5, 1.0), min(retry_after_s or 0, LONGEST_S))
        if not self.registered:
            self.state = RegistrationState.WAITING
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._core.clock.at(now + wait_s, self.start)

    def _expired(self, now: float) -> None:
        self.state = RegistrationState.WAITING
        self._on_change(False, now)
        if self._alarm is None or not self._alarm.pending:
            self.start(now)

    def _disarm(self) -> None:
        for alarm in (self._alarm, self._lost):
            if alarm is not None:
                alarm.cancel()
        self._alarm = self._lost = None


def _keep_of(response: Response) -> int | None:
    """Returns how often the registrar asks for keep-alives; a `keep` that it sends back as it came says
    nothing."""
    try:
        asked = response.via.params.get("keep")
    except MalformedMessage:
        asked = None
    return delta_seconds(asked or response.header("Flow-Timer"))
