"""The driver `ssh`: a Linux board or any machine with a POSIX shell, over OpenSSH's client.

One connection is held for the job (`ControlMaster`); commands and files go through it. Files go
through the device's `tar`, all in one stream, so it needs no sftp.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from etscope.errors import DeviceLost, MissingDependencyError, MissingFileError, UsageError
from etscope.run.process import end_with_parent
from etscope.run.remote import Remote, checked, mark

_OPTIONS = {
    "host": str,
    "port": int,
    "user": str,
    "identity": str,
    "known_hosts": str,
    "config": str,
    "python": str,
    "runner": str,
    "push_runner": str,
    "folder": str,
}
_FOLDER = "/tmp"
_CONNECT_SECONDS = 30
_ALIVE_SECONDS = 5  # between two keep-alive messages
_ALIVE_COUNT = 3  # unanswered ones that end the connection
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:%@-]*")


class Ssh(Remote):
    """A machine that OpenSSH reaches.

    Options: host (an address or a name of ~/.ssh/config), port, user; identity, a private key's
    file; known_hosts, a file; config, in place of ~/.ssh/config; python, an interpreter on the
    device (python3); runner, the native runner's path on the device, or push_runner, a local binary
    or install folder; folder, for the job's folder (/tmp).

    The client never prompts: the key must have no passphrase or be in an agent, and the host must
    be known.
    """

    kind = "ssh"

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        given = checked("ssh", options, _OPTIONS)
        super().__init__(name, given, _FOLDER)
        if given["host"] is None:
            raise UsageError("the driver ssh needs the option host")
        for option in ("host", "user"):
            if given[option] is not None and not _WORD.fullmatch(given[option]):
                raise UsageError(f"not a {option}: {given[option]!r}")
        for option in ("identity", "known_hosts", "config"):
            if given[option] is not None and not Path(given[option]).expanduser().exists():
                raise MissingFileError(f"{option} of the driver ssh not found: {given[option]}")
        if shutil.which("ssh") is None:
            raise MissingDependencyError(
                "the program ssh is not installed", hint="apt-get install openssh-client"
            )
        self._given = given
        self._socket_folder = tempfile.mkdtemp(prefix="etscope-ssh-", dir="/tmp")  # short: a socket
        self._socket = f"{self._socket_folder}/s"
        self._master = self._connected()

    def line(self, script: str) -> list[str]:
        # Any login shell that knows quotes will do. When the held connection is gone, the device
        # was lost: do not connect anew.
        return [
            *("ssh", "-S", self._socket, "-o", "ControlMaster=no", "-o", "ProxyCommand=false"),
            *("-o", "BatchMode=yes", "-T", *self._target()),
            f"exec sh -c {shlex.quote(script)}",
        ]

    def send(self, files: Mapping[Path, str], target: str) -> None:
        with tempfile.NamedTemporaryFile(suffix=".tar") as stream:
            with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as archive:
                for source, name in files.items():
                    archive.add(source.resolve(), arcname=name, filter=_plain)
            stream.flush()
            self.do(f"tar -xf - -C {shlex.quote(target)}", data=Path(stream.name))

    def receive(self, names: Sequence[str], source: str, folder: Path) -> None:
        sign = mark()
        wanted = " ".join(map(shlex.quote, names))
        script = (
            f"cd {shlex.quote(source)} || exit 1; "
            f'set --; for f in {wanted}; do if [ -f "$f" ]; then set -- "$@" "$f"; fi; done; '
            # A login shell may print a greeting before.
            f'echo; echo "{sign} $#"; if [ $# -gt 0 ]; then tar -cf - "$@"; fi'
        )
        with tempfile.TemporaryFile() as data:
            done = subprocess.run(
                self.line(script),
                stdin=subprocess.DEVNULL,
                stdout=data,
                stderr=subprocess.PIPE,
                check=False,
                preexec_fn=end_with_parent,
            )
            data.seek(0)
            count = None  # the number after the sign; the archive follows that line
            for line in iter(data.readline, b""):
                words = line.decode(errors="replace").split()
                if words[:1] == [sign] and len(words) == 2 and words[1].isdecimal():
                    count = int(words[1])
                    break
            if count is None or _unpack(data, set(names), folder) != count:
                raise self.gone(done.stderr.decode(errors="replace"))

    def lost(self) -> str | None:
        if self._master.poll() is None and self._is_up():
            return None
        return "the connection ended"

    def close(self) -> None:
        super().close()
        with contextlib.suppress(Exception):
            self._master.terminate()
            try:
                self._master.wait(5)
            except subprocess.TimeoutExpired:
                self._master.kill()
                self._master.wait()
        shutil.rmtree(self._socket_folder, ignore_errors=True)

    # -- the connection

    def _target(self) -> list[str]:
        given = self._given
        words: list[str] = []
        for flag, option in (("-F", "config"), ("-i", "identity")):
            if given[option] is not None:
                words += [flag, str(Path(given[option]).expanduser())]
        if given["known_hosts"] is not None:
            path = Path(given["known_hosts"]).expanduser()
            words += ["-o", f'UserKnownHostsFile="{path}"']  # several, if a blank is not quoted
        for flag, option in (("-p", "port"), ("-l", "user")):
            if given[option] is not None:
                words += [flag, str(given[option])]
        return [*words, "--", given["host"]]

    def _connected(self) -> subprocess.Popen[bytes]:
        """Start the process that holds the connection."""
        with tempfile.TemporaryFile() as words:
            line = [
                *("ssh", "-M", "-N", "-S", self._socket, "-o", "ControlPersist=no"),
                *("-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes"),
                *("-o", f"ConnectTimeout={_CONNECT_SECONDS}"),
                *("-o", f"ServerAliveInterval={_ALIVE_SECONDS}"),
                *("-o", f"ServerAliveCountMax={_ALIVE_COUNT}"),
                *self._target(),
            ]
            master = subprocess.Popen(
                line,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=words,
                preexec_fn=end_with_parent,
                start_new_session=True,  # so that a Ctrl-C does not end the connection
            )
            end = time.monotonic() + _CONNECT_SECONDS + 5
            while master.poll() is None and time.monotonic() < end:
                if self._is_up():
                    return master
                time.sleep(0.05)
            master.kill()
            master.wait()
            words.seek(0)
            said = words.read().decode(errors="replace").strip().splitlines()
        shutil.rmtree(self._socket_folder, ignore_errors=True)
        reason = said[-1].strip() if said else "no answer"
        raise DeviceLost(f"{self.name} is out of reach: {reason}")

    def _is_up(self) -> bool:
        if not Path(self._socket).exists():
            return False
        line = ["ssh", "-S", self._socket, "-O", "check", *self._target()]
        return subprocess.run(line, capture_output=True, check=False).returncode == 0


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Remove this machine's users and permissions from a member."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o600
    return member


def _unpack(data: IO[bytes], wanted: set[str], folder: Path) -> int:
    """Write the wanted files of an archive into a folder, and count them.

    A device is not trusted: other names and links are ignored.
    """
    found = 0
    with contextlib.suppress(tarfile.TarError), tarfile.open(fileobj=data, mode="r|") as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isreg() else None
            if content is None or member.name not in wanted:
                continue
            path = folder / Path(member.name).name
            with path.open("wb") as out:
                shutil.copyfileobj(content, out, 1 << 20)
            if path.stat().st_size != member.size:
                path.unlink()
                break
            found += 1
    return found
