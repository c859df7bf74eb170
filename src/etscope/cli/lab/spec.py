"""A job's specification from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from etscope.errors import FormatError, UsageError, reading

_FILES = ("model", "etrecord", "data", "baseline", "inputs")
_LIMIT = 1 << 20  # bytes


def read_spec(path: str) -> dict[str, Any]:
    """The plain values of a YAML or JSON file; paths in it are made relative to its folder's.

    Raises `MissingFileError`, `FormatError` for what is neither, `UsageError` when it holds no
    mapping.
    """
    from etscope.optional import require

    yaml = require("yaml", wanted_by="a job's specification in a file")
    with reading("job specification", path):
        data = Path(path).read_bytes()
        if len(data) > _LIMIT:
            raise FormatError(f"a specification has {_LIMIT:,} bytes at most", path=path)
        try:
            found = yaml.safe_load(data)  # JSON is YAML, too
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = f" in line {mark.line + 1}" if mark else ""
            problem = getattr(error, "problem", None) or error
            raise FormatError(f"neither YAML nor JSON{line}: {problem}", path=path) from error
    if not isinstance(found, dict):
        raise UsageError(f"{path} holds no job specification", hint="etscope lab schema")
    for field in _FILES:
        if field in found:
            found[field] = _relative(found[field], Path(path).parent)
    return found


def _relative(value: Any, folder: Path) -> Any:
    if isinstance(value, str) and not value.startswith("sha256:"):
        return str(folder / Path(value).expanduser())
    if isinstance(value, dict) and isinstance(value.get("path"), str):
        return {**value, "path": str(folder / Path(value["path"]).expanduser())}
    return value
