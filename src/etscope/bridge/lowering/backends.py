"""The ways from exported programs to programs of the edge dialect that ExecuTorch can emit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

from executorch.exir import (
    EdgeProgramManager,
    ExecutorchBackendConfig,
    to_edge,
    to_edge_transform_and_lower,
)
from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass
from executorch.exir.program import _program
from torch.export import ExportedProgram

Programs = Mapping[str, ExportedProgram]


@contextmanager
def recording(new_record: Callable[[], Any]) -> Iterator[None]:
    """Within it, ExecuTorch's `generate_etrecord=True` fills a record that `new_record` makes.

    That flow takes the edge program at the right time: before the partitioning, with every
    operator a node of its own, and before `to_executorch()` changes it. It makes its record by a
    function without parameters, which is exchanged for the time being.
    """
    with mock.patch.object(_program, "_create_empty_etrecord", new_record):
        yield


def portable(programs: Programs) -> EdgeProgramManager:
    """No delegate: every operator runs on a portable kernel."""
    return to_edge(dict(programs), generate_etrecord=True)


def xnnpack(programs: Programs) -> EdgeProgramManager:
    """What XNNPACK takes is delegated, the rest stays on portable kernels."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

    return to_edge_transform_and_lower(
        dict(programs), partitioner=[XnnpackPartitioner()], generate_etrecord=True
    )


def xnnpack_quantizer() -> Any:
    """Symmetric int8 for weights (per channel) and activations, fixed by calibration."""
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer as xq

    config = xq.get_symmetric_quantization_config(is_per_channel=True)
    quantizer = xq.XNNPACKQuantizer().set_global(config)
    # It looks for convolutions with a batch norm in training, too, which takes it most of its time.
    quantizer.SUPPORTED_PATTERNS = [one for one in quantizer.SUPPORTED_PATTERNS if not one.is_qat]
    return quantizer


_SMALL_STATE = 1 << 20  # bytes


def with_initial_state(edge: EdgeProgramManager) -> ExecutorchBackendConfig:
    """Options that put the state a model starts from into its program.

    ExecuTorch leaves it out of buffers that the model changes, for the sake of large caches: they
    start from what is in memory. Only large buffers of zeros, as caches are, stay out here.
    """
    programs = [edge.exported_program(method) for method in edge.methods]
    names = [name for program in programs for name in _states_to_store(program)]
    return ExecutorchBackendConfig(passes=[InitializedMutableBufferPass(names)] if names else [])


def _states_to_store(program: ExportedProgram) -> Iterator[str]:
    signature = program.graph_signature
    changed = set(signature.buffers_to_mutate.values())
    for placeholder, buffer in signature.inputs_to_buffers.items():
        value = program.state_dict.get(buffer, program.constants.get(buffer))
        if buffer not in changed or value is None:
            continue
        if value.nbytes <= _SMALL_STATE or bool(value.any()):
            yield placeholder


BACKENDS: Mapping[str, Callable[[Programs], EdgeProgramManager]] = {
    "portable": portable,
    "xnnpack": xnnpack,
}
QUANTIZERS: Mapping[str, Callable[[], Any]] = {"xnnpack": xnnpack_quantizer}
