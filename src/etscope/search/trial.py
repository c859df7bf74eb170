"""Common ground of bisect, sensitivity and remedies: they try variants of a model on the runtime.

Results are kept in a file that an interrupted search resumes from. All load the model and its
samples in the same way, and run what they lower with the same options.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from etscope.analysis.metrics import Metric, measure
from etscope.analysis.statistics.compare_samples import drawn_orders
from etscope.errors import FormatError, MismatchError, UsageError, reading
from etscope.formats.bytes.files import PathLike, atomic_write, make_folder
from etscope.formats.json_values import read_json, to_json
from etscope.formats.torch_files.tensor_files import suffix_for, tensor_files_in, write_tensor_file
from etscope.support.optional import require

if TYPE_CHECKING:
    from etscope.export import Source
    from etscope.run.execute import IsolationOptions

APPLY, LOWER, RUN = "apply", "lower", "run"
VALUE = "value"  # an output is too far from eager PyTorch's
COMMAND = "command"  # the user's command reports a failure
UNKNOWN = "unknown"  # it could not be tried, or fails in another way than the whole model
FAILURES = {
    APPLY: "does not apply",
    LOWER: "cannot be lowered",
    RUN: "fails to run",
    VALUE: "wrong value",
    COMMAND: "reported by the command",
    UNKNOWN: "unknown",
}


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of trying one variant of a model.

    error: the metric of the worst output; NaN if an output has NaN where the expected one has none.
    size: bytes of the program. rounds: [rounds, programs] ns, of programs that ran in turn: the
    baseline and this one, or several. failure: one of `FAILURES`, None for none; detail: the reason
    in words.
    """

    error: float | None = None
    size: int | None = None
    rounds: tuple[tuple[float, ...], ...] = ()
    failure: str | None = None
    detail: str = ""


# -- Results that survive an interruption.

STATE_FILE = "state.json"
PROGRAMS = "programs"  # folder of the .pte files that were tried
VERSION = 2

TrialT = TypeVar("TrialT", bound=Trial)


@dataclass(frozen=True, kw_only=True, eq=False)  # no slots: extended together with other options
class SearchOptions:
    """Options of a search.

    resume: continue with the trials that the folder has; False refuses a folder that has some.
    progress: a function that is called after each new trial, with a description and the trial.
    """

    resume: bool = True
    progress: Callable[[Any, Any], None] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class SearchState(Generic[TrialT]):
    """Trials of a search by key, in memory and in a file that is written whole after each.

        {"version": 2, "given": {…}, "trials": {key: {"error": …, …}, …}}

    given: plain values that the trials depend on: a fingerprint of the model, options, versions.
    """

    path: Path
    given: Mapping[str, Any]
    trials: dict[str, TrialT]
    progress: Callable[[Any, TrialT], None] | None = None

    def trial(self, key: str, attempt: Callable[[], TrialT], name: Any = None) -> TrialT:
        """Return the known trial, or else make the attempt, save it and report it.

        name: for `progress`; by default the key.
        """
        known = self.trials.get(key)
        if known is None:
            known = self.trials[key] = attempt()
            self.save()
            if self.progress is not None:
                self.progress(key if name is None else name, known)
        return known

    def save(self) -> None:
        """Write the state file."""
        trials = {key: to_json(trial) for key, trial in self.trials.items()}
        content = {"version": VERSION, "given": dict(self.given), "trials": trials}
        with atomic_write(self.path) as file:
            file.write((json.dumps(content, indent=1) + "\n").encode())


@contextmanager
def search_folder(folder: PathLike | None) -> Iterator[Path]:
    """Make the folder that keeps a search's results; without one they are kept while it lasts."""
    if folder is not None:
        yield make_folder(folder)
        return
    with tempfile.TemporaryDirectory(prefix="etscope-") as temporary:
        yield Path(temporary)


def open_state(
    folder: Path,
    given: Mapping[str, Any],
    kind: type[TrialT],
    options: SearchOptions,
    search: str = "search",
) -> SearchState[TrialT]:
    """Return the state in the folder, else an empty one; nothing is written yet.

    search: the kind of search, for messages. Raises `MismatchError` for the state of another model
    or other options, `UsageError` when there is a state that is not to be resumed, `FormatError`
    for a damaged one.
    """
    path = folder / STATE_FILE
    if not path.exists():
        return SearchState(path, given, {}, options.progress)
    if not options.resume:
        raise UsageError(
            f"{path} is from an earlier {search}", hint="remove it, or name another folder"
        )
    with reading(f"state of a {search}", path):
        content = read_json(path, f"state of a {search}")
        if (version := content.get("version").whole()) != VERSION:
            raise FormatError(f"the file's version is {version}, not {VERSION}")
        known = {name: one.value for name, one in content.get("given").members().items()}
        trials = {key: one.read_as(kind) for key, one in content.get("trials").members().items()}
        for trial in trials.values():
            if trial.failure not in (None, *FAILURES):
                raise FormatError(f"unknown failure {trial.failure!r:.40}")
    for name in sorted({*known, *given}):
        was, now = known.get(name), given.get(name)
        if was != now:
            before, after = ("none" if value is None else f"{value!s:.60}" for value in (was, now))
            raise MismatchError(
                f"{path} is from another {name}: {before}, and now it is {after}",
                hint="give the model and the options of the first run, or another folder",
            )
    return SearchState(path, given, trials, options.progress)


def versions() -> dict[str, str]:
    """The versions of ExecuTorch and PyTorch, which results depend on."""
    return {name: metadata.version(name) for name in ("executorch", "torch")}


# -- The model and its samples.


def require_export(wanted_by: str) -> None:
    """Raise `MissingDependencyError` without PyTorch and ExecuTorch's exporter."""
    require("torch", wanted_by=wanted_by)
    require("executorch.exir", wanted_by=wanted_by)


def open_model(model: Any, inputs: Any = None, *, seed: int, dynamic_shapes: Any = None) -> Source:
    """Return a model, with or without its inputs and dynamic shapes, its name or a `Source` as a
    `Source`.

    inputs, or a file of them, and dynamic_shapes: in place of the model's own. Raises what
    `load_model` raises.
    """
    from etscope.export import Source, load_model

    if isinstance(model, (str, Path)):
        source = load_model(str(model), seed=seed)
    elif isinstance(model, Source):
        source = model
    elif isinstance(model, tuple) and len(model) in (2, 3):
        source = Source("", type(model[0]).__name__, *model)
    else:
        source = Source("", type(model).__name__, model)
    if isinstance(inputs, (str, Path)):
        inputs = source.read_inputs(inputs)
    return replace(
        source,
        inputs=source.inputs if inputs is None else inputs,
        dynamic_shapes=source.dynamic_shapes if dynamic_shapes is None else dynamic_shapes,
    )


def read_samples(source: Source, samples: Sequence[Any]) -> list[Any]:
    """Return samples; those given by name are read. A file is one sample, a folder one for each
    tensor file.

    Raises `MissingDataError` for a folder without tensor files, and what `Source.read_inputs`
    raises.
    """
    found: list[Any] = []
    for sample in samples:
        if isinstance(sample, (str, Path)):
            path = Path(sample)
            paths = tensor_files_in(path) if path.is_dir() else [path]
            found += [source.read_inputs(one) for one in paths]
        else:
            found.append(sample)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class PieceValues:
    """Inputs and expected outputs of a piece for each sample, as numpy arrays."""

    inputs: list[list[Any]]
    expected: list[list[Any]]


def write_samples(folder: Path, values: PieceValues) -> list[tuple[Path, Path]]:
    """Write the values of each sample; return the files of its inputs and expected outputs."""
    pairs = zip(values.inputs, values.expected, strict=True)
    return [
        (
            write_arrays(folder, f"inputs-{number}", inputs),
            write_arrays(folder, f"expected-{number}", expected),
        )
        for number, (inputs, expected) in enumerate(pairs)
    ]


def write_arrays(folder: Path, name: str, arrays: Sequence[Any]) -> Path:
    """Write arrays to a file, in a format that holds their types; return its path."""
    path = folder / (name + suffix_for(arrays))
    write_tensor_file(path, arrays, [str(number) for number in range(len(arrays))])
    return path


# -- Runs on the runtime.

WARMUP = 2  # executions before those that are timed
FEWEST = 3  # executions of one program in a round of times
_MOST = 200  # and at most: a tiny program would run thousands of times
_ROUND_NS = 50e6  # time of one program in one round
# An execution this long is its own warm-up, and no short disturbance matters to it: one in a round,
# and so many rounds, are enough for a verdict at 99 %.
_LONG_NS, _FEW_ROUNDS = 1e9, 10


def is_long(time: Callable[[int], float]) -> bool:
    """Return whether an execution of a program takes more than a second: each of three, as other
    work may stop one. time: executes it so many times, and returns the time of one, ns."""
    return all(time(1) > _LONG_NS for _ in range(FEWEST))


def timed_rounds(
    sides: Sequence[Callable[[int], float]], rounds: int, seed: int
) -> npt.NDArray[np.float64]:
    """Time programs in rounds: [rounds, sides] ns.

    In a round each runs for a while, one directly after the other, in an order that is drawn from
    the seed, so that a disturbance of the machine affects them all. sides: each executes its
    program so many times, and returns the time of one execution, ns.
    """
    executions = [
        1 if is_long(side) else min(max(int(_ROUND_NS / max(side(FEWEST), 1)), FEWEST), _MOST)
        for side in sides
    ]
    rounds = min(rounds, _FEW_ROUNDS) if 1 in executions else rounds
    found = np.empty((rounds, len(sides)))
    for number, order in enumerate(drawn_orders(rounds, seed, len(sides))):
        for side in order:
            found[number, side] = sides[side](executions[side])
    return found


def run_samples(
    program: Path | bytes,
    method: str,
    samples: Sequence[Sequence[Any]],
    options: IsolationOptions,
    *,
    fresh: bool = False,
) -> list[Sequence[Any]]:
    """The outputs of a program for the flat inputs of each sample, as numpy arrays.

    fresh: start each sample from the initial state of the model. Raises what `etscope.run.run`
    raises.
    """
    from etscope.run import Call, run

    calls = [Call(method, list(inputs), iterations=1, warmup=0) for inputs in samples]
    outputs: list[Sequence[Any]] = []
    for batch in [[call] for call in calls] if fresh else [calls]:
        with run(
            program, batch, trace=False, isolate=options.isolate, timeout=options.timeout
        ) as done:
            outputs += done.arrays
    return outputs


def output_error(metric: Metric, expected: Any, value: Any) -> float | None:
    """The metric of an output; NaN for another shape, None without numbers."""
    first, second = np.asarray(expected), np.asarray(value)
    if first.shape != second.shape:
        return math.nan
    return measure(metric, first, second) if first.size else None


def check_tolerance(tolerance: float | None) -> None:
    """Raise `UsageError` for NaN."""
    if tolerance is not None and math.isnan(tolerance):
        raise UsageError("a tolerance must be a number, not NaN")


def reaches(metric: Metric, number: float | None, tolerance: float) -> bool:
    """Return whether a number is as good as the tolerance; NaN and no number are not."""
    if number is None or math.isnan(number):
        return False
    return number <= tolerance if metric.better == "lower" else number >= tolerance
