"""Sends webhook events from the outbox: at least once, in order per call, signed; one receiver never delays
another.

One loop takes what is due, at most `SLOTS` at a time for each subscription, and one short task sends each: a
receiver that is slow or dead fills its own slots and no others. What fails is repeated after the pauses
`BACKOFF_S`, a day in all, and then given up (dead letter). Signature and headers are those of Standard
Webhooks (https://www.standardwebhooks.com), made by their library."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Protocol

from standardwebhooks.webhooks import Webhook

from mediaserver.errors import StoreError
from mediaserver.queue.outbox import Result
from mediaserver.queue.records import Delivery
from pipeline.errors import RequestFailed, boundary
from pipeline.net.http import HttpClient
from pipeline.net.trace_context import call_traceparent

log = logging.getLogger(__name__)

SLOTS = 8
"""The most deliveries in progress to one subscription, each of another call."""

LEASE_MS = 30_000
"""The lease of a delivery: after it, one whose process died is due again. Well over the five seconds that an
exchange may take."""

RESPONSE_LIMIT = 1024
"""The most bytes of an answer that the log keeps: enough for a reason."""

POLL_S = 1.0
"""How often the outbox is looked at without a wake-up: finds repeats, and what other nodes wrote."""

BACKOFF_S = (1, 5, 30, 120, 600, 1800, 3600, 7200, 14_400, 28_800, 28_800)
"""Pauses between attempts: 12 attempts over 23.7 hours."""


class Outbox(Protocol):
    """The part of `mediaserver.store.store.Store` that the sender needs."""

    outbox_filled: asyncio.Event

    async def take_deliveries(self, room: Mapping[str, int], *, lease_ms: int) -> Sequence[Delivery]:
        """Takes due deliveries, at most `room[subscription]` of each; one not settled within `lease_ms` is
        due again."""

    async def settle_delivery(self, delivery: Delivery, result: Result) -> bool:
        """Records the result of a delivery. False: another process has taken the delivery since."""


class Webhooks:
    """Sends deliveries. `secrets`: the secrets of each subscription that this process can sign for, two of
    them while one is replaced: the receiver may verify with either. `observe` gets the outcome of every
    attempt, "delivered", "retried" or "dead", and its milliseconds. `traced`: each request
    names the span of its call."""

    def __init__(
        self,
        outbox: Outbox,
        http: HttpClient,
        secrets: Mapping[str, Sequence[str]],
        *,
        observe: Callable[[str, int], None] | None = None,
        traced: bool = False,
    ) -> None:
        self._outbox = outbox
        self._http = http
        self._observe = observe
        self._traced = traced
        self._under_way: dict[asyncio.Task[None], str] = {}
        self.sign_with(secrets)

    def sign_with(self, secrets: Mapping[str, Sequence[str]]) -> None:
        """Replaces the secrets of all subscriptions; deliveries to a subscription without secrets wait."""
        self._signers = {name: [Webhook(secret) for secret in each] for name, each in secrets.items() if each}
        self._outbox.outbox_filled.set()

    async def run(self) -> None:
        """Sends until cancelled, then waits for the requests in progress (each at most the client's
        time-out)."""
        try:
            while True:
                self._outbox.outbox_filled.clear()
                if await self._take() == 0:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(POLL_S):
                            await self._outbox.outbox_filled.wait()
        finally:
            if self._under_way:
                await asyncio.wait(self._under_way)

    async def _take(self) -> int:
        """Starts the due deliveries that have a slot; returns how many."""
        busy = Counter(self._under_way.values())
        room = {name: SLOTS - busy[name] for name in self._signers if busy[name] < SLOTS}
        if not room:
            return 0
        try:
            taken = await self._outbox.take_deliveries(room, lease_ms=LEASE_MS)
        except StoreError:
            log.exception("webhooks wait, database away")
            await asyncio.sleep(POLL_S)
            return 0
        for delivery in taken:
            task = asyncio.create_task(self._deliver(delivery), name="webhook")
            self._under_way[task] = delivery.subscription_id
            task.add_done_callback(self._settled)
        return len(taken)

    def _settled(self, task: asyncio.Task[None]) -> None:
        del self._under_way[task]
        self._outbox.outbox_filled.set()

    async def _deliver(self, delivery: Delivery) -> None:
        """Makes one attempt, from signing to recording the result. A task of its own: no exception leaves
        it."""
        with boundary(log, "webhook failed", call_id=delivery.call_id):
            result = await self._attempt(delivery)
            try:
                await self._outbox.settle_delivery(delivery, result)
            except StoreError:
                # The delivery is due again when its lease ends, which "at least once" allows.
                log.exception("webhook result lost", extra={"call_id": delivery.call_id})
            else:
                self._told(delivery, result)

    async def _attempt(self, delivery: Delivery) -> Result:
        signers = self._signers.get(delivery.subscription_id)
        if signers is None:  # the subscription was removed meanwhile
            return Result(delivered=False, error="no secret to sign with", retry_ms=LEASE_MS)
        headers = signed_headers(delivery, signers, datetime.now(UTC))
        if self._traced and delivery.call_id:
            headers |= {"traceparent": call_traceparent(delivery.call_id)}
        started = time.monotonic()
        try:
            answer = await self._http.request(
                "POST", delivery.url, headers=headers, body=delivery.body.encode(), is_read=False
            )
        except RequestFailed as error:
            return Result(
                delivered=False,
                error=str(error),
                duration_ms=_ms_since(started),
                retry_ms=retry_ms(delivery.tries),
            )
        delivered = 200 <= answer.status < 300
        return Result(
            delivered=delivered,
            status=answer.status,
            error="" if delivered else f"answered {answer.status}",
            response=excerpt(answer.body),
            duration_ms=_ms_since(started),
            retry_ms=None if delivered else retry_ms(delivery.tries),
        )

    def _told(self, delivery: Delivery, result: Result) -> None:
        outcome = {"DELIVERED": "delivered", "DEAD": "dead", "PENDING": "retried"}[result.state]
        if outcome == "dead":
            log.error(
                "webhook given up",
                extra={
                    "call_id": delivery.call_id,
                    "subscription": delivery.subscription_id,
                    "attempts": delivery.attempt,
                    "reason": result.error,
                },
            )
        if self._observe is not None:
            self._observe(outcome, result.duration_ms)


def _ms_since(started_s: float) -> int:
    return round((time.monotonic() - started_s) * 1000)


def signed_headers(delivery: Delivery, signers: Sequence[Webhook], at: datetime) -> dict[str, str]:
    """Returns the headers of Standard Webhooks; with several secrets, as many signatures, separated by
    spaces."""
    signatures = [signer.sign(delivery.event_id, at, delivery.body) for signer in signers]
    return {
        "Content-Type": "application/json",
        "webhook-id": delivery.event_id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": " ".join(signatures),
    }


def excerpt(body: bytes) -> str:
    """Returns the beginning of a receiver's answer as text that any database takes."""
    return body[:RESPONSE_LIMIT].decode(errors="replace").replace("\0", "\ufffd")


def retry_ms(attempt: int) -> int | None:
    """Returns the pause after the `attempt`-th attempt (from 1) failed, None when it was the last."""
    return BACKOFF_S[attempt - 1] * 1000 if attempt <= len(BACKOFF_S) else None
