"""Export a PyTorch model to a program, its ETRecord and a bundled program, in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etscope.support.lazy import lazy_names

if TYPE_CHECKING:
    from etscope.backends.registry.export_options import ExportOptions
    from etscope.export._export import (
        Exported,
        Source,
        check_model_name,
        export,
        load_model,
    )
    from etscope.export._language_model import LanguageModel
    from etscope.export._partition import keeping_partition

__all__ = [
    "ExportOptions",
    "Exported",
    "LanguageModel",
    "Source",
    "check_model_name",
    "export",
    "keeping_partition",
    "load_model",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "ExportOptions": "etscope.backends.registry.export_options",
        "Exported": "etscope.export._export",
        "LanguageModel": "etscope.export._language_model",
        "Source": "etscope.export._export",
        "check_model_name": "etscope.export._export",
        "export": "etscope.export._export",
        "keeping_partition": "etscope.export._partition",
        "load_model": "etscope.export._export",
    },
)
