"""Make figures of matplotlib without a display, write them to files, show them in notebooks.

No window is opened and `pyplot` is not used: nothing has to be closed, and the backend and the
styles of a user's session stay as they are.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import PurePath
from typing import Any

from etscope.errors import UsageError
from etscope.optional import require
from etscope.views.output import open_output

SUFFIXES = (".png", ".svg")


def new_figure(width: float, height: float, *, wanted_by: str) -> Any:
    """Make an empty figure of a size in inches.

    Raises `MissingDependencyError` without matplotlib (the extra `plot`).
    """
    figure = require("matplotlib.figure", wanted_by=wanted_by).Figure
    return figure(figsize=(width, height), layout="constrained")


def checked_suffix(path: str | os.PathLike[str]) -> str:
    """Return the picture format by the suffix of `path`; `UsageError` for an unknown one."""
    suffix = PurePath(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise UsageError(
            f"no picture format has the suffix of {os.fspath(path)!r}",
            hint="suffixes are: " + ", ".join(SUFFIXES),
        )
    return suffix[1:]


def save_figure(figure: Any, path: str | os.PathLike[str], *, dpi: int = 100) -> None:
    """Write a figure as PNG or SVG, by the suffix; equal figures give equal files."""
    data = _drawn(figure, checked_suffix(path), dpi)
    with open_output(path, binary=True) as out:
        out.write(data)


def show_figure(figure: Any, *, dpi: int = 100) -> bool:
    """Display a figure below the cell of a notebook. Return False anywhere else."""
    if not in_notebook():
        return False
    from IPython.display import Image, display

    display(Image(_drawn(figure, "png", dpi)))
    return True


def in_notebook() -> bool:
    """Return True in a kernel of IPython, which can show pictures."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def _drawn(figure: Any, format: str, dpi: int) -> bytes:
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "etscope"}):
        metadata = {"Date": None} if format == "svg" else None
        figure.savefig(buffer, format=format, dpi=dpi, metadata=metadata)
    return buffer.getvalue()
