"""Defines the bodies about personal data: erasures, exports, legal holds, and the audit log."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, StringConstraints

from api.schemas.base import CallReport, Model
from api.schemas.managed import PageQuery
from api.schemas.traces import CallTrace

Number = Annotated[str, StringConstraints(max_length=64)]
Id = Annotated[str, StringConstraints(max_length=128)]


class SubjectBody(Model):
    """A number, or a call; never both."""

    phoneNumber: Number | None = Field(default=None, description="In any spelling")
    callTaskId: Id | None = None


class HoldBody(SubjectBody):
    """What is put under a legal hold, and why."""

    reason: str = Field(min_length=1, max_length=500)


class NumberBody(Model):
    """The number that an export is about."""

    phoneNumber: Number = Field(description="In any spelling")


class ErasureView(Model):
    """An erasure, which stays as its own proof. `fingerprint` is an HMAC of the number under the server's
    secret key, "" for an erasure by call. `openCalls` are not over yet, `openRecordings` on nodes that are
    away; `completedAt` is null until both are 0."""

    id: str
    companyId: str
    fingerprint: str
    keyId: str
    createdAt: str | None
    calls: int
    events: int
    recordings: int
    openCalls: int
    openRecordings: int
    completedAt: str | None


class ErasurePage(Model):
    """A page of erasures, newest first. `cursor` fetches the next page; null on the last page."""

    erasures: list[ErasureView]
    cursor: str | None


class ExportView(Model):
    """What is known of a number. `traces`: of the calls whose signalling is kept. `more`: there are more
    calls than one export has."""

    phoneNumber: str
    calls: list[CallReport]
    traces: list[CallTrace]
    events: list[dict[str, Any]]
    doNotCall: bool
    more: bool


class HoldView(Model):
    """A legal hold on a call or on a number; the other is null."""

    id: str
    companyId: str
    callTaskId: str | None
    phoneNumber: str | None
    reason: str
    createdAt: str | None


class HoldList(Model):
    """Every legal hold of a company, the oldest first."""

    holds: list[HoldView]


class AuditQuery(PageQuery):
    """Query of the audit log: page, and the id of what it was done to."""

    subject: Id = ""


class AuditView(Model):
    """One thing that somebody did: which key, in which request, which operation of this document, to what. A
    supervisor who joins, changes or leaves a call has no key and no request."""

    at: str | None
    keyId: str
    requestId: str
    operation: str
    subject: str


class AuditPage(Model):
    """A page of the audit log, newest first. `cursor` fetches the next page; null on the last page."""

    entries: list[AuditView]
    cursor: str | None
