"""The driver `adb`: an Android device, over the `adb` client.

`adb shell` of a device without the feature shell_v2 always ends with 0; so a script prints its
status.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from etscope.errors import DeviceLost, MissingDependencyError, UsageError
from etscope.run.process import end_with_parent
from etscope.run.remote import Remote, checked, seconds_for

_OPTIONS = {
    "serial": str,
    "adb": str,
    "server_port": int,
    "python": str,
    "runner": str,
    "push_runner": str,
    "folder": str,
}
_FOLDER = "/data/local/tmp"  # writable for the shell user, who may execute files in it
_SECONDS = 30.0
_SERIAL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:\-]*")
_LARGEST = 256 << 20  # bytes of a file that comes back
_CUT = re.compile(r"failed to read copy response|protocol fault|cannot connect to daemon")
_ADDRESS = re.compile(r"[A-Za-z0-9_.\-]+:\d+")


class Adb(Remote):
    """An Android device that `adb devices` lists, or one at HOST:PORT.

    Options: serial, which may be left out when there is only one device; adb, the client (adb);
    server_port, of its server (5037); push_runner, a local native runner (binary or install folder)
    built for the device, or runner, its path on the device; python, an interpreter on the device;
    folder, for the job's folder (/data/local/tmp).
    """

    kind = "adb"
    grace = 0.5  # without shell_v2 the device sees the end of the client, not of stdin

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        given = checked("adb", options, _OPTIONS)
        super().__init__(name, given, _FOLDER)
        self._serial: str | None = given["serial"]
        if self._serial is not None and not _SERIAL.fullmatch(self._serial):
            raise UsageError(f"not a serial number: {self._serial!r}")
        program = given["adb"] or "adb"
        if shutil.which(program) is None:
            raise MissingDependencyError(
                f"the program {program} is not installed", hint="apt-get install adb"
            )
        port = given["server_port"]
        self._adb = [program, *(() if port is None else ("-P", str(port)))]
        if self._serial is not None and _ADDRESS.fullmatch(self._serial):
            self._adb_run(["connect", self._serial], on_device=False)
        reason = self.lost()
        if reason is not None and reason.startswith("more than one device"):
            raise UsageError(
                "adb has more than one device", hint="name it: the option serial (adb devices)"
            )
        if reason is not None:
            raise DeviceLost(f"{name} is out of reach: {reason}")

    def line(self, script: str) -> list[str]:
        return [*self._begin(), "shell", script]

    def send(self, files: Mapping[Path, str], target: str) -> None:
        parents = {f"{target}/{name}".rpartition("/")[0] for name in files.values()} - {target}
        if parents:
            self.do(f"mkdir -p {shlex.join(sorted(parents))}")
        for source, name in files.items():
            words = ["push", str(source.resolve()), f"{target}/{name}"]
            self._transfer(words, source.stat().st_size)

    def receive(self, names: Sequence[str], source: str, folder: Path) -> None:
        wanted = " ".join(map(shlex.quote, names))
        there, _ = self.ask(
            f"cd {shlex.quote(source)}; "
            f'for f in {wanted}; do if [ -f "$f" ]; then echo "$f"; fi; done'
        )
        for name in set(names) & set(there.splitlines()):
            self._transfer(["pull", f"{source}/{name}", str(folder.absolute() / Path(name).name)])

    def lost(self) -> str | None:
        try:
            done = self._adb_run(["get-state"])
        except DeviceLost as error:
            return error.message
        state = done.stdout.decode(errors="replace").strip()
        if done.returncode == 0 and state == "device":
            return None
        return _reason(done.stderr) or f"its state is {state or 'unknown'}"

    def ask(self, script: str, *, data: Path | None = None) -> tuple[str, int]:
        if data is not None:  # which copies a whole file or fails
            raise UsageError("files go to an Android device by adb push")
        return super().ask(script)

    def _begin(self) -> list[str]:
        return [*self._adb, *(() if self._serial is None else ("-s", self._serial))]

    def _adb_run(
        self, words: Sequence[str], *, on_device: bool = True
    ) -> subprocess.CompletedProcess[bytes]:
        try:
            return subprocess.run(
                [*(self._begin() if on_device else self._adb), *words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise DeviceLost(f"adb {words[0]} did not end within {_SECONDS:g} s") from error

    def _transfer(self, words: Sequence[str], size: int = _LARGEST) -> None:
        try:
            done = subprocess.run(
                [*self._begin(), *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=seconds_for(size),
                check=False,
                preexec_fn=end_with_parent,
            )
        except subprocess.TimeoutExpired as error:
            raise DeviceLost(f"{self.name} hangs: adb {words[0]} did not end") from error
        if done.returncode == 0:
            return
        reason = _reason(done.stdout)
        if _CUT.search(reason) or self.lost() is not None:
            raise DeviceLost(f"{self.name} went away: {reason}")
        raise self.refused(f"adb {shlex.join(words)}: {reason}")


def _reason(said: bytes) -> str:
    """The error in what adb says: the last line, or an earlier one before counts or advice."""
    lines = said.decode(errors="replace").strip().splitlines()
    error = next((line for line in lines if "error: " in line), lines[-1] if lines else "")
    return error.rpartition("error: ")[2]
