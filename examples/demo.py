"""The whole way: export a model, run it on ExecuTorch, see what each operator costs, and where.

    python examples/demo.py [FOLDER]

runs the commands below in the folder of this file, and has them write to FOLDER, by default
demo-output/.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODEL = "keyword_spotter.py:KeywordSpotter"


def commands(folder: str) -> list[list[str]]:
    """The commands of the demo, in order."""
    values = ["--debug-level", "intermediate_outputs"]
    return [
        ["run", MODEL, "--backend", "xnnpack", "--iterations", "100", *values, "--save", folder],
        ["explain", folder],
        ["convert", folder, "--output", f"{folder}/trace.pftrace"],
        ["report", folder, "--output", f"{folder}/report.html"],
    ]


def main() -> int:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else HERE.parent / "demo-output").resolve()
    for command in commands(str(folder)):
        shown = " ".join(command).replace(str(folder), folder.name)
        print(f"\n$ etscope {shown}", flush=True)
        done = subprocess.run([sys.executable, "-m", "etscope", *command], cwd=HERE, check=False)
        if done.returncode:
            return done.returncode
    print(f"\nin {folder.name}/:")
    for path in sorted(folder.iterdir()):
        print(f"  {path.name:24} {path.stat().st_size:>12,} bytes")
    print("open report.html in a browser, trace.pftrace in https://ui.perfetto.dev")
    return 0


if __name__ == "__main__":
    sys.exit(main())
