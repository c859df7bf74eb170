"""The lab's folder on this machine: its configuration, and by default its database and store."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from etscope.errors import FormatError, LabError, UsageError
from etscope.lab.jobs.records import DeviceConfig

ENVIRONMENT = "ETSCOPE_LAB"
CONFIG = "lab.yaml"
_SERVER = "server.json"
_DEFAULT = "~/.etscope/lab"
_PATIENCE = 0.5  # seconds: `server_url` holds the lock for a moment

_Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@:-]*$", max_length=200)]


def _text(value: Any) -> Any:
    """`cores: 8` is meant as text."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _not_empty(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty: leave the key out for the default")
    return value


_Attribute = Annotated[str, BeforeValidator(_text)]
_Place = Annotated[str, AfterValidator(_not_empty)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _DeviceEntry(_Strict):
    name: _Name
    driver: _Place
    options: Mapping[str, Any] = Field(default_factory=dict)
    attributes: Mapping[str, _Attribute] = Field(default_factory=dict)

    def config(self) -> DeviceConfig:
        return DeviceConfig(self.name, self.driver, dict(self.options), dict(self.attributes))


class ServerConfig(_Strict):
    """What `etscope lab serve` does unless its options say otherwise.

    hosts: further names that it is reached by, those of a proxy in front. trusted_proxies:
    addresses whose X-Forwarded-For and X-Forwarded-Proto are believed. require_tokens: even on the
    loopback.
    """

    host: _Place = "127.0.0.1"
    port: int = Field(8585, ge=0, le=65535)
    hosts: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    require_tokens: bool = False
    max_upload_bytes: int = Field(4 << 30, ge=1)


class _Entries(_Strict):
    """lab.yaml as it is written."""

    database: _Place | None = None
    store: _Place | None = None
    scheduler: _Place | None = None
    devices: tuple[_DeviceEntry, ...] = (_DeviceEntry(name="host", driver="host"),)
    server: ServerConfig = ServerConfig()

    @model_validator(mode="after")
    def _unique(self) -> _Entries:
        names = [device.name for device in self.devices]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"devices: two are named {twice[0]!r}")
        return self


@dataclass(frozen=True, slots=True)
class LabConfig:
    """What lab.yaml says. database, store: URLs; None: in the lab's folder. scheduler: address of a
    Dask scheduler; None: workers of this process's own."""

    database: str | None = None
    store: str | None = None
    scheduler: str | None = None
    devices: tuple[DeviceConfig, ...] = (DeviceConfig("host", "host"),)
    server: ServerConfig = field(default_factory=ServerConfig)


@dataclass(frozen=True, slots=True)
class Home:
    """A lab's folder, and what its lab.yaml says."""

    folder: Path
    config: LabConfig

    @classmethod
    def open(cls, path: str | os.PathLike[str] | None = None) -> Home:
        """The lab of a folder: `path`, else $ETSCOPE_LAB, else ~/.etscope/lab. It is made, for its
        owner only, when it is not there; without a lab.yaml everything is as by default.

        Raises `FormatError` that names each key of lab.yaml at fault, `LabError` for a folder that
        cannot be made or read.
        """
        folder = _folder(path)
        return cls(folder, _read(folder / CONFIG))

    @classmethod
    def init(cls, path: str | os.PathLike[str] | None = None) -> Home:
        """`open` after writing a lab.yaml that explains itself. Raises `UsageError` when there is
        one already."""
        file = _folder(path) / CONFIG
        try:
            with file.open("x") as target:
                target.write(EXAMPLE)
        except FileExistsError as error:
            raise UsageError(f"{file} is there already", hint="edit it") from error
        except OSError as error:
            raise LabError(f"{file} cannot be written: {error.strerror or error}") from error
        return cls.open(path)

    @property
    def database_url(self) -> str:
        """Relative paths are taken from the lab's folder, not from where one happens to be."""
        url = self.config.database or "sqlite:///lab.db"
        try:
            parsed = make_url(url)
        except ArgumentError:
            return url  # `Database` says what is wrong with it
        file = parsed.database
        if not url.startswith("sqlite") or file in (None, "", ":memory:"):
            return url
        return str(parsed.set(database=str(self.folder / file)))

    @property
    def store_url(self) -> str:
        url = self.config.store or "store"
        return url if "://" in url else str(self.folder / Path(url).expanduser())

    def live_log(self, job_id: str) -> Path:
        """File for the log of a job that an engine of this folder works on."""
        return self.folder / "live" / f"{job_id}.txt"

    @property
    def server_url(self) -> str | None:
        """Where the `etscope lab serve` of this folder answers; None when none runs."""
        try:
            with (self.folder / _SERVER).open() as file:
                if _locked(file.fileno(), fcntl.LOCK_SH):
                    return None  # it is gone, however it ended
                url = json.load(file)["url"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return url if isinstance(url, str) else None

    @contextmanager
    def announce(self, url: str) -> Iterator[bool]:
        """Let `server_url` be this for as long as the block and this process last. False when
        another server of this folder has done that: then it stays the one."""
        try:
            file = (self.folder / _SERVER).open("a+")
        except OSError as error:
            raise LabError(f"{self.folder} cannot be written: {error.strerror}") from error
        with file:
            first = _locked(file.fileno(), fcntl.LOCK_EX, patience=_PATIENCE)
            if first:
                file.truncate(0)
                file.write(json.dumps({"url": url, "pid": os.getpid()}) + "\n")
                file.flush()
            try:
                yield first
            finally:
                if first:
                    file.truncate(0)


def _locked(handle: int, kind: int, patience: float = 0) -> bool:
    """Whether a lock was free, or became so in that many seconds; it is then ours until the file is
    closed."""
    end = time.monotonic() + patience
    while not _taken(handle, kind):
        if time.monotonic() >= end:
            return False
        time.sleep(0.01)
    return True


def _taken(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _folder(path: str | os.PathLike[str] | None) -> Path:
    given = path if path is not None else os.environ.get(ENVIRONMENT) or _DEFAULT
    folder = Path(given).expanduser().absolute()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(
            f"the lab's folder {folder} cannot be made: {error.strerror or error}",
            hint=f"${ENVIRONMENT} names another one",
        ) from error
    return folder


def _read(path: Path) -> LabConfig:
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return LabConfig()
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(f"{path} cannot be read: {error}") from error
    return _config(_parsed(text, path), path)


def _parsed(text: str, path: Path) -> Mapping[str, Any]:
    try:
        plain = yaml.load(text, Loader=_loader())
    except yaml.YAMLError as error:
        raise FormatError(f"not YAML: {error}", path=path) from error
    if plain is None:
        return {}
    if not isinstance(plain, dict):
        raise FormatError(f"a {type(plain).__name__}, not keys with values", path=path)
    return plain


def _config(plain: Mapping[str, Any], path: Path) -> LabConfig:
    try:
        entries = _Entries.model_validate(plain)
    except ValidationError as error:
        faults = [
            ": ".join(filter(None, (".".join(map(str, fault["loc"])), fault["msg"])))
            for fault in error.errors(include_url=False, include_input=False)
        ]
        raise FormatError(
            "; ".join(faults), path=path, hint="`Home.init` of an empty folder writes an example"
        ) from error
    return LabConfig(
        database=entries.database,
        store=entries.store,
        scheduler=entries.scheduler,
        devices=tuple(entry.config() for entry in entries.devices),
        server=entries.server,
    )


def _loader() -> Any:
    """YAML's safe loader, which takes the last of equal keys: here they are an error."""

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen: set[Any] = set()
            for key, _ in node.value:
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key.value!r} is here twice", key.start_mark
                    )
                seen.add(key.value)
            return super().construct_mapping(node, deep=deep)

    return Loader


EXAMPLE = """\
# A lab of etscope. Every key may be left out: what is commented out here is the default, or an
# example. Relative paths begin in this folder.

# Jobs and results: a file for one machine, PostgreSQL for a team
# (postgresql://user@host/database; the password in ~/.pgpass or $PGPASSWORD).
# database: sqlite:///lab.db

# What jobs read and write: a folder, or a URL that fsspec knows (s3://bucket/lab, …). Workers on
# other machines must reach it by the same name.
# store: store

# Address of a Dask scheduler whose workers have the devices (`etscope lab worker`); by default
# the server has workers of its own.
# scheduler: tcp://10.0.0.1:8786

# Devices. name: unique. driver: host, ssh, adb, or one of another package ("package.module:Class").
# attributes: what jobs can select by, beside what the driver finds out itself.
devices:
  - name: host
    driver: host
#   - name: board-1
#     driver: ssh
#     options: {host: board-1.local}
#     attributes: {soc: rk3588, room: "2"}
#   - name: phone-1
#     driver: adb
#     options: {serial: 1A2B3C4D}

# `etscope lab serve`. Tokens are needed off the loopback, and once there is one.
# server:
#   host: 127.0.0.1
#   port: 8585
#   hosts: []             # further names it is reached by: those of a proxy in front
#   trusted_proxies: []   # addresses whose X-Forwarded-* headers are believed
#   require_tokens: false
#   max_upload_bytes: 4294967296
"""
