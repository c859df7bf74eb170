"""The reports of files and folders, made when they are asked for, and again when files change."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Condition, Lock

from etscope.errors import EtscopeError, MissingDataError, UsageError
from etscope.reporting.answers import Entry
from etscope.reporting.report import ReportOptions, RunFiles, report_inputs, runs_of_files
from etscope.views.page import document_of
from etscope.views.strict_json import dumps

Stamp = tuple[tuple[str, int, int], ...]
Find = Callable[[], list[RunFiles]]


@dataclass(frozen=True)
class _Place:
    """A report that is, or may be, there: its title and what finds its files."""

    title: str
    find: Find

    def files(self) -> list[RunFiles]:
        """The files now; none when they do not make a report (yet)."""
        try:
            return self.find()
        except EtscopeError:
            return []


class Shelf:
    """The reports of files and folders.

    paths: files, which make one report together; folders, of which each makes a report, and each
    folder in it that holds files of its own. What is added to a folder later is found. etrecord,
    debug_buffer, program: of the files, as for `runs_of_files`.

    Raises what `runs_of_files` raises, and `UsageError` when there is nothing to show at all.
    """

    def __init__(
        self,
        paths: Sequence[str],
        options: ReportOptions,
        etrecord: str | None = None,
        debug_buffer: str | None = None,
        program: str | None = None,
    ) -> None:
        self._options = options
        self._folders = [Path(path) for path in paths if Path(path).is_dir()]
        files = [path for path in paths if not Path(path).is_dir()]
        self._files: list[_Place] = []
        if files or etrecord or program:
            found = runs_of_files(files, etrecord, debug_buffer, program)
            self._files = [_Place(found[0].name, lambda: found)]
        self._made: dict[str, tuple[Stamp, bytes]] = {}
        self._making = Lock()
        if not self.entries():
            # Say what is wrong with the first, rather than show an empty list.
            runs_of_files([str(folder) for folder in self._folders[:1]])
            raise UsageError("nothing to show", hint="name ETDumps, ETRecords, .pte, or folders")

    def entries(self) -> list[Entry]:
        return [Entry(key, place.title) for key, place in self._places() if place.files()]

    def data(self, identifier: str) -> bytes:
        place = dict(self._places()).get(identifier)
        if place is None:
            raise MissingDataError(f"there is no report {identifier!r}")
        runs = place.find()
        stamp = _stamp(runs)
        with self._making:  # two at once would only be slower
            if identifier not in self._made or self._made[identifier][0] != stamp:
                document = document_of(list(report_inputs(runs, self._options)))
                self._made[identifier] = (stamp, dumps(document).encode())
            return self._made[identifier][1]

    def stamps(self) -> Mapping[str, Stamp]:
        """What tells whether the files of a report have changed, by its id."""
        return {key: _stamp(place.files()) for key, place in self._places()}

    def _places(self) -> Iterator[tuple[str, _Place]]:
        taken: set[str] = set()
        for place in (*self._files, *self._in_folders()):
            name = re.sub(r"[^\w.-]+", "-", place.title).strip("-") or "report"
            key, number = name, 1
            while key in taken:
                number += 1
                key = f"{name}-{number}"
            taken.add(key)
            yield key, place

    def _in_folders(self) -> Iterator[_Place]:
        for folder in self._folders:
            yield _place(folder, folder.absolute().name or str(folder))
            try:
                below = sorted(path for path in folder.iterdir() if path.is_dir())
            except OSError:  # gone meanwhile
                continue
            for path in below:
                yield _place(path, f"{folder.absolute().name}/{path.name}")


def _place(folder: Path, title: str) -> _Place:
    return _Place(title, lambda: runs_of_files([folder]))


def _stamp(runs: Sequence[RunFiles]) -> Stamp:
    return tuple(_stat(path) for files in runs for path in files.paths)


def _stat(path: Path) -> tuple[str, int, int]:
    try:
        found = path.stat()
    except OSError:  # gone: that is a change, too
        return str(path), 0, -1
    return str(path), found.st_mtime_ns, found.st_size


class Watch:
    """Tells which reports have changed, to all who wait.

    A change is told when the files have stayed the same for one look: they are complete then.
    """

    def __init__(self, stamps: Callable[[], Mapping[str, Stamp]]) -> None:
        self._stamps = stamps
        self._told = dict(stamps())
        self._seen = dict(self._told)
        self._changes: list[str] = []
        self._news = Condition()

    def look(self) -> None:
        """Look at the files once."""
        now = dict(self._stamps())
        settled = {key for key, stamp in now.items() if self._seen.get(key) == stamp}
        changed = [key for key in settled if self._told.get(key) != now[key] and now[key]]
        self._seen = now
        if changed:
            self._told.update((key, now[key]) for key in changed)
            with self._news:
                self._changes += changed
                self._news.notify_all()

    @property
    def count(self) -> int:
        """How many changes there were: from where to wait."""
        with self._news:
            return len(self._changes)

    def after(self, count: int, timeout: float) -> list[str]:
        """The changes after the first `count`; waits for one, `timeout` seconds at most."""
        with self._news:
            self._news.wait_for(lambda: len(self._changes) > count, timeout)
            return self._changes[count:]
