"""What several tests of hostile files share: code that leaves a trace, and limits of memory."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from etscope.errors import EtscopeError
from tests.attacks.mutations import limited

MIB = 1 << 20


class Call:
    """Pickled, it is a call of `open` that leaves a file behind."""

    def __init__(self, witness: Path) -> None:
        self.witness = str(witness)

    def __reduce__(self) -> Any:
        return open, (self.witness, "w")


@pytest.fixture
def witness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that only planted code makes; a module that does so when it is imported."""
    folder = tmp_path / "witness"
    (folder / "path").mkdir(parents=True)
    path = folder / "ran"
    (folder / "path" / "imported_by_attack.py").write_text(f"open({str(path)!r}, 'w').close()")
    monkeypatch.delitem(sys.modules, "imported_by_attack", raising=False)
    monkeypatch.syspath_prepend(str(folder / "path"))
    return path


@contextmanager
def little_memory(limit: int) -> Iterator[None]:
    """What happens in the block takes no more than so many bytes of memory."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < limit


def is_read_in_little_memory(
    data: bytes, touch: Callable[[bytes], object], each: int = 100
) -> bool:
    """Whether the file was read; it or the refusal must take bounded time, and memory in
    proportion: `each` bytes for a byte of the file."""
    with little_memory(16 * MIB + each * len(data)), limited():
        try:
            touch(data)
        except EtscopeError:
            return False
    return True
