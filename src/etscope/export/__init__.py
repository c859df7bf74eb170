"""From a model in PyTorch to a program, its ETRecord and a bundled program, in one call."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from etscope.export._export import export
    from etscope.export._exported import Exported
    from etscope.export._source import Source, load_model

__all__ = ["Exported", "Source", "export", "load_model"]

_HOMES = {
    "Exported": "etscope.export._exported",
    "Source": "etscope.export._source",
    "export": "etscope.export._export",
    "load_model": "etscope.export._source",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'etscope.export' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
