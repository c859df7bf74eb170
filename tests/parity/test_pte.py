"""Our reader of .pte files against ExecuTorch's own."""

from __future__ import annotations

import dataclasses
import json
import math
import zipfile
from pathlib import Path
from typing import Any

import pytest

from etscope.analysis.memory.size import savings, size_files
from etscope.analysis.program.program import instructions
from etscope.errors import MissingDataError
from etscope.formats.program import pte_schema as ours
from etscope.formats.program.pte import Program, read_pte
from etscope.formats.program.scalar_type import ScalarType
from tests.support.artifacts import ArtifactUnavailable, artifacts
from tests.support.every_artifact import every_artifact

torch = pytest.importorskip("torch")
pytest.importorskip("executorch.exir")

from executorch.exir import schema as theirs  # noqa: E402
from executorch.exir._serialize._flatbuffer_program import _program_to_flatbuffer  # noqa: E402
from executorch.exir._serialize._program import PTEFile, deserialize_pte_binary  # noqa: E402

EXPORTED = ("stack_traces", "external", "mutable_state", "scalars", "devices")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Programs with what no artefact has, by name."""
    folder = tmp_path_factory.mktemp("exported")
    programs = {
        "stack_traces": _export(_Sequence(), emit_stacktrace=True),
        "external": _export(_Sequence(), external_constants=True),
        "mutable_state": _export_mutable(),
        "scalars": _export(_Scalars()),
        "devices": _with_devices(_export(_Sequence())),
    }
    for name, data in programs.items():
        (folder / f"{name}.pte").write_bytes(data)
    return {name: folder / f"{name}.pte" for name in programs}


class _Sequence(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Linear(3, 5)
        self.second = torch.nn.Linear(5, 2)

    def forward(self, x: Any) -> Any:
        return self.second(torch.relu(self.first(x)))


class _Scalars(torch.nn.Module):
    """Arguments of every kind: texts, doubles, bools, lists, optional tensors, tensor lists."""

    def forward(self, x: Any) -> Any:
        x = torch.nn.functional.gelu(x, approximate="tanh")
        x = torch.nn.functional.pad(x, (1, 1), value=2.5)
        left, right = torch.split(x, 3, dim=1)
        joined = torch.cat([left, right + 1], dim=1)
        picked = torch.ops.aten.index.Tensor(joined, [None, torch.tensor([0, 2])])
        wide = torch.nn.functional.interpolate(joined[None, None], scale_factor=2.0)
        return picked, wide.sum(dim=(1, 2), keepdim=True), torch.clamp(x, min=-math.inf)


class _Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.arange(6.0).reshape(2, 3))

    def forward(self, x: Any) -> Any:
        self.count.add_(x)
        return self.count * 2


def _inputs(module: Any) -> tuple[Any, ...]:
    if isinstance(module, _Counter):
        return (torch.ones(2, 3),)
    return (torch.arange(6.0).reshape(2, 3),)


def _export(module: Any, **config: Any) -> bytes:
    from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge

    program = torch.export.export(module.eval(), _inputs(module))
    edge = to_edge(program, compile_config=EdgeCompileConfig(_check_ir_validity=False))
    return bytes(edge.to_executorch(ExecutorchBackendConfig(**config)).buffer)


def _export_mutable() -> bytes:
    from executorch.exir.passes import init_mutable_pass

    passes = [init_mutable_pass.InitializedMutableBufferPass(["count"])]
    return _export(_Counter(), passes=passes, emit_mutable_buffer_names=True)


def _with_devices(data: bytes) -> bytes:
    """The same program as a file without segments or header, as old ones are, on other devices."""
    program = deserialize_pte_binary(data).program
    plan = program.execution_plan[0]
    plan.non_const_buffer_device = [
        theirs.NonConstBufferDevice(1, theirs.DeviceType.CUDA, 2),
    ]
    for value in plan.values:
        if isinstance(value.val, theirs.Tensor) and value.val.data_buffer_idx == 0:
            value.val.extra_tensor_info = theirs.ExtraTensorInfo(
                fully_qualified_name="moved", device_type=theirs.DeviceType.CUDA, device_index=1
            )
    return bytes(_program_to_flatbuffer(program).data)


@pytest.fixture(scope="module", params=[*every_artifact(), *EXPORTED])
def both(request: pytest.FixtureRequest, exported: dict[str, Path]) -> tuple[Program, PTEFile]:
    """A program as we read it, and as ExecuTorch does."""
    try:
        path = exported.get(request.param) or artifacts(request.param).pte
    except ArtifactUnavailable as error:
        pytest.skip(str(error))
    return _read_both(path)


def _read_both(path: Path) -> tuple[Program, PTEFile]:
    return read_pte(path), deserialize_pte_binary(path.read_bytes())


def test_methods_are_those_that_executorch_reads(both: tuple[Program, PTEFile]) -> None:
    program, expected = both
    assert program.version == expected.program.version
    assert [method.name for method in program.methods] == [
        plan.name for plan in expected.program.execution_plan
    ]
    for method, plan in zip(program.methods, expected.program.execution_plan, strict=True):
        assert method.values == tuple(_value(value.val) for value in plan.values)
        assert (method.inputs, method.outputs) == (tuple(plan.inputs), tuple(plan.outputs))
        assert method.buffer_sizes == tuple(plan.non_const_buffer_sizes)
        assert [(one.name, one.overload) for one in method.operators] == [
            (one.name, one.overload) for one in plan.operators
        ]
        assert method.input_tree == plan.container_meta_type.encoded_inp_str
        assert method.output_tree == plan.container_meta_type.encoded_out_str
        assert len(method.chains) == len(plan.chains)
        for chain, other in zip(method.chains, plan.chains, strict=True):
            assert chain.instructions == tuple(_instruction(one) for one in other.instructions)
            assert (chain.inputs, chain.outputs) == (tuple(other.inputs), tuple(other.outputs))


def test_data_is_what_executorch_reads(both: tuple[Program, PTEFile]) -> None:
    program, expected = both
    for method, plan in zip(program.methods, expected.program.execution_plan, strict=True):
        for index, value in enumerate(plan.values):
            tensor = value.val
            if not isinstance(tensor, theirs.Tensor) or not tensor.data_buffer_idx:
                continue
            if tensor.extra_tensor_info and tensor.extra_tensor_info.location == 1:
                continue
            buffers = (
                expected.program.constant_buffer
                if tensor.allocation_info is None
                else expected.mutable_data
            )
            assert buffers is not None
            view = program.constant(method.name, index)
            assert view.shape == tuple(tensor.sizes)
            assert not view.flags.writeable
            stored = view.transpose(tensor.dim_order).tobytes()
            assert stored == buffers[tensor.data_buffer_idx].storage[: len(stored)]
            assert len(buffers[tensor.data_buffer_idx].storage) - len(stored) < 16  # padding
        for number, delegate in enumerate(plan.delegates):
            ours_ = method.delegates[number]
            blob = expected.program.backend_delegate_data[delegate.processed.index].data
            assert ours_.backend_id == delegate.id
            assert program.delegate_blob(method.name, number) == blob
            assert [(one.key, one.value) for one in ours_.compile_specs] == [
                (one.key, one.value) for one in delegate.compile_specs
            ]


def test_named_data_is_what_executorch_reads(both: tuple[Program, PTEFile]) -> None:
    program, expected = both
    store = expected.named_data
    theirs_ = (
        {}
        if store is None
        else {key: store.buffers[entry.buffer_index] for key, entry in store.pte_data.items()}
    )
    assert {one.key: bytes(program.blob(one.blob)) for one in program.named_data} == theirs_


def test_stack_traces_are_those_that_executorch_reads(exported: dict[str, Path]) -> None:
    program, expected = _read_both(exported["stack_traces"])
    traces = expected.program.execution_plan[0].chains[0].stacktrace
    assert traces
    found = program.stack_traces("forward")
    assert [[dataclasses.asdict(frame) for frame in trace] for trace in found] == [
        [dataclasses.asdict(frame) for frame in trace.items] for trace in traces
    ]
    assert any(frame.context.startswith("return self.second(torch.relu") for frame in found[0])


def test_stack_traces_take_what_a_program_without_them_lacks(exported: dict[str, Path]) -> None:
    plain = len(_export(_Sequence()))
    (found,) = size_files([exported["stack_traces"]])
    traces = sum(part.size for part in found.parts if part.detail == "stack traces")
    assert traces > 1000
    # Beside it the alignment of segments to 128 bytes, and the layouts of the traces' tables.
    assert len(found.data) - plain == pytest.approx(traces, abs=192)
    assert savings(found).table.values["change"][-1] == "no stack traces (emit_stacktrace=False)"


@pytest.mark.parametrize("name", ["cnn_xnnpack", "forward_and_extra", "transformer"])
def test_outputs_of_delegates_are_as_many_as_the_record_says(name: str) -> None:
    """The emitter counts them in the record; without one they are found by who writes what."""
    artifact = artifacts(name)
    assert artifact.etrecord is not None
    with zipfile.ZipFile(artifact.etrecord) as record:
        counts = json.loads(record.read("instruction_id_to_num_outs_map"))
    program = read_pte(artifact.pte)
    found = {
        method.name: {
            str(one.instruction_id): len(one.outputs)
            for one in instructions(program, method.name).records
            if one.kind == "delegate"
        }
        for method in program.methods
    }
    assert found == counts
    assert any(counts.values())


class _Views(torch.nn.Module):
    """Views right before delegated operations: values that no instruction writes."""

    def forward(self, x: Any) -> Any:
        first = torch.cumsum(x, 0)
        second = torch.cumsum(first, 0).view(3, 2)
        return second * second + first.view(3, 2)


class _State(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(2, 3))

    def forward(self, x: Any) -> Any:
        self.state.add_(x)
        total = torch.cumsum(x, 0)
        view = total.view(3, 2)
        return view * view + view, total * self.state


@pytest.mark.parametrize("module", [_Views, _State])
def test_outputs_of_delegates_behind_views_and_state(module: Any) -> None:
    from executorch.exir import to_edge_transform_and_lower
    from executorch.exir.backend.test.op_partitioner_demo import AddMulPartitionerDemo

    exported_program = torch.export.export(module(), (torch.ones(2, 3),))
    edge = to_edge_transform_and_lower(exported_program, partitioner=[AddMulPartitionerDemo()])
    manager = edge.to_executorch()
    found = {
        one.instruction_id: len(one.outputs)
        for one in instructions(read_pte(bytes(manager.buffer)), "forward").records
        if one.kind == "delegate"
    }
    assert found == manager.instruction_id_to_num_outs_map["forward"]
    assert found


def test_weights_beside_the_program_are_not_in_it(exported: dict[str, Path]) -> None:
    program = read_pte(exported["external"])
    weights = {
        value.name: index
        for index, value in enumerate(program.methods[0].values)
        if isinstance(value, ours.TensorValue) and value.external
    }
    assert set(weights) == {"first.weight", "first.bias", "second.weight", "second.bias"}
    with pytest.raises(
        MissingDataError, match=r"'first.weight' is in a .ptd file, not in .*external.pte"
    ):
        program.constant("forward", weights["first.weight"])


def _value(value: Any) -> ours.Value:
    """One of ExecuTorch's values as ours."""
    kind = ours.ValueKind(type(value).__name__)
    if isinstance(value, theirs.Tensor):
        return _tensor(value)
    if hasattr(value, "items"):
        return ours.ListValue(kind, tuple(value.items))
    contents = list(vars(value).values())
    plain = contents[0] if contents else None
    if isinstance(value, theirs.Double):
        plain = float(plain)
    return ours.ScalarValue(kind, plain)


def _tensor(value: Any) -> ours.TensorValue:
    place, extra = value.allocation_info, value.extra_tensor_info or theirs.ExtraTensorInfo()
    device = extra.device_type.name.lower()
    return ours.TensorValue(
        scalar_type=ScalarType(int(value.scalar_type)),
        sizes=tuple(value.sizes),
        dim_order=tuple(value.dim_order),
        dynamism=ours.ShapeDynamism(int(value.shape_dynamism)),
        data_index=value.data_buffer_idx,
        allocation=ours.Allocation(place.memory_id, place.memory_offset) if place else None,
        name=extra.fully_qualified_name,
        external=int(extra.location) == 1,
        mutable_segment=extra.mutable_data_segments_idx,
        device=device if device == "cpu" else f"{device}:{extra.device_index}",
        storage_offset=value.storage_offset,
        requires_grad=value.requires_grad,
        layout=value.layout,
    )


def _instruction(instruction: Any) -> ours.Instruction:
    match instruction.instr_args:
        case theirs.KernelCall(op_index=index, args=args):
            return ours.KernelCall(index, tuple(args))
        case theirs.DelegateCall(delegate_index=index, args=args):
            return ours.DelegateCall(index, tuple(args))
        case theirs.MoveCall(move_from=source, move_to=destination):
            return ours.MoveCall(source, destination)
        case theirs.JumpFalseCall(cond_value_index=condition, destination_instruction=to):
            return ours.JumpFalseCall(condition, to)
        case theirs.FreeCall(value_index=value):
            return ours.FreeCall(value)
    raise AssertionError(instruction)
