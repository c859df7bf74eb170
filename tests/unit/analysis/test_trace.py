"""Traces of dumps written here: which method a run is of, and what is no instruction's."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import pytest

from etscope import Inspector
from etscope.analysis.profile.calls import inferred_calls
from etscope.analysis.profile.profile import MethodProfile
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.timeline import event_rows
from etscope.analysis.profile.trace import Trace
from etscope.analysis.program.source_location import common_module
from etscope.errors import FormatError, MismatchError
from etscope.formats.etdump.reader import ETDump, read_etdump
from etscope.formats.etdump.writer import ETDumpWriter
from etscope.formats.etrecord.reader import read_etrecord
from etscope.formats.program.pte import read_pte
from etscope.units import TimeScale
from tests.support import etdump_by_hand as by_hand
from tests.support.analysis.traces import open_trace
from tests.support.artifacts import artifacts

NS = Scale(TimeScale.NS, TimeScale.NS)


def written(*runs: Callable[[ETDumpWriter], None]) -> ETDump:
    writer = ETDumpWriter()
    for run in runs:
        writer.create_event_block("Execute")
        run(writer)
        writer.log_profiling("Method::execute", 100, 200)
    return read_etdump(writer.finish())


def kernel(writer: ETDumpWriter, name: str, instruction: int = 0) -> None:
    place = {"chain_index": 0, "instruction_id": instruction}
    writer.log_profiling(f"native_call_{name}", 110, 120, **place)
    writer.log_profiling("OPERATOR_CALL", 109, 121, **place)


def delegate(writer: ETDumpWriter) -> None:
    writer.log_profiling("DELEGATE_CALL", 110, 140, chain_index=0, instruction_id=0)


def rows(profile: MethodProfile) -> list[tuple[int | None, str, int]]:
    return [(row.instruction_id, row.name, int(row.ticks[0])) for row in profile.rows]


def test_what_is_logged_outside_of_instructions_is_not_of_the_first() -> None:
    def run(writer: ETDumpWriter) -> None:
        kernel(writer, "add.out")
        writer.log_profiling("inside", 150, 160)
        writer.log_profiling("around", 0, 1000)

    dump = written(run)
    assert dump.instruction_id.tolist() == [0] * 5  # as the runtime writes it
    trace = Trace(dump, record=read_etrecord(artifacts("cnn_portable").etrecord))
    (profile,) = trace.profiles()
    assert rows(profile) == [(0, "add.out", 12), (None, "inside", 10)]
    assert profile.unaccounted.tolist() == [78]
    table = event_rows(trace, NS)
    assert list(table.values["instruction_id"]) == [0, 0, None, None, None]


def test_a_writer_that_sets_no_chains_logs_runs_too() -> None:
    """As people make dumps with upstream's serializer: all in chain 0 of instruction 0."""

    def event(name: str, start: int, end: int) -> by_hand.Table:
        return by_hand.profile(name, chain=0, instruction=0, start=start, end=end)

    timed = [event("Method::execute", 0, 100), event("conv", 0, 60), event("linear", 60, 90)]
    dump = by_hand.etdump(by_hand.run("Execute", timed))
    (profile,) = Trace(read_etdump(dump)).profiles()
    assert rows(profile) == [(0, "conv", 60), (0, "linear", 30)]
    assert (profile.total.tolist(), profile.unaccounted.tolist()) == ([100], [10])


def test_a_method_that_ran_inside_of_an_instruction_is_no_run_of_its_own() -> None:
    def run(writer: ETDumpWriter) -> None:
        writer.log_profiling("Method::execute", 112, 118, chain_index=0, instruction_id=0)
        delegate(writer)

    (profile,) = Trace(written(run)).profiles()
    assert profile.total.tolist() == [100]


def test_runs_that_contradict_each_other_are_of_different_methods() -> None:
    dump = written(
        lambda w: kernel(w, "add.out"),
        delegate,
        lambda w: None,
        lambda w: (kernel(w, "add.out"), kernel(w, "mul.out", 1)),  # type: ignore[arg-type,return-value]
        lambda w: kernel(w, "sub.out"),
    )
    profiles = Trace(dump).profiles()
    assert [profile.runs.tolist() for profile in profiles] == [[0, 2, 3], [1], [4]]
    assert [[row.name for row in profile.rows] for profile in profiles] == [
        ["add.out", "mul.out"],
        ["DELEGATE_CALL"],
        ["sub.out"],
    ]


def test_two_methods_are_told_apart_without_a_record() -> None:
    files = artifacts("two_methods")
    known = Trace(read_etdump(files.etdump), record=read_etrecord(files.etrecord)).profiles()
    unknown = Trace(read_etdump(files.etdump)).profiles()
    assert [p.runs.tolist() for p in unknown] == [p.runs.tolist() for p in known]
    assert [rows(p) for p in unknown] == [rows(p) for p in known]


def test_the_cases_of_a_bundled_program_are_of_one_method() -> None:
    files = artifacts("two_methods")
    program = read_pte(files.pte)
    record = read_etrecord(files.etrecord)
    writer = ETDumpWriter()
    for case in (0, 1):
        writer.set_bundled_input_index(case)
        writer.create_event_block("Execute")
        writer.log_profiling("Method::execute", 100, 200)  # which fits both methods
    for explained in ({"program": program}, {"record": record}):
        trace = Trace(read_etdump(writer.finish()), **explained)  # type: ignore[arg-type]
        assert len(trace.methods) == 2
        # By name: the order of the methods in a file is left to chance.
        assert [trace.method_of(block) for block in trace.blocks] == [min(trace.methods)] * 2


@pytest.mark.parametrize("instruction", [-2, -1000, 1000, 2**31 - 1])
def test_an_instruction_that_the_program_lacks_is_a_mismatch(instruction: int) -> None:
    dump = written(lambda w: kernel(w, "add.out", instruction))
    trace = Trace(dump, program=read_pte(artifacts("cnn_portable").pte))
    with pytest.raises(MismatchError, match=f"instruction {instruction} ran"):
        trace.verify()


def test_times_are_as_they_were_written_unless_longer_than_any_clock() -> None:
    def dump(start: int, end: int) -> bytes:
        writer = ETDumpWriter()
        writer.create_event_block("Execute")
        writer.log_profiling("Method::execute", start, end)
        return writer.finish()

    far = 2**63  # above the signed range
    inspector = Inspector(etdump_data=dump(far + 5, far + 25), target_time_scale="ns")
    (event,) = inspector.event_blocks[0].events
    assert (event.start_time, event.perf_data.raw) == ([far + 5], [20.0])
    with pytest.raises(FormatError, match="event 0 of run 0 takes longer than its clock can run"):
        Trace(read_etdump(dump(0, 2**64 - 1))).profiles()


def test_allocations_are_counted_by_run_name_and_allocator() -> None:
    writer = ETDumpWriter()
    for name, sizes in (("Default", (1, 2)), ("Execute", (4, 8)), ("Execute", (16, 32))):
        writer.create_event_block(name)
        allocators = [writer.track_allocator("a"), writer.track_allocator("b")]
        for allocator, size in zip((*allocators, allocators[0]), (*sizes, 64), strict=True):
            writer.track_allocation(allocator, size)
    assert Trace(read_etdump(writer.finish())).allocations() == {
        ("Default", "a"): (2, 65),
        ("Default", "b"): (1, 2),
        ("Execute", "a"): (4, 148),
        ("Execute", "b"): (2, 40),
    }


def test_labels_stop_at_the_last_instruction_that_the_record_knows() -> None:
    record = read_etrecord(artifacts("cnn_portable").etrecord)
    dump = written(
        lambda w: (kernel(w, "add.out"), kernel(w, "add.out", 1_000_000))  # type: ignore[arg-type,return-value]
    )

    class Unlabelled(Trace):
        labels: ClassVar[dict[str, tuple[str, ...]]] = {}  # as in a record of ExecuTorch

    trace = Unlabelled(dump, record=record, forced=True)
    labels = trace.run_nodes("forward").labels
    assert len(labels) == max(trace.symbols("forward").handles) + 1
    assert labels[0] == "add.out"


def test_a_method_that_the_record_does_not_have_has_no_nodes() -> None:
    record = read_etrecord(artifacts("cnn_portable").etrecord)
    program = read_pte(artifacts("two_methods").pte)
    dump = read_etdump(artifacts("cnn_portable").etdump)
    trace = Trace(dump, record=record, program=program, forced=True)
    unknown = [one.name for one in program.methods if one.name not in record.edge_methods]
    assert unknown
    for name in unknown:
        assert trace.run_nodes(name).nodes == {}
        assert len(trace.run_nodes(name).records) == len(program.method(name).instructions)


def test_phases_of_a_kernel_are_not_added_to_it() -> None:
    def run(writer: ETDumpWriter) -> None:
        writer.log_profiling("phase", 112, 118, chain_index=0, instruction_id=0)
        kernel(writer, "add.out")

    (profile,) = Trace(written(run)).profiles()
    (row,) = profile.rows
    assert (row.name, row.kernel_ticks.tolist()) == ("add.out", [10])  # type: ignore[union-attr]


def test_delegated_events_that_hold_one_another_are_nested() -> None:
    def run(writer: ETDumpWriter) -> None:
        for name, start, end in (("graph", 111, 139), ("op", 115, 135)):
            writer.log_profiling_delegate(name, start, end, chain_index=0, instruction_id=0)
        delegate(writer)

    (profile,) = Trace(written(run)).profiles()
    assert [(row.name, row.depth, int(row.ticks[0])) for row in profile.rows] == [
        ("DELEGATE_CALL", 0, 30),
        ("graph", 1, 28),
        ("op", 2, 20),
        ("(rest of graph)", 2, 8),
        ("(rest of the delegate call)", 1, 2),
    ]
    (call,) = profile.instructions
    assert sum(int(leaf.ticks[0]) for leaf in call.leaves) == 30
    assert profile.unaccounted.tolist() == [70]


@pytest.mark.parametrize("name", ["transformer", "cnn_xnnpack"])
def test_all_events_have_the_modules_and_lines_of_the_profile(name: str) -> None:
    trace = open_trace(name, program=False, timing=True)
    (profile,) = trace.profiles()
    places = {
        row.instruction_id: (common_module(row.attribution.located), row.attribution.lines)
        for row in profile.rows
        if row.kind == "kernel"
    }
    table = event_rows(trace, NS)
    columns = ("instruction_id", "delegate_debug_identifier", "module", "sources")
    cells = zip(*(table.values[column] for column in columns), strict=True)
    told = [(number, *place) for number, inner, *place in cells if inner is None]
    checked = [(places[number], place) for number, *place in told if number in places]
    for (module, lines), place in checked:
        assert place == [module, [str(line) for line in lines]]
    assert bool(checked) == bool(places)


@pytest.mark.parametrize("name", ["vision_encoder", "image_encoder", "audio_encoder"])
def test_calls_of_an_encoder_are_a_phase(name: str) -> None:
    trace = Trace(written(lambda writer: kernel(writer, "add.out")))
    methods = (name, "token_embedding", "text_decoder")
    found = inferred_calls(trace.dump, {name: trace.blocks}, methods)
    assert found.phase == (name,)
