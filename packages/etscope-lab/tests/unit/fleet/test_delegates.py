"""What delegates log is in a dataset as what it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from etscope_lab.fleet import Dataset, collect, query
from tests.support.delegate_dumps import Log, coreml, dump_of, ethos_u, neutron, qnn


def collected(folder: Path, *logs: Log) -> Path:
    for number, log in enumerate(logs):
        (folder / f"{number}.etdp").write_bytes(dump_of(log, log))
    done = collect([folder], folder / "dataset")
    assert (done.taken, done.bad) == (len(logs), ())
    return folder / "dataset"


def rows(dataset: Path, sql: str) -> list[tuple[Any, ...]]:
    return list(query(Dataset.open(dataset), sql, {}, timeout=None).rows())


def test_numbers_have_their_units_and_no_duration(tmp_path: Path) -> None:
    dataset = collected(tmp_path, qnn(), coreml(), neutron())
    found = rows(
        dataset,
        "SELECT DISTINCT quantity, unit, value, duration_ns IS NULL FROM events "
        "WHERE name IN ('RPC (execute) time (us)', 'conv_1:OpId_0 (cycles)', 'linear_2', '2') "
        "ORDER BY value NULLS LAST",
    )
    assert found == [
        ("estimate", "ns", 240.0, True),
        ("counter", "cycles", 700.0, True),
        ("interval", "us", 18_000.0, True),
        ("instant", "ticks", None, True),
    ]


def test_columns_and_leaves_of_backends(tmp_path: Path) -> None:
    dataset = collected(tmp_path, ethos_u(), coreml())
    found = rows(
        dataset,
        "SELECT backend_columns['compute_unit'] AS unit, sum(value) FROM events "
        "WHERE quantity = 'estimate' GROUP BY ALL ORDER BY 2 DESC",
    )
    assert found == [("ANE", 960.0), ("GPU", 480.0), ("CPU", 160.0)]
    found = rows(
        dataset,
        "SELECT dump_id, sum(duration_ns) FROM leaves WHERE run = 0 AND NOT own_clock GROUP BY ALL",
    )
    assert [total for _, total in found] == [1_000, 1_000]  # those of the calls
    phases = rows(dataset, "SELECT DISTINCT kind, op FROM events WHERE name LIKE '%EthosU%'")
    assert sorted(phases) == [
        ("delegated", "+EthosUBackend::execute()NPU"),
        ("delegated", "+EthosUBackend::execute()handles.input.memcpy()"),
        ("phase", "EthosUBackend::execute()"),
        ("rest", "(rest of EthosUBackend::execute())"),
    ]
