"""Export a PyTorch model to a program, its ETRecord and a bundled program, in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etscope.support.lazy import lazy_names

if TYPE_CHECKING:
    from etscope.backends.registry.export_options import ExportOptions
    from etscope.export._export import Exported, LanguageModel, export, keeping_partition
    from etscope.export._profile import ExportProfile, profiling
    from etscope.export._source import Source, check_model_name, load_model

__all__ = [
    "ExportOptions",
    "ExportProfile",
    "Exported",
    "LanguageModel",
    "Source",
    "check_model_name",
    "export",
    "keeping_partition",
    "load_model",
    "profiling",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "ExportOptions": "etscope.backends.registry.export_options",
        "ExportProfile": "etscope.export._profile",
        "Exported": "etscope.export._export",
        "LanguageModel": "etscope.export._export",
        "Source": "etscope.export._source",
        "check_model_name": "etscope.export._source",
        "export": "etscope.export._export",
        "keeping_partition": "etscope.export._export",
        "load_model": "etscope.export._source",
        "profiling": "etscope.export._profile",
    },
)
