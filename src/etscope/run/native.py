"""The native runner, built if it is not: python -m etscope.run.native

It prints the path of the binary; with --server that of the debugger's server, with --sources that
of the folder of their C++, from which they are built for another machine.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from etscope.errors import EtscopeError, UsageError
from etscope.run.native_build import SERVER, find_runner, find_server, find_sources

_FOUND: dict[tuple[str, ...], Callable[[], Path]] = {
    (): find_runner,
    ("--server",): find_server,
    ("--sources",): find_sources,
}


def main(arguments: Sequence[str] | None = None) -> int:
    given = tuple(sys.argv[1:] if arguments is None else arguments)
    try:
        if given not in _FOUND:
            raise UsageError(
                f"unknown arguments: {' '.join(given)}", hint="--server, --sources, or nothing"
            )
        print(_FOUND[given]())
    except EtscopeError as error:
        return _failed(error)
    return 0


def serve(arguments: Sequence[str] | None = None) -> int:
    """The command `etdb-server`: this process becomes the server, which is built if it is not."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        server = find_server()
    except EtscopeError as error:
        return _failed(error)
    try:
        os.execv(server, [SERVER, *given])
    except OSError as error:  # made for another machine, for one
        print(f"error: {server} cannot be executed: {error.strerror}", file=sys.stderr)
        return 5


def _failed(error: EtscopeError) -> int:
    print(f"error: {error}", file=sys.stderr)
    return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
