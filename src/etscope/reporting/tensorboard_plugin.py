"""A TensorBoard tab with the reports that `write_tensorboard_artifact` and `etscope report
--tensorboard` wrote next to the event files.

TensorBoard finds `Loader` by the entry point of this package. The class is made on first access, so
that this module can be imported without TensorBoard.
"""

from __future__ import annotations

import gzip
import os
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any

from etscope.errors import EtscopeError, FormatError, MissingDataError, VersionError, reading
from etscope.formats.bytes.files import PathLike
from etscope.formats.exported_program.exported_json import mapping, parse_json
from etscope.reporting.responses import (
    Application,
    Entry,
    Response,
    application,
    library_routes,
    stamp_of,
)
from etscope.views.output import dumps, open_output
from etscope.views.page import SCHEMA
from etscope.views.page.comparison import compared_documents

__all__ = ["Loader"]  # noqa: F822 - made by `__getattr__`

PLUGIN_NAME = "executorch"
TAB_NAME = "ExecuTorch"
_FRESH_SECONDS = 5.0  # TensorBoard often asks whether a tab is active
ALL = "all"
# Runs of at most this many folders are joined, so that any two of them can be compared.
_MOST_TOGETHER = 12

# TensorBoard calls `render` in a separate frame; the page gets another inside.
_ENTRY = b"""export function render() {
  const frame = document.createElement("iframe");
  frame.src = new URL("./page.html", import.meta.url).href;
  frame.title = "ExecuTorch report";
  frame.style.cssText = "position:fixed;inset:0;width:100%;height:100%;border:0";
  document.body.replaceChildren(frame);
}
"""


class LogdirReports:
    """The documents of a log directory: all runs joined, or one for each folder."""

    def __init__(self, logdir: str | None) -> None:
        self._logdir = logdir
        self._lock = Lock()
        self._asked: tuple[float, bool] | None = None
        self._made: tuple[object, bytes] | None = None

    def is_there(self) -> bool:
        """Return whether there is a report to show. Checked every few seconds at most."""
        now = time.monotonic()
        with self._lock:
            if self._asked is None or now - self._asked[0] > _FRESH_SECONDS:
                self._asked = (now, self._logdir is not None and has_documents(self._logdir))
            return self._asked[1]

    def entries(self) -> list[Entry]:
        """Return one report of all runs, or one for each run when there are too many."""
        found = self._found()
        if len(found) <= _MOST_TOGETHER:
            return [Entry(ALL, TAB_NAME)] if found else []
        return [Entry(name, name) for name in found]

    def data(self, identifier: str) -> bytes:
        """Return the report of one folder, or of all folders together."""
        found = self._found()
        if identifier == ALL and 0 < len(found) <= _MOST_TOGETHER:
            state = stamp_of(found.values())
            with self._lock:
                if self._made is None or self._made[0] != state:
                    self._made = (state, dumps(joined(found)).encode())
                return self._made[1]
        if identifier not in found:
            raise MissingDataError(f"no report has the name {identifier!r}")
        return dumps(load_document(found[identifier])).encode()

    def _found(self) -> Mapping[str, Path]:
        return {} if self._logdir is None else find_documents(self._logdir)


def joined(found: Mapping[str, Path]) -> dict[str, Any]:
    """Join the documents of all folders, named by these. Reports that cannot be read are listed in
    the notes of the first run; `FormatError` when none can be read."""
    document: dict[str, Any] = {}
    runs: list[dict[str, Any]] = []
    wrong: list[EtscopeError] = []
    for name, path in found.items():
        try:
            read = load_document(path)
        except EtscopeError as error:
            wrong.append(error)
            continue
        document = document or read
        for run in read["runs"]:
            title = run.get("name") if name == "." else f"{name}: {run.get('name')}"
            runs.append({**run, "id": f"run{len(runs)}", "name": title})
    if not runs:
        raise wrong[0] if wrong else MissingDataError("no report exists yet")
    notes = [f"A report is left out: {error}" for error in wrong]
    comparisons: list[dict[str, Any]] = []
    try:
        comparisons = compared_documents(runs)
    except EtscopeError as error:
        notes.append(f"The runs are not compared: {error}")
    runs[0] = {**runs[0], "notes": [*notes, *runs[0].get("notes", [])]}
    joint = {"runs": runs, "comparisons": comparisons, "programs": []}  # files are not kept
    return {**document, "title": TAB_NAME, **joint}


def routes(library: LogdirReports) -> dict[str, Application]:
    """Return the plugin's routes, below its own path in TensorBoard."""
    entry = application(lambda _: Response(_ENTRY, "text/javascript"))
    return {"/index.js": entry, **library_routes(library, "/page.html")}


def __getattr__(name: str) -> Any:
    if name != "Loader":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tensorboard.plugins import base_plugin

    class ExecuTorchPlugin(base_plugin.TBPlugin):  # type: ignore[misc]
        """The report's tab in TensorBoard."""

        plugin_name = PLUGIN_NAME

        def __init__(self, context: Any) -> None:
            self._library = LogdirReports(context.logdir or None)

        def get_plugin_apps(self) -> dict[str, Application]:
            return routes(self._library)

        def is_active(self) -> bool:
            return self._library.is_there()

        def frontend_metadata(self) -> Any:
            return base_plugin.FrontendMetadata(
                es_module_path="/index.js", tab_name=TAB_NAME, disable_reload=False
            )

        def data_plugin_names(self) -> tuple[str, ...]:
            return ()  # its data is in separate files

    class Loader(base_plugin.TBLoader):  # type: ignore[misc]
        """Makes the report's tab in TensorBoard."""

        def load(self, context: Any) -> Any:
            return ExecuTorchPlugin(context)

    return Loader


# -- The reports next to TensorBoard's event files.

FILE_NAME = "executorch.report.json.gz"  # of a stored report
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
                hint="write the report again from the files of the run",
            )
        return document


def _folders(root: Path) -> Iterator[Path]:
    """Folders with a document, in the order of their names."""
    for folder, below, files in islice(os.walk(root), _MOST_FOLDERS):
        depth = len(Path(folder).relative_to(root).parts)
        below[:] = sorted(below) if depth < _DEEPEST else []
        if FILE_NAME in files:
            yield Path(folder)
