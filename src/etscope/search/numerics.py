"""Build a model, run it on the runtime, and find where along the way an error enters.

from etscope.search.numerics import model_stages

found = model_stages("model.py:make", backend="xnnpack", quantize=True)
print(found.verdict)

`narrow` narrows a wrong delegate call down to a line: the program is exported again with taps in
the call, and run, until one line is left. A tap keeps its operator from being fused into the next,
so a fault may vanish with taps. All operators of the call are tapped first. If the fault is gone
then, single taps divide the call: one in the middle, and if the fault vanishes with it, its
neighbour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from etscope.analysis.matching.graph_alignment import align_graphs, is_quantization
from etscope.analysis.numerics.diagnose import DEFAULT_METRIC
from etscope.analysis.numerics.rows import Narrowed, Numerics, NumericsRow, guilty_call
from etscope.analysis.numerics.runs import TracedMethod
from etscope.analysis.profile.trace import Trace
from etscope.analysis.program.correlate import graph_name
from etscope.analysis.program.source_location import common_module, lines_of
from etscope.backends.registry.export_options import ExportOptions
from etscope.diagnosis.numerics import RunToCompare, numerics_of
from etscope.diagnosis.reference import RunInputs
from etscope.diagnosis.stage_comparison import EagerModel, numeric_stages
from etscope.diagnosis.stages import NumericStages, worst_of
from etscope.errors import (
    ExportFailure,
    MissingDataError,
    NumericGapError,
    RuntimeFailure,
    UsageError,
)
from etscope.etrecord import as_etrecord
from etscope.formats.etrecord.reader import EDGE, EXPORTED, RecordView
from etscope.model.exported_graph import graph_from_record
from etscope.model.graph import Graph, SourceLine
from etscope.run import Call, run
from etscope.run.execute import Folder, IsolationOptions
from etscope.run.job import INTERMEDIATE_OUTPUTS
from etscope.search.trial import open_model, read_samples
from etscope.support.optional import require
from etscope.support.options import takes_fields

if TYPE_CHECKING:
    from etscope.export import Exported, Source

__all__ = ["model_stages", "narrow"]

Say = Callable[[str], None]  # receives what is about to be done

_MOST_EXPORTS = 40  # each takes 1 to 35 s, so that a search ends within minutes
_BACKENDS = {"XnnpackBackend": "xnnpack"}  # of delegates -> of `etscope.export.export`


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelStagesOptions(ExportOptions, IsolationOptions):
    """Options of `model_stages()`.

    samples: inputs of several runs, each as `export` takes them, or a file or folder of them; for
        each operator the worst error counts.
    seed: torch's random seed, set before a model is made.
    metric, tolerance, method: as for `Inspector.numeric_stages`.
    narrow: export a wrong delegate call again with taps, as `narrow` does.
    isolate, timeout: for each run, as in `etscope.run.run`.
    say: a function that is called with a sentence on the next step. float_model: for a model that
        is already quantized: the model before quantization.

    The other options are as for `etscope.export.export`.
    """

    samples: Sequence[Any] = ()
    seed: int = 0
    metric: str = DEFAULT_METRIC
    tolerance: float | None = None
    method: str | None = None
    narrow: bool = True
    say: Say = lambda text: None

    def check(self) -> None:
        """Raise `UsageError` for options that contradict each other."""
        self.check_timeout()
        if self.float_model is not None and self.quantize:
            raise UsageError(
                "float_model goes with a model that is already quantized",
                hint="with quantize, the model itself is the float model: leave out float_model",
            )


@takes_fields(ModelStagesOptions)
def model_stages(
    model: Any,
    inputs: Any = None,
    *,
    options: ModelStagesOptions = ModelStagesOptions(),
    **changes: Any,
) -> NumericStages:
    """Export a model, run it on the runtime with all values recorded, and compare each stage with
    the one before, from the eager model to the device.

    model: a name as for `etscope.export.load_model` ("model.py:make"), or a model object. It is
        exported with its own example inputs.
    inputs: the inputs of the run, as `etscope.export.export` takes them; by default the export's
        inputs and scaled copies of them. The scaled copies show whether the export turned a value
        that depends on the inputs into a constant.
    options, changes: fields of `ModelStagesOptions`, as `backend="xnnpack"`; changes go before
        `options`.

    Raises what `load_model`, `export`, `run` and `Inspector.numeric_stages` raise.
    """
    options = replace(options, **changes)
    options.check()
    require("torch", wanted_by="the stages of a model")
    require("executorch.exir", wanted_by="the stages of a model")
    import torch

    source = open_model(model, seed=options.seed, dynamic_shapes=options.dynamic_shapes)
    plain = None
    if options.float_model is not None:
        plain = open_model(options.float_model, seed=options.seed).model
    options = replace(options, float_model=plain)
    if source.inputs is None and inputs is not None:
        source, inputs = replace(source, inputs=inputs), None
    if inputs is not None and options.samples:
        raise UsageError("pass inputs or samples, not both")
    samples = read_samples(source, options.samples if inputs is None else [inputs])
    method, tolerance = options.method, options.tolerance
    with _ran(source, samples, options) as trace:
        options.say("comparing the stages")
        eager, module = None, source.model if plain is None else plain
        if isinstance(module, torch.nn.Module) and method in (None, "forward"):
            eager = EagerModel.of(module, source.inputs)
        count = max(len(samples), 1)
        runs = [
            RunToCompare(options.metric, tolerance, method=method, run=at) for at in range(count)
        ]
        found = worst_of([numeric_stages(trace, one, eager) for one in runs])
        if not options.narrow:
            return found
        narrowed = narrow(
            trace,
            found.device,
            tolerance=tolerance,
            is_here=True,
            say=options.say,
            isolate=options.isolate,
            timeout=options.timeout,
        )
        return replace(found, narrowed=narrowed)


@contextmanager
def _ran(source: Source, samples: Sequence[Any], options: ModelStagesOptions) -> Iterator[Trace]:
    """Export a model and run it on samples, without any on the export's inputs. Yields the trace
    with its values and its record; the files are removed at the end of the block."""
    import torch

    from etscope.bridge.lowering.export import inputs_of

    def call(sample: Any) -> Call:
        from torch.utils import _pytree as pytree

        example, given = inputs_of(source.inputs), inputs_of(sample)
        if given is None:
            return Call(options.method)
        # The program takes those by keyword in the order of the export's.
        order = () if example is None else tuple(example.kwargs)
        names = [*(name for name in order if name in given.kwargs), *given.kwargs]
        named = {name: given.kwargs[name] for name in names}
        return Call(options.method, list(pytree.tree_leaves((given.args, named))))

    options.say(f"exporting {source.name}")
    folder = Folder()
    try:
        made = source.export(options=options)
        record: Any = made.record
        # torchao's tensors are not read from a file, others can be, part by part.
        if all(
            type(weight) in (torch.Tensor, torch.nn.Parameter)
            for program in record.exported_programs.values()
            for weight in program.state_dict.values()
        ):
            record = made.save(folder.path, bundle=False)[1]
        del made
        options.say(f"running {source.name}")
        with run(
            record,
            [call(sample) for sample in samples] or None,
            method=options.method,
            iterations=1,
            warmup=0,
            separate=False,
            debug_level=INTERMEDIATE_OUTPUTS,
            isolate=options.isolate,
            timeout=options.timeout,
        ) as done:
            yield done.inspector().trace
    finally:
        folder.remove()


def narrow(
    trace: Trace,
    found: Numerics,
    *,
    inputs: Any = None,
    tolerance: float | None = None,
    is_here: bool = False,
    say: Say = lambda text: None,
    **running: Any,
) -> Narrowed | None:
    """Narrow the first wrong delegate call of a diagnosis down to a line; None if no wrong call
    covers several lines.

    trace: the run's trace, with its record; the record's exported program is lowered again. found:
        the diagnosis. inputs: the run's inputs, by default the known ones.
    is_here: True if the run was on this machine; if not, it is first repeated here without taps.
    tolerance: as for the diagnosis. say: a function that is called with a sentence on the next
        step. running: options of `etscope.run.run`, such as isolate and timeout.

    Raises `UsageError` for a backend to which this machine cannot lower, `MissingDataError` for a
    record without its exported program.
    """
    call = guilty_call(found)
    if call is None:
        return None
    record = trace.record
    if record is None:
        raise MissingDataError("narrowing needs an ETRecord", hint="give it: --etrecord")
    require("executorch.exir", wanted_by="narrowing")
    method = TracedMethod(trace, found.method)
    ran = next(one for one in method.runs if one.number == found.run)
    given = RunInputs(method, inputs).of(ran)
    delegate = method.symbols.delegates.get(call.pair.instruction)
    identifier = None if delegate is None else delegate.backend_id
    if identifier not in _BACKENDS:
        raise UsageError(
            f"a call of {identifier or 'an unknown backend'} cannot be exported again here",
            hint="export with taps (docs/how-to/numerics.md) and run that program",
        )
    search = _Search(record, found, call, _BACKENDS[identifier], given, tolerance, running, say)
    return search.narrowed(is_here)


@dataclass
class _Search:
    """A search in a call. running: options of `run`. exports, runs: their numbers. failures: why
    some of them failed."""

    record: RecordView
    found: Numerics
    call: NumericsRow
    backend: str
    inputs: Any
    tolerance: float | None
    running: Mapping[str, Any]
    say: Say
    exports: int = 0
    runs: int = 0
    failures: list[str] = field(default_factory=list)
    _programs: dict[str, Any] = field(default_factory=dict)

    def narrowed(self, is_here: bool) -> Narrowed:
        """Search until one line is left, or until no further tap can divide the remaining
        operators.
        """
        names = self._names(self.record, self.call)
        if not is_here and self._wrong((), names) is None:
            return self._result(None, (), (), vanished=False)
        if len(names) < 2:
            return self._result(self.call, (), names, vanished=False)
        runs = self.runs
        found = self._wrong(tuple(names), names)
        if found is not None:
            row, inside = found
            return self._result(row, tuple(names), inside, vanished=False)
        vanished = self.runs > runs  # else it could not be made, or run
        return self._result(*self._divided(names), vanished=vanished)

    def _divided(self, names: Sequence[str]) -> tuple[NumericsRow, tuple[str, ...], list[str]]:
        """Divide the call by taps, one more at a time, as long as the fault stays; where it does
        not, by the new one alone. Return the last wrong row, the taps, and the nodes that are
        left."""
        taps: tuple[str, ...] = ()
        row, left = self.call, list(names)
        while len(self._lines(left)) > 1:
            found = self._divided_once(taps, left)
            if found is None:
                break
            row, taps, left = found
        return row, taps, left

    def _divided_once(
        self, taps: tuple[str, ...], left: Sequence[str]
    ) -> tuple[NumericsRow, tuple[str, ...], list[str]] | None:
        names = left[:-1]
        middle = (len(names) - 1) / 2
        for name in sorted(names, key=lambda name: abs(names.index(name) - middle)):
            for tried in dict.fromkeys(((*taps, name), (name,))):
                if self.exports >= _MOST_EXPORTS:
                    return None
                found = self._wrong(tried, left)
                if found is not None and len(found[1]) < len(left):
                    return found[0], tried, found[1]
        return None

    def _result(
        self,
        row: NumericsRow | None,
        taps: Sequence[str],
        left: Sequence[str],
        *,
        vanished: bool,
    ) -> Narrowed:
        last = self._exported.calls[left[-1]] if left else None
        return Narrowed(
            call=self.call,
            row=row,
            lines=self._lines(left),
            module=common_module(self._exported.calls[name] for name in left),
            op="" if last is None else last.op,
            node="" if last is None else left[-1],
            taps=tuple(taps),
            vanished=vanished,
            exports=self.exports,
            runs=self.runs,
            failure=self.failures[0] if self.failures else None,
        )

    @cached_property
    def _exported(self) -> Graph:
        return graph_from_record(self.record, graph_name(self.record, EXPORTED, self.found.method))

    def _lines(self, names: Sequence[str]) -> tuple[SourceLine, ...]:
        return lines_of([self._exported.calls[name] for name in names])

    def _wrong(
        self, taps: Sequence[str], within: Sequence[str]
    ) -> tuple[NumericsRow, list[str]] | None:
        """Export with taps; return the wrong row that computes the fewest of some nodes, and these;
        None if no row that computes one is wrong, or no such program can be made or run."""
        from etscope.export import export

        method = self.found.method
        self.say(f"exporting and running with {len(taps)} tap{'' if len(taps) == 1 else 's'}")
        program, nested = self._program()
        self.exports += 1
        try:
            made = export(
                {method: program},
                {method: nested},
                backend=self.backend,
                taps=" or ".join(f"name:{name}" for name in taps) if taps else (),
            )
            self.runs += 1
            rows = self._diagnosed(made)
        except (ExportFailure, NumericGapError, RuntimeFailure, UsageError) as error:
            self.failures.append(error.message)
            return None
        known = set(within)
        fitting = [(row, [one for one in names if one in known]) for row, names in rows]
        fitting = [(row, names) for row, names in fitting if names]
        return min(fitting, key=lambda one: len(one[1]), default=None)

    def _diagnosed(self, made: Exported) -> list[tuple[NumericsRow, list[str]]]:
        """The wrong rows of a run of an export, with the exported nodes that they compute."""
        method = self.found.method
        with run(
            made.record,
            self.inputs,
            method=method,
            iterations=1,
            warmup=0,
            separate=False,
            debug_level=INTERMEDIATE_OUTPUTS,
            **self.running,
        ) as done:
            trace = done.inspector().trace
            asked = RunToCompare(self.found.metric.name, self.tolerance, method=method)
            numerics = numerics_of(trace, asked, costs=False)
        record = trace.record
        if record is None:
            return []
        return [(row, self._names(record, row)) for row in numerics.wrong]

    def _names(self, record: RecordView, row: NumericsRow) -> list[str]:
        """The nodes of the exported program that a row computes, in order, without those that
        quantize."""
        method = self.found.method
        edge, exported = (
            graph_from_record(record, graph_name(record, name, method)) for name in (EDGE, EXPORTED)
        )
        owners = align_graphs(exported, edge).owners
        own = {owners[path] for path in row.nodes if path in owners}
        return [
            path
            for path, node in exported.own_operators.items()
            if path in own
            and not is_quantization(node)
            and any(value.tensor is not None for value in node.outputs)
        ]

    def _program(self) -> tuple[Any, Any]:
        """The exported program, and the inputs as it takes them."""
        from etscope.bridge.lowering.subprograms import nested
        from etscope.bridge.reference.local_reference import flat_inputs
        from etscope.bridge.tensors import torch_values

        if not self._programs:
            self._programs = dict(as_etrecord(self.record).exported_programs)
        program = self._programs.get(self.found.method)
        if program is None:
            raise MissingDataError(
                f"the record has no exported program of {self.found.method!r} to export again",
                hint="etscope export writes the exported program; in a script: "
                "generate_etrecord(exported_program=)",
            )
        return program, nested(program, torch_values(flat_inputs(self.inputs)))
