"""The process of the Python runner: `python -m etscope.run._child FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

from etscope.run._python import main

if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
