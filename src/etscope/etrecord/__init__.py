"""Upstream's `executorch.devtools.etrecord`: make, save, open and shrink ETRecords."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etscope.support.lazy import lazy_names

if TYPE_CHECKING:
    from etscope.analysis.info.etrecord_info import slim_etrecord
    from etscope.etrecord._etrecord import (
        ETRecord,
        as_etrecord,
        as_record,
        generate_etrecord,
        parse_etrecord,
    )

__all__ = [
    "ETRecord",
    "as_etrecord",
    "as_record",
    "generate_etrecord",
    "parse_etrecord",
    "slim_etrecord",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "ETRecord": "etscope.etrecord._etrecord",
        "as_etrecord": "etscope.etrecord._etrecord",
        "as_record": "etscope.etrecord._etrecord",
        "generate_etrecord": "etscope.etrecord._etrecord",
        "parse_etrecord": "etscope.etrecord._etrecord",
        "slim_etrecord": "etscope.analysis.info.etrecord_info",
    },
)
