"""Changes session descriptions before aiortc reads them, and aiortc's answers before they are sent.

aiortc gets the audio and data sections only. Video is refused section by section (port 0): an answer from
aiortc that merely receives nothing makes Chromium's next offer fail over simulcast, and with it the session.
Candidates that cannot work here are removed: mDNS names, whose look-up stalls for a second, and TCP."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from mediaserver.rooms.errors import BadOffer

MAX_BYTES: Final = 64 * 1024
"""Bytes of a session description; LiveKit's clients offer at most 18 KiB."""

MAX_SECTIONS: Final = 32
MAX_CANDIDATES: Final = 64
MAX_LINE: Final = 2048

_KEPT: Final = ("audio", "application")


@dataclass(frozen=True, slots=True)
class AudioSection:
    """An audio section of the far end's last offer. `track` and `stream`: the ids of its a=msid line;
    `sends`: the far end sends on it; `receives`: the server may send on it."""

    mid: str
    track: str
    stream: str
    sends: bool
    receives: bool


@dataclass(frozen=True, slots=True)
class Section:
    """One m= section, its lines without line ends."""

    lines: tuple[str, ...]

    @property
    def kind(self) -> str:
        """The media type of the section: "audio", "video" or "application"."""
        return self.lines[0][2:].split(" ", 1)[0]

    @property
    def mid(self) -> str:
        """The value of the section's a=mid line."""
        return self.value("mid")

    def value(self, attribute: str) -> str:
        """Returns the value of the first a=`attribute`: line, "" without one."""
        start = f"a={attribute}:"
        return next((line[len(start) :] for line in self.lines if line.startswith(start)), "")

    def has(self, attribute: str) -> bool:
        """Whether there is a line a=`attribute`."""
        return f"a={attribute}" in self.lines


@dataclass(frozen=True, slots=True)
class Description:
    """A session description cut into its sections."""

    session: tuple[str, ...]
    sections: tuple[Section, ...]

    @classmethod
    def parse(cls, text: str) -> Description:
        """Parses a session description. Raises `BadOffer` for one that is too large or malformed."""
        if len(text) > MAX_BYTES:
            raise BadOffer(f"session description of more than {MAX_BYTES} bytes")
        lines = [line for line in text.replace("\r\n", "\n").split("\n") if line]
        if not lines or not lines[0].startswith("v=0"):
            raise BadOffer("not a session description")
        if any(len(line) > MAX_LINE or not re.match(r"[a-z]=", line) for line in lines):
            raise BadOffer("malformed line in the session description")
        starts = [place for place, line in enumerate(lines) if line.startswith("m=")]
        if len(starts) > MAX_SECTIONS:
            raise BadOffer(f"more than {MAX_SECTIONS} sections")
        ends = [*starts[1:], len(lines)][: len(starts)]
        sections = tuple(Section(tuple(lines[a:b])) for a, b in zip(starts, ends, strict=True))
        return cls(tuple(lines[: starts[0]] if starts else lines), sections)

    def __str__(self) -> str:
        lines = [*self.session, *(line for section in self.sections for line in section.lines)]
        return "\r\n".join(lines) + "\r\n"

    @property
    def audio(self) -> tuple[AudioSection, ...]:
        """The audio sections, in order."""
        return tuple(_audio(each) for each in self.sections if each.kind == "audio")

    @property
    def credentials(self) -> tuple[str, str]:
        """ICE username fragment and password of the far end, ("", "") without them."""
        for section in self.sections:
            if section.value("ice-ufrag"):
                return section.value("ice-ufrag"), section.value("ice-pwd")
        values = Section(("m=", *self.session))
        return values.value("ice-ufrag"), values.value("ice-pwd")

    def for_aiortc(self) -> Description:
        """Returns the description with the sections and candidates that aiortc can use. Raises `BadOffer`
        where no section is left."""
        kept = tuple(_usable(each) for each in self.sections if each.kind in _KEPT)
        if not kept:
            raise BadOffer("an offer without audio or data")
        mids = {each.mid for each in kept}
        session = tuple(_bundle(line, mids) for line in self.session if line != "a=end-of-candidates")
        return Description(session, kept)

    def answered(self, answer: Description) -> Description:
        """Returns aiortc's `answer` to `for_aiortc()`, with refusals of the sections that `for_aiortc`
        removed."""
        ours = iter(answer.sections)
        sections = tuple(
            next(ours) if each.kind in _KEPT else _left_out(each, answer.sections[0])
            for each in self.sections
        )
        bundled = " ".join(each.mid for each in sections if each.lines[0].split(" ")[1] != "0")
        session = tuple(
            f"a=group:BUNDLE {bundled}" if line.startswith("a=group:BUNDLE") else line
            for line in answer.session
        )
        return replace(answer, session=session, sections=sections)


def candidate_line(text: str) -> str | None:
    """Returns a trickled candidate as aiortc takes it, None for one that cannot be used here. Raises
    `BadOffer`."""
    text = text.strip().removeprefix("a=").removeprefix("candidate:")
    parts = text.split()
    if len(text) > MAX_LINE or len(parts) < 8 or parts[6] != "typ":
        raise BadOffer("malformed candidate")
    return text if _works(parts) else None


def _works(parts: list[str]) -> bool:
    return parts[2].lower() == "udp" and not parts[4].endswith(".local") and parts[1] == "1"


def _usable(section: Section) -> Section:
    lines, candidates = [], 0
    for line in section.lines:
        if line == "a=end-of-candidates":
            continue  # the source of a connectivity check may follow as a candidate
        if line.startswith("a=candidate:"):
            parts = line[12:].split()
            candidates += 1
            if len(parts) < 8 or not _works(parts) or candidates > MAX_CANDIDATES:
                continue
        lines.append(line)
    return Section(tuple(lines))


def _bundle(line: str, mids: set[str]) -> str:
    if not line.startswith("a=group:BUNDLE"):
        return line
    return " ".join(["a=group:BUNDLE", *(mid for mid in line.split()[1:] if mid in mids)])


def _left_out(section: Section, ours: Section) -> Section:
    """Refuses a section with port 0 where the far end would send on it, else makes it inactive:
    livekit-client offers sections in advance, and while a refusal is applied, Chromium's next offer may fail
    (one join in seven). Formats and the server's transport are repeated, because some clients (aiortc's own)
    read no refusal without these."""
    kind, _, rest = section.lines[0][2:].partition(" ")
    _, _, formats = rest.partition(" ")
    port = 9 if section.has("recvonly") or section.has("inactive") else 0
    lines = [f"m={kind} {port} {formats}", "c=IN IP4 0.0.0.0", "a=inactive", "a=rtcp-mux"]
    lines += [line for line in section.lines if line.startswith(_REPEATED)]
    lines += [line for line in ours.lines if line.startswith(_TRANSPORT)]
    return Section(tuple(lines))


_REPEATED: Final = ("a=mid:", "a=rtpmap:", "a=fmtp:")
_TRANSPORT: Final = ("a=ice-ufrag:", "a=ice-pwd:", "a=fingerprint:sha-256", "a=setup:")


def _audio(section: Section) -> AudioSection:
    stream, _, track = section.value("msid").partition(" ")
    inactive, sendonly, recvonly = (section.has(each) for each in ("inactive", "sendonly", "recvonly"))
    # Port 0 with a=bundle-only is no refusal (RFC 9143 section 6): Firefox offers every later section so.
    refused = section.lines[0].split()[1:2] == ["0"] and not section.has("bundle-only")
    return AudioSection(
        mid=section.mid,
        track=track or stream,
        stream=stream,
        sends=not (inactive or recvonly or refused),
        receives=not (inactive or sendonly or refused),
    )
