"""The one table of events: its columns, and the identities that its projections rely on."""

from __future__ import annotations

import numpy as np
import pytest

from etscope.analysis.profile.trace import Trace
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.etdump.writer import ETDumpWriter
from etscope.model.event_table import Clock, EventTable, Quantity
from tests.support.artifacts import artifacts


def nested(device_clock: bool = False) -> EventTable:
    """Loading, then two runs of a kernel's call and of a delegate's call with one event inside."""
    writer = ETDumpWriter()
    writer.create_event_block("Default")
    writer.log_profiling("Method::init", 2, 5)
    writer.log_profiling("Program::load_method", 1, 6)
    for start in (100, 200):
        writer.create_event_block("Execute")
        inside = 9_000 if device_clock else start + 12
        writer.set_chain_debug_handle(0, 0)
        writer.log_profiling("native_call_add.out", start + 1, start + 8)
        writer.log_profiling("OPERATOR_CALL", start, start + 9)
        writer.set_chain_debug_handle(0, 1)
        writer.log_profiling_delegate("conv", inside, inside + 5)
        writer.log_profiling("DELEGATE_CALL", start + 10, start + 20)
        writer.set_chain_debug_handle(-1, 0)
        writer.log_profiling("Method::execute", start - 1, start + 21)
    return Trace(read_etdump(writer.finish())).events


def test_parents_are_the_events_that_end_next() -> None:
    table = nested()
    names = [table.events[event].key.name for event in table.event]
    parents = [None if row < 0 else (names[row], table.run[row]) for row in table.parent]
    assert names[:2] == ["Method::init", "Program::load_method"]
    assert parents[:2] == [("Program::load_method", 0), None]
    for run in (1, 2):
        mine = table.run == run
        assert dict(zip(np.array(names)[mine], np.array(parents, object)[mine], strict=True)) == {
            "native_call_add.out": ("OPERATOR_CALL", run),
            "OPERATOR_CALL": ("Method::execute", run),
            "conv": ("DELEGATE_CALL", run),
            "DELEGATE_CALL": ("Method::execute", run),
            "Method::execute": None,
        }


def test_calls_phases_and_roles() -> None:
    table = nested()
    assert table.phases == ("load", "execute")
    assert table.call.tolist() == [-1] * 2 + [0] * 5 + [1] * 5
    assert [event.key.role for event in table.events] == [
        "load", "load", "kernel", "call", "delegated", "delegate", "execute"
    ]  # fmt: skip
    assert set(table.quantity) == {Quantity.INTERVAL} and set(table.unit) == {None}


def test_the_clock_of_a_delegate() -> None:
    for table, clock in ((nested(), Clock.RUNTIME), (nested(device_clock=True), Clock.DEVICE)):
        names = [event.key.name for event in table.events]
        clocks = dict(zip(names, table.clock, strict=True))
        assert clocks.pop("conv") is clock
        assert set(clocks.values()) == {Clock.RUNTIME}


@pytest.mark.parametrize("name", ["cnn_xnnpack", "cond"])
def test_rows_are_the_timed_events_of_the_dump(name: str) -> None:
    dump = read_etdump(artifacts(name).etdump)
    trace = Trace(dump)
    table = trace.events
    np.testing.assert_array_equal(table.row, np.flatnonzero(dump.kind == 0))
    np.testing.assert_array_equal(table.start + table.ticks.astype(np.uint64), dump.end[table.row])
    # Children lie inside their parents, in the same run.
    has_parent = table.parent >= 0
    parent = table.parent[has_parent]
    assert len(parent) and (table.run[parent] == table.run[has_parent]).all()
    assert (table.start[parent] <= table.start[has_parent]).all()
    executes = np.array([event.key.role == "execute" for event in table.events])[table.event]
    (profile,) = trace.profiles()
    assert table.ticks[executes].tolist() == profile.every.total.tolist()


def test_an_empty_dump_has_no_rows() -> None:
    table = EventTable(read_etdump(ETDumpWriter().finish()), (), (), (), np.zeros(0, np.int32))
    assert len(table.row) == len(table.parent) == len(table.event) == 0
