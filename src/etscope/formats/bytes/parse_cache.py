"""Keep parsed content for the next file with the same bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from hashlib import sha256
from threading import Lock
from typing import Generic, TypeVar

from etscope.formats.bytes.files import BytesLike

_T = TypeVar("_T")


class ParseCache(Generic[_T]):
    """Parsed values by their source bytes: the last used, for at most `most` bytes of sources.

    A value must not change, and must not refer to a file.
    """

    def __init__(self, most: int) -> None:
        self._most, self._size = most, 0
        self._values: OrderedDict[Hashable, tuple[_T, int]] = OrderedDict()
        self._lock = Lock()

    def made(self, content: Sequence[BytesLike], options: Hashable, make: Callable[[], _T]) -> _T:
        """Return the result of `make`, or the kept result for the same content and options. Errors
        and None are not kept."""
        size = sum(map(len, content))
        if size > self._most:
            return make()
        key = *(sha256(part).digest() for part in content), options
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key][0]
        found = make()
        if found is None:
            return found
        with self._lock:
            self._size += size - self._values.pop(key, (None, 0))[1]
            self._values[key] = found, size
            while self._size > self._most:
                _, (_, freed) = self._values.popitem(last=False)
                self._size -= freed
        return found
