"""Whether the operators of a rebuilt program are torch's, and not TorchScript's."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from executorch.exir.dialects.edge._ops import EdgeOpOverload
from executorch.exir.lowered_backend_module import LoweredBackendModule
from torch.export import ExportedProgram

from etscope.errors import FormatError


def check_kernels(program: ExportedProgram) -> None:
    """Raise `FormatError` for an operator that the dispatcher does not know, in the programs of
    delegates too: what else goes by such a name is of TorchScript, which has operators that print,
    write files and warn."""
    for target in _targets(program):
        operator = target._op if isinstance(target, EdgeOpOverload) else target
        if isinstance(operator, torch._ops.OpOverload) and not _has_kernel(operator):
            raise FormatError(f"an operator that torch has no kernel of: {operator}")


def _targets(program: ExportedProgram) -> Iterator[object]:
    for module in program.graph_module.modules():
        if isinstance(module, LoweredBackendModule):
            yield from _targets(module.original_module)
        elif isinstance(module, torch.fx.GraphModule):
            yield from (node.target for node in module.graph.nodes)


def _has_kernel(operator: torch._ops.OpOverload) -> bool:
    has: bool = torch._C._dispatch_has_kernel(operator.name())
    return has
