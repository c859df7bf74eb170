"""What tells of files and graphs, on damaged ones: an answer or a typed error, nothing else."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from etscope.analysis.comparison.program_report import program_diff_report
from etscope.analysis.comparison.programs import Side, diff_programs
from etscope.analysis.graphs.linked_graph import graph_list, linked_graph
from etscope.analysis.graphs.node_info import node_info
from etscope.analysis.graphs.node_table import NodeTables, placed_nodes
from etscope.analysis.info import SCHEMA, file_info
from etscope.analysis.matching.export import Export
from etscope.formats.etrecord.reader import read_etrecord
from etscope.formats.program.pte import read_pte
from etscope.views.tables.report import write_reports
from tests.attacks import mutated_etrecords
from tests.attacks.mutations import attack, mutated
from tests.support.artifacts import artifacts
from tests.support.fuzz import fuzzed

FILES = [
    "cnn_xnnpack/etdump",
    "int_outputs/etdump",
    "allocations/etdump",
    "cond/pte",
    "bundled/bpte",
]
RECORDS = ["cnn_xnnpack_lowered", "cond", "two_methods"]


@pytest.mark.parametrize("file", FILES)
@fuzzed(100, nightly=3000)
def test_damaged_bytes(tmp_path: Path, file: str, seed: int, count: int) -> None:
    name, _, kind = file.partition("/")
    files = [getattr(artifacts(name), kind).read_bytes()]
    path = tmp_path / "damaged"

    def touch(data: bytes) -> None:
        path.write_bytes(data)
        report = file_info(path)
        for format in ("table", "json", "csv"):
            write_reports([report], SCHEMA, format, io.StringIO(), width=80)

    attack(seed, count, lambda rng: mutated(rng, files), touch)


@pytest.mark.parametrize("name", ["cnn_xnnpack", "while_loop"])
@fuzzed(100, nightly=3000)
def test_comparison_with_a_damaged_program(name: str, seed: int, count: int) -> None:
    files = [artifacts(name).pte.read_bytes()]
    whole = Side("whole", read_pte(files[0]))

    def touch(data: bytes) -> None:
        damaged = Side("damaged", read_pte(data))
        for sides in ((whole, damaged), (damaged, whole)):
            assert program_diff_report(diff_programs(*sides)).summary

    attack(seed, count, lambda rng: mutated(rng, files), touch)


@pytest.mark.parametrize("name", RECORDS)
@fuzzed(50, nightly=1000)
def test_strange_records(tmp_path: Path, name: str, seed: int, count: int) -> None:
    source = artifacts(name).etrecord
    assert source is not None
    files = [source.read_bytes()]
    path = tmp_path / "record"

    def touch(data: bytes) -> None:
        path.write_bytes(data)
        file_info(path)
        record = read_etrecord(path)
        graph_list(record)
        for graph in record.graph_names:
            linked = linked_graph(Export(record=record), graph)
            NodeTables(linked).nodes()
            NodeTables(linked).modules()
            for place in list(placed_nodes(linked.graph))[:20:5]:
                node_info(linked, place)

    attack(seed, count, lambda rng: mutated_etrecords.mutated(rng, files), touch)
