"""The writing of FlatBuffers piece by piece, in file order, behind a part of known size."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any


class Heap:
    """What is written one by one. Things refer forwards, so a table comes before its parts."""

    def __init__(self, start: int) -> None:
        self.data = bytearray()
        self._start = start
        self._vtables: dict[tuple[int, tuple[int, ...]], int] = {}

    @property
    def position(self) -> int:
        return self._start + len(self.data)

    def align(self, width: int, after: int = 0) -> None:
        """Pad so that the byte `after` from here is at a multiple of `width`."""
        self.data += bytes(-(self.position + after) % width)

    def append(self, data: bytes) -> int:
        """Write, and tell where."""
        position = self.position
        self.data += data
        return position

    def vtable(self, size: int, offsets: tuple[int, ...]) -> int:
        """The vtable of tables of `size` bytes, written once; offset 0 is an absent field."""
        key = size, offsets
        if key not in self._vtables:
            self.align(2)
            words = (4 + 2 * len(offsets), size, *offsets)
            self._vtables[key] = self.append(struct.pack(f"<{len(words)}H", *words))
        return self._vtables[key]

    def string(self, text: str) -> int:
        """A string, which ends with a zero byte that its length does not count."""
        self.align(4)
        data = text.encode()
        return self.append(struct.pack("<I", len(data)) + data + b"\0")

    def blob(self, data: bytes) -> int:
        """A vector of bytes."""
        self.align(4)
        return self.append(struct.pack("<I", len(data)) + data)

    def longs(self, numbers: Sequence[int]) -> int:
        """A vector of 64-bit integers."""
        self.align(8, after=4)
        return self.append(struct.pack(f"<I{len(numbers)}q", len(numbers), *numbers))

    def table(self, offsets: tuple[int, ...], fields: str, *values: Any) -> int:
        """A table of `fields` (as struct names them) behind its vtable reference."""
        vtable = self.vtable(4 + struct.calcsize("<" + fields), offsets)
        self.align(8)
        return self.append(struct.pack("<i" + fields, self.position - vtable, *values))

    def refer(self, position: int, target: int) -> None:
        """Let the reference at `position`, written as 0, lead to `target`."""
        struct.pack_into("<I", self.data, position - self._start, target - position)

    def references(self, count: int) -> int:
        """A vector of references that are still to be set; where its first element is."""
        self.align(4)
        return self.append(struct.pack("<I", count) + bytes(4 * count)) + 4
