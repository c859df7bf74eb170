"""Try one piece: cut it out, lower it, run it on the values of eager PyTorch, check its outputs by
a metric or a command of the user.

A piece that fails is written to a folder with a script that reproduces the failure.
"""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from etscope.analysis.metrics import Metric, find_metric, measure
from etscope.errors import (
    EtscopeError,
    EtscopeWarning,
    ExportFailure,
    RuntimeFailure,
    UsageError,
)
from etscope.formats.bytes.files import make_folder
from etscope.formats.program.pte import read_pte
from etscope.model.graph import Graph
from etscope.search.bisect import _repro_script
from etscope.search.trial import (
    COMMAND,
    LOWER,
    RUN,
    UNKNOWN,
    VALUE,
    PieceValues,
    Trial,
    check_tolerance,
    reaches,
    run_samples,
    write_samples,
)

if TYPE_CHECKING:
    from etscope.bridge.lowering.subprograms import Cut, Subject
    from etscope.run.execute import IsolationOptions


# -- Checks.

GOOD = "good"

SKIP = 125  # as for `git bisect run`
PROGRAM, INPUTS, EXPECTED = "{program}", "{inputs}", "{expected}"


@dataclass(frozen=True, slots=True)
class Answer(Trial):
    """The result of trying one piece.

    error: the metric of the worst output, or the exit status of the command. outputs: names of the
    wrong ones.
    """

    outputs: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The failure, or "good"."""
        return self.failure or GOOD

    @property
    def reason(self) -> str:
        """The detail without names, numbers and the text after a colon, to compare failures by."""
        text = re.sub(r"[\w.]+::[\w.]+(, [\w.]+::[\w.]+)*", "*", self.detail)
        return re.sub(r"\b\d+\b", "#", re.split(r": |\n", text)[0])

    def like(self, whole: Answer) -> bool | None:
        """Return whether this is the failure of the whole model; None when it is unknown."""
        if self.failure is None:
            return False
        if self.failure == UNKNOWN or self.failure != whole.failure:
            return None
        same = self.failure not in (LOWER, RUN) or self.reason == whole.reason
        return True if same else None


@dataclass(frozen=True, slots=True)
class MetricCheck:
    """An output is wrong when its metric is worse than the tolerance, or when it has NaN at other
    positions than the expected output."""

    metric: Metric
    tolerance: float

    def __str__(self) -> str:
        return f"{self.metric.name} {self.tolerance!r}"

    def number(self, expected: Any, value: Any) -> float:
        """The metric of one output; NaN for different shapes or positions of NaN."""
        first, second = np.asarray(expected), np.asarray(value)
        if first.shape != second.shape:
            return math.nan
        # x != x finds NaN in types of ml_dtypes too; integers never differ from themselves.
        with np.errstate(invalid="ignore"):
            nan, other = first != first, second != second
        if not np.array_equal(nan, other):
            return math.nan
        if nan.any():
            first, second = first[~nan], second[~nan]
        if not first.size:
            return self.metric.perfect
        number = measure(self.metric, first, second)
        return math.nan if number is None else number

    def is_wrong(self, number: float | None) -> bool:
        return not reaches(self.metric, number, self.tolerance)

    def answer(
        self, names: Sequence[str], expected: Sequence[Sequence[Any]], got: Sequence[Sequence[Any]]
    ) -> Answer:
        """Judge the named outputs of a piece by the worst sample of each: [samples][outputs]."""
        if not any(np.asarray(one).size for wanted in expected for one in wanted):
            return Answer(failure=UNKNOWN, detail="all outputs are empty")
        numbers = [
            [self.number(*pair) for pair in zip(wanted, outputs, strict=True)]
            for wanted, outputs in zip(expected, got, strict=True)
        ]
        worst = [self.metric.worst(each) for each in zip(*numbers, strict=True)]
        wrong = tuple(
            name for name, number in zip(names, worst, strict=True) if self.is_wrong(number)
        )
        return Answer(self.metric.worst(worst), failure=VALUE if wrong else None, outputs=wrong)


def metric_check(name: str, tolerance: float) -> MetricCheck:
    """Return the check of a metric. Raises `UsageError` for an unknown metric and a tolerance that
    is NaN.
    """
    check_tolerance(tolerance)
    return MetricCheck(find_metric(name), tolerance)


@dataclass(frozen=True, slots=True)
class CommandCheck:
    """A command that decides by its exit status: 0 good, 125 unknown, 1 to 124 bad.

    Any other means that the command itself failed: it was not found (126, 127), or a signal ended
    it (128 and more, or negative). `git bisect run` ends there, too.
    """

    command: str

    def __post_init__(self) -> None:
        try:
            words = shlex.split(self.command)
        except ValueError as error:
            raise UsageError(f"cannot read the command: {error}") from error
        if not words or not any(PROGRAM in word for word in words):
            raise UsageError(
                "the command does not say where the program goes",
                hint=f"put {PROGRAM} into the command, and {INPUTS} and {EXPECTED} as needed",
            )

    def __str__(self) -> str:
        return self.command

    def words(self, program: Path, inputs: Path, expected: Path) -> list[str]:
        """The command with files in place of {program}, {inputs} and {expected}."""
        words = shlex.split(self.command)
        for name, path in ((PROGRAM, program), (INPUTS, inputs), (EXPECTED, expected)):
            words = [word.replace(name, str(path)) for word in words]
        return words

    def answer(self, program: Path, samples: Sequence[tuple[Path, Path]]) -> Answer:
        """Run the command on each sample, (inputs, expected outputs), until one is bad.

        Raises `RuntimeFailure` for a command that fails itself.
        """
        unknown = False
        for inputs, expected in samples:
            words = self.words(program, inputs, expected)
            try:
                done = subprocess.run(
                    words, capture_output=True, encoding="utf-8", errors="replace", check=False
                )
            except OSError as error:
                raise UsageError(f"cannot start {words[0]}: {error.strerror}") from error
            if not 0 <= done.returncode <= SKIP:
                raise RuntimeFailure(
                    f"the command {_end_of(done.returncode)}: it says neither good nor bad",
                    log=_last_lines(done, _LOG),
                    hint="let the command end with 0 for good, 1 to 124 for bad, 125 for "
                    "unknown; to look for a crash of the program, let the command run it "
                    "in a separate process and end with 1",
                )
            if done.returncode not in (0, SKIP):
                reason = reason_in(done.stdout, done.stderr)
                return Answer(done.returncode, failure=COMMAND, detail=reason[:200])
            unknown = unknown or done.returncode == SKIP
        if unknown:
            detail = f"the command's exit status is {SKIP}"
            return Answer(SKIP, failure=UNKNOWN, detail=detail)
        return Answer(0)


_LOG = 20  # lines of a command's output in an error
# Lines that say nothing of the reason: warnings of Python, torch and ExecuTorch, and their logs.
_WARNINGS = re.compile(
    r"Warning:|^\s*warnings\.warn|^\[?[WIDV]\d* ?\d\d?[:\d]|^[WIDV] \d\d:|^Failed to load |"
    r"^\[\w+\.cpp:\d+\]"
)


def _end_of(status: int) -> str:
    number = -status if status < 0 else status - 128
    if number < 0:
        return f"could not be run (exit status {status})"
    try:
        return f"was ended by {signal.Signals(number).name}"
    except ValueError:
        return f"ended with exit status {status}"


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def _last_lines(done: subprocess.CompletedProcess[str], count: int) -> str:
    """The end of what a process wrote, stderr after stdout."""
    return "\n".join([*_lines(done.stdout), *_lines(done.stderr)][-count:])


def reason_in(stdout: str, stderr: str) -> str:
    """Find the line of a command's output that says why it failed: the exception of a traceback, or
    else the last line that is not a warning, of stdout if there is one.
    """
    errors = _lines(stderr)
    starts = [at for at, line in enumerate(errors) if line.startswith("Traceback (most recent")]
    if starts:
        behind = (line for line in errors[starts[-1] + 1 :] if not line.startswith((" ", "\t")))
        return next(behind, errors[-1])
    for lines in (_lines(stdout), errors):
        told = [line for line in lines if not _WARNINGS.search(line)]
        if told:
            return told[-1].strip()
    return ""


# -- Attempts.


Piece = tuple[int, ...]
"""Positions of a graph's nodes, ascending."""


def names_of(graph: Graph, piece: Piece) -> list[str]:
    """The names of the piece's nodes."""
    return [graph.nodes[index].name for index in piece]


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """Lowers a piece of a model's graph, runs it, and answers whether it is good."""

    subject: Subject
    graph: Graph
    backend: str
    check: MetricCheck | CommandCheck
    options: IsolationOptions

    def __call__(self, piece: Piece) -> Answer:
        try:
            cut, values = self.cut(piece)
        except EtscopeError as error:
            return Answer(failure=UNKNOWN, detail=error.message)
        try:
            program = self.lower(cut)
        except ExportFailure as error:
            return Answer(failure=LOWER, detail=error.message)
        if isinstance(self.check, CommandCheck):
            with tempfile.TemporaryDirectory(prefix="etscope-") as folder:
                path = Path(folder, "program.pte")
                path.write_bytes(program)
                return self.check.answer(path, write_samples(Path(folder), values))
        try:
            outputs = run_samples(program, "forward", values.inputs, self.options)
        except RuntimeFailure as error:
            return Answer(failure=RUN, detail=error.message)
        except EtscopeError as error:  # inputs that the lowered piece does not take
            return Answer(failure=UNKNOWN, detail=error.message)
        return self.check.answer(cut.outputs, values.expected, outputs)

    def cut(self, piece: Piece) -> tuple[Cut, PieceValues]:
        """The piece as a program, and its values in eager PyTorch."""
        from etscope.bridge.lowering import subprograms as bridge

        cut = bridge.cut(self.subject.program, names_of(self.graph, piece))
        values = PieceValues([], [])
        for number, sample in enumerate(self.subject.samples):
            found = bridge.capture(
                self.subject.program,
                sample,
                [*cut.inputs, *cut.outputs],
                self.subject.known(number),
            )
            values.inputs.append(bridge.arrays(found, cut.inputs))
            values.expected.append(bridge.arrays(found, cut.outputs))
        return cut, values

    def lower(self, cut: Cut) -> bytes:
        """The .pte file of a piece. Raises `ExportFailure`."""
        from etscope.bridge.lowering.subprograms import lower
        from etscope.etrecord import ETRecord

        return lower(cut.program, self.backend, ETRecord)


# -- The reproduction.


def write_repro(folder: Path, probe: Probe, piece: Piece, answer: Answer) -> Path:
    """Write a failing piece, its program, its values and a script; run the script once.

    Raises `RuntimeFailure` when the script does not fail.
    """
    from etscope.bridge.lowering.subprograms import save_piece

    make_folder(folder)
    cut, values = probe.cut(piece)
    try:
        save_piece(cut.program, folder / "piece.pt2")
    except ExportFailure as error:
        if answer.failure == LOWER:  # without the piece there is nothing to lower again
            raise
        warnings.warn(f"no piece.pt2: {error.message}", EtscopeWarning, stacklevel=2)
    quantized_kernels = False
    if answer.failure != LOWER:
        program = probe.lower(cut)
        (folder / "program.pte").write_bytes(program)
        quantized_kernels = any(
            operator.name.startswith("quantized_decomposed::")
            for method in read_pte(program).methods
            for operator in method.operators
        )
    samples = write_samples(folder, values)
    settings: dict[str, Any] = {
        "kind": answer.kind,
        "backend": probe.backend,
        "nodes": names_of(probe.graph, piece),
        "outputs": list(cut.outputs),
        "samples": [{"inputs": one.name, "expected": two.name} for one, two in samples],
        "quantized_kernels": quantized_kernels,
    }
    if isinstance(probe.check, CommandCheck):
        settings["command"] = probe.check.command
    else:
        settings["metric"] = probe.check.metric.name
        settings["better"] = probe.check.metric.better
        settings["tolerance"] = str(probe.check.tolerance)
    (folder / "repro.json").write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
    script = folder / "repro.py"
    script.write_bytes(Path(_repro_script.__file__).read_bytes())
    confirm_failure(script)
    return script


def confirm_failure(script: Path) -> None:
    """Run the script in a fresh process; raise `RuntimeFailure` unless the piece fails there too,
    and not because of an error in the script."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, str(script.resolve())],
        env=environment,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if done.returncode == 1 and any(line.startswith("FAILS") for line in done.stdout.splitlines()):
        return
    raise RuntimeFailure(
        f"the piece fails here, but {script} does not (exit code {done.returncode})",
        log=_last_lines(done, 5),
        hint="the failure may depend on more than the piece; its files are kept for inspection",
    )
