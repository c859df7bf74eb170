"""What each verb answers for quantized models: `python -m tests.support.quantized.survey` prints
the table config x backend x verb.

Each cell is an answer (exit code 0 or 1) or a typed error (2 to 5, with its hint). Exit code 70,
or a process that dies, is a bug.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import torch

from etscope.cli import main
from tests.support.quantized import models

BACKENDS = ("portable", "xnnpack")
FILE = models.__file__


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
    yield "evaluate", ["evaluate", record, "--dataset", samples, "-X", "isolate=false"]
    yield "explain", ["explain", kept]
    yield "explain --try", ["explain", *model, "--try", "-X", "rounds=2", "--budget", "5s"]
    search = ["-X", "isolate=false"]
    yield "bisect", ["bisect", *model, "-o", str(folder / "found"), *search]
    yield "sensitivity", ["sensitivity", *model, *search, "-X", "rounds=1", "-X", "pairs=false"]
    yield "report", ["report", kept, "-o", str(folder / "report.html")]
    yield "info", ["info", program]
    yield "info --size", ["info", program, "--size"]
    yield "info --memory", ["info", program, "--memory"]
    yield "info RECORD", ["info", record]
    yield "info RUN", ["info", kept]
    yield "inspect", ["inspect", kept]
    yield "graph", ["graph", record]


def answers(name: str, backend: str, verbs: Sequence[str] = ()) -> Iterator[Cell]:
    """Run the commands of a model, all or those of these verbs, in this process."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _write_samples(name, folder / "samples")
        for verb, command in commands(name, backend, folder):
            if verbs and verb not in verbs:
                continue
            subject = command[1]
            if subject.startswith(scratch) and not Path(subject).exists():
                continue  # the model could not be exported or run
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
    folder.mkdir()
    torch.manual_seed(0)
    try:
        inputs = models.MODELS[name]()[1]
    except Exception:  # torch and torchao refuse some configs here; the verbs say so
        return
    for sample in range(2):
        torch.save(list(inputs), folder / f"{sample}.pt")


def table(names: Sequence[str], backends: Sequence[str] = BACKENDS) -> Iterator[Cell]:
    """The cells of these models, each in a process of its own, as some kill it."""
    for name in names:
        for backend in backends:
            child = [sys.executable, "-m", __spec__.name, name, backend]
            done = subprocess.run(child, capture_output=True, text=True, check=False)
            lines = [line for line in done.stdout.splitlines() if line.startswith("[")]
            found = [Cell(*json.loads(line)) for line in lines]
            yield from found
            if done.returncode:
                last = found[-1].verb if found else "nothing"
                yield Cell(name, backend, f"after {last}", done.returncode, done.stderr[-400:])


if __name__ == "__main__":
    chosen = sys.argv[1:]
    one = len(chosen) == 2 and chosen[1] in BACKENDS
    for cell in answers(*chosen) if one else table(chosen or list(models.MODELS)):
        print(json.dumps(cell), flush=True)
