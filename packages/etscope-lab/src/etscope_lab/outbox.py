"""Write the engine's changes to a database that may be away for a while."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from etscope.errors import EtscopeError

_AT_ONCE = 200  # changes of a transaction, which others wait for

_logger = logging.getLogger("etscope_lab")

Change = Callable[[], Any]


class Outbox:
    """Changes to the database, which may be away for a while, written in the order they were added.

    To be used by one thread. together: makes changes in one transaction (`Database.together`).
    rest: called when a write failed, to wait before the next try.
    """

    def __init__(
        self, together: Callable[[Sequence[Change]], Sequence[Any]], rest: Callable[[], None]
    ) -> None:
        self._together, self._rest = together, rest
        self._unsaved: deque[tuple[Change, Callable[[Any], object]]] = deque()
        self._complained = ""

    def add(self, change: Change, then: Callable[[Any], object] = lambda _: None) -> None:
        """Call `change` in the next `save`, and `then` with its result when that is committed.
        `change` is called again if the connection breaks before the database answers; the second
        call must change nothing.
        """
        self._unsaved.append((change, then))

    def save(self) -> bool:
        """Write all changes. False if some are left because the database cannot be reached."""

        def write() -> None:
            while self._unsaved:
                batch = [*islice(self._unsaved, _AT_ONCE)]
                results = self._together([change for change, _ in batch])
                for _ in batch:
                    self._unsaved.popleft()
                for (_, then), result in zip(batch, results, strict=True):
                    self.attempt(then, result)

        return self.attempt(write)

    def attempt(self, action: Callable[..., object], *arguments: object) -> bool:
        """Call something that needs the database. False when it failed, which is logged."""
        try:
            action(*arguments)
        except (EtscopeError, SQLAlchemyError, OSError) as error:
            text = f"{type(error).__name__}: {error}".splitlines()[0]
            if text != self._complained:
                _logger.warning("the lab's engine has to wait: %s", text)
            self._complained = text
            self._rest()
            return False
        except Exception:  # a bug of ours must not leave the lab without an engine
            _logger.exception("the lab's engine failed, and goes on")
            self._rest()
            return False
        self._complained = ""
        return True
