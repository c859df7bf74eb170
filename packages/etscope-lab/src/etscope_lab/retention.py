"""Remove the files of jobs that are older than a lab keeps them.

The jobs themselves stay, with their summaries and events, and so do histories, which read the
database only. All files stay of jobs with the label "keep", of the jobs of alarms, and of the last
job of each series, with which the next one may have to be compared.

The work is done in small pieces with rests between them. After a kill, files may be left that
no job has: `etscope lab sweep` removes them.
"""

from __future__ import annotations

import logging
import threading
import time
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy.exc import SQLAlchemyError

from etscope.errors import EtscopeError

if TYPE_CHECKING:
    from etscope_lab.database import Database
    from etscope_lab.store import Store

_EVERY = 3600.0  # seconds
_JOBS, _FILES = 200, 100  # at once: others wait for these transactions
_JUST_NAMED = 86_400.0  # seconds: a job that needs such a file may be about to be added
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

_logger = logging.getLogger("etscope_lab")


class Retention(threading.Thread):
    """Removes files once an hour, from `start` to `close`."""

    def __init__(self, database: Database, store: Store, days: int) -> None:
        super().__init__(name="etscope-lab-keep", daemon=True)
        self._database, self._store, self._kept = database, store, timedelta(days=days)
        self._closing = threading.Event()

    def close(self) -> None:
        self._closing.set()
        self.join()

    def run(self) -> None:
        while not self._closing.is_set():
            try:
                if removed := self.sweep():
                    _logger.info("removed %d files of old jobs", removed)
            except (EtscopeError, SQLAlchemyError, OSError) as error:
                _logger.warning("files of old jobs are not removed now: %s", error)
            self._closing.wait(_EVERY)

    def sweep(self) -> int:
        """Remove all that is due; return the number of removed files."""
        before = datetime.now(timezone.utc) - self._kept
        remove = partial(self._store.remove, older_than_seconds=_JUST_NAMED)
        place: datetime | None = _EPOCH
        removed = 0
        while place is not None and not self._closing.is_set():
            begun = time.monotonic()
            place, files = self._database.forget_files(place, before, _JOBS)
            unread = sorted(files)
            while unread:
                removed += self._database.remove_unused(unread[:_FILES], remove)
                del unread[:_FILES]
            self._closing.wait(time.monotonic() - begun)
        return removed
