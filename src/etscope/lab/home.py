"""The folder of a lab: its configuration, and by default its database and its store."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from etscope.errors import FormatError, LabError, UsageError
from etscope.formats.replacing import replacing
from etscope.lab.records import DeviceConfig

VARIABLE = "ETSCOPE_LAB"
CONFIG = "lab.yaml"
_SERVER = "server.json"
_NAME = r"^[0-9A-Za-z][0-9A-Za-z._-]*$"

_TEMPLATE = """\
# A lab of etscope. Everything here has a default; docs: benchmarking-on-devices.

# SQLite in this folder. For a team: postgresql://user@host/name
# database: sqlite:///lab.sqlite

# A folder, or any fsspec URL that all workers reach: s3://bucket/lab
# store: store

# A Dask cluster whose workers offer the devices (etscope lab worker); default: workers here.
# scheduler: tcp://scheduler:8786

devices:
  - name: host
    driver: host
#  - name: board-1
#    driver: ssh
#    options: {host: 192.168.1.20, user: pi}
#    attributes: {room: lab-2}

# server:
#   host: 127.0.0.1
#   port: 8642
"""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DeviceEntry(_Strict):
    """A device; see `etscope.lab.records.DeviceConfig`."""

    name: Annotated[str, StringConstraints(pattern=_NAME, max_length=100)]
    driver: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    options: Mapping[str, Any] = Field(default_factory=dict)
    attributes: Mapping[str, str] = Field(default_factory=dict)


class ServerEntry(_Strict):
    """Where `etscope lab serve` listens, and who may come."""

    host: str = "127.0.0.1"
    port: int = Field(8642, ge=0, le=65535)
    hosts: tuple[str, ...] = Field((), description="Names that a proxy in front is reached by.")
    trusted_proxies: tuple[str, ...] = ()
    require_tokens: bool = False
    max_upload_bytes: int = Field(4 << 30, ge=1)


def _host_only() -> tuple[DeviceEntry, ...]:
    return (DeviceEntry(name="host", driver="host"),)


class LabFile(_Strict):
    """What lab.yaml may say."""

    database: str | None = None
    store: str | None = None
    scheduler: str | None = None
    devices: tuple[DeviceEntry, ...] = Field(default_factory=_host_only)
    server: ServerEntry = Field(default_factory=lambda: ServerEntry())

    @model_validator(mode="after")
    def _one_device_a_name(self) -> LabFile:
        names = [device.name for device in self.devices]
        double = sorted({name for name in names if names.count(name) > 1})
        if double:
            raise ValueError(f"several devices are named {', '.join(double)}")
        return self


@dataclass(frozen=True, slots=True)
class LabConfig:
    """The configuration, defaults filled in. database, store: URLs; scheduler: None for workers on
    this machine."""

    database: str
    store: str
    scheduler: str | None
    devices: tuple[DeviceConfig, ...]
    server: ServerEntry


@dataclass(frozen=True, slots=True)
class Home:
    """The folder of a lab."""

    folder: Path
    config: LabConfig

    @classmethod
    def open(cls, path: str | os.PathLike[str] | None = None) -> Home:
        """The lab's folder: `path`, else $ETSCOPE_LAB, else ~/.etscope/lab. It is made when there
        is none.

        Raises `FormatError` for a configuration that cannot be read or says what it may not, and
        `LabError` when the folder cannot be made.
        """
        given = path or os.environ.get(VARIABLE) or Path.home() / ".etscope" / "lab"
        folder = Path(given).expanduser().absolute()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LabError(
                f"{folder}: a lab cannot be kept here ({error.strerror})",
                hint=f"name another folder: --home, or ${VARIABLE}",
            ) from error
        return cls(folder, _filled(_read(folder / CONFIG), folder))

    @classmethod
    def init(cls, path: str | os.PathLike[str] | None = None) -> Home:
        """As `open`, and write a lab.yaml with comments when there is none."""
        home = cls.open(path)
        if not (home.folder / CONFIG).exists():
            with replacing(home.folder / CONFIG) as out:
                out.write(_TEMPLATE.encode())
        return home

    @property
    def database_url(self) -> str:
        return self.config.database

    @property
    def store_url(self) -> str:
        return self.config.store

    @property
    def server_url(self) -> str | None:
        """The address of the `etscope lab serve` that runs on this folder; None without."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            said = json.loads((self.folder / _SERVER).read_text())
            os.kill(int(said["pid"]), 0)  # raises unless there is such a process
            return str(said["url"])
        return None

    def set_server(self, url: str) -> None:
        """This process serves the lab, at this address."""
        with replacing(self.folder / _SERVER) as out:
            out.write(json.dumps({"url": url, "pid": os.getpid()}).encode())

    def clear_server(self) -> None:
        """This process serves it no more."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            if json.loads((self.folder / _SERVER).read_text())["pid"] == os.getpid():
                (self.folder / _SERVER).unlink()


def _read(path: Path) -> LabFile:
    try:
        text = path.read_text()
    except FileNotFoundError:
        return LabFile()
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(f"cannot be read ({error})", path=str(path)) from error
    try:
        said = yaml.safe_load(text)
        return LabFile.model_validate({} if said is None else said)
    except yaml.YAMLError as error:
        raise FormatError(f"not YAML: {' '.join(str(error).split())}", path=str(path)) from error
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(map(str, fault['loc'])) or 'the file'}: {fault['msg']}"
            for fault in error.errors(include_url=False, include_input=False)
        )
        raise FormatError(
            f"not a configuration of a lab: {faults}",
            path=str(path),
            hint="docs: benchmarking-on-devices says what may stand here",
        ) from error


def _filled(said: LabFile, folder: Path) -> LabConfig:
    return LabConfig(
        database=_database(said.database, folder),
        store=_store(said.store, folder),
        scheduler=said.scheduler,
        devices=tuple(
            DeviceConfig(one.name, one.driver, dict(one.options), dict(one.attributes))
            for one in said.devices
        ),
        server=said.server,
    )


def _database(said: str | None, folder: Path) -> str:
    """SQLite's relative paths are taken from the lab's folder, not from where one happens to be."""
    url = said or "sqlite:///lab.sqlite"
    scheme, sign, path = url.partition(":///")
    if scheme.partition("+")[0] == "sqlite" and sign and path and not path.startswith("/"):
        return f"{scheme}:///{folder / path}"
    if "://" not in url:
        raise UsageError(
            f"{folder / CONFIG}: database: {url!r} is no URL",
            hint="sqlite:///lab.sqlite, or postgresql://user@host/name",
        )
    return url


def _store(said: str | None, folder: Path) -> str:
    url = said or "store"
    return url if "://" in url else str(folder / Path(url).expanduser())
