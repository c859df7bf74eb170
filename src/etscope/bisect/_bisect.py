"""The one call: from a model that fails to the smallest piece of it that does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from etscope.analysis.metrics import find_metric
from etscope.bisect import _repro_script
from etscope.bisect._answer import GOOD, UNKNOWN, Answer
from etscope.bisect._check import CommandCheck, MetricCheck, metric_check
from etscope.bisect._probe import Probe
from etscope.bisect._report import report_table
from etscope.bisect._repro import write_repro
from etscope.bisect._search import BISECT, STRATEGIES, Search, Verdict
from etscope.bisect._state import State, open_state
from etscope.bisect._subject import find_subject
from etscope.errors import MissingDataError, UsageError
from etscope.formats.bytes.atomic_write import make_folder
from etscope.formats.bytes.source import PathLike
from etscope.model.pieces import Piece, Pieces
from etscope.model.table import Table
from etscope.optional import require

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
