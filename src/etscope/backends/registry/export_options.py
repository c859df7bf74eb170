"""Options of an export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from etscope.errors import UsageError

INT8 = "int8"  # by the backend's quantizer
# Rewrites of the graph before it is lowered, and of the lowering; `etscope.bridge.lowering` has
# them, and imports torch.
PASSES = (
    "fuse_sdpa", "fold_constants", "remove_dead_copies", "remove_transposes", "cancel_qdq",
    "keep_linear", "reinplace",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExportOptions:
    """Options of `etscope.export.export`.

    backend: a name in `etscope.backends.BACKENDS` or of an entry point `etscope.backends`; or
        several, separated by commas: each takes what those before it left.
    backend_options: options of the backends by name, or by "backend.name".
    quantize: "int8" or True: weights and activations, by the first quantizer of the backends;
        "8da4w", "8da8w", for XNNPACK: linear layers of 4 or 8 bits and inputs of 8, by torchao.
        Outputs are then of the quantised graph; the record has "float/<method>" too.
    quantize_embeddings: bits of embeddings, 4 or 8.
    group_size: columns of a row of weights of 4 bits that share a scale; by default 32.
    dynamic_shapes: as for `torch.export.export`; for a module only.
    strict: trace strictly, so that operators have the model's lines; None: where it works.
    calibration: inputs that set the ranges of activations; by default the example inputs.
    keep_float: selectors of nodes ("module:head") to stay in float, with what is one with them.
    taps: selectors of nodes, once quantised, whose values follow the outputs (`record.taps`).
    float_model: the model before torchao's `quantize_`, in any form, for the record.
    passes: names of rewrites of the graph, in order, as `etscope export -X passes` has them.
    """

    backend: str = "portable"
    backend_options: Mapping[str, Any] = field(default_factory=dict)
    quantize: bool | str = False
    quantize_embeddings: int | None = None
    group_size: int | None = None
    dynamic_shapes: Any = None
    strict: bool | None = None
    calibration: Sequence[Any] | None = None
    keep_float: str | Sequence[str] = ()
    taps: str | Sequence[str] = ()
    float_model: Any = None
    passes: Sequence[str] = ()

    @property
    def by_backend(self) -> bool:
        """True if the backend's quantizer quantises the model."""
        return self.quantize in (True, INT8)


def check_passes(names: Sequence[str]) -> None:
    """Raise `UsageError` for a name that is not that of a pass."""
    for name in names:
        if name not in PASSES:
            raise UsageError(f"there is no pass {name!r}", hint=f"passes are: {', '.join(PASSES)}")
