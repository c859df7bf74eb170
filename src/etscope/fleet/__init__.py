"""Collect many dumps into a dataset of Parquet files, and query it in SQL.

from etscope.fleet import collect, query

collect(["runs/"], "dataset")
print(query("dataset", "select device, count(*) from dumps group by device").values)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from etscope._lazy import lazy_names

if TYPE_CHECKING:
    from etscope.fleet._collect import Collected, collect
    from etscope.fleet._dataset import Dataset
    from etscope.fleet._sources import Source, find_sources
    from etscope.fleet.sql import SavedQuery, query, saved_queries

__all__ = [
    "Collected",
    "Dataset",
    "SavedQuery",
    "Source",
    "collect",
    "find_sources",
    "query",
    "saved_queries",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Collected": "etscope.fleet._collect",
        "Dataset": "etscope.fleet._dataset",
        "SavedQuery": "etscope.fleet.sql",
        "Source": "etscope.fleet._sources",
        "collect": "etscope.fleet._collect",
        "find_sources": "etscope.fleet._sources",
        "query": "etscope.fleet.sql",
        "saved_queries": "etscope.fleet.sql",
    },
)
