"""Lower PyTorch models to ExecuTorch programs, with an ETRecord and the expected outputs."""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from unittest import mock

import torch
from executorch.exir import (
    EdgeProgramManager,
    ExecutorchBackendConfig,
    ExecutorchProgramManager,
    to_edge,
    to_edge_transform_and_lower,
)
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass
from executorch.exir.program import _program
from executorch.kernels import quantized as _  # noqa: F401 - registers operators of quantization
from torch.export import ExportedProgram
from torch.export._tree_utils import reorder_kwargs
from torch.utils import _pytree as pytree

from etscope.backends import Chosen, check_options, chosen, quantizing
from etscope.backends.registry.export_options import ExportOptions, check_passes
from etscope.bridge.eager import as_it_was, state_kept
from etscope.bridge.failures import innermost, own_frame
from etscope.bridge.fx import op_name
from etscope.bridge.lowering.partition import keeping_partition
from etscope.bridge.lowering.passes import EdgePasses, rewritten
from etscope.bridge.lowering.unsupported import unsupported
from etscope.bridge.lowering.weight_quantization import (
    SCHEMES,
    WeightQuantization,
    quantized_copy,
)
from etscope.bridge.reference.reference import plain_tensors
from etscope.bridge.taps import tapped_programs, with_handles
from etscope.bridge.tensors import torch_value
from etscope.errors import (
    EtscopeWarning,
    ExportFailure,
    MissingDataError,
    MissingDependencyError,
    UsageError,
)
from etscope.formats.etrecord.own_members import MethodTaps
from etscope.formats.program.input_validation import as_exported
from etscope.model.selector import Selector
from etscope.support.stages import stage

Flat = dict[str, tuple[Any, ...]]
Programs = Mapping[str, ExportedProgram]

_NO_INPUTS_HINT = (
    "say their types and sizes, --inputs float32[1,3,224,224] for each; or give the model a method "
    "example_inputs, let the factory return (module, example_inputs), or name a file: --inputs FILE"
)


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """The arguments of one call."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


def inputs_of(value: Any) -> Inputs | None:
    """Convert example inputs in any of the forms that a user may give; None for None.

    A tuple or list holds positional ones, a dict those by keyword; anything else is the only one.
    numpy arrays become tensors.
    """
    if value is None or isinstance(value, Inputs):
        return value
    args: Any = ()
    kwargs: Any = {}
    if isinstance(value, Mapping):
        kwargs = dict(value)
    else:
        args = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    return Inputs(*pytree.tree_map(torch_value, (args, kwargs)))


def flat_inputs(program: ExportedProgram, inputs: Inputs) -> tuple[Any, ...]:
    """Return the inputs in the order of the program's own list."""
    kwargs = inputs.kwargs
    if kwargs:
        kwargs = reorder_kwargs(kwargs, program.call_spec.in_spec)
    return tuple(pytree.tree_leaves((inputs.args, kwargs)))


@dataclass(frozen=True, slots=True, eq=False)
class ModuleMethod:
    """A module that becomes a method; dynamic_shapes: as for `torch.export.export`."""

    module: torch.nn.Module
    inputs: Inputs
    dynamic_shapes: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class ModelMethods:
    """A model of several methods that are not exported yet.

    constants: methods without inputs that return a value: a number, a boolean, or a list of those.
    shared_state: buffers of the same name are one buffer for all methods.
    """

    methods: Mapping[str, ModuleMethod]
    constants: Mapping[str, Any] = field(default_factory=dict)
    shared_state: bool = False


def weights_of(options: ExportOptions) -> WeightQuantization | None:
    """The quantization of weights by torchao; None without any."""
    scheme = None if isinstance(options.quantize, bool) or options.by_backend else options.quantize
    if scheme is None and options.quantize_embeddings is None and options.group_size is None:
        return None
    return WeightQuantization(scheme, options.quantize_embeddings, options.group_size)


def check_export(options: ExportOptions) -> None:
    """Raise `UsageError` for options that contradict each other."""
    found = chosen(options.backend, options.backend_options)
    check_options(found, options.by_backend)
    check_passes(options.passes)
    _check_weights(options, found)
    if options.calibration is not None and not options.by_backend:
        raise UsageError(
            "calibration inputs are for quantization to int8 only", hint="give quantize too"
        )
    if options.keep_float and not options.by_backend:
        raise UsageError(
            "keep_float is for a quantized model; this one is float throughout",
            hint="give quantize too",
        )
    if options.keep_float and not quantizing(found).backend.keeps_float:
        raise UsageError(
            f"nothing can be kept in float for {quantizing(found).name}: its quantizer chooses "
            "the nodes itself",
            hint="leave keep_float out",
        )
    if options.float_model is not None and (options.by_backend or weights_of(options) is not None):
        raise UsageError(
            "float_model is for a model that is quantized already; with quantize, the model "
            "itself is the one in float",
            hint="leave one of them out",
        )


def _check_weights(options: ExportOptions, backends: Sequence[Chosen]) -> None:
    weights = weights_of(options)
    if weights is None:
        return
    weights.check()
    if options.by_backend:
        raise UsageError(
            f"embedding bits and group sizes are for {' and '.join(SCHEMES)}; for int8 the "
            "backend's quantizer decides",
            hint=f"give quantize={SCHEMES[0]!r}",
        )
    if weights.scheme is not None and "xnnpack" not in {one.name for one in backends}:
        raise UsageError(
            f"{weights.scheme} is for XNNPACK: no kernel of {options.backend!r} takes it",
            hint="give the backend xnnpack",
        )


class Parts(NamedTuple):
    """The result of an export: the `ExecutorchProgramManager`, and inputs and outputs flat, by
    method."""

    program: Any
    record: Any
    example_inputs: Flat
    reference_outputs: Flat


class Method(NamedTuple):
    """A method before it is lowered: the exported program, its example inputs, its outputs in
    PyTorch, and the program before it was quantized."""

    program: ExportedProgram
    inputs: Inputs
    outputs: tuple[Any, ...]
    unquantized: ExportedProgram | None = None


def export_model(
    model: Any, inputs: Any, options: ExportOptions, new_record: Callable[[], Any]
) -> Parts:
    """See `etscope.export.export`; `new_record` makes an empty `ETRecord`."""
    found = methods_of(model, inputs, options)
    if options.float_model is not None:
        found = _with_float(found, inputs, options)
    if options.passes:
        made = rewritten({name: one.program for name, one in found.items()}, options.passes)
        found = {name: one._replace(program=made[name]) for name, one in found.items()}
    methods, taps = _with_taps(found, options.taps)
    programs = {name: method.program for name, method in methods.items()}
    backends = chosen(options.backend, options.backend_options)
    lowering = Lowering(quantize=bool(options.quantize), passes=options.passes)
    if isinstance(model, ModelMethods):
        lowering = replace(lowering, constants=model.constants, shared_state=model.shared_state)
    program = lowered(programs, backends, new_record, lowering)
    record = program.get_etrecord()
    record.taps = with_handles(taps, record.edge_programs)
    floats = {name: one.unquantized for name, one in methods.items() if one.unquantized is not None}
    if floats:
        record.add_float_program(floats)
    return parts_of(program, record, methods)


def parts_of(lowered: Any, record: Any, methods: Mapping[str, Method]) -> Parts:
    """Return the result of an export; the methods' inputs and outputs are added to the record."""
    inputs = {name: flat_inputs(one.program, one.inputs) for name, one in methods.items()}
    outputs = {name: method.outputs for name, method in methods.items()}
    main = method_name(methods)
    if main == "forward" or len(methods) == 1:
        record.update_representative_inputs(list(inputs[main]))
    record.update_reference_outputs({name: [list(values)] for name, values in outputs.items()})
    return Parts(lowered, record, {k: as_exported(v) for k, v in inputs.items()}, outputs)


def method_name(methods: Mapping[str, Any], wanted: str | None = None) -> str:
    """Return the name of one of a model's methods: by default "forward", or the first.

    Raises `MissingDataError` for a method that the model does not have.
    """
    name = wanted or ("forward" if "forward" in methods else next(iter(methods)))
    if name not in methods:
        raise MissingDataError(
            f"the model has no method {name!r}", hint=f"methods are: {', '.join(methods)}"
        )
    return name


def methods_of(model: Any, inputs: Any, options: ExportOptions) -> dict[str, Method]:
    """Export and quantize the methods of a model; they are not lowered yet."""
    check_export(options)
    weights = weights_of(options)
    if weights is not None:
        if not isinstance(model, (torch.nn.Module, ModelMethods)):
            raise UsageError(
                "the weights of an exported program cannot be quantized",
                hint="give the torch.nn.Module",
            )
        with torch.no_grad():
            with stage("quantization of weights"):
                small_model = quantized_copy(model, weights)
            small = _exported_methods(small_model, inputs, options)
        floats = _exported_methods(model, inputs, options)
        return {
            name: method._replace(unquantized=floats[name].program)
            for name, method in small.items()
        }
    given = [options.keep_float] if isinstance(options.keep_float, str) else options.keep_float
    selectors = [Selector(text) for text in dict.fromkeys(given)]
    methods = _exported_methods(model, inputs, options)
    if not options.by_backend:
        return methods
    calibration = options.calibration
    rounds = None if calibration is None else [inputs_of(one) for one in calibration]
    used = quantizing(chosen(options.backend, options.backend_options))
    quantizer = used.quantizer()
    fold = used.backend.fold_quantize
    if selectors:
        from etscope.bridge.lowering.keep_float import KeepFloat

        quantizer = KeepFloat(quantizer, selectors)
    shapes = dict.fromkeys(methods, options.dynamic_shapes)
    if isinstance(model, ModelMethods):
        shapes = {name: one.dynamic_shapes for name, one in model.methods.items()}
    found = {
        name: quantized(method, quantizer, rounds, shapes[name], fold=fold)
        for name, method in methods.items()
    }
    if selectors:
        quantizer.check()
    return found


def _with_float(
    methods: Mapping[str, Method], inputs: Any, options: ExportOptions
) -> dict[str, Method]:
    """Add the programs of the model before it was quantized to the methods of a quantized model."""
    plain = replace(options, float_model=None, taps=())
    floats = methods_of(options.float_model, inputs, plain)
    for name, method in methods.items():
        if name not in floats:
            raise UsageError(
                f"the float model has no method {name!r}", hint=f"it has: {', '.join(floats)}"
            )
        one, other = (
            [getattr(value, "shape", None) for value in found.outputs]
            for found in (method, floats[name])
        )
        if one != other:
            raise UsageError(
                f"the float model is another model: the outputs of {name!r} differ in shape"
            )
    return {
        name: method._replace(unquantized=floats[name].program) for name, method in methods.items()
    }


def export_method(
    model: Any, inputs: Any, options: ExportOptions, name: str | None
) -> tuple[str, Method]:
    """Return one method of `methods_of`, with its name; see `method_name`."""
    methods = methods_of(model, inputs, options)
    name = method_name(methods, name)
    return name, methods[name]


def _exported_methods(model: Any, inputs: Any, options: ExportOptions) -> dict[str, Method]:
    if isinstance(model, torch.nn.Module):
        given = inputs_of(inputs)
        if given is None:
            takes = ", ".join(inspect.signature(model.forward).parameters)
            raise UsageError(
                f"the model has no example inputs; its forward takes ({takes})",
                hint=_NO_INPUTS_HINT,
            )
        method = ModuleMethod(model, given, options.dynamic_shapes)
        return {"forward": _from_module(method, options.strict)}
    if isinstance(model, ModelMethods):
        return {name: _from_module(one, options.strict) for name, one in model.methods.items()}
    if options.dynamic_shapes is not None:
        raise UsageError("dynamic_shapes are for a torch.nn.Module; this model is exported already")
    if isinstance(model, ExportedProgram):
        return {"forward": program_method("forward", model, inputs_of(inputs))}
    if not (
        isinstance(model, Mapping)
        and model
        and all(isinstance(program, ExportedProgram) for program in model.values())
    ):
        raise UsageError(
            f"cannot export a {type(model).__name__}",
            hint="give a torch.nn.Module, an ExportedProgram, or a dict of ExportedPrograms by "
            "method",
        )
    by_method = {} if inputs is None else inputs
    if not isinstance(by_method, Mapping) or not by_method.keys() <= model.keys():
        raise UsageError(
            "a model of several methods takes its example inputs by method",
            hint=f"give a dict with the keys {', '.join(model)}",
        )
    return {
        name: program_method(name, program, inputs_of(by_method.get(name)))
        for name, program in model.items()
    }


def _from_module(method: ModuleMethod, strict: bool | None) -> Method:
    for name, value in (*method.module.named_parameters(), *method.module.named_buffers()):
        if value.layout is not torch.strided:  # torch.export crashes, or loses the layout
            raise UsageError(
                f"{name} is a sparse tensor ({value.layout}), and ExecuTorch has dense ones only",
                hint="make the tensor dense before the export: to_dense()",
            )
    with as_it_was(method.module):
        outputs = _eager(method.module, method.inputs)
        program = _exported(method.module, method.inputs, method.dynamic_shapes, strict)
    return Method(program, method.inputs, outputs)


def program_method(name: str, program: ExportedProgram, inputs: Inputs | None) -> Method:
    """Return a program as a method, with its own example inputs unless others are given.

    Raises `UsageError` if there are none, and `ExportFailure` if it fails on them.
    """
    if inputs is None:
        if program.example_inputs is None:
            raise UsageError(f"the method {name!r} has no example inputs", hint=_NO_INPUTS_HINT)
        inputs = Inputs(*program.example_inputs)
    return Method(program, inputs, _eager(_module_of(program), inputs))


def _module_of(program: ExportedProgram) -> torch.nn.Module:
    module: torch.nn.Module = program.module()
    return module


def _eager(model: torch.nn.Module, inputs: Inputs) -> tuple[Any, ...]:
    """Return PyTorch's outputs, flat. Inputs and state stay unchanged: the device starts from them
    too."""
    for number, value in enumerate(pytree.tree_leaves((inputs.args, inputs.kwargs))):
        if isinstance(value, torch.Tensor) and next(plain_tensors(value)) is not value:
            parts = ", ".join(value.__tensor_flatten__()[0])
            raise UsageError(
                f"input {number} is a {type(value).__name__}, and a program takes plain tensors",
                hint=f"take its parts as inputs ({parts}), and put them together in forward",
            )
    args, kwargs = pytree.tree_map(copied_value, (inputs.args, inputs.kwargs))
    try:
        with stage("outputs in PyTorch"), torch.no_grad(), state_kept(model):
            outputs = model(*args, **kwargs)
            return tuple(copied_value(value) for value in pytree.tree_leaves(outputs))
    except Exception as error:
        raise ExportFailure(
            f"the model fails in PyTorch, on its example inputs: {innermost(error)}"
            f"{own_frame(error)}"
        ) from error


def copied_value(value: Any) -> Any:
    """Copy a tensor; return other values unchanged."""
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _exported(
    model: torch.nn.Module, inputs: Inputs, dynamic_shapes: Any, strict: bool | None
) -> ExportedProgram:
    """Export strictly, or non-strictly where that fails: strict export attributes operators to the
    model's own lines only."""
    try:
        return torch.export.export(
            model,
            inputs.args,
            inputs.kwargs,
            dynamic_shapes=dynamic_shapes,
            strict=strict is not False,
        )
    except Exception as error:
        failure = ExportFailure(
            f"torch.export cannot export this model: {innermost(error)}{own_frame(error)}",
            hint=_hint_of_gradients(error)
            or "see https://docs.pytorch.org/docs/stable/export.html"
            + (" or try without strict" if strict else ""),
        )
        if strict is not None:
            raise failure from error
        program = _exported(model, inputs, dynamic_shapes, False)
        warnings.warn(
            f"exported non-strictly, as strict export fails ({innermost(error, 200)}); "
            "operators may be attributed to lines inside of libraries",
            EtscopeWarning,
            stacklevel=2,
        )
        return program


# PyTorch's words for a tensor that may not be written to, or copied, as it has gradients.
_GRADIENTS = ("requires grad is being used in an in-place", "Only Tensors created explicitly by")


def _hint_of_gradients(error: BaseException) -> str | None:
    """Return the way out for a model that writes its cache while gradients are recorded; None if
    the error is about something else."""
    if not any(words in innermost(error) for words in _GRADIENTS):
        return None
    return (
        "the model writes to a tensor that is tracked for gradients: make it and export under "
        "torch.no_grad() (in a factory: torch.set_grad_enabled(False) first)"
    )


def quantized(
    method: Method,
    quantizer: Any,
    calibration: Sequence[Inputs | None] | None,
    dynamic: Any,
    *,
    fold: bool = True,
) -> Method:
    """Quantize a method with a quantizer. Its outputs then come from the quantized graph in
    PyTorch. fold: store weights in int8, not in float before a quantize node.
    """
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    if dynamic is None and method.program.range_constraints:
        raise UsageError(
            "cannot quantize an exported program with dynamic shapes: it is exported again, and "
            "the program does not keep them",
            hint="give the torch.nn.Module with dynamic_shapes",
        )
    try:
        # Quantizers run passes over the graph that do not take the call of the guards.
        module: Any = method.program.module(check_guards=False)
        with torch.no_grad(), state_kept(module):
            with stage("prepare_pt2e"):
                prepared = prepare_pt2e(module, quantizer)
            with stage("calibration"):
                for given in [method.inputs] if calibration is None else calibration:
                    if given is not None:
                        prepared(*given.args, **given.kwargs)
        with stage("convert_pt2e"):
            converted = convert_pt2e(prepared, fold_quantize=fold)
    except Exception as error:
        raise ExportFailure(f"the model cannot be quantized: {innermost(error)}") from error
    outputs = _eager(converted, method.inputs)
    program = _exported(converted, method.inputs, dynamic, strict=False)
    return Method(program, method.inputs, outputs, method.program)


def _with_taps(
    methods: Mapping[str, Method], selectors: str | Sequence[str]
) -> tuple[dict[str, Method], dict[str, MethodTaps]]:
    """Make the selected values further outputs of the methods, after the model's own."""
    given = [selectors] if isinstance(selectors, str) else list(dict.fromkeys(selectors))
    if not given:
        return dict(methods), {}
    programs, taps = tapped_programs({name: one.program for name, one in methods.items()}, given)
    tapped = dict(methods)
    for name, added in taps.items():
        method = methods[name]
        values = _eager(_module_of(programs[name]), method.inputs)
        outputs = (*method.outputs, *values[added.own_outputs :])
        tapped[name] = method._replace(program=programs[name], outputs=outputs)
    return tapped, taps


# -- lowering


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lowering:
    """Options of a lowering, other than the programs and the backends.

    quantize: the programs were quantized. passes: names; those of the exported program were
        applied. constants, shared_state: see `ModelMethods`.
    """

    quantize: bool = False
    passes: Sequence[str] = ()
    constants: Mapping[str, Any] = field(default_factory=dict)
    shared_state: bool = False


def lowered(
    programs: Programs,
    backends: Sequence[Chosen],
    new_record: Callable[[], Any],
    lowering: Lowering | None = None,
) -> ExecutorchProgramManager:
    """Lower exported programs to an ExecuTorch program with a record, which `new_record` makes.

    Raises `MissingDependencyError` for a backend whose packages are not installed, and
    `ExportFailure`.
    """
    level = logging.root.level
    lowering = lowering or Lowering()
    try:
        with recording(new_record), keeping_partition() as kept:
            parts = [part for one in backends for part in one.partitioners(lowering.quantize)]
            passes = EdgePasses(lowering.passes, parts)
            with stage("to_edge_transform_and_lower"):
                edge = edge_programs(programs, backends, passes, lowering)
            config = with_initial_state(edge)
            if lowering.shared_state:
                # One place in memory, which no method may set when it is loaded.
                planning = MemoryPlanningPass(share_mutable_buffers=True)
                config = ExecutorchBackendConfig(memory_planning_pass=planning)
            # With it, an embedding and the operator that dequantizes its weights get one kernel.
            fused = any(map(_has_quantized_embedding, programs.values()))
            config = replace(passes.backend_config(config), do_quant_fusion_and_const_prop=fused)
            program = edge.to_executorch(config)
            passes.check(program)
    except (MissingDependencyError, ExportFailure):
        raise
    except Exception as error:
        names = " and ".join(one.name for one in backends)
        why, hint = unsupported(error, programs) or (innermost(error), _hint_of_gradients(error))
        raise ExportFailure(
            f"ExecuTorch cannot lower this model to {names}: {why}", hint=hint
        ) from error
    finally:
        logging.root.setLevel(level)  # the partitioner of Vulkan sets it
    record = program.get_etrecord()
    passes.keep_in(record)
    record.partition = kept.of(edge.methods)
    return program


def _has_quantized_embedding(program: ExportedProgram) -> bool:
    return any(
        op_name(node).startswith("aten.embedding") and op_name(node.args[0]) == _DEQUANTIZE
        for node in program.graph.nodes
    )


@contextmanager
def recording(new_record: Callable[[], Any]) -> Iterator[None]:
    """Let ExecuTorch's `generate_etrecord=True` fill a record that `new_record` makes.

    That flow takes the edge program at the right time: before the partitioning, with every
    operator as a separate node, and before `to_executorch()` changes it. It makes its record with a
    function without parameters, which is replaced for a while.
    """
    with mock.patch.object(_program, "_create_empty_etrecord", new_record):
        yield


def edge_programs(
    programs: Programs, backends: Sequence[Chosen], passes: EdgePasses, lowering: Lowering
) -> EdgeProgramManager:
    """Convert to the edge dialect, rewrite the programs, and let the backends take what they
    support, one after the other; the rest runs on portable kernels."""
    constants = dict(lowering.constants) or None
    fields = {name: value for one in backends for name, value in one.backend.edge_config.items()}
    config = passes.compile_config(**fields)
    if not passes.partitioners and not passes.transforms:
        return to_edge(
            dict(programs),
            compile_config=config,
            constant_methods=constants,
            generate_etrecord=True,
        )
    return to_edge_transform_and_lower(
        dict(programs),
        transform_passes=passes.transforms or None,
        partitioner=list(passes.partitioners),
        compile_config=config,
        constant_methods=constants,
        generate_etrecord=True,
    )


_DEQUANTIZE = "torchao.dequantize_affine.default"  # of torchao's weights
_SMALL_STATE = 1 << 20  # bytes; larger buffers of zeros are caches


def with_initial_state(edge: EdgeProgramManager) -> ExecutorchBackendConfig:
    """Return export options that store the model's initial state in its program.

    By default ExecuTorch does not store the content of buffers that the model changes, because
    caches are large: such a buffer starts with whatever is in memory. Here only large buffers of
    zeros, as caches are, are left out.
    """
    names = []
    for program in (edge.exported_program(method) for method in edge.methods):
        signature = program.graph_signature
        changed = set(signature.buffers_to_mutate.values())
        for placeholder, buffer in signature.inputs_to_buffers.items():
            value = program.state_dict.get(buffer, program.constants.get(buffer))
            if buffer not in changed or value is None:
                continue
            if value.nbytes <= _SMALL_STATE or bool(value.any()):
                names.append(placeholder)
    return ExecutorchBackendConfig(passes=[InitializedMutableBufferPass(names)] if names else [])
