"""Recordings encrypted at rest: AES-256-GCM in pieces, so that any part of a file can be read by itself.

A file is a header (magic, salt, length of the plain text) and pieces of `PIECE` octets, each with its own
nonce and tag; the header is authenticated with each piece. The key of a file is derived from the server's key
and the salt of the file (HKDF-SHA-256)."""

from __future__ import annotations

import os
import secrets
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from mediaserver.errors import LocalError
from mediaserver.files import private

ENDING: Final = ".enc"
PIECE: Final = 64 * 1024
TAG: Final = 16

_MAGIC: Final = b"OLREC\x00\x00\x01"
_HEADER: Final = struct.Struct("<8s16sQ")


class SealedFiles:
    """Seals files with `key`, a secret text, and opens them."""

    def __init__(self, key: str) -> None:
        self._key = key.encode()

    def seal(self, path: Path) -> Path:
        """Encrypts a file to its name with `ENDING`, and removes it once that is on disk; returns the new
        path. Raises OSError."""
        sealed = path.with_name(path.name + ENDING)
        partial = sealed.with_name(sealed.name + ".part")
        header = _HEADER.pack(_MAGIC, secrets.token_bytes(16), path.stat().st_size)
        cipher = self._cipher(header)
        number = os.open(partial, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, private.FILE_MODE)
        with path.open("rb") as plain, open(number, "wb") as file:
            file.write(header)
            place = 0
            while piece := plain.read(PIECE):
                file.write(cipher.encrypt(_nonce(place), piece, header))
                place += 1
            file.flush()
            os.fsync(file.fileno())
        partial.rename(sealed)
        path.unlink()
        return sealed

    def size(self, path: Path) -> int:
        """Returns the length of the plain text of a sealed file. Raises `LocalError`, OSError."""
        with path.open("rb") as file:
            length: int = _opened(file.read(_HEADER.size))
        return length

    def read(self, path: Path, start: int, end: int) -> Iterator[bytes]:
        """Yields the plain text from octet `start` up to `end`, in pieces. Raises `LocalError` where the file
        was sealed with another key, or changed; OSError."""
        with path.open("rb") as file:
            header = file.read(_HEADER.size)
            _opened(header)
            cipher = self._cipher(header)
            for place in range(start // PIECE, -(-end // PIECE)):
                file.seek(_HEADER.size + place * (PIECE + TAG))
                try:
                    piece = cipher.decrypt(_nonce(place), file.read(PIECE + TAG), header)
                except InvalidTag:
                    raise LocalError("sealed with another server.recordings_key, or damaged") from None
                yield piece[max(0, start - place * PIECE) : end - place * PIECE]

    def _cipher(self, header: bytes) -> AESGCM:
        _, salt, _ = _HEADER.unpack(header)
        return AESGCM(HKDF(SHA256(), 32, salt, b"recording").derive(self._key))


def _nonce(place: int) -> bytes:
    return place.to_bytes(12, "big")


def _opened(header: bytes) -> int:
    if len(header) != _HEADER.size or not header.startswith(_MAGIC):
        raise LocalError("not a sealed recording")
    length: int = _HEADER.unpack(header)[2]
    return length
