"""Reports stored next to TensorBoard's event files, for the plugin's tab."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from etscope.errors import FormatError, VersionError, reading
from etscope.formats.bytes.files import PathLike
from etscope.formats.exported_program.exported_json import mapping, parse_json
from etscope.views.output import dumps, open_output

SCHEMA = "etscope.report/3"
FILE_NAME = "executorch.report.json.gz"
# Limits of the search, as a log directory may have any size.
_MOST_FOLDERS = 2_000
_DEEPEST = 8
MOST_BYTES = 256 << 20  # of one document, unpacked: a small gzip file can unpack to fill the memory


def save_document(folder: PathLike, document: Mapping[str, Any]) -> Path:
    """Write a report's document into a log directory (gzip); replace an earlier one."""
    path = Path(folder) / FILE_NAME
    with open_output(path, binary=True) as out:
        out.write(dumps(document).encode())
    return path


def find_documents(logdir: PathLike) -> dict[str, Path]:
    """The documents in a log directory and its folders, by the folder's relative path ("." for the
    directory itself). Links to folders are not followed."""
    root = Path(logdir)
    return {folder.relative_to(root).as_posix(): folder / FILE_NAME for folder in _folders(root)}


def has_documents(logdir: PathLike) -> bool:
    """Return whether there is a document; the search stops at the first."""
    return next(_folders(Path(logdir)), None) is not None


def load_document(path: PathLike) -> dict[str, Any]:
    """Read a document of `save_document`. Raises `FormatError` for other files, `VersionError` for
    a report of another format."""
    with reading("report", os.fspath(path)):
        with gzip.open(path, "rb") as packed:
            content = packed.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise FormatError(f"a report of more than {MOST_BYTES:,} bytes")
        document: dict[str, Any] = mapping(parse_json(content), "a report")
        runs = document.get("runs")
        if not isinstance(runs, list) or not all(isinstance(run, dict) for run in runs):
            raise FormatError("this file is not a report")
        if (schema := document.get("schema")) != SCHEMA:
            raise VersionError(
                f"the report has the format {schema}; this etscope reads {SCHEMA}",
                hint="write it again from the files of the run",
            )
        return document


def _folders(root: Path) -> Iterator[Path]:
    """Folders with a document, in the order of their names."""
    for folder, below, files in islice(os.walk(root), _MOST_FOLDERS):
        depth = len(Path(folder).relative_to(root).parts)
        below[:] = sorted(below) if depth < _DEEPEST else []
        if FILE_NAME in files:
            yield Path(folder)
