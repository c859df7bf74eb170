"""Values inside of delegates' calls, as backends log them that do not run here.

The programs are lowered by the backends' own code; paths are of pytorch/executorch. Of QNN the SDK
is missing, which checks operators and compiles the graph: see `_Manager`. PyTorch computes what the
device would, with its quantisation, and the values are logged in the shape in which the C++ does.
"""

from __future__ import annotations

import contextlib
import copy
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from etscope.analysis.program.program import instructions
from etscope.formats.etdump.writer import ETDumpWriter
from etscope.formats.program.pte import Program, read_pte

# Changes what the device computes: takes (arguments, value) of a node, and returns its value.
Fault = Callable[[Sequence[Any], torch.Tensor], torch.Tensor]
Logged = tuple[str, np.ndarray[Any, Any]]


@dataclass
class LoweredModel:
    """A model that was lowered to a backend. calls: by the name of the lowered module, the function
    that computes its call: takes the inputs and the faults by node, and returns the outputs and the
    values that the backend logs."""

    model: torch.nn.Module
    inputs: tuple[torch.Tensor, ...]
    edge: Any
    program: bytes
    record: Any
    calls: Mapping[str, Callable[..., tuple[list[Any], list[Logged]]]]
    logged: list[Logged] = field(default_factory=list)

    def save(self, folder: Path) -> None:
        """Write model.pte and model.etrecord, as upstream's code writes them."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.pte").write_bytes(self.program)
        self.record.update_representative_inputs(list(self.inputs))
        self.record.save(str(folder / "model.etrecord"))

    @torch.no_grad()
    def run(
        self,
        folder: Path,
        *,
        faults: Mapping[str, Fault] | None = None,
        inner: bool = True,
        change: Callable[[list[Logged]], list[Logged]] = lambda logged: logged,
    ) -> None:
        """Write run.etdp and debug.bin of one run. inner: whether the backend logs its values.
        change: of what it logs."""
        writer = ETDumpWriter()
        writer.create_event_block("Execute")
        order = iter(_computing(read_pte(self.program)))
        graph_module = self.edge.graph_module
        values: dict[str, Any] = dict(_placeholders(self.edge, self.inputs))
        for node in graph_module.graph.nodes:
            if node.op == "get_attr":
                values[node.name] = node.target
            if node.op != "call_function":
                continue
            args = _map_args(node.args, values)
            if node.target is operator.getitem:
                values[node.name] = args[0][args[1]]
            elif "call_delegate" in str(node.target):
                outputs, logged = self.calls[args[0]](args[1:], faults or {})
                place = {"chain_index": 0, "instruction_id": next(order)}
                self.logged = change(logged)
                for name, array in self.logged if inner else ():
                    writer.log_intermediate_output_delegate(name, array, **place)
                # As runtime/executor/method.cpp does after a call.
                for value in (*args[1:], *outputs):
                    writer.log_evalue(value, **place)
                writer.log_profiling("DELEGATE_CALL", 0, 10, **place)
                values[node.name] = outputs
            else:
                value = node.target(*args, **_map_args(node.kwargs, values))
                place = {"chain_index": 0, "instruction_id": next(order)}
                writer.log_evalue(value, **place)
                name = str(node.target).rpartition("aten.")[2].partition(".")[0]
                writer.log_profiling(f"native_call_{name}.out", 0, 10, **place)
                values[node.name] = value
        (output,) = (n for n in graph_module.graph.nodes if n.op == "output")
        for value in output.args[0]:
            writer.log_evalue(values[value.name], output=True)
        writer.log_profiling("Method::execute", 0, 100)
        (folder / "run.etdp").write_bytes(writer.finish())
        (folder / "debug.bin").write_bytes(writer.debug_data)


def _computing(program: Program) -> Iterator[int]:
    for record in instructions(program, "forward").records:
        if record.kind in ("kernel", "delegate"):
            yield record.instruction_id


def _placeholders(program: Any, inputs: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """The value of each placeholder: weights by the signature, and the inputs in order."""
    signature = program.graph_signature
    names = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    given = iter(inputs)
    for node in program.graph_module.graph.nodes:
        if node.op == "placeholder":
            name = names.get(node.name)
            if name is None:
                yield node.name, next(given)
            else:
                weights = {**program.constants, **program.state_dict}
                yield node.name, weights[name]


def _map_args(args: Any, values: Mapping[str, Any]) -> Any:
    def value(node: Any) -> Any:
        return values[node.name]

    return torch.fx.node.map_arg(args, value)


# -- QNN


class _Manager:
    """Stands for `PyQnnManager.QnnManager` of the SDK, with `dump_intermediate_outputs`: any
    operator is supported, and the compiled graph is of no interest."""

    def IsTensorDump(self) -> bool:
        return True

    def IsNodeSupportedByBackend(self, operators: Sequence[Any]) -> bool:
        return True

    def GetGraphNames(self) -> list[str]:
        return ["forward"]

    def Compile(self, names: Sequence[str], operators: Sequence[Any]) -> bytes:
        return b"context binary"

    def InitContext(self, names: Sequence[str]) -> None:
        pass

    def DestroyContext(self) -> None:
        pass


@contextlib.contextmanager
def _without_sdk(programs: list[Any]) -> Iterator[None]:
    """Run QNN's ahead-of-time half without its SDK. programs: takes what each partition becomes."""
    from executorch.backends.qualcomm import qnn_preprocess
    from executorch.backends.qualcomm.partition import qnn_partitioner
    from executorch.backends.qualcomm.utils import utils

    build = qnn_preprocess.QnnBackend._build_op_wrappers

    def noted(program: Any, *options: Any) -> Any:
        built = build(program, *options)
        programs.append(program)
        return built

    manager = _Manager()
    with (
        mock.patch.object(qnn_preprocess, "get_current_qnn_manager", lambda *_: manager),
        mock.patch.object(qnn_partitioner, "get_current_qnn_manager", lambda *_: manager),
        mock.patch.object(utils, "QnnManagerContext", lambda _: contextlib.nullcontext()),
        mock.patch.object(utils, "setup_qnn_sdk", lambda: None),
        mock.patch.object(qnn_preprocess.QnnBackend, "_build_op_wrappers", staticmethod(noted)),
    ):
        yield


def lower_to_qnn(
    model: torch.nn.Module,
    inputs: tuple[torch.Tensor, ...],
    *,
    quantize: str | None = "use_8a8w",
    keep: Sequence[str] = (),
) -> LoweredModel:
    """Lower a model by `to_edge_transform_and_lower_to_qnn` of backends/qualcomm/utils/utils.py, as
    `build_executorch_binary` does. quantize: a `QuantDtype`; None for float. keep: operators that
    stay outside of QNN."""
    from executorch.backends.qualcomm.utils import qnn_sdk_setup

    with mock.patch.object(qnn_sdk_setup, "setup_qnn_sdk", lambda: None):
        from executorch.backends.qualcomm.quantizer.quantizer import QnnQuantizer, QuantDtype
        from executorch.backends.qualcomm.serialization.qc_schema import (
            QcomChipset,
            QnnExecuTorchBackendType,
        )
        from executorch.backends.qualcomm.utils.utils import (
            generate_htp_compiler_spec,
            generate_qnn_executorch_compiler_spec,
            to_edge_transform_and_lower_to_qnn,
        )

        lowered: torch.nn.Module = model
        if quantize is not None:
            from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

            quantizer = QnnQuantizer(
                backend=QnnExecuTorchBackendType.kHtpBackend, soc_model=QcomChipset.SM8650
            )
            quantizer.set_default_quant_config(
                getattr(QuantDtype, quantize), is_conv_per_channel=True
            )
            captured = torch.export.export(model, inputs, strict=False).module()
            prepared = prepare_pt2e(captured, quantizer)
            prepared(*inputs)
            lowered = convert_pt2e(prepared)
        spec = generate_qnn_executorch_compiler_spec(
            soc_model=QcomChipset.SM8650,
            backend_options=generate_htp_compiler_spec(use_fp16=quantize is None),
            dump_intermediate_outputs=True,
        )
        programs: list[Any] = []
        with _without_sdk(programs):
            manager = to_edge_transform_and_lower_to_qnn(
                lowered, inputs, spec, skip_node_op_set=set(keep), generate_etrecord=True
            )
    edge = copy.deepcopy(manager.exported_program())  # which the next step changes
    executorch = manager.to_executorch()
    calls = {
        f"lowered_module_{number}": _QnnCall(program) for number, program in enumerate(programs)
    }
    return LoweredModel(
        model, inputs, edge, bytes(executorch.buffer), executorch.get_etrecord(), calls
    )


@dataclass
class _QnnCall:
    """A partition as QNN runs it. program: after `transform_for_preprocess_pipeline` of
    backends/qualcomm/_passes/qnn_pass_manager.py, with the names of tensors in its nodes."""

    program: Any

    def __call__(
        self, inputs: Sequence[torch.Tensor], faults: Mapping[str, Fault]
    ) -> tuple[list[torch.Tensor], list[Logged]]:
        values: dict[str, Any] = {}
        logged: list[Logged] = []
        random = torch.Generator().manual_seed(0)
        graph = self.program.graph_module.graph
        given = dict(_placeholders(self.program, inputs))
        for node in graph.nodes:
            if node.op == "placeholder":
                values[node.name] = self._weight(node, given[node.name])
            elif node.op == "call_function":
                value = self._value(node, values, faults)
                codes = None
                if node.meta.get("quant_attrs") and isinstance(value, torch.Tensor):
                    codes, value = _quantized(value, node.meta["quant_attrs"], random)
                values[node.name] = value
                names = node.meta.get("qnn_tensor_name", {})
                if isinstance(value, torch.Tensor) and len(names) == 1:
                    held = value if codes is None else codes
                    logged.append((next(iter(names.values())), _as_logged(held, node)))
        (output,) = (node for node in graph.nodes if node.op == "output")
        return [values[node.name] for node in output.args[0]], logged

    @staticmethod
    def _weight(node: Any, value: torch.Tensor) -> torch.Tensor:
        """The numbers of a weight, whose operator that dequantises `FoldQDQ` has removed."""
        attrs = node.meta.get("quant_attrs")
        if not attrs or value.is_floating_point():
            return value
        scale, zero = attrs.get("scale"), attrs.get("zero_point")
        if scale is None:
            shape = [1] * value.dim()
            shape[attrs["axis"]] = -1
            scale, zero = attrs["scales"].reshape(shape), attrs["zero_points"].reshape(shape)
        return ((value.double() - zero) * scale).float()

    @staticmethod
    def _value(node: Any, values: Mapping[str, Any], faults: Mapping[str, Fault]) -> Any:
        args = _map_args(node.args, values)
        name = getattr(node.target, "__name__", "")
        if node.meta.get("qnn_permute") or "quantize_per_tensor" in name:
            return args[0]  # an order of dimensions, or codes, and the same numbers
        value = node.target(*args, **_map_args(node.kwargs, values))
        return faults[node.name](args, value) if node.name in faults else value


def _quantized(
    value: torch.Tensor, attrs: Mapping[str, Any], random: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """The codes of a value (`get_quant_encoding_conf` of builders/node_visitor.py), and the numbers
    that they stand for. The result of fixed-point arithmetic is up to a quarter of a step off
    before it is rounded."""
    low, high, zero = attrs["quant_min"], attrs["quant_max"], attrs["zero_point"]
    steps = value.double() / attrs["scale"] + zero
    steps += 0.5 * torch.rand(steps.shape, generator=random, dtype=torch.float64) - 0.25
    codes = steps.round().clamp(low, high)
    sign, bits = ("u" if low >= 0 else ""), next((b for b in (8, 16) if high - low < 1 << b), 32)
    dtype = getattr(torch, f"{sign}int{bits}" if bits < 32 else "int32")
    return codes.to(dtype), ((codes - zero) * attrs["scale"]).float()


def _as_logged(value: torch.Tensor, node: Any) -> np.ndarray[Any, Any]:
    """A tensor in QNN's order of dimensions (`get_tensor` of builders/node_visitor.py), in the type
    that `qnn_dtype_to_scalar_type_` of runtime/QnnManager.h has for its own: bytes for others, as
    many as there are elements."""
    order = node.meta.get("axis_order")
    if node.meta.get("qnn_permute"):
        order = node.args[1] if node.args[1][-1] == 1 else None
    if order is not None and value.dim() > 1:
        value = value.permute(order)
    array = value.reshape(1) if value.dim() == 0 else value
    numbers: np.ndarray[Any, Any] = array.detach().contiguous().numpy()
    if numbers.dtype.name not in ("int32", "float32", "int8", "int16", "uint8", "uint16"):
        numbers = np.frombuffer(numbers.tobytes(), np.uint8)[: numbers.size].reshape(numbers.shape)
    return np.ascontiguousarray(numbers)


# -- Vulkan


def lower_to_vulkan(
    model: torch.nn.Module, inputs: tuple[torch.Tensor, ...], *, in_halves: bool = False
) -> LoweredModel:
    """Lower a model by `VulkanPartitioner`, which runs here. Vulkan logs no values of its own.
    in_halves: the device computes in float16, as with the option `force_fp16`."""
    from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
    from executorch.backends.vulkan.vulkan_preprocess import VulkanBackend
    from executorch.exir import to_edge_transform_and_lower

    programs: list[Any] = []
    preprocess = VulkanBackend.preprocess

    def noted(cls: Any, program: Any, specs: Any) -> Any:
        programs.append(copy.deepcopy(program))
        return preprocess(program, specs)

    with mock.patch.object(VulkanBackend, "preprocess", classmethod(noted)):
        manager = to_edge_transform_and_lower(
            torch.export.export(model, inputs),
            partitioner=[VulkanPartitioner()],
            generate_etrecord=True,
        )
    edge = copy.deepcopy(manager.exported_program())
    executorch = manager.to_executorch()
    calls = {
        f"lowered_module_{number}": _PlainCall(program, in_halves)
        for number, program in enumerate(programs)
    }
    record = executorch.get_etrecord()
    return LoweredModel(model, inputs, edge, bytes(executorch.buffer), record, calls)


@dataclass
class _PlainCall:
    """A partition as PyTorch runs it, without values of its own."""

    program: Any
    in_halves: bool

    def __call__(
        self, inputs: Sequence[torch.Tensor], faults: Mapping[str, Fault]
    ) -> tuple[list[torch.Tensor], list[Logged]]:
        given = dict(_placeholders(self.program, inputs))
        values: dict[str, Any] = {}
        graph = self.program.graph_module.graph
        for node in graph.nodes:
            if node.op == "placeholder":
                values[node.name] = given[node.name]
            elif node.op == "call_function":
                args = _map_args(node.args, values)
                value = node.target(*args, **_map_args(node.kwargs, values))
                values[node.name] = faults[node.name](args, value) if node.name in faults else value
            if self.in_halves and node.name in values:
                values[node.name] = _as_half(values[node.name])
        (output,) = (node for node in graph.nodes if node.op == "output")
        return [values[node.name] for node in output.args[0]], []


# -- Core ML


def lower_to_coreml(
    model: torch.nn.Module, inputs: tuple[torch.Tensor, ...], *, keep: Sequence[str] = ()
) -> LoweredModel:
    """Lower a model by `CoreMLPartitioner` and coremltools, which both run here. keep: operators
    that stay outside of Core ML, as "aten.mean.dim"."""
    from executorch.backends.apple.coreml.compiler import coreml_preprocess
    from executorch.backends.apple.coreml.partition import CoreMLPartitioner
    from executorch.exir import to_edge_transform_and_lower

    convert = coreml_preprocess.CoreMLBackend._convert_to_mlmodel
    converted: list[tuple[Any, Any]] = []

    def noted(program: Any, specs: Any, **options: Any) -> Any:
        found = convert(program, specs, **options)
        converted.append((program, found))
        return found

    with mock.patch.object(
        coreml_preprocess.CoreMLBackend, "_convert_to_mlmodel", staticmethod(noted)
    ):
        manager = to_edge_transform_and_lower(
            torch.export.export(model, inputs),
            partitioner=[CoreMLPartitioner(skip_ops_for_coreml_delegation=list(keep))],
            generate_etrecord=True,
        )
    edge = copy.deepcopy(manager.exported_program())
    executorch = manager.to_executorch()
    record = executorch.get_etrecord()
    maps = [entry["delegate_map"] for entry in record._delegate_map["forward"].values()]
    calls = {
        f"lowered_module_{number}": _CoreMLCall(program, mlmodel, handles)
        for number, ((program, mlmodel), handles) in enumerate(zip(converted, maps, strict=True))
    }
    return LoweredModel(model, inputs, edge, bytes(executorch.buffer), record, calls)


@dataclass
class _CoreMLCall:
    """A partition as Core ML runs it, in float16. handles: debug handles of each symbol."""

    program: Any
    mlmodel: Any
    handles: Mapping[str, Sequence[int]]

    def __call__(
        self, inputs: Sequence[torch.Tensor], faults: Mapping[str, Fault]
    ) -> tuple[list[torch.Tensor], list[Logged]]:
        values: dict[str, Any] = {}
        last: dict[int, Any] = {}
        given = dict(_placeholders(self.program, inputs))
        graph = self.program.graph_module.graph
        for node in graph.nodes:
            if node.op == "placeholder":
                values[node.name] = _as_half(given[node.name])
            elif node.op == "call_function":
                args = _map_args(node.args, values)
                value = node.target(*args, **_map_args(node.kwargs, values))
                if node.name in faults and isinstance(value, tuple):
                    value = (faults[node.name](args, value[0]), *value[1:])
                elif node.name in faults:
                    value = faults[node.name](args, value)
                values[node.name] = last[node.meta["debug_handle"]] = _as_half(value)
        (output,) = (node for node in graph.nodes if node.op == "output")
        return [values[node.name] for node in output.args[0]], list(self._logged(last))

    def _logged(self, last: Mapping[int, Any]) -> Iterator[Logged]:
        """The outputs of the last operator of each debug handle, as
        `get_operation_path_to_debug_symbol_map` of runtime/sdk/ETCoreMLModelDebugger.mm finds them.
        A float16 is widened, and of the integers there is int32 alone: runtime/sdk/
        model_event_logger_impl.mm."""
        operations = {
            f"{operation.outputs[0].name}:{operation.op_type}": operation
            for operation in self.mlmodel._mil_program.functions["main"].operations
        }
        by_handle: dict[int, list[str]] = {}
        for symbol, handles in self.handles.items():
            for handle in handles:
                by_handle.setdefault(handle, []).append(symbol)
        for handle, symbols in by_handle.items():
            known = {name: operations[name] for name in symbols if name in operations}
            read = {
                value.name
                for operation in known.values()
                for given in operation.inputs.values()
                for value in (given if isinstance(given, (list, tuple)) else [given])
                if hasattr(value, "name")
            }
            ends = [
                name
                for name, one in known.items()
                if one.outputs[0].name not in read and one.op_type != "const"
            ]
            value = last.get(handle)
            value = value[0] if isinstance(value, tuple) else value
            if isinstance(value, torch.Tensor) and ends and value.dtype != torch.bool:
                array = value.float() if value.is_floating_point() else value.int()
                shape = known[ends[0]].outputs[0].shape
                yield ends[0], np.ascontiguousarray(array.detach().numpy().reshape(shape))


def _as_half(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.half().float()
    return value
