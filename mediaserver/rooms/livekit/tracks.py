"""Matches announced microphones with the media sections of offers.

A client announces a track by an id of its own (`cid`) and then offers a section whose a=msid names the track.
Chromium and the Rust SDK use the same id twice. Firefox makes up a new one for the description; there the
section is the first announced track, as in LiveKit's server."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from livekit.protocol import models, rtc

from mediaserver.rooms.participant import Participant, Track, new_sid
from mediaserver.rooms.webrtc.sdp_munging import AudioSection

MAX_PENDING: Final = 8
"""The most tracks that are announced and not offered yet."""


class Tracks:
    """The microphones of one client, from the announcement to the section that carries them."""

    def __init__(self, participant: Participant) -> None:
        self._participant = participant
        self._pending: dict[str, Track] = {}  # announced tracks by the client's id, in order
        self._refused: deque[str] = deque(maxlen=MAX_PENDING)  # ids whose sections may still come

    def announce(self, wish: rtc.AddTrackRequest) -> Track | str:
        """Returns the track that `wish` announces, the same one for the same `cid`, or the reason of its
        refusal."""
        published = self._participant.tracks.values()
        known = self._pending.get(wish.cid) or next(
            (each for each in published if each.cid == wish.cid), None
        )
        if known is not None:
            return known
        refusal = self._refusal(wish)
        if refusal:
            self._refused.append(wish.cid)
            return refusal
        track = Track(new_sid("TR"), cid=wish.cid, name=wish.name, muted=wish.muted, stream=wish.stream)
        self._pending[wish.cid] = track
        return track

    def _refusal(self, wish: rtc.AddTrackRequest) -> str:
        if not self._participant.permissions.publish:
            return "insufficient permissions to publish"
        if wish.type != models.AUDIO or wish.source not in (models.UNKNOWN, models.MICROPHONE):
            return "this server takes microphones only"
        if len(self._pending) >= MAX_PENDING:
            return "too many tracks announced"
        return ""

    def mute(self, sid: str, muted: bool) -> None:
        """Sets whether a track that is not published yet is muted."""
        for track in self._pending.values():
            if track.sid == sid:
                track.muted = muted

    def offered(self, sections: Sequence[AudioSection]) -> tuple[list[Track], list[Track]]:
        """Matches the tracks with an offer's `sections`; returns the published tracks that the offer lacks,
        and the announced tracks that it has for the first time."""
        free = {each.mid: each for each in sections if each.sends}
        lost = [each for each in self._participant.tracks.values() if not _carries(free.get(each.mid), each)]
        for track in self._participant.tracks.values():
            if track not in lost:
                del free[track.mid]
        found = self._named(free)
        for mid, section in list(free.items()):
            if self._pending and not {section.track, section.stream} & set(self._refused):
                found.append(self._take(next(iter(self._pending)), free.pop(mid)))
        return lost, found

    def _named(self, free: dict[str, AudioSection]) -> list[Track]:
        """Takes the announced tracks whose id a section names out of `free`; returns them."""
        found = []
        for mid, section in list(free.items()):
            cid = next((each for each in (section.track, section.stream) if each in self._pending), None)
            if cid is not None:
                found.append(self._take(cid, free.pop(mid)))
        return found

    def _take(self, cid: str, section: AudioSection) -> Track:
        track = self._pending.pop(cid)
        track.mid, track.offered_as = section.mid, section.track
        return track


def _carries(section: AudioSection | None, track: Track) -> bool:
    return section is not None and section.track == track.offered_as
