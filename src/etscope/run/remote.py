"""A device behind a shell: the common part of the drivers `ssh` and `adb`.

They differ in the way to run a script on the device and to copy a file. Nothing goes into a script
unquoted. The end of an answer is found by a random mark: the exit status of `adb shell` means
nothing on many devices, and that of `ssh` may be its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import secrets
import shlex
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from etscope.errors import (
    DeviceLost,
    EtscopeError,
    MissingDependencyError,
    RuntimeFailure,
    UsageError,
)
from etscope.run.process import end_of, end_with_parent, require_posix

__all__ = ["FACTS", "Completed", "Remote", "checked", "read_facts", "seconds_for"]

RUNNER = "etscope-runner"
NEEDED = ("etscope", "executorch", "torch")

_SECONDS = 60.0  # for the answer of a short script
_SLOWEST = 64 << 10  # bytes a second of a link
_LOG_LIMIT = 16 << 20  # bytes of a command's log, the last ones
_HAS_PYTHON = (
    "import sys, importlib.util as u; sys.exit(not all(u.find_spec(n) for n in sys.argv[1:]))"
)
# The last is GNU tar's.
_FULL = re.compile(r"No space left on device|Disk quota exceeded|Wrote only \d+ of \d+ bytes")
# Allowed in a pattern for files of /sys and /proc; the shell interprets only * ? [ ].
_PATTERN = re.compile(r"[A-Za-z0-9_./:,@+=*?\[\]-]+")
# Each line "name=value"; empty values are left out. `getprop` is Android's.
FACTS = (
    'echo "arch=$(uname -m)"; echo "kernel=$(uname -sr)"; '
    "a=$(getprop ro.build.version.release 2>/dev/null); "
    'echo "os=$([ -n "$a" ] && echo android || uname -s | tr A-Z a-z)"; echo "android=$a"; '
    'echo "cores=$(nproc 2>/dev/null || grep -c ^processor /proc/cpuinfo)"; '
    "sed -n 's/^MemTotal: *\\([0-9]*\\) kB/memory_kib=\\1/p' /proc/meminfo 2>/dev/null; "
    'echo "model=$(getprop ro.product.model 2>/dev/null '
    "|| tr -d '\\0' </proc/device-tree/model 2>/dev/null)\"; "
    'echo "soc=$(getprop ro.soc.model 2>/dev/null)"; '
    "sed -n 's/^\\(model name\\|Hardware\\)[[:space:]]*: */cpu=/p' /proc/cpuinfo 2>/dev/null | "
    "head -n 1; true"
)


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that ended on the device. code: its exit status, negative for a signal. log: its
    stdout and stderr."""

    code: int
    log: str


class Remote(ABC):
    """A device with a POSIX shell.

    name: the device's name in messages. options: folder, the folder on the device in which the
    job's folder is made (by default `base`); python, an interpreter on the device; runner, a native
    runner on the device; push_runner, a local native runner (a binary or the folder of an install,
    with `bin` and `lib`), which is pushed once and stays. Options that were not given are None.
    """

    kind = ""
    grace = 5.0  # seconds between asking a command to end and killing the client

    def __init__(self, name: str, options: Mapping[str, Any], base: str) -> None:
        require_posix(f"the driver {self.kind}")
        runner, push_runner = options["runner"], options["push_runner"]
        if runner is not None and push_runner is not None:
            raise UsageError(
                "runner and push_runner exclude each other: a runner on the device, or one to push"
            )
        self.name = name
        self._base: str = (options["folder"] or base).rstrip("/")
        self._python: str | None = options["python"]
        self._runner: str | None = runner
        self._push_runner = None if push_runner is None else install_files(push_runner, RUNNER)
        self._attributes: dict[str, str] | None = None
        self._made: str | None = None

    # -- to be implemented by a driver

    @abstractmethod
    def line(self, script: str) -> list[str]:
        """The local command that runs a script on the device, with its stdin."""

    @abstractmethod
    def send(self, files: Mapping[Path, str], target: str) -> None:
        """Copy local files into an existing folder on the device, each to the given name. Folders
        in the names are made."""

    @abstractmethod
    def receive(self, names: Sequence[str], source: str, folder: Path) -> None:
        """Copy the files that exist from a folder on the device into a local one."""

    @abstractmethod
    def lost(self) -> str | None:
        """The reason why the device cannot be reached; None when it can."""

    # -- the driver

    def attributes(self) -> dict[str, str]:
        if self._attributes is None:
            runners = [kind for kind in ("python", "native") if self._has(kind)]
            self._attributes = {
                **read_facts(self.ask(FACTS)[0]),
                "driver": self.kind,
                "runners": ",".join(runners),
            }
        return dict(self._attributes)

    def runner(self, kind: str) -> Sequence[str]:
        if kind not in self.attributes()["runners"].split(","):
            raise MissingDependencyError(f"{self.name} has no {kind} runner")
        if kind == "python":
            return [self._python or "python3"]
        return [self._runner or self.pushed(self._push_runner or {}, RUNNER)]

    def read(self, paths: Sequence[str]) -> dict[str, str]:
        """Return the texts of files by path, without empty files. paths: may be patterns. Raises
        `UsageError` for one that the shell could take for something else."""
        invalid = [pattern for pattern in paths if not _PATTERN.fullmatch(pattern)]
        if invalid:
            raise UsageError(f"not a pattern of paths: {invalid[0]!r}")
        sign = mark()
        answer, _ = self.ask(
            f"for f in {' '.join(paths)}; do "
            f'if [ -f "$f" ] && [ -r "$f" ]; then echo "{sign} $f"; cat "$f" 2>/dev/null; echo; '
            "fi; done"
        )
        found = {}
        for part in answer.replace("\r\n", "\n").split(f"{sign} ")[1:]:
            path, _, text = part.partition("\n")
            if text.strip():
                found[path] = text.removesuffix("\n")
        return found

    def push(self, files: Mapping[Path, str]) -> None:
        if files:
            self.send(files, self._folder())

    def call(self, command: Sequence[str], timeout: float | None) -> Completed:
        sign = mark()
        script = running(command, self._folder(), sign)
        with tempfile.TemporaryFile() as log, tempfile.TemporaryFile() as words:
            ended = self._run(script, timeout, log, words)
            text = end_of(log, _LOG_LIMIT).replace("\r\n", "\n")
            found = ending(text, sign)
            if not ended:
                raise TimeoutError(text if found is None else found[0])
            if found is None:
                raise self.gone(end_of(words, _LOG_LIMIT))
        before, status = found
        if not status.isdecimal():
            raise DeviceLost(
                f"{self.name}: the job's folder is gone, the device may have restarted"
            )
        code = int(status)  # of a shell: 128 + n for signal n
        return Completed(128 - code if 128 < code < 128 + 65 else code, before)

    def pull(self, names: Sequence[str], folder: Path) -> None:
        if names:
            self.receive(names, self._folder(), folder)

    def close(self) -> None:
        if self._made is not None:
            with contextlib.suppress(Exception):
                self.ask(f"rm -rf {shlex.quote(self._made)}")
            self._made = None

    # -- scripts

    def ask(self, script: str, *, data: Path | None = None) -> tuple[str, int]:
        """Run a script to its end: what it wrote, and its status. data: a file for its stdin."""
        sign = mark()
        line = self.line(f'{script}; c=$?; echo; echo "{sign} $c"')
        with contextlib.ExitStack() as files:
            source = subprocess.DEVNULL if data is None else files.enter_context(data.open("rb"))
            timeout = seconds_for(0 if data is None else data.stat().st_size)
            try:
                done = subprocess.run(
                    line,
                    stdin=source,
                    capture_output=True,
                    timeout=timeout,
                    check=False,
                    preexec_fn=end_with_parent,
                )
            except subprocess.TimeoutExpired as error:
                raise DeviceLost(f"{self.name} did not answer within {timeout:.0f} s") from error
        found = ending("\n" + done.stdout.decode(errors="replace"), sign)
        if found is None or not found[1].isdecimal():
            raise self.gone(done.stderr.decode(errors="replace"))
        return found[0].lstrip("\n"), int(found[1])

    def do(self, script: str, *, data: Path | None = None) -> None:
        """Run a script. Raises `RuntimeFailure` when it fails."""
        said, status = self.ask(f"{{ {script}; }} 2>&1", data=data)
        if status != 0:
            raise self.refused(said.strip() or f"exit code {status}")

    def refused(self, said: str) -> EtscopeError:
        """The error of a command that the device answered with a failure."""
        if _FULL.search(said):  # of the device: another one may do the job
            return DeviceLost(f"{self.name} cannot take the job's files: its disk is full")
        return RuntimeFailure(f"{self.name}: {said}")

    def _run(self, script: str, timeout: float | None, log: IO[bytes], words: IO[bytes]) -> bool:
        """Run a script for `timeout` seconds. True when it ended by itself."""
        child = subprocess.Popen(
            self.line(script),
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=words,
            preexec_fn=end_with_parent,
        )
        try:
            child.wait(timeout)
            return True
        except subprocess.TimeoutExpired:
            return False
        finally:
            self._end(child)

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        """End the command on the device, which ends with its stdin."""
        if child.stdin is not None:
            with contextlib.suppress(OSError):
                child.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(self.grace)
        if child.poll() is None:
            child.kill()
            child.wait()

    def gone(self, words: str) -> DeviceLost:
        lines = [line.strip() for line in words.splitlines() if line.strip()]
        reason = (lines[-1] if lines else None) or self.lost() or "the connection ended"
        return DeviceLost(f"{self.name} is out of reach: {reason}")

    # -- the job's folder and the runner

    def _folder(self) -> str:
        """The job's folder on the device, made when it is first needed."""
        if self._made is None:
            base = shlex.quote(self._base)
            said, status = self.ask(
                f"umask 077; {{ mkdir -p {base} && mktemp -d {base}/etscope-job-XXXXXXXX; }} 2>&1"
            )
            path = said.strip()
            if status != 0 or not path.startswith(f"{self._base}/etscope-job-"):
                raise self.refused(f"no folder for the job can be made: {path}")
            self._made = path
        return self._made

    def _has(self, kind: str) -> bool:
        if kind == "python":
            test = [self._python or "python3", "-c", _HAS_PYTHON, *NEEDED]
            return self.ask(f"{shlex.join(test)} >/dev/null 2>&1")[1] == 0
        if self._push_runner is not None:
            return True
        return self._runner is not None and self.ask(f"[ -x {shlex.quote(self._runner)} ]")[1] == 0

    def pushed(self, files: Mapping[str, Path], program: str) -> str:
        """Push a program's files (of `install_files`), unless they are on the device already;
        return its path there. The files stay."""
        known = hashlib.sha256()
        for name, path in files.items():
            known.update(f"{name}\0{path.stat().st_size}\0".encode())
            known.update(path.read_bytes())
        target = f"{self._base}/{program}-{known.hexdigest()[:16]}"
        binary = f"{target}/bin/{program}"
        # In /tmp every user can make a folder of this name.
        ours = f"[ -O {shlex.quote(target)} ] && [ -O {shlex.quote(binary)} ]"
        if self.ask(f"{ours} && [ -x {shlex.quote(binary)} ]")[1] == 0:
            return binary
        part = f"{self._folder()}/{program}"
        self.do(f"mkdir -p {shlex.quote(part)}")
        self.send({path: name for name, path in files.items()}, part)
        # Moved in one step, so that a program is whole. Another job may have been first.
        self.do(
            f"chmod 755 {shlex.quote(f'{part}/bin/{program}')} && "
            f"{{ [ -d {shlex.quote(target)} ] || mv {shlex.quote(part)} {shlex.quote(target)}; }}"
        )
        if self.ask(ours)[1] != 0:
            raise RuntimeFailure(
                f"{self.name}: {target} belongs to another user there",
                hint="name another place: the option folder of the device",
            )
        return binary


def install_files(given: str, program: str) -> dict[str, Path]:
    """The files of a program's install by their names in it. given: its binary, or the folder.

    Raises `UsageError` when it is neither.
    """
    path = Path(given).expanduser()
    if path.is_file():
        return {f"bin/{program}": path}
    if not (path / "bin" / program).is_file():
        raise UsageError(
            f"no {program}: {given}",
            hint=f"give a binary, or a folder with bin/{program} as cmake --install makes it",
        )
    return {
        file.relative_to(path).as_posix(): file
        for part in ("bin", "lib")
        for file in sorted((path / part).glob("*"))
        if file.is_file()
    }


def checked(driver: str, options: Mapping[str, Any], known: Mapping[str, type]) -> dict[str, Any]:
    """The options of a driver by name: all of `known`, None for missing ones.

    Raises `UsageError` for an unknown name or a value of another type.
    """
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise UsageError(
            f"the driver {driver} has no option {', '.join(unknown)}",
            hint=f"the driver's options: {', '.join(known) or 'none'}",
        )
    for name, value in options.items():
        kind = known[name]
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            raise UsageError(
                f"the option {name} of the driver {driver} is {kind.__name__}, not {value!r}"
            )
        if isinstance(value, str) and (
            not value or value.startswith("-") or not value.isprintable()
        ):
            raise UsageError(f"the option {name} of the driver {driver} cannot be {value!r}")
    return {name: options.get(name) for name in known}


def seconds_for(size: int) -> float:
    """The longest time of a command that copies so many bytes; a device that hangs is lost."""
    return _SECONDS + size / _SLOWEST


# -- scripts for the shell of a device, and their answers


def mark() -> str:
    """A random word that no output contains by chance."""
    return f"etscope-{secrets.token_hex(12)}"


def running(command: Sequence[str], folder: str, sign: str) -> str:
    """Return a script that runs a command in a folder, and at the end prints the sign and the
    command's exit status.

    If the script's stdin ends, because the calling process died or gave up, the command is killed
    with all processes that it started. For this the command runs in its own session, and without
    that stdin.
    """
    return "; ".join(
        (
            "trap '' HUP",
            f"cd {shlex.quote(folder)} 2>/dev/null || {{ echo; echo '{sign} gone'; exit 0; }}",
            "exec 3<&0",
            "if command -v setsid >/dev/null; then s=setsid; else s=; fi",
            f"$s {shlex.join(command)} </dev/null 3<&- 2>&1 & p=$!",
            # `read` is the shell's own: another process would keep the connection open.
            "{ while read -r x <&3; do :; done; kill -9 -$p || kill -9 $p; } >/dev/null 2>&1 & "
            "w=$!",
            "wait $p; c=$?",
            "{ kill -9 $w; wait $w; } 2>/dev/null",
            f'echo; echo "{sign} $c"',
        )
    )


def ending(answer: str, sign: str) -> tuple[str, str] | None:
    """Split an answer into the text before the sign and the word after it; None without it."""
    before, found, after = answer.replace("\r\n", "\n").rpartition(f"\n{sign} ")
    return (before, after.split()[0]) if found and after.split() else None


def read_facts(answer: str) -> dict[str, str]:
    """Parse the output of `FACTS` into attributes of a device."""
    pairs = [line.partition("=") for line in answer.splitlines()]
    found = {name: text.strip() for name, sign, text in pairs if sign and text.strip()}
    kib = found.pop("memory_kib", "")
    if kib.isdecimal():
        found["memory_bytes"] = str(int(kib) * 1024)
    return found
