"""Session timers (RFC 4028): end a call whose far end has silently failed.

Sans-IO: reads and writes header fields, and computes when to refresh and when to hang up."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sip.errors import MalformedMessage
from sip.message.headers import Headers, parse_params
from sip.message.message import Request, Response

ABSOLUTE_MIN_S = 90  # RFC 4028 section 5
LONGEST_S = 86400


@dataclass(frozen=True, slots=True)
class SessionTimerSettings:
    """Session interval of a trunk: `expires_s` is requested (0: no session timer), `min_s` is the shortest
    accepted."""

    expires_s: int = 1800
    min_s: int = ABSOLUTE_MIN_S


class SessionTimer:
    """The session interval of one call, and which side refreshes it."""

    def __init__(self, settings: SessionTimerSettings) -> None:
        self._min_s = settings.min_s
        self._asked_s = max(settings.expires_s, settings.min_s) if settings.expires_s else 0
        self._refreshed_at = 0.0
        self.interval_s = 0
        self.we_refresh = False

    @property
    def running(self) -> bool:
        return self.interval_s > 0

    @property
    def refresh_at(self) -> float | None:
        """When this side must refresh: after half of the interval (RFC 4028 section 10). None: the far end
        refreshes."""
        return self._refreshed_at + self.interval_s / 2 if self.running and self.we_refresh else None

    @property
    def expires_at(self) -> float | None:
        """When to send BYE: a little before the interval is over (RFC 4028 section 10)."""
        if not self.running:
            return None
        return self._refreshed_at + self.interval_s - min(32, self.interval_s / 3)

    def ask(self, headers: Headers) -> None:
        """Writes Session-Expires and Min-SE of a session refresh request; the first one leaves the refresher
        open."""
        interval_s = self.interval_s or self._asked_s
        if not interval_s:
            return
        refresher = ""
        if self.running:
            refresher = ";refresher=uac" if self.we_refresh else ";refresher=uas"
        headers.set("Session-Expires", f"{interval_s}{refresher}")
        if self._min_s > ABSOLUTE_MIN_S:
            headers.set("Min-SE", str(self._min_s))

    def too_brief(self, response: Response) -> bool:
        """Takes the Min-SE of a 422. False: the interval cannot be raised to it, so a retry would fail the
        same way."""
        minimum_s = delta_seconds(response.headers.get("Min-SE")) or 0
        if not self._asked_s < minimum_s <= LONGEST_S:
            return False
        self._min_s = self._asked_s = minimum_s
        self.interval_s = 0
        return True

    def agreed(self, response: Response, now: float) -> None:
        """Takes the interval of the 2xx to a session refresh request; without Session-Expires only this side
        may refresh (RFC 4028 section 7.2)."""
        value = response.headers.get("Session-Expires")
        if value is None:
            # The far end does not support session timers: refreshes of this side still detect a failure.
            self.interval_s, self.we_refresh = self._asked_s, True
        else:
            interval_s, refresher = session_expires(value)
            self.interval_s = max(interval_s, ABSOLUTE_MIN_S)
            self.we_refresh = refresher != "uas"
        self._refreshed_at = now

    def refusal(self, request: Request) -> int | None:
        """Returns the Min-SE to answer with 422, where the requested interval is too short. Raises
        `MalformedMessage`."""
        value = request.headers.get("Session-Expires")
        if value is None:
            return None
        too_brief = session_expires(value)[0] < self._min_s
        return self._min_s if too_brief and "timer" in request.supported else None

    def answer(self, request: Request, headers: Headers, now: float) -> None:
        """Writes Session-Expires of the 2xx to a session refresh request (RFC 4028 section 9)."""
        theirs_s, refresher = session_expires(request.headers.get("Session-Expires") or "0")
        minimum_s = delta_seconds(request.headers.get("Min-SE")) or 0
        ours_s = max(self._asked_s, minimum_s) if self._asked_s else theirs_s
        self.interval_s = min(theirs_s or ours_s, ours_s)
        if not self.interval_s:
            return
        self.interval_s = max(self.interval_s, ABSOLUTE_MIN_S)
        supported = "timer" in request.supported
        self.we_refresh = not supported or refresher == "uas" or not theirs_s
        self._refreshed_at = now
        headers.set("Session-Expires", f"{self.interval_s};refresher={'uas' if self.we_refresh else 'uac'}")
        if not self.we_refresh:
            headers.add("Require", "timer")


def session_expires(value: str) -> tuple[int, str]:
    """Parses Session-Expires as (seconds, refresher: "uac", "uas" or ""). Raises `MalformedMessage`."""
    number, _, params = value.partition(";")
    seconds = delta_seconds(number)
    if seconds is None:
        raise MalformedMessage("Session-Expires is not a number of seconds")
    return seconds, (parse_params(f";{params}" if params else "").get("refresher") or "").lower()


_SECONDS = re.compile(r"\s*([0-9]+)\s*(?:[;(].*)?", re.DOTALL)


def delta_seconds(value: str | None) -> int | None:
    """Parses delta-seconds, without parameters and comments ("120 (busy)", RFC 3261 20.33); at most 2**32 -
    1. None where there is no such number."""
    match = _SECONDS.fullmatch(value or "")
    return min(int(match[1][:12]), 2**32 - 1) if match is not None else None
