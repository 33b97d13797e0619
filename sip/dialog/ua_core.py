"""The interface of the stack to the users of transactions (calls, registrations)."""

from __future__ import annotations

from random import Random
from typing import Protocol

from sip.dialog.dialog import Dialog, DialogId, DialogUser
from sip.dialog.events import Event
from sip.message.message import Request
from sip.transaction.hop import Hop
from sip.transaction.timers import Clock
from sip.transaction.transaction import ClientTransaction, ServerTransaction, TransactionUser

ALLOWED_METHODS = ("INVITE", "ACK", "CANCEL", "BYE", "OPTIONS", "INFO", "PRACK", "UPDATE", "NOTIFY")
ALLOW = ", ".join(ALLOWED_METHODS)
REFERABLE = f"{ALLOW}, REFER"
"""Allow of calls, and of calls whose far end may transfer them."""

SUPPORTED_TAGS = frozenset({"100rel", "timer"})

REPLACES = "replaces"
"""The option tag of calls whose far end may be replaced (RFC 3891)."""


class Core(Protocol):
    """`sip.stack.stack.Stack`, as calls and registrations use it."""

    clock: Clock
    user_agent: str
    random: Random

    def token(self) -> str:
        """Returns a new unguessable token for tags, branches and Call-IDs."""

    def contact(self, hop: Hop, user: str = "", *, secure: bool = False) -> str:
        """Returns the Contact value under which the other end of `hop` reaches this stack; a sips URI where
        `secure`."""

    def send_request(
        self, request: Request, hop: Hop, user: TransactionUser, now: float
    ) -> ClientTransaction:
        """Puts a Via on top and sends `request` in a new transaction."""

    def send_cancel(self, invite: ClientTransaction, user: TransactionUser, now: float, reason: str) -> None:
        """Sends the CANCEL of an INVITE that has had a provisional response (RFC 3261 9.1)."""

    def send_ack(self, ack: Request, hop: Hop) -> None:
        """Sends the ACK of a 2xx. The first transmission puts a Via on top, which repetitions keep."""

    def transmit(self, data: bytes, hop: Hop, key: str) -> None:
        """Sends `data` to `hop`; a failure is reported to the transaction `key`, as in
        `sip.transaction.transaction.Wire`."""

    def open_dialog(self, dialog: Dialog, user: DialogUser) -> None:
        """Delivers requests within `dialog` to `user` from now on."""

    def close_dialog(self, dialog: DialogId) -> None:
        """Stops delivering requests within `dialog`; idempotent."""

    def emit(self, event: Event) -> None:
        """Emits `event` to the application."""

    def reply(
        self,
        transaction: ServerTransaction,
        status: int,
        now: float,
        *,
        headers: tuple[tuple[str, str], ...] = (),
        to_tag: str | None = None,
    ) -> None:
        """Sends a response without a body in `transaction`."""
