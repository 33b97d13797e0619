"""Encrypts what is managed over the API before it is written to the database.

The key is `server.secret_key`. Where the file names none, a key is made at the first start and kept in the
data directory, readable by its owner alone. Nodes that share a database share the key. Sealing is
`cryptography`'s Fernet (AES-128-CBC with HMAC-SHA-256), whose key is the SHA-256 of the secret key."""

from __future__ import annotations

import hmac
import os
import secrets
from base64 import urlsafe_b64encode
from hashlib import sha256
from pathlib import Path
from typing import Self

from cryptography.fernet import Fernet, InvalidToken

from mediaserver.errors import LocalError
from mediaserver.files import private
from mediaserver.settings.server import GENERATED, ServerSettings
from pipeline.engines.tables import reveal

FILE = "secret.key"
ADMIN_FILE = "admin.key"
"""The server's own key, where `server.admin_key` is `GENERATED`."""


class Vault:
    """Seals and opens texts with one Fernet key, made of the secret `key`."""

    def __init__(self, key: str) -> None:
        self.secret = sha256(f"fingerprint {key}".encode()).digest()
        """The key of fingerprints, also of the database's (`mediaserver.db.database.Db`)."""
        self._fernet = Fernet(urlsafe_b64encode(sha256(key.encode()).digest()))

    @classmethod
    def at(cls, data_dir: Path, key: str = "") -> Self:
        """Makes the vault of `key`, or, with "", of the key kept in `data_dir`, which is made if there is
        none. Raises `LocalError`."""
        return cls(key or kept_key(data_dir / FILE))

    def seal(self, text: str) -> str:
        """Returns `text` encrypted; a vault of the same key opens it."""
        return self._fernet.encrypt(text.encode()).decode()

    def fingerprint(self, text: str) -> str:
        """Returns the HMAC-SHA-256 of `text`: the same for the same text and key, and nothing to guess the
        text by without the key."""
        return hmac.digest(self.secret, text.encode(), "sha256").hex()

    def livekit_secret(self, key_id: str) -> str:
        """Returns the secret with which the holder of the API key `key_id` signs LiveKit server tokens. It is
        derived from the secret key and stored nowhere; it ends with the API key."""
        return hmac.digest(sha256(b"livekit" + self.secret).digest(), key_id.encode(), "sha256").hex()

    def open(self, sealed: str) -> str:
        """Returns the text that was sealed. Raises `LocalError` where `sealed` was sealed with another key,
        or changed."""
        try:
            return self._fernet.decrypt(sealed.encode()).decode()
        except InvalidToken:
            raise LocalError("sealed with another server.secret_key, or damaged") from None


def kept_admin_key(data_dir: Path, settings: ServerSettings) -> str:
    """Returns `server.admin_key`, made at the first start where it is `GENERATED`; "" for none. Raises
    `LocalError`."""
    key = reveal(settings.admin_key)
    return kept_key(data_dir / ADMIN_FILE) if key == GENERATED else key


def kept_key(path: Path) -> str:
    """Returns the key in the file `path`, which is made with a random one if there is none. Raises
    `LocalError`."""
    try:
        path.parent.mkdir(mode=private.FOLDER_MODE, parents=True, exist_ok=True)
        try:
            number = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, private.FILE_MODE)
        except FileExistsError:
            private.close(path, private.FILE_MODE)
            key = path.read_text(encoding="ascii").strip()
        else:
            key = secrets.token_urlsafe(32)
            with open(number, "w", encoding="ascii") as file:
                file.write(key)
                file.flush()
                os.fsync(number)
    except (OSError, UnicodeDecodeError) as error:
        raise LocalError(f"{path}: {error}") from error
    if not key:
        raise LocalError(f"{path}: is empty; put the key back, or remove the file to begin anew")
    return key
