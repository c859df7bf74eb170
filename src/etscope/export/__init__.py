"""Export a PyTorch model to a program, its ETRecord and a bundled program, in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etscope._lazy import lazy_names

if TYPE_CHECKING:
    from etscope.export._export import Exported, export
    from etscope.export._model_spec import Source, load_model

__all__ = ["Exported", "Source", "export", "load_model"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Exported": "etscope.export._export",
        "Source": "etscope.export._model_spec",
        "export": "etscope.export._export",
        "load_model": "etscope.export._model_spec",
    },
)
