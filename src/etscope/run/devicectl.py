"""The driver `devicectl`: an iPhone or iPad, over Xcode's `xcrun devicectl` on a Mac.

It has no shell, so it runs an app (the option `app` of the device), whose `start` has the words
that the app gets as arguments. Files are in Documents/etscope of the app's data container.

Every command writes its result as JSON (--json-output), the only form that Apple keeps stable:
`info.outcome`, and `result` or `error`, whose causes are nested in NSUnderlyingError.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from etscope.errors import (
    DeviceLost,
    EtscopeError,
    LabError,
    MissingDependencyError,
    RuntimeFailure,
    UsageError,
)
from etscope.run.process import call_logged
from etscope.run.remote import Completed, checked

_OPTIONS = {"device": str, "bundle": str, "install": str, "xcrun": str}
_FOLDER = "Documents/etscope"
_SECONDS = 120  # of a command, but for the app's run
_GRACE = 5  # seconds for an app to end
_DEVICE_ERROR = "com.apple.dt.CoreDeviceError"
# Domains and codes, of recorded sessions. None: all codes.
_LOST = {
    ("com.apple.CoreDevice.ControlChannelConnectionError", None),
    ("Network.NWError", None),
    (_DEVICE_ERROR, 3),  # locked, or Developer Mode is off
    (_DEVICE_ERROR, 1000),  # not found
    (_DEVICE_ERROR, 4016),  # not able to fulfil a request of its capabilities: out of reach
    ("FBSOpenApplicationErrorDomain", 7),  # locked
}
_NOT_SET_UP = {
    (_DEVICE_ERROR, 3002),  # the app cannot be installed
    ("FBSOpenApplicationErrorDomain", 3),  # the developer is not trusted on the device
}
_NO_FILE = "Failed to retrieve the file node"
_SIGNALLED = re.compile(r"App terminated due to signal (\d+)")


class Devicectl:
    """An iOS device that is paired with this Mac.

    Options: device (an identifier, UDID or name of `xcrun devicectl list devices`); bundle, the
    identifier of the app; install, its .app or .ipa, which is installed first; xcrun, the program.
    """

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        given = checked("devicectl", options, _OPTIONS)
        if not given["device"] or not given["bundle"]:
            raise UsageError("the driver devicectl needs the options device and bundle")
        self._name, self._device, self._bundle = name, given["device"], given["bundle"]
        self._xcrun = given["xcrun"] or "xcrun"
        if shutil.which(self._xcrun) is None:
            raise MissingDependencyError(
                f"the program {self._xcrun} is not installed", hint="it is part of Xcode, on a Mac"
            )
        self._install = given["install"]
        self._is_clear = False
        self._facts = self._found()

    def attributes(self) -> dict[str, str]:
        hardware, own = (self._facts.get(f"{one}Properties", {}) for one in ("hardware", "device"))
        found = {
            "arch": hardware.get("cpuType", {}).get("name"),
            "os": hardware.get("platform", "").lower(),
            "model": hardware.get("marketingName") or hardware.get("productType"),
            "kernel": f"{hardware.get('platform', '')} {own.get('osVersionNumber', '')}".strip(),
        }
        known = {key: str(one) for key, one in found.items() if one}
        return {**known, "driver": "devicectl", "runners": ""}

    def runner(self, kind: str) -> Sequence[str]:
        raise MissingDependencyError(f"{self._name} has no {kind} runner: give it an app")

    def read(self, paths: Sequence[str]) -> dict[str, str]:
        return {}  # iOS shows none of these files

    def push(self, files: Mapping[Path, str]) -> None:
        if self._install is not None:
            self._ask("device", "install", "app", self._install)
            self._install = None
        if not self._is_clear:  # of a job that was lost
            self._clear()
            self._is_clear = True
        for source, name in files.items():
            self._copy("to", str(source.resolve()), f"{_FOLDER}/{name}")

    def call(self, command: Sequence[str], timeout: float | None) -> Completed:
        """Launch the app with these arguments and wait until it ends."""
        words = ("launch", "--console", "--terminate-existing", self._bundle, "--", *command)
        code, log, answer = self._run(("device", "process", *words), timeout)
        if signalled := _SIGNALLED.search(log):
            return Completed(-int(signalled[1]), log)
        if answer is not None and answer.get("info", {}).get("outcome") != "success":
            raise self._error(answer, "process launch")
        return Completed(code, log)

    def pull(self, names: Sequence[str], folder: Path) -> None:
        for name in names:
            self._copy("from", f"{_FOLDER}/{name}", str(folder.absolute() / Path(name).name))

    def close(self) -> None:
        if self._is_clear:
            with suppress(EtscopeError, OSError):
                self._clear()

    # -- devicectl

    def _found(self) -> dict[str, Any]:
        """The device in the list of devices. Raises `DeviceLost`."""
        for one in self._ask("list", "devices").get("devices", ()):
            hardware, own = (one.get(f"{part}Properties", {}) for part in ("hardware", "device"))
            if self._device in (one.get("identifier"), hardware.get("udid"), own.get("name")):
                if one.get("connectionProperties", {}).get("tunnelState") == "unavailable":
                    raise DeviceLost(f"{self._name} is out of reach: it is unavailable")
                return dict(one)
        raise DeviceLost(f"{self._name} is out of reach: this Mac does not list {self._device}")

    def _clear(self) -> None:
        """Replace the files in the app's folder by none: devicectl cannot remove files."""
        with tempfile.TemporaryDirectory(prefix="etscope-ios-") as empty:
            self._copy("to", empty, _FOLDER, "--remove-existing-content", "true")

    def _copy(self, way: str, source: str, target: str, *more: str) -> None:
        """Copy a file; a missing one of the device is left out."""
        of_app = ("--domain-type", "appDataContainer", "--domain-identifier", self._bundle)
        try:
            self._ask(
                *("device", "copy", way, *of_app, "--source", source, "--destination", target),
                *more,
            )
        except RuntimeFailure as error:
            if way == "to" or _NO_FILE not in error.message:
                raise

    def _ask(self, *words: str) -> dict[str, Any]:
        """Run a command of devicectl, and return its result."""
        what = " ".join(words[1:3])
        try:
            _, log, answer = self._run(words, _SECONDS)
        except TimeoutError as error:
            raise DeviceLost(f"{self._name} did not answer within {_SECONDS} s") from error
        if answer is None:
            said = log.strip().splitlines() or ["no words"]
            raise LabError(f"devicectl {what} gave no answer: {said[-1]}")
        if answer.get("info", {}).get("outcome") != "success":
            raise self._error(answer, what)
        return dict(answer.get("result") or {})

    def _run(
        self, words: Sequence[str], timeout: float | None
    ) -> tuple[int, str, dict[str, Any] | None]:
        """Run a command: its exit code, what it said, and its answer. Raises `TimeoutError`."""
        with tempfile.TemporaryDirectory(prefix="etscope-ios-") as folder:
            out, log = Path(folder) / "answer.json", Path(folder) / "log"
            flags = ["--device", self._device] if words[0] == "device" else []
            flags += ["--json-output", str(out)]
            verb = 3 if words[0] == "device" else 2  # words; what follows may be of the app
            line = [self._xcrun, "devicectl", *words[:verb], *flags, *words[verb:]]
            code = call_logged(line, log, timeout, grace=_GRACE)  # which asks the app to end
            answer = None
            with suppress(OSError, ValueError):
                answer = json.loads(out.read_bytes())
            return code, log.read_text("utf-8", "replace"), answer

    def _error(self, answer: Mapping[str, Any], what: str) -> EtscopeError:
        """The error of an answer: whose fault it is, and its causes in words."""
        causes = list(_causes(answer.get("error")))
        codes = {pair for domain, code, _ in causes for pair in ((domain, code), (domain, None))}
        why = "; ".join(dict.fromkeys(text for *_, text in causes if text)) or "no reason given"
        if answer.get("info", {}).get("outcome") == "timeout" or codes & _LOST:
            return DeviceLost(f"{self._name} is out of reach: {why}")
        if codes & _NOT_SET_UP:
            return LabError(f"the device {self._name} is not set up: {why}")
        return RuntimeFailure(f"{self._name}: devicectl {what}: {why}")


def _causes(error: Any) -> Iterator[tuple[str, int, str]]:
    """Yield domain, code and text of an error, and of each cause in it."""
    while isinstance(error, dict):
        about = error.get("userInfo") or {}
        names = ("NSLocalizedDescription", "NSLocalizedFailureReason", "NSDescription")
        texts = [about[name]["string"] for name in names if "string" in (about.get(name) or {})]
        yield str(error.get("domain", "")), int(error.get("code", 0)), ": ".join(texts)
        error = (about.get("NSUnderlyingError") or {}).get("error")
