"""The lab's folder on this machine: its configuration, and by default its database and store."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

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

from etscope.errors import FormatError, LabError, MissingDependencyError, UsageError
from etscope_lab.jobs.records import DeviceConfig
from etscope_lab.jobs.spec import faults_of

try:
    import fcntl  # locks of files
except ImportError as error:
    raise MissingDependencyError(
        "a lab on this machine needs Linux or macOS",
        hint="elsewhere use a lab's server: --server URL",
    ) from error

ENVIRONMENT = "ETSCOPE_LAB"
CONFIG = "lab.yaml"
_SERVER = "server.json"
_ENGINES, _NEW = "engines", "new-"
_DEFAULT = "~/.etscope/lab"
_PATIENCE = 0.5  # seconds: `server_url` holds the lock for a moment

_Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@:-]*$", max_length=200)]


def _text(value: Any) -> Any:
    """Convert numbers and booleans: `cores: 8` is meant as text."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _not_empty(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty: leave the key out for the default")
    return value


_Attribute = Annotated[str, BeforeValidator(_text)]
_Text = Annotated[str, AfterValidator(_not_empty)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _DeviceEntry(_Strict):
    name: _Name
    driver: _Text
    options: Mapping[str, Any] = Field(default_factory=dict)
    attributes: Mapping[str, _Attribute] = Field(default_factory=dict)


def _safe_issuer(value: str) -> str:
    if not re.match(r"https://|http://(localhost|127\.0\.0\.1)[:/]", value):
        raise ValueError("must begin with https://, as it says who users are")
    return value


class OidcGrant(_Strict):
    """Rights of users with a group. group: "*" for everybody who can sign in. project: of their
    jobs."""

    group: _Text
    scope: Literal["read", "submit", "operate", "admin"] = "read"
    project: _Name | None = None


class OidcConfig(_Strict):
    """An OpenID Connect provider. secret_env: the environment's variable with the client's secret.
    claim: of the ID token, with the user's groups. request: the scopes to ask for. grants: the
    first one of the largest scope counts."""

    issuer: Annotated[str, AfterValidator(_safe_issuer)]
    client_id: _Text
    secret_env: _Text = "ETSCOPE_LAB_OIDC_SECRET"
    claim: _Text = "groups"
    request: _Text = "openid email profile"
    grants: tuple[OidcGrant, ...] = Field(min_length=1)


class ServerConfig(_Strict):
    """Defaults for the options of `etscope lab serve`.

    hosts: further names of the server, such as a proxy's. trusted_proxies: addresses that may set
    X-Forwarded-For and X-Forwarded-Proto. require_tokens: even on the loopback and
    before there is a token. oidc: users who sign in elsewhere.
    """

    host: _Text = "127.0.0.1"
    port: int = Field(8585, ge=0, le=65535)
    hosts: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    require_tokens: bool = False
    max_upload_bytes: int = Field(4 << 30, ge=1)
    oidc: OidcConfig | None = None


class EmailConfig(_Strict):
    """A mail server. server: host or host:port. password_env: the environment's variable with the
    password of user."""

    server: _Text
    sender: _Text
    to: tuple[_Text, ...] = Field(min_length=1)
    user: _Text | None = None
    password_env: _Text = "ETSCOPE_LAB_SMTP_PASSWORD"


class GithubConfig(_Strict):
    """Statuses of commits. repository: owner/name. token_env: the environment's variable with a
    token that may write statuses. url: of the API."""

    repository: Annotated[str, StringConstraints(pattern=r"^[\w.-]+/[\w.-]+$")]
    token_env: _Text = "GITHUB_TOKEN"
    url: _Text = "https://api.github.com"


class WatchConfig(_Strict):
    """Options of the watch over series that become slower. enabled: check suspicions by A/B jobs.
    min_effect: the smallest slowdown that matters, a fraction. The others: receivers of alarms."""

    enabled: bool = True
    min_effect: float = Field(0.03, gt=0, lt=1)
    webhooks: tuple[_Text, ...] = ()
    slack: tuple[_Text, ...] = ()
    email: EmailConfig | None = None
    github: GithubConfig | None = None


class ProjectConfig(_Strict):
    """A project. share: its part of the devices' time while others wait, relative to theirs.
    max_queued, max_running: the most jobs that wait, or are at work."""

    share: float = Field(1.0, gt=0, le=1000)
    max_queued: int | None = Field(None, ge=1)
    max_running: int | None = Field(None, ge=1)


class LabConfig(_Strict):
    """The keys of lab.yaml. database, store: URLs; None: in the lab's folder. scheduler: address of
    a Dask scheduler; None: own workers of this process. calibrate: measure the peaks of each
    device after its first job. sweeps: files of sweeps that have a schedule. log: the form of the
    lines that `etscope lab serve` and `worker` write. projects: limits of projects by name; other
    projects have none. keep_days: after that many, the files of jobs are removed."""

    database: _Text | None = None
    store: _Text | None = None
    scheduler: _Text | None = None
    entries: tuple[_DeviceEntry, ...] = Field(
        (_DeviceEntry(name="host", driver="host"),), alias="devices"
    )
    calibrate: bool = True
    watch: WatchConfig = WatchConfig()
    sweeps: tuple[_Text, ...] = ()
    projects: Mapping[_Name, ProjectConfig] = Field(default_factory=dict)
    keep_days: int | None = Field(None, ge=1)
    log: Literal["text", "json"] = "text"
    server: ServerConfig = ServerConfig()

    @model_validator(mode="after")
    def _unique(self) -> LabConfig:
        names = [device.name for device in self.entries]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"devices: two are named {twice[0]!r}")
        return self

    @property
    def devices(self) -> tuple[DeviceConfig, ...]:
        return tuple(
            DeviceConfig(one.name, one.driver, dict(one.options), dict(one.attributes))
            for one in self.entries
        )


@dataclass(frozen=True, slots=True)
class Home:
    """A lab's folder, and the configuration in its lab.yaml."""

    folder: Path
    config: LabConfig

    @classmethod
    def open(cls, path: str | os.PathLike[str] | None = None) -> Home:
        """Open a folder: `path`, else $ETSCOPE_LAB, else ~/.etscope/lab. A missing one is made, for
        its owner only; without a lab.yaml the defaults apply.

        Raises `FormatError` that names each wrong key of lab.yaml, `LabError` for a folder that
        cannot be made or read.
        """
        folder = _folder(path)
        return cls(folder, _read(folder / CONFIG))

    @classmethod
    def init(cls, path: str | os.PathLike[str] | None = None, *, team: bool = False) -> Home:
        """Write a lab.yaml with explanations, then `open`. team: for the server of a team, with
        the names of deploy/compose.yaml. Raises `UsageError` when there is one already."""
        file = _folder(path) / CONFIG
        text = EXAMPLE
        for local, shared in _TEAM if team else ():
            text = text.replace(local, shared)
        try:
            with file.open("x") as target:
                target.write(text)
        except FileExistsError as error:
            raise UsageError(f"{file} is there already", hint="edit it") from error
        except OSError as error:
            raise LabError(f"{file} cannot be written: {error.strerror or error}") from error
        return cls.open(path)

    def hashes(self) -> dict[str, str]:
        """Return a hash of the value of each key of the configuration, which may hold secrets."""
        plain = self.config.model_dump(mode="json", by_alias=True)
        return {
            key: hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
            for key, value in plain.items()
        }

    @property
    def database_url(self) -> str:
        """URL of the database. A relative path is relative to the lab's folder."""
        url = self.config.database or "sqlite:///lab.db"
        try:
            parsed = make_url(url)
        except ArgumentError:
            return url  # `Database` raises the error
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

    def hold_engine(self, engine: str) -> Callable[[], None]:
        """Hold a lock as long as this process lives. It shows `dead_engines` that an engine of this
        folder is alive. Returns the function that releases it.

        The lock goes with the process, however that ends, so that no timeout is needed.
        """
        folder = self.folder / _ENGINES
        path = folder / engine
        part = folder / f"{_NEW}{engine}"
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            file = part.open("w")
            _locked(file.fileno(), fcntl.LOCK_EX)
            file.write(_boot())
            file.flush()
            part.rename(path)  # never visible without its lock
        except OSError as error:
            raise LabError(f"{folder} cannot be written: {error.strerror or error}") from error

        def let_go() -> None:
            with suppress(OSError):
                path.unlink(missing_ok=True)
            file.close()

        return let_go

    def dead_engines(self, forget: Callable[[str], None]) -> None:
        """Call `forget` with the id of each engine of this folder that has ended.

        Engines of other machines, and engines that ran before this machine was started, are not
        reported: locks may not work over a network.
        """
        boot = _boot()
        for path in (self.folder / _ENGINES).glob("*") if boot else ():
            if path.name.startswith(_NEW):
                continue
            with suppress(OSError), path.open() as file:
                if file.read() == boot and _locked(file.fileno(), fcntl.LOCK_EX):
                    forget(path.name)
                    path.unlink()

    @property
    def server_url(self) -> str | None:
        """URL of the running `etscope lab serve` of this folder; None when none runs."""
        try:
            with (self.folder / _SERVER).open() as file:
                if _locked(file.fileno(), fcntl.LOCK_SH):
                    return None  # the server has ended
                url = json.load(file)["url"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return url if isinstance(url, str) else None

    @contextmanager
    def announce(self, url: str) -> Iterator[bool]:
        """Set `server_url` for the duration of the block. Yields False, and changes nothing, while
        another server of this folder has set it."""
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


def _boot() -> str:
    """An id of this machine since it was started; "" where there is none."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text("utf-8")
    return ""


def _locked(handle: int, kind: int, patience: float = 0) -> bool:
    """Take a lock, which is then held until the file is closed. False when it does not become free
    in `patience` seconds."""
    end = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
        time.sleep(0.01)


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
    try:
        plain = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise FormatError(f"not YAML: {error}", path=path) from error
    if plain is not None and not isinstance(plain, dict):
        raise FormatError(f"a {type(plain).__name__}, not keys with values", path=path)
    try:
        return LabConfig.model_validate(plain or {})
    except ValidationError as error:
        raise FormatError(
            faults_of(error, "lab"),
            path=path,
            hint="etscope lab --home FOLDER init writes an example",
        ) from error


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML's safe loader, but equal keys are an error; PyYAML would take the last of them."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen: set[Any] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"duplicate key {key.value!r}", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


EXAMPLE = (Path(__file__).parent / "example.yaml").read_text("utf-8")

# Lines of the example, and what a team has in their place.
_TEAM = (
    ("# database: sqlite:///lab.db\n", "database: postgresql://etscope@db/etscope\n"),
    ("# store: store\n", "store: /store\n"),
    ("# scheduler: tcp://10.0.0.1:8786\n", "scheduler: tcp://scheduler:8786\n"),
    ("# log: text\n", "log: json\n"),
    ("# server:\n#   host: 127.0.0.1\n", "server:\n  host: 0.0.0.0\n"),
    ("#   require_tokens: false\n", "  require_tokens: true\n"),
)
