"""A model, its export and a run of it on the runtime, compared stage by stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etscope.analysis.numerics.diagnose import DEFAULT_METRIC
from etscope.analysis.profile.trace import Trace
from etscope.diagnosis.numerics import RunToCompare
from etscope.diagnosis.stage_comparison import EagerModel, numeric_stages
from etscope.diagnosis.stages import NumericStages, worst_of
from etscope.errors import UsageError
from etscope.run import Call, Run, run
from etscope.run.execute import Folder
from etscope.run.job import INTERMEDIATE_OUTPUTS
from etscope.search.numerics._tap_search import narrow as narrow_call
from etscope.search.trial import read_samples
from etscope.support.optional import require

if TYPE_CHECKING:
    from etscope.bridge.lowering.export import Inputs
    from etscope.etrecord import ETRecord
    from etscope.export import Source

Say = Callable[[str], None]  # receives what is about to be done


def model_stages(
    model: Any,
    inputs: Any = None,
    *,
    samples: Sequence[Any] = (),
    float_model: Any = None,
    seed: int = 0,
    taps: str | Sequence[str] = (),
    metric: str = DEFAULT_METRIC,
    tolerance: float | None = None,
    method: str | None = None,
    narrow: bool = True,
    isolate: bool = True,
    timeout: float | None = None,
    say: Say | None = None,
    **options: Any,
) -> NumericStages:
    """Export a model, run it on the runtime with all values recorded, and compare each stage with
    the one before, from the eager model to the device.

    model: as for `etscope.export.load_model`: a name ("model.py:make"), or what it may name. It is
        exported with its own example inputs.
    inputs: of the run, as `etscope.export.export` takes them; by default the export's, and scaled
        copies of them, which reveal a constant that the export made of an input.
    samples: inputs of several runs instead, each in such a form, or a file or folder of them; of
        each operator the worst error counts.
    float_model: the model before it was quantised, for one that is given quantised.
    taps, options: as for `etscope.export.export`: backend, quantize, calibration, keep_float,
        strict.
    seed: of torch's random numbers, before a model is made.
    metric, tolerance, method: as for `Inspector.numeric_stages`.
    narrow: export a wrong delegate call again with taps, as `narrow` does. isolate: run
        each in a separate process. timeout: of each run, in seconds.
    say: called with what is about to be done.

    Raises what `load_model`, `export`, `run` and `Inspector.numeric_stages` raise.
    """
    built = build(
        model,
        inputs,
        samples=samples,
        seed=seed,
        float_model=float_model,
        options=options,
    )
    running: dict[str, Any] = {"isolate": isolate, "timeout": timeout}
    with built.ran(taps, method=method, running=running, say=say) as ran:
        if say is not None:
            say("comparing the stages")
        count = max(len(built.samples), 1)
        runs = [RunToCompare(metric, tolerance, method=method, run=at) for at in range(count)]
        eager = built.eager(method)
        found = worst_of([numeric_stages(ran.trace, one, eager) for one in runs])
        if not narrow:
            return found
        narrowed = narrow_call(
            ran.trace, found.device, tolerance=tolerance, is_here=True, say=say, **running
        )
        return replace(found, narrowed=narrowed)


@dataclass(frozen=True, slots=True, eq=False)
class Built:
    """A model that was made, and the options of its export.

    samples: inputs of the runs, as `export` takes them; none for the export's. eager_module:
    the model in float, as a module; None where there is none.
    """

    source: Source
    samples: Sequence[Any]
    float_model: Any
    eager_module: Any
    options: dict[str, Any]

    def ran(
        self,
        taps: str | Sequence[str] = (),
        *,
        method: str | None = None,
        running: Mapping[str, Any],
        say: Say | None = None,
    ) -> Ran:
        """Export the model and run it. The files are removed with the result. running: options of
        `run`."""
        if say is not None:
            say(f"exporting {self.source.name}")
        folder = Folder()
        made = self.source.export(taps=taps, float_model=self.float_model, **self.options)
        record: Any = made.record
        if _has_plain_weights(record):  # they can be read from a file, part by part
            record = made.save(folder.path, bundle=False)[1]
        del made
        if say is not None:
            say(f"running {self.source.name}")
        calls = [Call(method, flat(self._arguments(sample))) for sample in self.samples]
        done = run(
            record,
            calls or None,
            method=method,
            iterations=1,
            warmup=0,
            separate=False,
            debug_level=INTERMEDIATE_OUTPUTS,
            **running,
        )
        return Ran(done, folder)

    def _arguments(self, sample: Any) -> Inputs | None:
        """The arguments of a run, those by keyword in the order of the export's."""
        from etscope.bridge.lowering.export import Inputs, inputs_of

        example, given = inputs_of(self.source.inputs), inputs_of(sample)
        if given is None or example is None:
            return given
        names = [*(name for name in example.kwargs if name in given.kwargs), *given.kwargs]
        return Inputs(given.args, {name: given.kwargs[name] for name in names})

    def eager(self, method: str | None) -> EagerModel | None:
        """The model in float; None if it is not a module."""
        if self.eager_module is None or method not in (None, "forward"):
            return None
        return EagerModel.of(self.eager_module, self.source.inputs)


def _has_plain_weights(record: ETRecord) -> bool:
    """False if torchao's tensors are among the weights, which are not read from files."""
    import torch

    plain = (torch.Tensor, torch.nn.Parameter)
    return all(
        type(weight) in plain
        for program in record.exported_programs.values()
        for weight in program.state_dict.values()
    )


def flat(arguments: Inputs | None) -> list[Any] | None:
    """The arguments in the order of the program."""
    from torch.utils import _pytree as pytree

    if arguments is None:
        return None
    return list(pytree.tree_leaves((arguments.args, arguments.kwargs)))


@dataclass(frozen=True, eq=False)
class Ran:
    """A run of an exported model; its files are removed at the end of the block."""

    done: Run
    folder: Folder

    @cached_property
    def trace(self) -> Trace:
        """The run with its values and its record."""
        return self.done.inspector().trace

    def __enter__(self) -> Ran:
        return self

    def __exit__(self, *_: object) -> None:
        self.done.close()
        self.folder.remove()


def build(
    model: Any,
    inputs: Any,
    *,
    samples: Sequence[Any],
    seed: int,
    float_model: Any,
    options: dict[str, Any],
) -> Built:
    """Make the model, and the one before it was quantised."""
    require("torch", wanted_by="the stages of a model")
    require("executorch.exir", wanted_by="the stages of a model")
    import torch

    from etscope.export import Source, load_model

    def source_of(one: Any) -> Source:
        if isinstance(one, Source):
            return one
        if isinstance(one, (str, Path)):
            return load_model(str(one), seed=seed)
        if isinstance(one, tuple) and len(one) in (2, 3):
            return Source("", type(one[0]).__name__, *one)
        return Source("", type(one).__name__, one)

    source = source_of(model)
    plain = None if float_model is None else source_of(float_model).model
    if source.inputs is None and inputs is not None:
        source, inputs = replace(source, inputs=inputs), None
    module = source.model if plain is None else plain
    if not isinstance(module, torch.nn.Module):
        module = None
    if inputs is not None and samples:
        raise UsageError("pass inputs or samples, not both")
    given = read_samples(source, [*([] if inputs is None else [inputs]), *samples])
    if plain is not None and options.get("quantize"):
        raise UsageError(
            "float_model goes with a model that is already quantized",
            hint="with quantize, the model itself is the float model: leave out float_model",
        )
    return Built(source, given, plain, module, options)
