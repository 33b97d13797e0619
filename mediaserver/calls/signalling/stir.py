"""STIR signatures of INVITEs (RFC 8224, SHAKEN), made by a signing service of ATIS-1000082."""

from __future__ import annotations

import json
import logging
import re
import time
import uuid
from collections.abc import Callable, Mapping
from email.utils import formatdate
from typing import Any, Final

from mediaserver.settings import TrunkSettings
from mediaserver.settings.company import StirSettings
from mediaserver.telemetry.trunk_metrics import TrunkFigures
from pipeline.engines.tables import reveal
from pipeline.errors import RequestFailed
from pipeline.net.http import HttpClient
from sip.call import CallFailed
from sip.states import HangupCause

log = logging.getLogger(__name__)

_IDENTITY: Final = re.compile(
    r"[\w-]*\.[\w-]*\.[\w-]+ *; *info=<[\x21-\x3b\x3d\x3f-\x7e]+>[\x20-\x7e]*", re.ASCII
)
"""An Identity (RFC 8224 4): PASSporT, where the certificate is, and further parameters."""

IDENTITY_LIMIT: Final = 8192
"""The longest Identity that is sent, in characters."""


class StirSigner:
    """Asks the signing services of trunks. `figures` counts the signatures, and calls without one."""

    def __init__(
        self, http: HttpClient, figures: TrunkFigures, *, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._http = http
        self._figures = figures
        self._wall_clock = wall_clock
        self._failing: set[str] = set()  # trunks whose service failed last, so that the log says so once

    async def sign(
        self, trunk: TrunkSettings, headers: Mapping[str, str], *, caller: str, called: str
    ) -> dict[str, str]:
        """Returns the header fields of an INVITE with Identity and Date added, if `trunk` has a signing
        service and no Identity is passed on already. `caller` and `called` are E.164 numbers, "" where the
        party has none. Raises `CallFailed` where there is no signature and the trunk insists on one."""
        stir = trunk.stir
        if stir is None or any(name.lower() == "identity" for name in headers):
            return dict(headers)
        now = int(self._wall_clock())
        if trunk.withhold_number and trunk.identity == "from":  # the carrier is not told the number
            caller = ""
        try:
            identity = await self._identity(stir, trunk.id, caller=caller, called=called, now=now)
        except RequestFailed as failed:
            self._tell(trunk.id, str(failed))
            if stir.required:
                raise CallFailed("the call was not signed", 503, HangupCause.UNREACHABLE) from failed
            return dict(headers)
        self._tell(trunk.id, "")
        kept = {name: value for name, value in headers.items() if name.lower() != "date"}
        return {**kept, "Date": formatdate(now, usegmt=True), "Identity": identity}

    async def _identity(
        self, stir: StirSettings, trunk_id: str, *, caller: str, called: str, now: int
    ) -> str:
        if not caller or not called:
            raise RequestFailed("the call shows no number, or is for none", retryable=False)
        asked = {
            "attest": stir.attest,
            "dest": {"tn": [called.removeprefix("+")]},
            "iat": now,
            "orig": {"tn": caller.removeprefix("+")},
            "origid": stir.origid or str(uuid.uuid5(uuid.NAMESPACE_URL, f"trunk:{trunk_id}")),
        }
        fields = {"Content-Type": "application/json", "Accept": "application/json"}
        if stir.api_key is not None:
            fields["Authorization"] = f"Bearer {reveal(stir.api_key)}"
        body = json.dumps({"signingRequest": asked}).encode()
        answer = await self._http.request(
            "POST", stir.url, headers=fields, body=body, timeout_s=stir.timeout_s
        )
        if answer.status != 200:
            raise RequestFailed(f"the signing service answered {answer.status}")
        return _identity_in(answer.body)

    def _tell(self, trunk_id: str, reason: str) -> None:
        """Counts one signature, or the `reason` for which there is none; logs when that changes."""
        self._figures.signed(trunk_id, succeeded=not reason)
        if bool(reason) == (trunk_id in self._failing):
            return
        if reason:
            self._failing.add(trunk_id)
            log.warning("calls of the trunk are not signed", extra={"trunk": trunk_id, "reason": reason})
        else:
            self._failing.discard(trunk_id)
            log.info("calls of the trunk are signed again", extra={"trunk": trunk_id})


def _identity_in(body: bytes) -> str:
    """Returns the Identity of a signing response. Raises `RequestFailed` where there is none."""
    try:
        document: Any = json.loads(body)
        identity = document["signingResponse"]["identity"].strip()
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        identity = ""
    if len(identity) > IDENTITY_LIMIT or _IDENTITY.fullmatch(identity) is None:
        raise RequestFailed("the signing service answered without an Identity", retryable=False)
    return str(identity)
