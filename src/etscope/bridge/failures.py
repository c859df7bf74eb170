"""Describe exceptions of torch or of a user's code in few words; torch itself is not imported."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

# Characters and lines of a message: torch's may fill pages, and begin with what matters.
_LIMIT = 600
_LINES = 4
# Lines of these packages do not help the author of a model.
_FOREIGN = ("torch", "torchao", "executorch", "torchgen", "sympy", "numpy", "etscope")


def innermost(error: BaseException, limit: int = _LIMIT) -> str:
    """Return the first cause of an error: its type and the beginning of its message."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.rstrip() for line in str(error).splitlines() if line.strip()]
    text = "\n  ".join(lines[:_LINES])
    shown = text if len(text) <= limit else text[:limit].rstrip()
    if len(lines) > _LINES or shown != text:
        shown += " …"
    return f"{type(error).__name__}: {shown}" if shown else type(error).__name__


def own_frame(error: BaseException) -> str:
    """Return the innermost line of the model's own code in the traceback, after a line break; ""
    when there is none."""
    frames = own_frames(error)
    return f"\n  at {frames[-1]}" if frames else ""


def own_frames(error: BaseException) -> list[str]:
    """Return the lines outside of libraries in the tracebacks of an error and its causes, each
    outermost first."""
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and all(cause is not one for one in chain):
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__
    frames: list[traceback.FrameSummary] = []
    for one in chain:  # Dynamo keeps the model's frames in `real_stack`
        frames += traceback.extract_tb(one.__traceback__)
        frames += getattr(one, "real_stack", None) or ()
    library = Path(sys.base_prefix, "lib").as_posix()
    found: list[str] = []
    for frame in frames:
        path = Path(frame.filename).as_posix()
        if "/site-packages/" in path:
            is_foreign = any(f"/site-packages/{package}/" in path for package in _FOREIGN)
        else:
            is_foreign = "/src/etscope/" in path or path.startswith(f"{library}/python")
        if is_foreign or frame.filename.startswith("<"):
            continue
        code = f": {frame.line}" if frame.line else ""
        text = f"{frame.filename}:{frame.lineno} in {frame.name}{code}"
        if text not in found:
            found.append(text)
    return found
