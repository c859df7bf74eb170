"""A user of QNN has a dump and a record: the events of nodes lead to their lines."""

from __future__ import annotations

import pytest

pytest.importorskip("executorch.exir")

from etscope.analysis.profile.trace import Trace
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.etrecord.reader import read_etrecord
from tests.support.artifacts import artifacts
from tests.support.delegate_dumps import dump_of, qnn


def test_names_of_nodes_lead_to_lines_without_a_map() -> None:
    made = artifacts("qnn_without_map")
    dump = read_etdump(dump_of(qnn([(name, 100) for name in (*made.meta["nodes"], "stranger")])))
    trace = Trace(dump, record=read_etrecord(made.extra("etrecord.bin")))
    assert not trace.symbols("forward").delegates[0].handles
    (profile,) = trace.profiles()
    rows = {row.name: row.attribution for row in profile.rows if row.own_clock}
    line = made.meta["line"]
    modules = {
        "aten_convolution_default": ("first", line + 1),
        "aten_convolution_default_1": ("second", line + 2),
        "aten_sigmoid_default": ("", line + 2),
        "aten_add_tensor": ("", line + 3),
        "aten_linear_default": ("head", line + 3),
    }
    for name, (module, number) in modules.items():
        found = rows[name]
        assert [node.name for node in found.nodes] == [name]
        assert (found.module, [one.line for one in found.lines]) == (module, [number])
    assert not rows["stranger"].nodes
    assert not rows["RPC (execute) time"].nodes
