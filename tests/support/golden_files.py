"""Compare a view's output with a golden file: the file is right because a person looked at it.

``ETSCOPE_UPDATE_GOLDEN=1 pytest …`` writes the golden files anew; look at ``git diff`` then. On a
mismatch the output is saved beside the golden file as ``<name>.actual``.
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path

GOLDEN = Path(__file__).parents[1] / "golden"
_SHOWN = 60  # lines of a diff


def check_golden(name: str, actual: str) -> None:
    """Fail unless `actual` is the text of ``tests/golden/<name>``."""
    golden = GOLDEN / name
    beside = golden.with_name(golden.name + ".actual")
    if os.environ.get("ETSCOPE_UPDATE_GOLDEN"):
        golden.parent.mkdir(parents=True, exist_ok=True)
        _write(golden, actual)
        beside.unlink(missing_ok=True)
        return
    expected = _read(golden) if golden.exists() else ""
    if actual == expected:
        beside.unlink(missing_ok=True)
        return
    golden.parent.mkdir(parents=True, exist_ok=True)
    _write(beside, actual)
    diff = list(
        difflib.unified_diff(
            expected.splitlines(), actual.splitlines(), f"golden/{name}", "actual", lineterm=""
        )
    )
    more = f"\n… {len(diff) - _SHOWN} more lines" if len(diff) > _SHOWN else ""
    raise AssertionError(
        f"{name} is not its golden file; the output is in {beside.name}\n"
        + "\n".join(diff[:_SHOWN])
        + more
    )


def _read(path: Path) -> str:
    return path.read_bytes().decode("utf-8")


def _write(path: Path, text: str) -> None:
    path.write_bytes(text.encode("utf-8"))
