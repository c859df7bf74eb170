"""`python -m etscope` is the `etscope` command."""

from __future__ import annotations

import sys

from etscope.cli import main

if __name__ == "__main__":
    sys.exit(main())
