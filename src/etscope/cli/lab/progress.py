"""Progress of files that are sent to or fetched from a lab's server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from etscope.cli.output.progress import counting


@contextmanager
def transfers() -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar for the file that is being transferred, on a terminal and after a second only.

    Yields the function that a `Client` calls with what it does ("sending model.pte"), the bytes
    done and all bytes.
    """
    with ExitStack() as bars:
        tell: Callable[[int, int | None], None] | None = None
        shown = ""

        def show(what: str, done: int, size: int) -> None:
            nonlocal tell, shown
            if tell is None or what != shown:
                bars.close()
                tell, shown = bars.enter_context(counting(what, in_bytes=True)), what
            tell(done, size)
            if done >= size:
                bars.close()
                tell = None

        yield show
