"""Collect many dumps into a dataset of Parquet files, and query it in SQL.

from etscope_lab.fleet import collect, query

collect(["runs/"], "dataset")
print(query("dataset", "select device, count(*) from dumps group by device").values)
"""

from __future__ import annotations

from etscope_lab.fleet._collect import Collected, collect
from etscope_lab.fleet._dataset import Dataset
from etscope_lab.fleet._sources import Source, find_sources
from etscope_lab.fleet.sql import SavedQuery, query, saved_queries

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
