"""The exceptions of etscope, and the translation of low-level errors into them.

::

    EtscopeError
    +- UsageError (ValueError)                   exit 2   the call or command is wrong
    |  +- MissingFileError (FileNotFoundError)            a file does not exist
    |  +- MissingNameError (ModuleNotFoundError)          a name of upstream that is not here
    |  +- CyclesError (RuntimeError)                      cycles on one side of a conversion
    |  +- RecordError (RuntimeError)                      invalid content for an ETRecord
    |  +- BundleError (RuntimeError, AssertionError)      test cases that do not match a program
    |  +- ComparatorError (TypeError)                     values that cannot be compared
    +- ExportFailure (RuntimeError)              exit 2   a model that cannot be exported
    +- FormatError (ValueError, RuntimeError)    exit 3   a broken file, or one of another format
    |  +- VersionError                                    a version that etscope does not read
    +- MismatchError (ValueError)                exit 3   files that do not belong together
    +- MissingDataError (LookupError)            exit 4   a valid file without the requested data
    |  +- NumericGapError (ValueError)                    missing values or references
    +- MissingDependencyError (ImportError)      exit 5   a package that is not installed
    +- RuntimeFailure (RuntimeError)             exit 5   the runtime or device failed
    |  +- DeviceLost                                      a device or its runner went away
    |  +- ReferenceFailure                                PyTorch fails on these inputs, too
    +- LabError (RuntimeError)                   exit 5   the lab's server, database or store

Every class has a `slug` (a section of ``docs/reference/errors.md``, which is at `PAGE`), an
`exit_code`, and the builtin parent that users of upstream's tools already catch.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = [
    "BundleError",
    "ComparatorError",
    "CyclesError",
    "DeviceLost",
    "EtscopeError",
    "EtscopeWarning",
    "ExportFailure",
    "FormatError",
    "LabError",
    "MismatchError",
    "MissingDataError",
    "MissingDependencyError",
    "MissingFileError",
    "MissingNameError",
    "NumericGapError",
    "RecordError",
    "ReferenceFailure",
    "RuntimeFailure",
    "UsageError",
    "VersionError",
    "reading",
]


PAGE = "https://etscope.github.io/etscope/reference/errors/"


class EtscopeWarning(UserWarning):
    """Something a user should know that does not stop the work."""


class EtscopeError(Exception):
    """Base class of all errors that etscope raises on purpose."""

    slug = "error"
    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  hint: {self.hint}"


class UsageError(EtscopeError, ValueError):
    """The arguments of a call or command are wrong, whatever the files hold."""

    slug = "usage"
    exit_code = 2


class MissingFileError(UsageError, FileNotFoundError):
    """A named file does not exist."""

    slug = "missing-file"


class MissingNameError(UsageError, ModuleNotFoundError):
    """A module or name of ExecuTorch's developer tools that etscope does not have."""

    slug = "missing-name"


class CyclesError(UsageError, RuntimeError):
    """Cycles on only one side of a time conversion: no file records their duration."""

    slug = "cycles"


class RecordError(UsageError, RuntimeError):
    """An ETRecord cannot be made of the given objects."""

    slug = "record"


class BundleError(UsageError, RuntimeError, AssertionError):
    """A bundled program cannot be made of the given program and test cases."""

    slug = "bundle"


class ComparatorError(UsageError, TypeError):
    """A numerical comparator gets values that it cannot compare, or returns an invalid result."""

    slug = "comparator"


class ExportFailure(EtscopeError, RuntimeError):
    """torch or ExecuTorch cannot export a model; the message has their reason."""

    slug = "export-failure"
    exit_code = 2


class FormatError(EtscopeError, ValueError, RuntimeError):
    """A file is broken, or not of the expected format.

    `path` is the file, `offset` the byte offset in it and `member` the zip member or table; None if
    unknown.
    """

    slug = "bad-file"
    exit_code = 3

    def __init__(
        self,
        message: str,
        *,
        path: str | os.PathLike[str] | None = None,
        offset: int | None = None,
        member: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.path = None if path is None else os.fspath(path)
        self.offset = offset
        self.member = member

    def __str__(self) -> str:
        location = self.path or ""
        if self.member is not None:
            location += f"[{self.member}]"
        if self.offset is not None:
            location += f" at offset {self.offset} (0x{self.offset:x})"
        text = f"{location.strip()}: {self.message}" if location else self.message
        return text if self.hint is None else f"{text}\n  hint: {self.hint}"


class VersionError(FormatError):
    """A file of a format version that etscope does not read."""

    slug = "version"


class MismatchError(EtscopeError, ValueError):
    """Files that do not belong together; the message names the first difference."""

    slug = "mismatch"
    exit_code = 3


class MissingDataError(EtscopeError, LookupError):
    """A valid file does not hold the requested data; the hint says how to record it."""

    slug = "missing-data"
    exit_code = 4


class NumericGapError(MissingDataError, ValueError):
    """Values cannot be compared with a reference: one of the two is missing."""

    slug = "numeric-gap"


class MissingDependencyError(EtscopeError, ImportError):
    """A package that the call needs is not installed."""

    slug = "missing-dependency"
    exit_code = 5


class RuntimeFailure(EtscopeError, RuntimeError):
    """The ExecuTorch runtime or a device failed.

    `log` is its own output, without lines that do not concern the failure; "" if it died without
    any. `killed`: its process was ended from outside, by SIGKILL or SIGTERM.
    """

    slug = "runtime-failure"
    exit_code = 5

    def __init__(
        self, message: str, *, log: str = "", hint: str | None = None, killed: bool = False
    ) -> None:
        super().__init__(message, hint=hint)
        self.log = log
        self.killed = killed

    def __str__(self) -> str:
        log = "".join(f"\n  | {line}" for line in self.log.splitlines())
        text = f"{self.message}{log}"
        return text if self.hint is None else f"{text}\n  hint: {self.hint}"


class DeviceLost(RuntimeFailure):
    """A device of the lab or the debugger's runner cannot be reached: unplugged, rebooted, network
    down. A model that aborts its runtime is a `RuntimeFailure`."""

    slug = "device-lost"


class ReferenceFailure(RuntimeFailure):
    """An operator of the reference failed in PyTorch, for example on an index out of range. `node`:
    its name in the graph. `reason`: PyTorch's."""

    slug = "reference-failure"

    def __init__(self, node: str, reason: str, *, hint: str | None = None) -> None:
        super().__init__(f"{node} failed in PyTorch: {reason}", hint=hint)
        self.node, self.reason = node, reason


class LabError(EtscopeError, RuntimeError):
    """The lab itself fails: no server, a full or unreachable database or store, a bad token."""

    slug = "lab"
    exit_code = 5


@contextmanager
def reading(
    kind: str, path: str | os.PathLike[str] | None = None, *, member: str | None = None
) -> Iterator[None]:
    """Turn errors raised while a file is read into errors of this module.

    `kind` names the format in the message ("ETDump", "ETRecord"). Errors of etscope pass through;
    a `FormatError` raised without a path gets this one.
    """

    def failure(message: str, offset: int | None = None) -> FormatError:
        return FormatError(message, path=path, offset=offset, member=member)

    try:
        yield
    except FormatError as error:
        if error.path is None and path is not None:
            error.path = os.fspath(path)
        if error.member is None:
            error.member = member
        raise
    except EtscopeError:
        raise
    except FileNotFoundError as error:
        name = kind.removesuffix(" file")
        raise MissingFileError(f"{name} file not found: {error.filename or path}") from error
    except OSError as error:
        raise failure(f"cannot read this {kind}: {error.strerror or error}") from error
    except MemoryError as error:
        raise failure(f"not a valid {kind}: it needs more memory than this machine has") from error
    except json.JSONDecodeError as error:
        raise failure(f"not a valid {kind}: broken JSON ({error.msg})", error.pos) from error
    except Exception as error:
        # Imported here: `etscope --help` loads this module, and does not need zip files.
        import zipfile
        import zlib

        broken = (
            struct.error,
            IndexError,
            KeyError,
            ValueError,  # UnicodeDecodeError among them
            TypeError,
            AttributeError,
            OverflowError,
            EOFError,
            zipfile.BadZipFile,
            zipfile.LargeZipFile,
            zlib.error,
            # RecursionError, and errors of zipfile: NotImplementedError for an unknown compression
            # method, RuntimeError for an encrypted member.
            RuntimeError,
        )
        if not isinstance(error, broken):
            raise
        raise failure(f"not a valid {kind}: {type(error).__name__}: {error}") from error
