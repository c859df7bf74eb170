"""The whole way: export a model, run it on ExecuTorch, see what each operator costs, and where.

    python examples/demo.py [FOLDER]

runs the commands below in the folder of this file, and has them write to FOLDER, by default
demo-output/: the model in float and in int8, and a report that compares the two.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODEL = "keyword_spotter.py:KeywordSpotter"
RUN = ["run", MODEL, "--backend", "xnnpack", "--iterations", "50"]
VALUES = ["--debug-level", "intermediate_outputs", "--limit", "4"]


def commands(folder: str) -> list[tuple[list[str], bool]]:
    """The commands of the demo, in order, and whether their output is shown."""
    return [
        ([*RUN, *VALUES, "--save", f"{folder}/float"], True),
        ([*RUN, *VALUES, "--quantize", "int8", "--save", f"{folder}/int8"], False),
        (
            ["report", f"{folder}/float", f"{folder}/int8", "--output", f"{folder}/report.html"],
            False,
        ),
    ]


def main() -> int:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else HERE.parent / "demo-output").resolve()
    for command, shown in commands(str(folder)):
        text = " ".join(command).replace(str(folder), folder.name)
        print(f"$ etscope {text}", flush=True)
        done = subprocess.run(
            [sys.executable, "-m", "etscope", *command],
            cwd=HERE,
            stdout=None if shown else subprocess.DEVNULL,
            check=False,
        )
        if done.returncode:
            return done.returncode
    command = Path(sys.executable).parent / "etscope"
    print("\nOpen next:")
    print(f"  {folder}/report.html    float beside int8: times, graphs, numerics, lines")
    print(f"  {command} explain {folder}/float    why it takes this time, and what to do")
    print(
        f"  {command.with_name('etdb')} {folder}/int8    step through the run, operator by operator"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
