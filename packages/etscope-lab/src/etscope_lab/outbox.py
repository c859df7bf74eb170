"""Write the engine's changes to a database that may be away for a while."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from sqlalchemy.exc import SQLAlchemyError

from etscope.errors import EtscopeError

_logger = logging.getLogger("etscope_lab")


class Outbox:
    """Changes to the database, which may be away for a while, written in the order they were added.

    To be used by one thread. rest: called when a write failed, to wait before the next try.
    """

    def __init__(self, rest: Callable[[], None]) -> None:
        self._rest = rest
        self._unsaved: deque[Callable[[], object]] = deque()
        self._complained = ""

    def add(self, change: Callable[[], object]) -> None:
        """Call `change` in the next `save`. It is called twice if the connection breaks before the
        database answers; the second call must change nothing.
        """
        self._unsaved.append(change)

    def save(self) -> bool:
        """Write all changes. False if some are left because the database cannot be reached."""

        def write() -> None:
            while self._unsaved:
                self._unsaved[0]()
                self._unsaved.popleft()

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
