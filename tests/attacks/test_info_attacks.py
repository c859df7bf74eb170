"""What tells of files and graphs, on damaged ones: an answer or a typed error, nothing else."""

from __future__ import annotations

import io
import json
import random
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from etscope.analysis.comparison.program_report import program_diff_report
from etscope.analysis.comparison.programs import Side, diff_programs
from etscope.analysis.graphs.graph_names import graph_list
from etscope.analysis.graphs.linked_graph import linked_graph
from etscope.analysis.graphs.node_info import node_info
from etscope.analysis.graphs.node_table import module_tree, node_table, placed_nodes
from etscope.analysis.info import SCHEMA, file_info
from etscope.errors import EtscopeError
from etscope.formats.etrecord.reader import read_etrecord
from etscope.formats.program.pte import read_pte
from etscope.views.tables.report import write_reports
from tests.support.artifacts import artifacts

FILES = [
    "cnn_xnnpack/etdump",
    "int_outputs/etdump",
    "allocations/etdump",
    "cond/pte",
    "bundled/bpte",
]
RECORDS = ["cnn_xnnpack_lowered", "cond", "two_methods"]
STRANGE = [None, 0, -1, "", [], {}, "x" * 50, 1e300, True, [[]], {"a": 1}, 2**70]


@pytest.mark.parametrize("file", FILES)
def test_damaged_bytes(tmp_path: Path, file: str) -> None:
    name, _, kind = file.partition("/")
    original = getattr(artifacts(name), kind).read_bytes()
    rng = random.Random(file)
    told = 0
    for _ in range(150):
        data = bytearray(
            original[: rng.randrange(8, len(original))] if rng.random() < 0.1 else original
        )
        for _ in range(rng.choice([1, 1, 2, 8, 40])):
            data[rng.randrange(len(data))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF])
        path = tmp_path / "damaged"
        path.write_bytes(data)
        try:
            report = file_info(path)
            for format in ("table", "json", "csv"):
                write_reports([report], SCHEMA, format, io.StringIO(), width=80)
            told += 1
        except EtscopeError:
            continue
    assert told


@pytest.mark.parametrize("name", ["cnn_xnnpack", "while_loop"])
def test_comparison_with_a_damaged_program(name: str) -> None:
    original = artifacts(name).pte.read_bytes()
    whole = Side("whole", read_pte(original))
    rng = random.Random(name)
    told = 0
    for _ in range(100):
        data = bytearray(original)
        for _ in range(rng.choice([1, 1, 2, 5])):
            data[rng.randrange(len(data))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF])
        try:
            damaged = Side("damaged", read_pte(bytes(data)))
            for sides in ((whole, damaged), (damaged, whole)):
                report = program_diff_report(diff_programs(*sides))
                assert report.summary
            told += 1
        except EtscopeError:
            continue
    assert told


@pytest.mark.parametrize("name", RECORDS)
def test_strange_json_in_records(tmp_path: Path, name: str) -> None:
    rng = random.Random(name)
    told = 0
    for content in _strange_records(name, rng, 60):
        path = tmp_path / "record"
        path.write_bytes(content)
        try:
            file_info(path)
            record = read_etrecord(path)
            graph_list(record)
            for graph in record.graph_names:
                linked = linked_graph(record, graph)
                node_table(linked)
                module_tree(linked)
                for place in list(placed_nodes(linked.graph))[:20:5]:
                    node_info(linked, place)
            told += 1
        except EtscopeError:
            continue
    assert told


def _strange_records(name: str, rng: random.Random, count: int) -> Iterator[bytes]:
    """The record, each time with one value of one of its JSON members replaced or left out."""
    source = artifacts(name).etrecord
    assert source is not None
    with zipfile.ZipFile(source) as archive:
        members = {entry: archive.read(entry) for entry in archive.namelist()}
    parsed = {entry: json.loads(data) for entry, data in members.items() if data[:1] == b"{"}
    for _ in range(count):
        victim = rng.choice(list(parsed))
        content = json.loads(members[victim])
        path = rng.choice([found for found in _paths(content) if found])
        _replace(content, path, rng)
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w") as archive:
            for entry, data in members.items():
                archive.writestr(entry, json.dumps(content) if entry == victim else data)
        yield made.getvalue()


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    keys: Any = (
        value if isinstance(value, dict) else range(len(value) if isinstance(value, list) else 0)
    )
    for key in keys:
        yield from _paths(value[key], (*path, key))
    yield path


def _replace(content: Any, path: tuple[Any, ...], rng: random.Random) -> None:
    for key in path[:-1]:
        content = content[key]
    if isinstance(content, dict) and rng.random() < 0.3:
        del content[path[-1]]
    else:
        content[path[-1]] = rng.choice(STRANGE)
