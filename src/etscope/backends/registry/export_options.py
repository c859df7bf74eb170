"""Options of an export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etscope.errors import UsageError

INT8 = "int8"  # by the backend's quantizer
# Rewrites of the graph before and during lowering. `etscope.bridge.lowering` implements them; the
# names are here, as that package imports torch.
PASSES = (
    "to_float32", "channels_last", "fuse_sdpa", "fold_constants", "fold_batch_norms", "batch_loops",
    "remove_dead_copies", "remove_transposes", "cancel_qdq", "keep_linear", "reinplace",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExportOptions:
    """Options of `etscope.export.export`.

    backend: a name in `etscope.backends.BACKENDS`, or an entry point of `etscope.backends`. With
        several, separated by commas, each takes the nodes that the ones before it leave.
    backend_options: backend options by name, or by "backend.name".
    quantize: "int8" or True: weights and activations, by the first backend with a quantizer.
        "8da4w", "8da8w", for XNNPACK: linear layers with 4 or 8 bits and inputs with 8, by torchao.
        The expected outputs come from the quantized graph; the record also has "float/<method>".
    quantize_embeddings: bits of embeddings, 4 or 8.
    group_size: columns of a row of 4-bit weights that share a scale; by default 32.
    dynamic_shapes: see `torch.export.export`; only for a module.
    strict: trace strictly, which gives operators the model's lines; None: if the model allows it.
    calibration: inputs that set the ranges of activations; by default the example inputs.
    keep_float: selectors of nodes ("module:head") to keep in float, with nodes fused into them.
    taps: selectors of nodes of the quantized graph; the program returns their values after the
        outputs (`record.taps`).
    float_model: the model before torchao's `quantize_`, in any form, for the record.
    passes: names of graph rewrites, in order: the same as `etscope export -X passes`.
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
        """True if the backend's quantizer quantizes the model."""
        return self.quantize in (True, INT8)


def check_passes(names: Sequence[str]) -> None:
    """Raise `UsageError` for an unknown pass."""
    for name in names:
        if name not in PASSES:
            raise UsageError(f"unknown pass {name!r}", hint=f"passes: {', '.join(PASSES)}")


def export_words(options: Mapping[str, Any]) -> list[str]:
    """The words of `etscope export` for these options. What only Python can give is left out."""
    given = dict(options)
    backend, scheme = str(given.pop("backend", "")), given.pop("quantize", None)
    found = ["--backend", backend] if backend else []
    if scheme:
        found += ["--quantize", "int8" if scheme is True else str(scheme)]
    for key, value in given.pop("backend_options", {}).items():
        owner = "" if "." in key else f"{backend.partition(',')[0]}."
        found += ["-X", f"{owner}{key}={value}"]
    for name, value in given.items():
        if isinstance(value, (list, tuple)):
            texts = [str(one) for one in value if isinstance(one, (str, Path))]
        elif isinstance(value, bool):
            texts = [str(value).lower()] if value or name == "strict" else []
        else:
            texts = [] if value in (None, "") else [str(value)]
        found += [word for text in texts for word in ("-X", f"{name}={text}")]
    return found
