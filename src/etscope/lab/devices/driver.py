"""What a driver is: how the lab reaches a device, and nothing else.

A driver moves files and starts commands. What is measured, and how, is the same for all of them:
`etscope.lab.worker.measure` runs the job through `etscope.run`, with the driver as the place where
the runner's processes are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from etscope.errors import UsageError

# The options of a driver, checked: what they may be called, and what they may hold.


def checked(driver: str, options: Mapping[str, Any], known: Mapping[str, type]) -> dict[str, Any]:
    """The options by name; all of `known`, None for those not given.

    Raises `UsageError` for a name that is not known, or a value of another type.
    """
    strange = sorted(set(options) - set(known))
    if strange:
        raise UsageError(
            f"the driver {driver} has no option {', '.join(strange)}",
            hint=f"its options: {', '.join(known) or 'none'}",
        )
    for name, value in options.items():
        kind = known[name]
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            raise UsageError(
                f"the option {name} of the driver {driver} is {kind.__name__}, not {value!r}"
            )
        if isinstance(value, str) and (not value or value.startswith("-") or not _is_line(value)):
            raise UsageError(f"the option {name} of the driver {driver} cannot be {value!r}")
    return {name: options.get(name) for name in known}


def _is_line(text: str) -> bool:
    return text.isprintable()


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that ended on the device. code: its exit status, negative for a signal. log: what
    it wrote to stdout and stderr."""

    code: int
    log: str


class Driver(Protocol):
    """A device in reach. One job at a time; made in the process that measures.

    Every method raises `etscope.errors.DeviceLost` when the device cannot be reached (any more),
    and `UsageError` for options that make no sense.
    """

    def __init__(self, name: str, options: Mapping[str, Any]) -> None: ...

    def attributes(self) -> dict[str, str]:
        """What selectors can ask for: arch, os, soc or model, cores, memory_bytes, and
        "runners": which of "python" and "native" there are."""
        ...

    def runner(self, kind: str) -> Sequence[str]:
        """The words that begin the command of a runner ("python": an interpreter that has etscope
        and executorch; "native": the binary), made ready first: pushed, or built.

        Raises `MissingDependencyError` when the device has none of that kind.
        """
        ...

    def read(self, paths: Sequence[str]) -> dict[str, str]:
        """Files of the device as text (those of /sys and /proc that conditions are read from), by
        path, shell patterns expanded; what is not there or cannot be read is left out."""
        ...

    def push(self, files: Mapping[Path, str]) -> None:
        """Copy local files to places in the job's folder on the device, by name there, which may
        begin with folders inside it."""
        ...

    def call(self, command: Sequence[str], timeout: float | None) -> Completed:
        """Run a command in the job's folder and wait; ended with all its children when the time is
        up (`TimeoutError`, with what was logged so far) or when this process ends."""
        ...

    def pull(self, names: Sequence[str], folder: Path) -> None:
        """Copy files of the job's folder into a local one; what is not there is left out."""
        ...

    def close(self) -> None:
        """Remove the job's folder, end what still runs there. Never raises."""
        ...
