"""Print the path of the native runner, built first if need be: python -m etscope.run.native"""

from __future__ import annotations

import sys

from etscope.errors import EtscopeError
from etscope.run._native_build import find_runner


def main() -> int:
    try:
        print(find_runner())
    except EtscopeError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
