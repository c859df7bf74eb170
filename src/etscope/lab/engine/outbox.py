"""What an engine has to write into the database, which may be away for a while."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from sqlalchemy.exc import SQLAlchemyError

from etscope.errors import EtscopeError

_logger = logging.getLogger("etscope.lab")


class Journal:
    """Changes, written in the order that they came in. Of one thread.

    rest: called when something failed, to wait until it is tried again.
    """

    def __init__(self, rest: Callable[[], None]) -> None:
        self._rest = rest
        self._unsaved: deque[Callable[[], object]] = deque()
        self._complained = ""

    def add(self, change: Callable[[], object]) -> None:
        """Something to be done by the next `save`. Done twice when the database goes away while it
        answers: the second time must change nothing."""
        self._unsaved.append(change)

    def save(self) -> bool:
        """Write what there is. False when something is left, as the database is away."""
        return self.attempt(self._save)

    def attempt(self, action: Callable[..., object], *arguments: object) -> bool:
        """Do something that needs the database, and say whether it was done."""
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

    def _save(self) -> None:
        while self._unsaved:
            self._unsaved[0]()
            self._unsaved.popleft()
