"""The program of a calibration: made once, and kept in the user's cache folder."""

from __future__ import annotations

import hashlib
import warnings
from importlib import metadata
from pathlib import Path

from etscope.errors import EtscopeWarning, MissingDependencyError
from etscope.formats.bytes.files import PathLike, atomic_write, make_folder
from etscope.formats.calibration import calibrations_folder
from etscope.support.optional import require

PROGRAM = "calibration.pte"
_PACKAGE = Path(__file__).resolve().parents[2]
# Programs change with these.
_SOURCES = (_PACKAGE / "analysis" / "calibration.py", _PACKAGE / "bridge" / "calibration.py")


def make_program(folder: PathLike) -> Path:
    """Make the program in a folder, to be used on any machine of the same version of ExecuTorch;
    return its path. A dtype without possible products is left out, with a warning.

    Raises `MissingDependencyError` without torch and executorch, `ExportFailure` if they fail,
    `UsageError` for a folder that cannot be written.
    """
    path = make_folder(folder) / PROGRAM
    for package in ("torch", "executorch"):
        require(package, wanted_by="the program of a calibration")
    from etscope.bridge.calibration import calibration_program

    data, left_out = calibration_program()
    with atomic_write(path) as file:
        file.write(data)
    for dtype, reason in left_out.items():
        text = f"the calibration has no products in {dtype}: {reason}"
        warnings.warn(text, EtscopeWarning, stacklevel=2)
    return path


def find_program() -> Path:
    """Return the program for the installed version of ExecuTorch: the one in the cache, else made
    now, which raises as `make_program` does."""
    try:
        version = metadata.version("executorch")
    except metadata.PackageNotFoundError as error:
        raise MissingDependencyError(
            "the program of the calibration is made with executorch, which is not installed",
            hint="make it where executorch is installed (etscope calibrate --make-program FOLDER), "
            "and name it here (--program FILE)",
        ) from error
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in _SOURCES)).hexdigest()[:12]
    folder = calibrations_folder().parent / f"calibration-{version}-{digest}"
    path = folder / PROGRAM
    return path if path.is_file() else make_program(folder)
