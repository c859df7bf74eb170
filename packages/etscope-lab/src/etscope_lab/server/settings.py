"""Settings of the server, and its key."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

from pydantic import Field

from etscope.errors import LabError
from etscope_lab.config import Home, ServerConfig

_KEY_NAME = "server.key"
_KEY_BYTES = 32


class Settings(ServerConfig):
    """Settings of a lab's server: those of lab.yaml, and these.

    key: signs sessions and forms. failures_per_minute: wrong tokens of one address before it has to
    wait. uploads: folder for files while they are uploaded.
    """

    key: bytes = Field(default_factory=lambda: secrets.token_bytes(_KEY_BYTES), repr=False)
    uploads: Path | None = None
    failures_per_minute: int = 20


def settings_of(home: Home, host: str | None = None) -> Settings:
    """The settings in the lab's configuration; `host` replaces its own.

    Raises `LabError` if the lab's folder cannot be written.
    """
    given = dict(home.config.server) | ({"host": host} if host else {})
    return Settings(**given, key=key_of(home.folder), uploads=home.folder / "uploads")


def local_secret(key: bytes) -> str:
    """Return the token of users who can read the server's key: they can write its database, too."""
    return f"etl_local_{hmac.new(key, b'etscope.lab.local', hashlib.sha256).hexdigest()}"


def key_of(folder: Path) -> bytes:
    """Return the key in the lab's folder, made if there is none; only its owner can read it.

    Raises `LabError` if the folder cannot be written.
    """
    path = folder / _KEY_NAME
    try:
        if not path.exists():
            _create(path, secrets.token_bytes(_KEY_BYTES))
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
        key = path.read_bytes()
    except OSError as error:
        raise LabError(
            f"{path}: the server's key cannot be stored here ({error.strerror})"
        ) from error
    if len(key) < _KEY_BYTES:
        raise LabError(
            f"{path} is not a key of a server",
            hint="remove the file: the next start makes a new key",
        )
    return key


def _create(path: Path, key: bytes) -> None:
    """Write the key unless another server, started at the same time, was first."""
    part = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(key)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(part, path)
    except FileExistsError:
        pass
    finally:
        part.unlink()
