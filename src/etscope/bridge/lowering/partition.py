"""Keep what partitioners say while ExecuTorch lowers a program: what they took, and why not more.

Each reports it differently: a log line at a level that is off by default (`WhyNoPartition` of
`exir/backend/utils.py`, which XNNPACK uses; Vulkan's `log_skip`; `log_once` of Core ML and Core
AI), a table of a reporter (Arm), print (OpenVINO), or not at all. So the functions that they call
are listened to, not their logs, whatever the levels.
"""

from __future__ import annotations

import io
import logging
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from executorch.exir.backend.backend_api import MethodProgramsPartitionerSpec
from executorch.exir.backend.canonical_partitioners.config_partitioner import format_target_name
from executorch.exir.backend.utils import WhyNoPartition, WhyNoPartitionReporter
from executorch.exir.delegate import executorch_call_delegate
from executorch.exir.program import _program
from torch.fx import Graph, GraphModule, Node
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.tools_common import get_node_target

from etscope.formats.etrecord.own_members import (
    NOT_ASKED,
    REFUSED,
    SILENT,
    TOLD,
    UNKNOWN,
    UNPLACED,
    LoweredCall,
    LoweredNode,
    MethodPartition,
    Partitioning,
    Refusal,
)

_VULKAN = "executorch.backends.vulkan.partitioner.vulkan_partitioner"
_CORE_ML = "executorch.backends.apple.coreml.partition.coreml_partitioner"
_CORE_AI = "executorch.backends.apple.coreai.partition.partitioner"
_PLUMBING = (executorch_call_delegate, operator.getitem)


@dataclass(slots=True)
class KeptPartition:
    """The partition of each method that was lowered: see `keeping_partition`."""

    partitionings: dict[str, list[Partitioning]] = field(default_factory=dict)
    calls: dict[str, tuple[LoweredCall, ...]] = field(default_factory=dict)

    def of(self, methods: Iterable[str]) -> dict[str, MethodPartition]:
        """Return the partition of these methods; it is empty for a method that no partitioner
        saw.
        """
        return {
            name: MethodPartition(tuple(self.partitionings.get(name, ())), self.calls.get(name, ()))
            for name in sorted(methods)
        }


@contextmanager
def keeping_partition() -> Iterator[KeptPartition]:
    """Keep what the partitioners say of the programs that are lowered inside: by
    `to_edge_transform_and_lower` or `EdgeProgramManager.to_backend`, with any partitioners.

    The reasons that are kept are not logged or printed. The level of the root logger, which
    Vulkan's partitioner sets when it is imported, is restored.
    """
    kept = KeptPartition()
    to_backend = _program.to_backend

    def keeping(spec: MethodProgramsPartitionerSpec) -> dict[str, Any]:
        partitioners = {
            name: _Listening(partitioner, kept.partitionings.setdefault(name, []))
            for name, partitioner in spec.method_to_partitioner.items()
        }
        lowered: dict[str, Any] = to_backend(
            MethodProgramsPartitionerSpec(spec.method_to_edge_program, partitioners)
        )
        for name, program in lowered.items():
            kept.calls[name] = tuple(_calls(program.graph_module, ""))
        return lowered

    root = logging.getLogger()
    level = root.level
    try:
        with mock.patch.object(_program, "to_backend", keeping):
            yield kept
    finally:
        root.setLevel(level)


class _Listening:
    """A partitioner that keeps its answers."""

    def __init__(self, partitioner: Any, found: list[Partitioning]) -> None:
        self._partitioner, self._found = partitioner, found

    def __repr__(self) -> str:
        return repr(self._partitioner)

    def __call__(self, program: Any) -> Any:
        answers = _Answers()
        with answers.listening():
            result = self._partitioner(program)
        tags = result.partition_tags or {}
        spec = getattr(self._partitioner, "delegation_spec", None)
        backends = [getattr(spec, "backend_id", None), *(one.backend_id for one in tags.values())]
        refusals = [
            answers.refusal(node, path, self._partitioner)
            for path, node in _operators(program.graph_module, "")
            if node.meta.get("delegation_tag") not in tags
        ]
        self._found.append(
            Partitioning(
                type(self._partitioner).__name__,
                next((str(backend) for backend in backends if backend), None),
                tuple(refusals),
            )
        )
        return result


@dataclass(slots=True)
class _Answers:
    """The answers of one partitioner.

    reasons: by node, in order, each once. supported: for the nodes that a
    `CapabilityBasedPartitioner` asks about the last answer, with the object that was asked. asked:
    the node that is asked about now.
    """

    reasons: dict[Node, dict[str, None]] = field(default_factory=dict)
    supported: dict[Node, tuple[bool, Any]] = field(default_factory=dict)
    asked: Node | None = None

    def tell(self, node: Node | None, reason: object) -> None:
        told = " ".join(str(reason).split())
        if isinstance(node, Node) and told:
            self.reasons.setdefault(node, {})[told] = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        with ExitStack() as patches:
            for owner, name, heard in (
                (WhyNoPartition, "__call__", self._why),
                (WhyNoPartitionReporter, "report_reject", self._reported),
                (CapabilityBasedPartitioner, "_is_node_supported", self._is_supported),
                (_loaded(_VULKAN, "VulkanSupportedOperators"), "log_skip", self._skipped),
                (_loaded(_CORE_ML, "_OperatorsSupportedForCoreMLBackend"), "log_once", self._once),
                (_loaded(_CORE_AI, "_OperatorsSupportedForCoreAIBackend"), "log_once", self._once),
            ):
                if owner is not None:
                    patches.enter_context(mock.patch.object(owner, name, heard(owner)))
            yield

    def _why(self, owner: Any) -> Callable[..., None]:
        """XNNPACK's, and of whoever else uses it. The log is written as ever, for who wants it."""
        original = owner.__call__

        def why(of: Any, node: Any, reason: Any = "") -> None:
            self.tell(node, reason)
            original(of, node, reason)

        return why

    def _reported(self, owner: Any) -> Callable[..., None]:
        original = owner.report_reject

        def report_reject(of: Any, node: Any, reason: Any) -> None:
            self.tell(node, reason)
            original(of, node, reason)

        return report_reject

    def _skipped(self, _: Any) -> Callable[..., None]:
        return lambda of, node, reason: self.tell(node, reason)

    def _once(self, _: Any) -> Callable[..., None]:
        return lambda of, message: self.tell(self.asked, message)

    def _is_supported(self, owner: Any) -> Callable[..., bool]:
        """Take what is printed while a node is asked about as said of it, as OpenVINO's."""
        original = owner._is_node_supported

        def is_supported(of: Any, node: Node) -> bool:
            before, self.asked, printed = self.asked, node, io.StringIO()
            try:
                with redirect_stdout(printed):
                    found = bool(original(of, node))
            finally:
                self.asked = before
            self.supported[node] = found, of.operator_support
            if not found:
                self.tell(node, printed.getvalue())
            return found

        return is_supported

    def refusal(self, node: Node, path: str, partitioner: Any) -> Refusal:
        """Say what a partitioner answered about a node that it did not take."""
        place = _lowered_node(node, path)
        if node in self.reasons:
            return Refusal(place, TOLD, "; ".join(self.reasons[node]))
        supported, asked = self.supported.get(node, (False, None))
        if supported:
            return Refusal(place, UNPLACED)
        heard = {one.graph for one in (*self.reasons, *self.supported)}
        if "/" in path and node.graph not in heard:
            return Refusal(place, NOT_ASKED)
        configs = getattr(partitioner, "target_partitioner_configs", None)
        if isinstance(configs, Mapping):  # ExecuTorch's `ConfigerationBasedPartitioner`
            config = configs.get(format_target_name(place.op))
            if config is None:
                return Refusal(place, UNKNOWN)
            return Refusal(place, REFUSED, type(config).__name__)
        known = getattr(asked, "_support_dict", None)  # of torch's `OperatorSupport`
        if isinstance(known, Mapping):
            return Refusal(place, REFUSED if get_node_target({}, node) in known else UNKNOWN)
        if asked is not None:
            return Refusal(place, REFUSED)
        return Refusal(place, SILENT)


def _loaded(module: str, name: str) -> Any:
    """Return a backend's class if its module is loaded, else None."""
    return getattr(sys.modules.get(module), name, None)


def _operators(module: GraphModule, prefix: str) -> Iterator[tuple[str, Node]]:
    """Yield the calls of a graph and of its branches and loops, by path, without delegates'."""
    for node in module.graph.nodes:
        if node.op == "call_function" and node.target not in _PLUMBING:
            yield prefix + node.name, node
        for name, below in _subgraphs(module, node):
            yield from _operators(below, f"{prefix}{name}/")


def _calls(module: GraphModule, prefix: str) -> Iterator[LoweredCall]:
    """Yield the delegate calls of a graph and of its branches and loops, in order."""
    for node in module.graph.nodes:
        if node.op == "call_function" and node.target is executorch_call_delegate:
            name = node.args[0].target
            held = getattr(module, name)
            program = held.original_module
            changed = program.graph_signature.buffers_to_mutate.values()
            inside = _operators(program.graph_module, prefix)
            yield LoweredCall(
                prefix + name,
                held.backend_id,
                tuple(_lowered_node(inner, path) for path, inner in inside),
                tuple(dict.fromkeys(changed)),
            )
        for name, below in _subgraphs(module, node):
            yield from _calls(below, f"{prefix}{name}/")


def _subgraphs(module: GraphModule, node: Node) -> Iterator[tuple[str, GraphModule]]:
    """Yield the branches or the body that a node of control flow runs, by their names."""
    if node.op != "call_function":
        return
    for given in node.args:
        if isinstance(given, Node) and given.op == "get_attr":
            held = getattr(module, str(given.target), None)
            if isinstance(held, GraphModule) and isinstance(held.graph, Graph):
                yield str(given.target), held


def _lowered_node(node: Node, path: str) -> LoweredNode:
    handle = node.meta.get("debug_handle")
    name = getattr(node.target, "__name__", None) or str(node.target)
    return LoweredNode(path, name, handle if isinstance(handle, int) else None)
