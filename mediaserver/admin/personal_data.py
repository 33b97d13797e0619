"""What people may ask of a company: what is known of their number, that it be erased, that it be kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mediaserver.admin.directory import Directory
from mediaserver.admin.sealing import Vault
from mediaserver.db.database import Page, position_of
from mediaserver.errors import InvalidNumber, InvalidRequest, NotFound
from mediaserver.numbers.e164 import normalise, spellings
from mediaserver.queue.personal_data.erasure import Erasure, Subject
from mediaserver.queue.personal_data.holds import Hold
from mediaserver.queue.records import CallRecord
from mediaserver.store.store import Store

EXPORT_LIMIT = 500
"""The most calls of one export; `more` says that there are others."""

INVALID_NUMBER = "Invalid phone number format"
ONE_OF = '"phoneNumber" or "callTaskId" must be provided, not both'


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a number: its calls, the traces of their telephones by call, their events as they were
    told, and whether it is on the do-not-call list. `more`: there are more calls than one export has."""

    phone_number: str
    calls: Sequence[CallRecord]
    traces: Mapping[str, Sequence[dict[str, Any]]]
    events: Sequence[dict[str, Any]]
    do_not_call: bool
    more: bool = field(default=False)


class PersonalData:
    """The requests of people about their data. `erased` is called after each erasure: files are to go."""

    def __init__(
        self, directory: Directory, store: Store, vault: Vault, *, erased: Callable[[], object]
    ) -> None:
        self._directory = directory
        self._store = store
        self._vault = vault
        self._erased = erased

    def subject(self, company_id: str, *, phone_number: str = "", call_id: str = "") -> Subject:
        """Returns what is meant by a number, in any spelling, or a call. Raises `InvalidRequest`."""
        if bool(phone_number) == bool(call_id):
            raise InvalidRequest(ONE_OF)
        if call_id:
            return Subject(call_id=call_id)
        company = self._directory.company(company_id)
        country = company.country if company is not None else None
        try:
            number = normalise(phone_number, country)
        except InvalidNumber:
            raise InvalidRequest(INVALID_NUMBER) from None
        fingerprint = self._vault.fingerprint(f"{company_id} {number}")
        return Subject(numbers=spellings(number, country), fingerprint=fingerprint)

    async def erase(self, company_id: str, subject: Subject, *, key_id: str) -> Erasure:
        """Erases what there is of a subject. Raises `NotFound`, and `Conflict` under a legal hold."""
        erasure = await self._store.erase(company_id, subject, key_id=key_id)
        self._erased()
        return erasure

    async def erasures(
        self, company_id: str, *, fingerprint: str = "", cursor: str = "", limit: int = 50
    ) -> Page[Erasure]:
        """Returns the company's erasures, newest first. Raises `InvalidRequest`."""
        return await self._store.erasures(
            company_id, fingerprint=fingerprint, before=position_of(cursor), limit=limit
        )

    async def erasure(self, company_id: str, erasure_id: str) -> Erasure:
        """Returns one erasure. Raises `NotFound`."""
        page = await self._store.erasures(company_id, erasure_id=erasure_id)
        if not erasure_id or not page.items:
            raise NotFound("Erasure not found")
        return page.items[0]

    async def export(self, company_id: str, subject: Subject) -> Known:
        """Returns what is known of a number."""
        rows = await self._store.about(company_id, subject)
        ids = [row["id"] for row in rows]
        found = [await self._store.call(company_id, call_id) for call_id in ids[:EXPORT_LIMIT]]
        calls = [call for call in found if call is not None]
        return Known(
            phone_number=subject.numbers[0],
            calls=calls,
            traces={call.id: await self._store.traces(call.id) for call in calls},
            events=await self._store.events_of([call.id for call in calls]),
            do_not_call=await self._store.may_not_call(company_id, subject.numbers[0]),
            more=len(ids) > EXPORT_LIMIT,
        )

    async def hold(self, company_id: str, subject: Subject, *, reason: str) -> Hold:
        """Puts a legal hold on a call or a number. Raises `NotFound` for an unknown call."""
        if subject.call_id and await self._store.call(company_id, subject.call_id) is None:
            raise NotFound("Call not found")
        return await self._store.put_hold(
            company_id, call_id=subject.call_id, numbers=subject.numbers, reason=reason
        )
