"""Draw the README's picture from what the command prints: ``python docs/generate_picture.py``.

Run it after ``make demo``, in whose folder the files are that it shows.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "images" / "inspect.svg"
COMMAND = ("inspect", "float", "--limit", "6")
WIDTH = 132


def main() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "etscope", "--color", "always", *COMMAND],
        cwd=ROOT / "demo-output",
        env={**os.environ, "COLUMNS": str(WIDTH)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ etscope {' '.join(COMMAND)}", style="bold"))
    console.print(Text.from_ansi(shown))
    PICTURE.parent.mkdir(exist_ok=True)
    console.save_svg(str(PICTURE), title="etscope")
    # Lines without the spaces that rich leaves at their ends.
    lines = PICTURE.read_text(encoding="utf-8").splitlines()
    PICTURE.write_text("\n".join(line.rstrip() for line in lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
