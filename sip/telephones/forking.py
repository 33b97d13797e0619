"""A call that rings registered telephones, all at once, each by an INVITE of its own: the first answer has
the call, the others are cancelled (RFC 3261 16.7, as a forking proxy does it).

Each telephone gets an offer that it understands, over its own flow. `Forking` stands where a call with one
INVITE has its `sip.dialog.invite.Invite`; the application sees one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sip.dialog.dialog import DialogSetId
from sip.dialog.events import Event, InviteAnswered, InviteEnded, InviteProgressed, MediaAgreed
from sip.dialog.invite import Signalled
from sip.dialog.uac import OutgoingInvite
from sip.dialog.usage import InviteUsage
from sip.reason import Reason
from sip.states import HangupCause

ELSEWHERE = Reason("SIP", 200, "Call completed elsewhere")
"""What a cancelled telephone is told (RFC 3326), so that it shows no missed call."""

_LAST = (408, 480, 487, 503)
"""Statuses that say the least about the user: any other refusal counts before these."""


class Forking:
    """The INVITEs of one call. `chosen` is called with the one that is answered, before its media is told."""

    def __init__(self, invites: Sequence[OutgoingInvite], chosen: Callable[[OutgoingInvite], None]) -> None:
        self._by_id = {each.usage.dialog_set: each for each in invites}
        self._ringing = list(invites)
        self._chosen = chosen
        self._first = invites[0]
        self._winner: OutgoingInvite | None = invites[0] if len(invites) == 1 else None
        self._media: dict[DialogSetId, MediaAgreed] = {}
        self._ended: list[InviteEnded] = []

    @property
    def invites(self) -> Sequence[OutgoingInvite]:
        """The INVITEs, ended ones too."""
        return tuple(self._by_id.values())

    @property
    def usage(self) -> InviteUsage:
        """That of the INVITE that has the call; before the answer of the first."""
        return (self._winner or self._first).usage

    def dial(self, now: float) -> None:
        """Sends every INVITE, in the order of registration."""
        for each in tuple(self._ringing):
            each.dial(now)

    def hang_up(self, now: float, *, cause: HangupCause = HangupCause.NORMAL) -> None:
        """Ends the call, or cancels every INVITE."""
        for each in tuple(self._ringing):
            each.hang_up(now, cause=cause)

    def set_hold(self, hold: bool, now: float) -> None:
        """Holds or resumes. Raises `LocalError` unless the call is up."""
        (self._winner or self._first).set_hold(hold, now)

    def passed(self, event: Event, now: float) -> Sequence[Event]:
        """Returns what the application is told of an event."""
        invite = self._by_id[event.dialog_set]
        if invite is self._winner:
            return (event,)
        match event:
            case InviteEnded():
                return self._over(invite, event, now)
            case InviteAnswered() if self._winner is None:
                return self._answered(invite, event, now)
            case MediaAgreed() if self._winner is None:
                self._media[event.dialog_set] = event
            case InviteProgressed() if self._winner is None:  # nobody listens to several telephones at once
                return (replace(event, early_media=False),)
        return ()

    def _answered(self, invite: OutgoingInvite, event: InviteAnswered, now: float) -> Sequence[Event]:
        self._winner = invite
        others, self._ringing = [each for each in self._ringing if each is not invite], [invite]
        for each in others:
            each.reason = ELSEWHERE
            each.hang_up(now, cause=HangupCause.CANCELLED)
        self._chosen(invite)
        media = self._media.pop(event.dialog_set, None)
        return (event,) if media is None else (media, event)

    def _over(self, invite: OutgoingInvite, event: InviteEnded, now: float) -> Sequence[Event]:
        """Takes the end of an INVITE. A refusal for all telephones of the user (6xx) ends the others too."""
        if self._winner is not None:
            return ()
        self._ringing.remove(invite)
        self._ended.append(event)
        if not self._ringing:
            return (best_of(self._ended),)
        if event.status >= 600:
            self.hang_up(now, cause=HangupCause.CANCELLED)
        return ()


def best_of(ended: Sequence[InviteEnded]) -> InviteEnded:
    """Returns the end of a call none of whose telephones has answered: a refusal for all of them (6xx) counts
    first, then what says most. The call is `definite` where every telephone has given a final response."""
    best = min(ended, key=lambda each: (each.status < 600, each.status in _LAST, each.status // 100))
    return replace(best, definite=all(each.definite for each in ended))


AnyInvite = Signalled | Forking
"""The INVITE of a call, or those that ring several telephones."""


def invites_of(invite: Signalled | Forking) -> Sequence[Signalled]:
    """Returns the INVITEs of a call."""
    return invite.invites if isinstance(invite, Forking) else (invite,)
