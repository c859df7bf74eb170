"""What each verb answers for quantized models: `python -m tests.support.quantized.survey FILE`
adds the cells config x backend x verb to FILE (JSON lines), and prints the bugs.

Each cell is an answer (exit code 0 or 1) or a typed error (2 to 5, with its hint). Exit code 70,
or a process that dies, is a bug. Cells that FILE has already are skipped, so a survey can be
resumed. `--dear` measures the verbs that export many times, and no others; names choose models.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import torch

from etscope.cli import main
from tests.support.quantized import models
from tests.support.warm import warm_python

BACKENDS = ("portable", "xnnpack")
FILE = models.__file__
DEAR = ("numerics --stages", "explain --try", "bisect", "sensitivity")  # export many times


class Cell(NamedTuple):
    """The answer of one command."""

    config: str
    backend: str
    verb: str
    code: int
    error: str
    seconds: float = 0.0

    @property
    def is_bug(self) -> bool:
        """A traceback, or an error that does not say what it is."""
        return self.code not in (0, 1) and (
            self.code not in range(2, 6) or not self.error.startswith("error: ")
        )


def commands(name: str, backend: str, folder: Path) -> Iterator[tuple[str, list[str]]]:
    """The commands of a model by verb; each may use the files of those before it."""
    model = [f"{FILE}:{name}", "--backend", backend]
    made, kept, samples = (str(folder / part) for part in ("made", "kept", "samples"))
    program, record = f"{made}/model.pte", f"{made}/model.etrecord"
    yield "export", ["export", *model, "-o", made, "-X", "name=model"]
    values = ["--debug-level", "intermediate_outputs", "--iterations", "3"]
    yield "run", ["run", *model, *values, "--save", kept]
    yield "run PROGRAM", ["run", program, "--no-save", "--iterations", "1"]
    yield "numerics MODEL", ["numerics", *model]
    yield "numerics --stages", ["numerics", *model, "--stages"]
    yield "numerics RUN", ["numerics", kept]
    yield "numerics --narrow", ["numerics", kept, "--narrow"]
    yield "evaluate", ["evaluate", record, "--dataset", samples]
    yield "explain", ["explain", kept]
    yield "explain --try", ["explain", *model, "--try", "-X", "rounds=2", "--budget", "5s"]
    yield "bisect", ["bisect", *model, "-o", str(folder / "found")]
    yield "sensitivity", ["sensitivity", *model, "-X", "rounds=1", "-X", "pairs=false"]
    yield "report", ["report", kept, "-o", str(folder / "report.html")]
    yield "info", ["info", program]
    yield "info --size", ["info", program, "--size"]
    yield "info --memory", ["info", program, "--memory"]
    yield "info RECORD", ["info", record]
    yield "info RUN", ["info", kept]
    yield "inspect", ["inspect", kept]
    yield "graph", ["graph", record]


def answers(
    name: str, backend: str, verbs: Sequence[str] = (), folder: Path | None = None
) -> Iterator[Cell]:
    """Run the commands of a model, all or those of these verbs, in this process. `folder` may
    have the files of earlier commands."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = folder or Path(scratch)
        _write_samples(name, folder / "samples")
        for verb, command in commands(name, backend, folder):
            if verbs and verb not in verbs:
                continue
            subject = command[1]
            if subject.startswith(str(folder)) and not Path(subject).exists():
                yield Cell(name, backend, verb, 0, f"not run: {Path(subject).name} was not made")
                continue
            began = time.perf_counter()
            err = folder / "err"  # a file: commands give its number to their children
            with (
                err.open("w") as file,
                redirect_stderr(file),
                redirect_stdout(io.StringIO()),
                warnings.catch_warnings(),
            ):
                warnings.simplefilter("default")  # etscope's warnings are errors in tests
                code = main(command)
            said = err.read_text()
            seconds = round(time.perf_counter() - began, 1)
            start = 0 if code == 70 else max(said.find("error: "), 0)
            yield Cell(name, backend, verb, code, said[start:] if code > 1 else "", seconds)


def _write_samples(name: str, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    torch.manual_seed(0)
    try:
        inputs = models.MODELS[name]()[1]
    except Exception:  # torch and torchao refuse some configs here; the verbs say so
        return
    for sample in range(2):
        torch.save(list(inputs), folder / f"{sample}.pt")


def survey(file: Path, rows: Iterable[tuple[str, str]], verbs: Sequence[str]) -> None:
    """Add the missing cells of rows to the file. Their files are in a folder beside it until the
    row is complete."""
    for name, backend in rows:
        have = {cell.verb for cell in cells(file) if cell[:2] == (name, backend)}
        left = [verb for verb in verbs if verb not in have]
        if not left:
            continue
        folder = file.with_suffix("") / f"{name}-{backend}"
        folder.mkdir(parents=True, exist_ok=True)
        for cell in answers(name, backend, left, folder):
            with file.open("a") as out:
                out.write(json.dumps(cell) + "\n")
        shutil.rmtree(folder)


def cells(file: Path) -> list[Cell]:
    """The cells of a file."""
    lines = file.read_text().splitlines() if file.exists() else []
    return [Cell(*json.loads(line)) for line in lines]


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--dear", action="store_true")
    parser.add_argument("--here", action="store_true", help="in this process, which may die")
    parser.add_argument("names", nargs="*", default=list(models.MODELS))
    given = parser.parse_args()
    verbs = [verb for verb, _ in commands("", "", Path()) if (verb in DEAR) == given.dear]
    rows = list(itertools.product(given.names, BACKENDS))
    if given.here:
        return survey(given.file, rows, verbs)
    child = [warm_python(), "-m", __spec__.name, "--here", *sys.argv[1:]]
    while (code := subprocess.run(child, check=False).returncode) < 0:  # a signal
        found = cells(given.file)
        have = {cell[:3] for cell in found}
        guilty = next((*row, verb) for row in rows for verb in verbs if (*row, verb) not in have)
        with given.file.open("a") as out:
            out.write(json.dumps(Cell(*guilty, code, "the process died")) + "\n")
    for cell in cells(given.file):
        if cell.is_bug:
            print(json.dumps(cell))
    return sys.exit(code)


if __name__ == "__main__":
    _main()
