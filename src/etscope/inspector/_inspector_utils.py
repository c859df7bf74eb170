"""Upstream's `executorch.devtools.inspector._inspector_utils`, which scripts import `TimeScale` and
the like from: other names for what etscope has elsewhere.

torch is imported where a function gives tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from etscope.analysis.metrics import measure
from etscope.analysis.program.correlate import EDGE_GRAPH
from etscope.debug_format.base_schema import OperatorGraph, OperatorNode
from etscope.debug_format.et_schema import FXOperatorGraph
from etscope.errors import UsageError
from etscope.etdump.schema_flatcc import (
    DebugEvent,
    ETDumpFlatCC,
    ProfileEvent,
    Tensor,
    Value,
    ValueType,
)
from etscope.etdump.schema_flatcc import Event as DumpEvent
from etscope.etdump.serialize import deserialize_from_etdump_flatcc
from etscope.formats.etdump.debug_values import DebugBuffer, TensorRef
from etscope.inspector._display import draw_metric, show_frame
from etscope.inspector._event_signatures import is_debug_output
from etscope.inspector._inspector import HIDDEN_EVENT, NOT_PRINTED, compare_results
from etscope.model.event_table import FRAMEWORK_EVENTS
from etscope.model.events import InferenceOutput, ProgramOutput
from etscope.support.optional import require
from etscope.units import TimeScale, scale_factor

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "EDGE_DIALECT_GRAPH_KEY",
    "EXCLUDED_COLUMNS_WHEN_PRINTING",
    "EXCLUDED_EVENTS_FOR_INTERMEDIATE_OUTPUT",
    "EXCLUDED_EVENTS_WHEN_PRINTING",
    "FORWARD",
    "RESERVED_FRAMEWORK_EVENT_NAMES",
    "TIME_SCALE_DICT",
    "DebugHandle",
    "InferenceOutput",
    "NodeFilter",
    "ProgramOutput",
    "TimeScale",
    "calculate_cosine_similarity",
    "calculate_mse",
    "calculate_snr",
    "calculate_time_scale_factor",
    "compare_results",
    "convert_to_float_tensor",
    "create_debug_handle_to_op_node_mapping",
    "display_or_print_df",
    "find_op_names",
    "find_populated_event",
    "gen_etdump_object",
    "gen_graphs_from_etrecord",
    "get_ancestor_node_identifiers",
    "get_aot_debug_handle_to_op_name_mapping",
    "get_parent_node_identifier",
    "inflate_runtime_output",
    "is_debug_output",
    "is_inference_output_equal",
    "merge_runtime_overlapping_debug_handles",
    "plot_metric",
    "propagate_back_debug_handle",
]

FORWARD = "forward"
_UNSET = 0
EDGE_DIALECT_GRAPH_KEY = EDGE_GRAPH
RESERVED_FRAMEWORK_EVENT_NAMES = list(FRAMEWORK_EVENTS)
EXCLUDED_COLUMNS_WHEN_PRINTING = NOT_PRINTED
EXCLUDED_EVENTS_WHEN_PRINTING = {HIDDEN_EVENT}
EXCLUDED_EVENTS_FOR_INTERMEDIATE_OUTPUT = {HIDDEN_EVENT}
TIME_SCALE_DICT = {
    TimeScale.NS: 1_000_000_000,
    TimeScale.US: 1_000_000,
    TimeScale.MS: 1000,
    TimeScale.S: 1,
    TimeScale.CYCLES: 1,
}
DebugHandle = tuple[int, ...]


@dataclass
class NodeFilter:
    """Picks the nodes of an fx graph with some metadata and kind, except those with a name that
    contains one of `exclude_ops`."""

    metadata_key: str
    op_type: str
    exclude_ops: Sequence[str] | None = None

    def matches(self, node: Any) -> bool:
        return (
            node.meta.get(self.metadata_key) is not None
            and node.op == self.op_type
            and not any(excluded in node.name for excluded in self.exclude_ops or ())
        )


# --- dumps


def gen_etdump_object(
    etdump_path: str | None = None, etdump_data: bytes | None = None
) -> ETDumpFlatCC:
    """Read a dump, of a file or of its bytes, as objects. Raises `UsageError` without either,
    `FormatError` for a damaged one."""
    if etdump_data is None:
        if etdump_path is None:
            raise UsageError("give a dump: etdump_path or etdump_data")
        etdump_data = Path(etdump_path).read_bytes()
    return deserialize_from_etdump_flatcc(etdump_data)


def find_populated_event(event: DumpEvent) -> ProfileEvent | DebugEvent:
    """The profile or debug event of an event. Raises `UsageError` for one that has neither."""
    found = event.debug_event if event.profile_event is None else event.profile_event
    if found is None:
        raise UsageError("this event is an allocation: it has no profile and no debug event")
    return found


def inflate_runtime_output(value: Value, output_buffer: bytes | None) -> InferenceOutput:
    """The content of a logged value: a number, a torch tensor, or a list of tensors.

    output_buffer: the debug buffer; without it a tensor is None. Raises `UsageError` for a value
    without content, `FormatError` for a tensor that is not in the buffer.
    """
    fields: dict[str, Any] = {
        ValueType.INT.value: value.int_value and value.int_value.int_val,
        ValueType.BOOL.value: value.bool_value and value.bool_value.bool_val,
        ValueType.FLOAT.value: value.float_value and value.float_value.float_val,
        ValueType.DOUBLE.value: value.double_value and value.double_value.double_val,
        ValueType.TENSOR.value: value.tensor,
        ValueType.TENSOR_LIST.value: value.tensor_list,
    }
    if value.val not in fields:
        return None
    content = fields[value.val]
    if content is None:
        raise UsageError(f"a value of type {value.val} has no content")
    if value.val == ValueType.TENSOR.value:
        return _tensor(content, output_buffer)
    if value.val == ValueType.TENSOR_LIST.value:
        return [_tensor(tensor, output_buffer) for tensor in content.tensors]
    return content


def _tensor(tensor: Tensor, output_buffer: bytes | None) -> Any:
    from etscope.bridge.tensors import tensor_from_numpy

    if output_buffer is None:
        return None
    ref = TensorRef(
        tensor.scalar_type, tuple(tensor.sizes), tuple(tensor.strides), tensor.offset or 0
    )
    return tensor_from_numpy(DebugBuffer.open(output_buffer).tensor(ref))


# --- graphs


def gen_graphs_from_etrecord(
    etrecord: Any, enable_module_hierarchy: bool = False
) -> Mapping[str, OperatorGraph]:
    """The graphs of a record by their names; the edge program's is `EDGE_DIALECT_GRAPH_KEY`."""
    programs = dict(etrecord.graph_map or {})
    if etrecord.edge_dialect_program is not None:
        programs[EDGE_DIALECT_GRAPH_KEY] = etrecord.edge_dialect_program
    return {
        name: FXOperatorGraph.gen_operator_graph(
            program.graph_module, enable_module_hierarchy=enable_module_hierarchy
        )
        for name, program in programs.items()
    }


def create_debug_handle_to_op_node_mapping(
    op_graph: OperatorGraph,
) -> dict[int, list[OperatorNode]]:
    """The operators of a graph and of its groups by debug handle."""
    found: dict[int, list[OperatorNode]] = {}
    for element in op_graph.elements:
        if isinstance(element, OperatorGraph):
            for handle, nodes in create_debug_handle_to_op_node_mapping(element).items():
                found.setdefault(handle, []).extend(nodes)
        elif isinstance(element, OperatorNode):
            own_handle = (element.metadata or {}).get("debug_handle")
            if own_handle is not None:
                found.setdefault(own_handle, []).append(element)
    return found


def get_aot_debug_handle_to_op_name_mapping(graph_module: Any) -> dict[DebugHandle, list[str]]:
    """The names of the calls in an fx graph by debug handle; `getitem` is left out."""
    calls = NodeFilter("debug_handle", "call_function", exclude_ops=["getitem"])
    found: dict[DebugHandle, list[str]] = {}
    for node in filter(calls.matches, graph_module.graph.nodes):
        found.setdefault(as_debug_handle(node.meta["debug_handle"]), []).append(node.name)
    return found


def as_debug_handle(handle: int | Sequence[int]) -> DebugHandle:
    """A node's handle, or several, as a tuple."""
    return (handle,) if isinstance(handle, int) else tuple(handle)


def find_op_names(
    target_debug_handle: DebugHandle, debug_handle_to_op_names: Mapping[DebugHandle, list[str]]
) -> list[str]:
    """Return the operators with all handles among `target_debug_handle`."""
    target = set(target_debug_handle)
    return [
        name
        for handles, names in debug_handle_to_op_names.items()
        if target.issuperset(handles)
        for name in names
    ]


def merge_runtime_overlapping_debug_handles(
    runtime_intermediate_outputs: Mapping[DebugHandle, tuple[int, Any, int]],
) -> dict[DebugHandle, tuple[int, Any, int]]:
    """Join values that share a debug handle: the value of the later instruction, with the handles
    of both, the earlier one's first.

    runtime_intermediate_outputs: handles -> (instruction id, value, number of outputs).
    """
    merged: dict[DebugHandle, tuple[int, Any, int]] = {}
    for handles, value in runtime_intermediate_outputs.items():
        joined, latest = handles, value
        for other in [known for known in merged if not set(known).isdisjoint(handles)]:
            other_value = merged.pop(other)
            if other_value[0] < value[0]:
                first, last = other, joined
            else:
                first, last, latest = joined, other, other_value
            last = tuple(dict.fromkeys(last))
            joined = (*(one for one in first if one not in last), *last)
        merged[joined] = latest
    return merged


def get_ancestor_node_identifiers(node: Any) -> list[str]:
    """The nodes that an fx node came from, nearest first, as "name.id of the graph"."""
    found = []
    chain = node.meta.get("from_node")
    while chain:
        found.append(f"{chain[-1].name}.{chain[-1].graph_id}")
        chain = chain[-1].from_node
    return found


def get_parent_node_identifier(node: Any) -> str | None:
    """The nearest of `get_ancestor_node_identifiers`, None if there is none."""
    return next(iter(get_ancestor_node_identifiers(node)), None)


def propagate_back_debug_handle(
    exported_program: Any,
    exported_program_graph_id: int,
    edge_dialect_program: Any,
    disable_debug_handle_valdiation: bool = False,
) -> bool:
    """Give each node of an exported program the debug handle of the edge nodes that came from it,
    or 0.

    exported_program_graph_id: id of the exported graph when the edge program was made of it.
    Returns False, and changes nothing, when an edge node came from none, unless the validation is
    disabled.
    """
    of_ancestor: dict[str, int] = {}
    edge_handles = set()
    for node in _computing(edge_dialect_program):
        handle = node.meta["debug_handle"]
        edge_handles.add(handle)
        of_ancestor.update(dict.fromkeys(get_ancestor_node_identifiers(node), handle))
    found = {}
    for node in _computing(exported_program):
        names = [f"{node.name}.{exported_program_graph_id}", *get_ancestor_node_identifiers(node)]
        found[node] = next((of_ancestor[name] for name in names if name in of_ancestor), _UNSET)
    if not disable_debug_handle_valdiation and not edge_handles <= {*found.values()}:
        return False
    for node, handle in found.items():
        node.meta["debug_handle"] = handle
    return True


def _computing(program: Any) -> Iterator[Any]:
    """The nodes of a program and of its branches and loops, but for inputs and outputs."""
    for module in program.graph_module.modules():
        if hasattr(module, "graph"):
            yield from (
                one for one in module.graph.nodes if one.op not in ("placeholder", "output")
            )


# --- values


def calculate_time_scale_factor(
    source_time_scale: TimeScale, target_time_scale: TimeScale
) -> float:
    """The divisor from one scale to another (ns to ms: 1e6). Raises `CyclesError` for cycles and a
    unit of time."""
    return scale_factor(TimeScale.of(source_time_scale), TimeScale.of(target_time_scale))


def is_inference_output_equal(output1: InferenceOutput, output2: InferenceOutput) -> bool:
    """Return True for equal values: tensors of one type and shape, lists of equal length."""
    if isinstance(output1, list) and isinstance(output2, list):
        return len(output1) == len(output2) and all(
            map(is_inference_output_equal, output1, output2)
        )
    if hasattr(output1, "dtype") and hasattr(output2, "dtype"):
        return output1.dtype == output2.dtype and np.array_equal(output1, output2)
    return type(output1) is type(output2) and bool(output1 == output2)


def calculate_mse(ref_values: ProgramOutput, values: ProgramOutput) -> list[float | None]:
    """The mean squared error of each pair of values, None where they are not numeric."""
    return _measured("mse", ref_values, values)


def calculate_snr(ref_values: ProgramOutput, values: ProgramOutput) -> list[float | None]:
    """The signal-to-noise ratio of each pair of values in dB, None where they are not numeric."""
    return _measured("snr", ref_values, values)


def calculate_cosine_similarity(
    ref_values: ProgramOutput, values: ProgramOutput
) -> list[float | None]:
    """The cosine similarity of each pair of values, None where they are not numeric."""
    return _measured("cosine_similarity", ref_values, values)


def _measured(metric: str, ref_values: ProgramOutput, values: ProgramOutput) -> list[float | None]:
    return [
        measure(metric, reference, value)
        for reference, value in zip(ref_values, values, strict=True)
    ]


def convert_to_float_tensor(input_data: Any) -> Any:
    """A number or tensor as a float64 torch tensor on the CPU. NaN stays NaN.

    Raises `UsageError` for anything else.
    """
    torch = require("torch", wanted_by="convert_to_float_tensor")
    refusal = f"Cannot convert value of type {type(input_data).__name__} to a tensor"
    if isinstance(input_data, Sequence):
        raise UsageError(refusal, hint="give a number or a tensor")
    try:
        return torch.as_tensor(input_data, dtype=torch.float64).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise UsageError(f"{refusal}: {error}") from error


def display_or_print_df(df: pd.DataFrame, file: IO[str] | None = None) -> None:
    """Display a DataFrame in a notebook; elsewhere print it as a grid to `file` (stdout)."""
    show_frame(df, file, wanted_by="display_or_print_df")


def plot_metric(result: Sequence[float | None], metric_name: str) -> None:
    """Draw a metric of each output to the file ``<metric>_output_plot.png``.

    A notebook shows it. Needs matplotlib.
    """
    draw_metric(metric_name, list(result), wanted_by="plot_metric")
