"""Upstream's `executorch.devtools.etrecord`: make, save, open and shrink ETRecords."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from etscope.analysis.slim import slim_etrecord
    from etscope.etrecord._etrecord import ETRecord, generate_etrecord, parse_etrecord
    from etscope.etrecord._views import as_etrecord, as_record

__all__ = [
    "ETRecord",
    "as_etrecord",
    "as_record",
    "generate_etrecord",
    "parse_etrecord",
    "slim_etrecord",
]

_HOMES = {
    "ETRecord": "etscope.etrecord._etrecord",
    "as_etrecord": "etscope.etrecord._views",
    "as_record": "etscope.etrecord._views",
    "generate_etrecord": "etscope.etrecord._etrecord",
    "parse_etrecord": "etscope.etrecord._etrecord",
    "slim_etrecord": "etscope.analysis.slim",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'etscope.etrecord' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
