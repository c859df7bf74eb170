"""The one call: from a model that fails to the smallest piece of it that does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import metadata
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from etscope.analysis.metrics import find_metric
from etscope.bisect import _repro_script
from etscope.bisect._check import (
    COMMAND,
    GOOD,
    UNKNOWN,
    VALUE,
    Answer,
    CommandCheck,
    MetricCheck,
    metric_check,
)
from etscope.bisect._probe import Probe
from etscope.bisect._repro import write_repro
from etscope.bisect._search import BISECT, STRATEGIES, Search, Verdict
from etscope.errors import FormatError, MissingDataError, UsageError
from etscope.formats.bytes.atomic_write import make_folder
from etscope.formats.bytes.source import PathLike
from etscope.formats.identify import ETRECORD, identify
from etscope.formats.search_state import NAME, known_answers, write_state
from etscope.model.pieces import Piece, Pieces, written
from etscope.model.table import Column, Kind, Table
from etscope.optional import require

if TYPE_CHECKING:
    from etscope.bridge.programs.subprograms import Subject


# What was found, as a table.


_FAILURES = {
    VALUE: "wrong value",
    COMMAND: "the command says so",
    "lower": "cannot be lowered",
    "run": "fails to run",
}


def report_table(bisected: Bisected) -> Table:
    """One row for each failing piece."""
    check = bisected.check
    metric = check.metric if isinstance(check, MetricCheck) else None
    name, unit = ("status", None) if metric is None else (metric.name, metric.unit or None)
    rows = [
        {
            "piece": written(piece),
            "nodes": bisected.pieces.names(piece),
            "ops": _distinct(bisected.pieces.nodes[index].op for index in piece),
            "modules": _distinct(
                (bisected.pieces.nodes[index].modules or ("",))[-1] or None for index in piece
            ),
            "source": _distinct(_short(bisected.pieces.nodes[index].source) for index in piece),
            "failure": _FAILURES[answer.kind],
            name: answer.number,
            "detail": answer.detail or None,
        }
        for piece, answer in bisected.found
    ]
    columns = (
        Column("piece", priority=3),
        Column("nodes", Kind.LIST),
        Column("ops", Kind.LIST),
        Column("modules", Kind.LIST, priority=1),
        Column("source", Kind.LIST, priority=1),
        Column("failure", priority=2),
        Column(name, Kind.FLOAT, unit),
        Column("detail", priority=4),
    )
    return Table(
        columns=columns,
        values={column.name: [row[column.name] for row in rows] for column in columns},
        notes=_notes(bisected),
    )


def _distinct(texts: object) -> list[str]:
    return list(dict.fromkeys(text for text in texts if text))  # type: ignore[attr-defined]


def _short(source: str | None) -> str | None:
    return None if source is None else PurePath(source).name


def _notes(bisected: Bisected) -> tuple[str, ...]:
    count = len(bisected.pieces.nodes)
    tried = f"{bisected.tried} of the pieces of {count} nodes were tried"
    if bisected.unknown:
        tried += f"; of {bisected.unknown} nothing can be said"
    notes = [f"{tried}."]
    if not bisected.found:
        notes.insert(0, "Nothing to find: the whole model is good.")
    if bisected.repro is not None:
        notes.append(f"The first piece fails by itself: python {bisected.repro}")
    return tuple(notes)


# The model that is cut into pieces: what a user names, or holds.


def find_subject(
    model: Any,
    inputs: Sequence[PathLike | Any],
    *,
    backend: str,
    quantize: bool,
    strict: bool | None,
    method: str | None,
    seed: int,
) -> Subject:
    """The program to cut, of a name ("file.pt2", "record.etrecord", "file.py:make") or of a
    `Source`; `inputs` are samples, files of them among those, the model's own if there are none."""
    from etscope.bridge.programs.subprograms import check_samples, subject_of
    from etscope.export import Source, load_model

    source = model
    if isinstance(model, (str, Path)):
        model = str(model)
        source = _of_record(model) if _is_record(model) else load_model(model, seed=seed)
    elif not isinstance(model, Source):
        source = Source("", type(model).__name__, model)
    by_method = isinstance(source.model, Mapping)
    source = _one_method(source, method)
    samples = [
        source.read_inputs(one) if isinstance(one, (str, Path)) else one for one in inputs
    ] or [source.inputs]
    subject = subject_of(
        source.model,
        samples[0],
        samples[1:],
        backend=backend,
        quantize=quantize,
        strict=strict,
        method=None if by_method else method,
    )
    check_samples(subject)
    return subject


def _is_record(path: str) -> bool:
    try:
        return Path(path).is_file() and identify(path) == ETRECORD
    except FormatError:
        return False


def _of_record(path: str) -> Any:
    from etscope.bridge.programs.subprograms import nested
    from etscope.etrecord import parse_etrecord
    from etscope.export import Source

    record = parse_etrecord(path)
    programs = record.exported_programs
    if not programs:
        raise MissingDataError(
            f"{path} has no exported program, which is what can be cut",
            hint="etscope export writes it; generate_etrecord(exported_program=) takes it",
        )
    flat = record._representative_inputs
    main = "forward" if "forward" in programs else next(iter(programs))
    inputs = {} if flat is None else {main: nested(programs[main], flat)}
    return Source(path, Path(path).stem, programs, inputs)


def _one_method(source: Any, method: str | None) -> Any:
    """The source of one program where there is one for each method."""
    if not isinstance(source.model, Mapping):
        return source
    name = method or ("forward" if "forward" in source.model else next(iter(source.model)))
    if name not in source.model:
        raise MissingDataError(
            f"the model has no method {name!r}", hint=f"methods are: {', '.join(source.model)}"
        )
    inputs = source.inputs.get(name) if isinstance(source.inputs, Mapping) else source.inputs
    return replace(source, model=source.model[name], inputs=inputs)


# What is known so far, in a file that a bisection can go on from.


_ANSWERS = "answers"


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """Answers by piece. `given`: what they depend on (the model's fingerprint, the options)."""

    path: Path
    given: Mapping[str, Any]
    answers: dict[str, Answer] = field(default_factory=dict)

    def get(self, piece: Piece) -> Answer | None:
        return self.answers.get(written(piece))

    def add(self, piece: Piece, answer: Answer) -> None:
        """Keep an answer; the file is written whole."""
        self.answers[written(piece)] = answer
        content = {key: one.to_json() for key, one in self.answers.items()}
        write_state(self.path, self.given, content, name=_ANSWERS)


def open_state(folder: Path, given: Mapping[str, Any], *, resume: bool) -> State:
    """The state to begin with: that of the folder with `resume`, else an empty one.

    Raises what `known_answers` does.
    """
    path = folder / NAME
    answers = known_answers(
        path, given, Answer.of_json, name=_ANSWERS, search="bisection", resume=resume
    )
    return State(path, given, answers)


REPRO = "repro"
SNR, DECIBELS = "snr", 40.0

Progress = Callable[[Piece, Answer], None]


@dataclass(frozen=True, slots=True, eq=False)
class Bisected:
    """What was found.

    whole: the answer of the whole model. found: failing pieces, as positions in `pieces`, with
    their answers; none when the whole is good. repro: the script that fails by itself, of the
    first piece. tried, unknown: how many pieces were tried, and of how many nothing can be said.
    """

    pieces: Pieces = field(repr=False)
    check: MetricCheck | CommandCheck = field(repr=False)
    whole: Answer
    found: tuple[tuple[Piece, Answer], ...]
    repro: Path | None
    tried: int
    unknown: int

    @property
    def nodes(self) -> list[list[str]]:
        """The names of the nodes of each piece that was found."""
        return [self.pieces.names(piece) for piece, _ in self.found]

    def table(self) -> Table:
        """A row for each piece that was found."""
        return report_table(self)


def bisect(
    model: Any,
    folder: PathLike,
    *,
    backend: str = "portable",
    quantize: bool = False,
    inputs: Sequence[Any] = (),
    check: str | None = None,
    tolerance: float | None = None,
    command: str | None = None,
    strategy: str = BISECT,
    method: str | None = None,
    strict: bool | None = None,
    seed: int = 0,
    isolate: bool = True,
    timeout: float | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> Bisected:
    """Find the smallest piece of a model that fails on the runtime as the whole does.

    A piece is cut out of the exported graph, fed with the values that eager PyTorch has at its
    border, lowered, run, and its outputs are compared with eager PyTorch's.

    Args:
        model: a `torch.nn.Module`, an `ExportedProgram`, a dict of those by method, a `Source`, or
            the name of one: a .pt2 file, an ETRecord with its exported program, "file.py:make".
        folder: for `state.json` (each answer as it comes) and `repro/` (the piece that was found).
        backend, quantize, strict: as for `etscope.export.export`.
        inputs: samples, each as `export` takes inputs, or a file of them; all of one shape. A
            piece is bad when it is on any of them. None given: those that the model brings.
        check, tolerance: a metric by name, and the number that is just good enough; 40 dB of "snr"
            by default.
        command: a command that decides instead, in which {program}, {inputs} and {expected} stand
            for files. Its exit status: 0 good, 125 unknown, anything else bad.
        strategy: "bisect" (by order of execution), "modules" (from the outermost module inwards),
            "linear" (each node alone).
        method: "forward" by default, or the only one.
        isolate: run each piece in a process of its own, so that a crash is an answer.
        timeout: seconds for each run.
        resume: go on with the answers in the folder.
        progress: told of each piece that was tried, and its answer.

    Raises `MissingDataError` when nothing can be said of the whole model, `MismatchError` when the
    state to resume is of another model or other options, `RuntimeFailure` when the piece does not
    fail in a fresh process, and what `load_model` and `export` raise.
    """
    if strategy not in STRATEGIES:
        raise UsageError(
            f"there is no strategy {strategy!r}", hint=f"it is {', '.join(STRATEGIES)}"
        )
    if timeout is not None and not isolate:
        raise UsageError("a run in this process cannot be timed out")
    checked = _check(check, tolerance, command)
    require("torch", wanted_by="bisect")
    require("executorch.exir", wanted_by="bisect")
    from etscope.bridge.programs.subprograms import fingerprint, pieces_of

    subject = find_subject(
        model,
        inputs,
        backend=backend,
        quantize=quantize,
        strict=strict,
        method=method,
        seed=seed,
    )
    pieces = pieces_of(subject.program)
    if not pieces.nodes:
        raise MissingDataError("the model computes nothing: there are no operators in its graph")
    given = {
        "model": fingerprint(subject),
        "backend": backend,
        "check": _in_words(checked),
        "timeout": timeout,
        "executorch": metadata.version("executorch"),
        "torch": metadata.version("torch"),
    }
    place = make_folder(folder)
    state = open_state(place, given, resume=resume)
    probe = Probe(subject, pieces, backend, checked, isolate, timeout)
    ask = partial(_answer, state, probe, progress)
    whole = ask(pieces.whole)
    if whole.kind == UNKNOWN:
        raise MissingDataError(
            f"nothing can be said of the whole model: {whole.detail}",
            hint="it must run and be checked, or fail to, before a part of it can be blamed",
        )
    found = Bisected(pieces, checked, whole, (), None, 0, 0)
    if whole.kind != GOOD:
        search = Search(pieces, lambda piece: _verdict(ask(piece), whole))
        failing = tuple((piece, ask(piece)) for piece in search.found(strategy))
        repro = write_repro(place / REPRO, probe, *failing[0])
        found = replace(found, found=failing, repro=repro)
    answers = state.answers.values()
    return replace(
        found, tried=len(answers), unknown=sum(one.like(whole) is None for one in answers)
    )


def _check(
    check: str | None, tolerance: float | None, command: str | None
) -> MetricCheck | CommandCheck:
    if command is not None:
        if check is not None or tolerance is not None:
            raise UsageError("a command and a metric exclude each other", hint="give one of them")
        return CommandCheck(command)
    if check is not None and check != SNR and tolerance is None:
        find_metric(check)  # or it says that there is none
        raise UsageError(f"what {check!r} is good enough?", hint="give a tolerance (--tolerance)")
    found = metric_check(check or SNR, DECIBELS if tolerance is None else tolerance)
    if found.metric.name not in _repro_script.METRICS:
        raise UsageError(
            f"the metric {found.metric.name!r} is not one that a script can measure by itself",
            hint=f"metrics to bisect by: {', '.join(_repro_script.METRICS)}; or give a command",
        )
    return found


def _in_words(check: MetricCheck | CommandCheck) -> str:
    if isinstance(check, CommandCheck):
        return check.command
    return f"{check.metric.name} {check.tolerance!r}"


def _answer(state: State, probe: Probe, progress: Progress | None, piece: Piece) -> Answer:
    """What is known of a piece, or else found out by trying it."""
    known = state.get(piece)
    if known is not None:
        return known
    answer = probe(piece)
    state.add(piece, answer)
    if progress is not None:
        progress(piece, answer)
    return answer


def _verdict(answer: Answer, whole: Answer) -> Verdict:
    return Verdict(answer.like(whole), answer.outputs)
