"""What the server has to know beside its lab."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from etscope.errors import LabError

_KEY_NAME = "server.key"
_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class Settings:
    """How the server behaves.

    host: the address it listens at. hosts: further names it is reached by: those of a proxy in
    front. trusted_proxies: addresses whose X-Forwarded-For and X-Forwarded-Proto are believed.
    require_tokens: even on the loopback and while there are none; else they are required once there
    is one. key: signs sessions and forms. stream_seconds: after which a stream of events or of a
    log ends, to be asked for again. failures_per_minute: refused tokens of one address before it
    has to wait. uploads: folder of files on their way in.
    """

    host: str = "127.0.0.1"
    hosts: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    require_tokens: bool = False
    key: bytes = field(default_factory=lambda: secrets.token_bytes(_KEY_BYTES), repr=False)
    uploads: Path | None = None
    max_upload_bytes: int = 4 << 30
    max_body_bytes: int = 1 << 20
    session_seconds: int = 12 * 3600
    stream_seconds: float = 60.0
    look_seconds: float = 0.5
    failures_per_minute: int = 20


def local_secret(key: bytes) -> str:
    """What opens the server for those who can read its key: they can write its database, too."""
    return f"etl_local_{hmac.new(key, b'etscope.lab.local', hashlib.sha256).hexdigest()}"


def key_of(folder: Path) -> bytes:
    """The key in the lab's folder, made when there is none; only its owner can read it.

    Raises `LabError` when the folder cannot be written.
    """
    path = folder / _KEY_NAME
    try:
        key = _read(path)
        if key is None:
            _write(path, secrets.token_bytes(_KEY_BYTES))
            key = _read(path)
    except OSError as error:
        raise LabError(
            f"{path}: the server's key cannot be kept here ({error.strerror})"
        ) from error
    if key is None or len(key) < _KEY_BYTES:
        raise LabError(
            f"{path} is not a key of a server", hint="remove it: the next start makes another"
        )
    return key


def _read(path: Path) -> bytes | None:
    try:
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _write(path: Path, key: bytes) -> None:
    """Of two servers that start at once, the first makes the key of both."""
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
