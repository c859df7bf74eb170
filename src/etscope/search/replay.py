"""Run one operator of a run alone: with its shapes, types, weights and inputs, on each backend.

from etscope.search.replay import replay

found = replay(trace, "op:convolution", backends=("portable", "xnnpack"), threads=(1, 4))
print(found.table())

The operator is cut out of the record's exported program. Its folder has what a bug report needs:
operator.pt2, its inputs and expected outputs, the programs, their runs, and report.md with the
versions and the machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from etscope.analysis.matching.graph_alignment import align_graphs, is_quantization
from etscope.analysis.numerics.runs import TracedMethod
from etscope.analysis.profile.profile import MethodProfile, Row
from etscope.analysis.profile.trace import Trace
from etscope.analysis.program.correlate import graph_name
from etscope.analysis.program.source_location import lines_of, module_path, short_lines
from etscope.analysis.selector_fields import fields_of_row
from etscope.analysis.work.limits import Limits, profile_limits
from etscope.analysis.work.roofline import choose_calibration
from etscope.capture import open_capture
from etscope.capture.profiles import chosen_profiles
from etscope.diagnosis.reference import RunInputs
from etscope.errors import MissingDataError
from etscope.etrecord import as_etrecord
from etscope.formats.bytes.files import make_folder
from etscope.formats.conditions import conditions_here
from etscope.formats.etrecord.reader import EDGE
from etscope.model.exported_graph import graph_from_program_json, graph_from_record
from etscope.model.graph import Graph, stem
from etscope.model.selector import Selector, meant
from etscope.model.table import Column, Kind, Table
from etscope.search.matrix import FLOAT, Matrix, MatrixOptions, matrix
from etscope.search.trial import PieceValues, require_export, versions, write_samples
from etscope.support.options import takes_fields
from etscope.units import format_bytes, format_count, format_duration

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["Part", "Replayed", "replay"]

_FOLDER = Path(".etscope", "replay")
_PROGRAM, _REPORT = "operator.pt2", "report.md"
_DEFAULTS = MatrixOptions(quantize=(FLOAT,))
_MS = 1e6  # ns


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """An operator of a run.

    nodes: of the exported program; place: its module and line. kernels: what ran, and ns: their
    time, the median of the counted runs; share: of the method's time. limits: its work, and the
    time of the roofline; None where they are not known.
    """

    nodes: tuple[str, ...]
    place: str
    kernels: tuple[str, ...]
    ns: float
    share: float
    limits: Limits | None

    @property
    def sentences(self) -> Iterator[str]:
        """Yield its time in the run, and its work."""
        kernels = ", ".join(dict.fromkeys(self.kernels))
        yield f"In the run: {_ms(self.ns)} ({self.share:.1%}) in {kernels}."
        limits = self.limits
        if limits is None or limits.moved is None:
            return
        text = f"Work: {format_count(limits.flops)} FLOPs, {format_bytes(limits.moved)} moved"
        if limits.roof_ns is not None:
            text += f"; the machine's peak allows {_ms(limits.roof_ns)} (limit: {limits.bound})"
        yield f"{text}."


@dataclass(frozen=True, slots=True)
class Replayed:
    """An operator of a run, and the same operator alone.

    part: the operator in the run. found: the programs of the operator alone; alone: the time of its
    kernels in each row of `found`, ns, None where it did not run.
    """

    part: Part
    found: Matrix
    alone: tuple[float | None, ...]

    def table(self) -> Table:
        """Return a row for each backend, quantization and number of threads. "operator" is the time
        of the operator's kernels, "time" of the whole small program."""
        table = self.found.table()
        operator = [None if one is None else one / _MS for one in self.alone]
        columns, at = list(table.columns), table.names.index("time")
        columns.insert(at, Column("operator", Kind.DURATION, "ms"))
        values = {
            **table.values,
            "operator": operator,
            "result": [cell.result for cell in self.found.cells],  # nothing is chosen here
            "quantize": [
                "as in the run" if cell.quantize == FLOAT else cell.quantize
                for cell in self.found.cells
            ],
        }
        return Table(tuple(columns), values, self.title, self._notes())

    @property
    def title(self) -> str:
        return " ".join(filter(None, (", ".join(self.part.nodes), self.part.place)))

    def _notes(self) -> tuple[str, ...]:
        return (
            *self.part.sentences,
            "operator: the kernels of the operator, the median of counted runs; time: the whole "
            "program, with copies and conversions at its borders.",
            f"For a bug report: {self.found.folder}: {_PROGRAM}, its inputs and expected outputs, "
            f"programs/, runs/ and {_REPORT}.",
        )


def _ms(ns: float) -> str:
    return f"{format_duration(ns / _MS, 'ms')} ms"


@takes_fields(MatrixOptions)
def replay(
    trace: Trace, select: str, *, options: MatrixOptions = _DEFAULTS, **changes: Any
) -> Replayed:
    """Cut an operator out of a run's exported program, and run it alone.

    trace: a run with its record. select: a selector of rows, as for `etscope inspect`; of several
        rows, the operator of the one that takes the most time is replayed.
    options, changes: fields of `MatrixOptions`; changes go before `options`.

    Raises `MissingDataError` if nothing matches, for rows without a node, and for a record without
    its exported program; `ExportFailure` where anything but tensors enters or leaves the operator.
    """
    options = replace(options, **changes)
    require_export(wanted_by="a replay")
    piece = _Piece.of(trace, *_longest(trace, select, options.method))
    folder = make_folder(options.folder or _FOLDER / piece.name)
    if options.folder is None:
        (_FOLDER / ".gitignore").write_text("*\n", encoding="utf-8")
    inputs = piece.save(folder)
    given = replace(options, folder=folder, method=None, quantize=piece.schemes(options))
    found = matrix((piece.program, inputs), options=given)
    alone = tuple(None if one.run is None else _alone(Path(one.run)) for one in found.cells)
    done = Replayed(piece.part, found, alone)
    _write_report(done, folder)
    return done


def _longest(trace: Trace, select: str, method: str | None) -> tuple[MethodProfile, Row]:
    """Return the row that takes the most time of those that match and have a node."""
    selector = Selector(select)
    profiles = chosen_profiles(trace, method)
    rows = [(one, row) for one in profiles for _, row in one.leaves]
    matching = [one for one in rows if selector.matches(fields_of_row(one[1]))]
    if not matching:
        hint = meant(select, (fields_of_row(row) for _, row in rows))
        raise MissingDataError(f"nothing matches {select!r}", hint=hint or "see etscope inspect")
    known = [one for one in matching if _operators(one[1])]
    if not known:
        names = ", ".join(dict.fromkeys(row.name for _, row in matching[:3]))
        raise MissingDataError(
            f"no node of the graph is known of {names}",
            hint="name the ETRecord and the program, too",
        )
    return max(known, key=lambda one: float(one[1].ticks.sum()))


def _operators(row: Row) -> set[str]:
    """The names of a row's nodes without those that quantize."""
    return {node.name for node in row.attribution.nodes if not is_quantization(node)}


def _time(rows: Iterable[Row]) -> float:
    """The sum of rows, the median of runs, ns: of a run by etscope, whose clock counts them."""
    ticks = [row.ticks for row in rows if row.is_time and not row.own_clock]
    return float(np.median(np.sum(ticks, axis=0))) if ticks else 0.0


def _alone(run: Path) -> float | None:
    """The time of all kernels with a node in a kept run, ns."""
    trace = open_capture(run).trace
    if trace is None:
        return None
    found = (row for one in trace.profiles() for _, row in one.leaves if _operators(row))
    return _time(found) or None


@dataclass(frozen=True, slots=True, eq=False)
class _Piece:
    """The operator that is cut out of the exported program, with its inputs and outputs."""

    part: Part
    program: ExportedProgram
    values: PieceValues

    @classmethod
    def of(cls, trace: Trace, profile: MethodProfile, row: Row) -> _Piece:
        """Cut the operator of a row out of the exported program."""
        from etscope.backends.registry.export_options import ExportOptions
        from etscope.bridge.lowering import subprograms as bridge
        from etscope.bridge.programs import program_json
        from etscope.bridge.reference.local_reference import flat_inputs
        from etscope.bridge.tensors import torch_values

        record, name = trace.needed_record, profile.method or "forward"
        program = dict(as_etrecord(record).exported_programs).get(name)
        if program is None:
            raise MissingDataError(
                f"the record has no exported program of {name!r} to cut an operator out of",
                hint="etscope export writes it; in a script: generate_etrecord(exported_program=)",
            )
        traced = TracedMethod(trace, name)
        inputs = RunInputs(traced).of(traced.runs[0])
        if inputs is None:
            raise MissingDataError(
                "the inputs of the run are not known",
                hint="etscope run keeps them: run the program again",
            )
        sample = bridge.nested(program, torch_values(flat_inputs(inputs)))
        subject, _ = bridge.subject_of({name: program}, [{name: sample}], ExportOptions(), name)
        exported = graph_from_program_json(program_json(subject.program, name), name, None)
        owners = align_graphs(
            exported, graph_from_record(record, graph_name(record, EDGE, name))
        ).owners
        names = {owners[one] for one in _operators(row) if one in owners}
        if not names:
            raise MissingDataError(
                f"no operator of the exported program became {row.name}",
                hint="a pass of the export added it: select another row",
            )
        whole = [name for name in exported.own_operators if name in names]
        cut = bridge.cut(subject.program, _with_quantization(exported, whole))
        values = bridge.capture(subject.program, subject.samples[0], [*cut.inputs, *cut.outputs])
        rows = [
            one
            for _, one in profile.leaves
            if (own := _operators(one)) and all(owners.get(node) in names for node in own)
        ]
        calls = [exported.own_operators[one] for one in whole]
        module = next(filter(None, map(module_path, calls)), "")
        work = profile_limits(trace, profile, calibration=choose_calibration(None, trace.saved_run))
        part = Part(
            tuple(whole),
            " ".join(filter(None, (module, short_lines(lines_of(calls))))),
            tuple(one.kernel_name for one in rows),
            ticks := _time(rows),
            ticks / max(float(np.median(profile.total)), 1.0),
            None if work is None else work.of(rows),
        )
        arrays = [[bridge.arrays(values, of)] for of in (cut.inputs, cut.outputs)]
        return cls(part, cut.program, PieceValues(*arrays))

    @property
    def name(self) -> str:
        """The operator's name, with a hash of its graph, weights and inputs."""
        from etscope.bridge.lowering.subprograms import Subject, fingerprint

        own = fingerprint(Subject(self.program, (tuple(self.values.inputs[0]),)))
        return f"{self.part.nodes[0]}-{own[:8]}"

    def save(self, folder: Path) -> tuple[Any, ...]:
        """Write the program, its inputs and expected outputs; return the inputs."""
        from etscope.bridge.lowering.subprograms import save_piece
        from etscope.bridge.tensors import torch_values

        save_piece(self.program, folder / _PROGRAM)
        write_samples(folder, self.values)
        return tuple(torch_values(self.values.inputs[0]))

    def schemes(self, options: MatrixOptions) -> Sequence[str]:
        """Quantizations to try: none of an operator that is quantized already."""
        is_quantized = any("quantize" in str(node.target) for node in self.program.graph.nodes)
        return (FLOAT,) if is_quantized else options.quantize


def _with_quantization(graph: Graph, names: Sequence[str]) -> list[str]:
    """Add the nodes that quantize what the operator takes and gives, and an activation between it
    and these, so that its borders are of float, and its kernels those of the run."""
    from etscope.bridge.taps import FUSED

    known = graph.own_operators
    found, ends = set(names), list(names)
    while ends:
        name = ends.pop()
        users = graph.users.get(name, ())
        around = {*known[name].inputs, *users}.intersection(known)
        new = {one for one in around if is_quantization(known[one])}
        if new and not new.intersection(users):
            new |= {
                one
                for one in around
                if users == (one,) and stem(known[one].op).rstrip("_") in FUSED
            }
        ends += new - found
        found |= new
    return [name for name in known if name in found]


def _write_report(done: Replayed, folder: Path) -> None:
    from etscope.views import write_table

    ran = [f"{name} {version}" for name, version in versions().items()]
    here, table = conditions_here(), done.table()
    with (folder / _REPORT).open("w", encoding="utf-8") as out:
        write_table(table.select([one for one in table.names if one != "run"]), "md", out)
        out.write(f"\n{', '.join(ran)}; {here.cpu}; {here.in_words(None)}\n")
