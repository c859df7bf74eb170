"""The native runner, built if it is not: python -m etscope.run.native

It prints the path of the binary; with --sources that of the folder of its C++, from which it is
built for another machine.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from etscope.errors import EtscopeError, UsageError
from etscope.run._native_build import find_runner, find_sources


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given not in ([], ["--sources"]):
            raise UsageError(f"unknown arguments: {' '.join(given)}", hint="--sources, or nothing")
        print(find_sources() if given else find_runner())
    except EtscopeError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
