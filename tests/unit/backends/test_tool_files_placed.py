"""A file goes to the delegate call that it is of, or the error says what would tell."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from etscope.analysis.backend_files.file_views import file_spans, file_table, with_files
from etscope.analysis.backend_files.placement import PlacedFile, delegate_calls, place_files
from etscope.analysis.profile.timeline import timeline
from etscope.analysis.profile.trace import Trace
from etscope.backends.registry.tool_files import read_backend_file
from etscope.errors import MismatchError, MissingDataError, UsageError
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.etdump.writer import ETDumpWriter
from etscope.formats.etrecord.reader import read_etrecord
from etscope.units import TimeScale
from etscope.views.traces import nest_spans
from tests.support.backend_files import (
    ETHOS_U_KERNELS,
    chrome_trace,
    optrace,
    pmu_log,
    qhas,
    run_of,
    webgpu_output,
)

ETHOS_U = Path(__file__).parents[2] / "corpus" / "ethos_u"
LAYERS, DEBUG = ETHOS_U / "out_per-layer.csv", ETHOS_U / "debug.json"


def trace_of(dump: bytes, record: Path | None = None) -> Trace:
    return Trace(read_etdump(dump), None if record is None else read_etrecord(record))


def ethos_u() -> Trace:
    """A run of the model of tests/corpus/ethos_u, three times, with its record."""
    found = trace_of(run_of(runs=3, kernels=ETHOS_U_KERNELS), ETHOS_U / "net.etrecord")
    found.verify()
    return found


def placed(
    trace: Trace, tmp_path: Path, *files: tuple[str | None, str | Path], source: str = "ns"
) -> list[PlacedFile]:
    """Put files to the calls of the trace; a text is the content of one."""
    given = []
    for number, (call, content) in enumerate(files):
        path = content
        if isinstance(path, str):
            path = tmp_path / f"file{number}"
            path.write_text(str(content))
        given.append((call, read_backend_file(path)))
    return place_files(trace, given, TimeScale(source))


def instructions(found: Sequence[PlacedFile]) -> list[list[int | None]]:
    return [[call.instruction for call in one.calls] for one in found]


# -- by time


def test_a_trace_on_the_same_clock_lies_where_it_happened(tmp_path: Path) -> None:
    trace = trace_of(run_of(runs=3))
    (found,) = placed(trace, tmp_path, (None, json.dumps(chrome_trace(runs=3))))
    assert found.on_runtime_clock
    counts = {row.row.name: row.row.events for row in found.rows}
    assert counts == dict.fromkeys(("gemm", "inner", "sync", "memory used"), 3)
    assert found.notes == ("3 of the file's 12 spans are outside delegate calls and not shown.",)
    (spans,) = file_spans([found], TimeScale.NS)
    assert spans.note is None
    assert sorted(set(spans.run.tolist())) == [0, 1, 2]
    (call,) = found.calls
    begins = dict(zip(call.run.tolist(), call.start.tolist(), strict=True))
    for run, start, end in zip(spans.run, spans.start, spans.end, strict=True):
        assert begins[int(run)] <= start <= end <= begins[int(run)] + 100_000
    named = np.array(found.file.spans.names)[spans.imported.name]  # type: ignore[union-attr]
    assert spans.start[named == "gemm"].tolist() == [10_012_000, 11_012_000, 12_012_000]


def test_the_unit_of_the_dump_counts(tmp_path: Path) -> None:
    """10,002 µs are 10,002,000 ticks of ns, and are long before a dump whose ticks are µs."""
    trace = trace_of(run_of())
    text = json.dumps(chrome_trace())
    assert placed(trace, tmp_path, (None, text))[0].on_runtime_clock
    (other,) = placed(trace, tmp_path, (None, text), source="us")
    assert not other.on_runtime_clock


def test_events_of_several_calls_are_told_by_time(tmp_path: Path) -> None:
    trace = trace_of(run_of([(), ()], runs=3))
    calls = delegate_calls(trace)
    assert [(call.instruction, len(call.run)) for call in calls] == [(0, 3), (1, 3)]
    assert all((np.diff(call.start) > 0).all() for call in calls)
    later = chrome_trace(begin_us=10_202.0)
    found = placed(trace, tmp_path, (None, json.dumps([*chrome_trace(), *later])))
    assert instructions(found) == [[0], [1]]
    assert [len(one.file.spans or ()) for one in found] == [3, 3]


def test_a_trace_of_the_time_between_calls_is_refused(tmp_path: Path) -> None:
    trace = trace_of(run_of())
    text = json.dumps(chrome_trace(begin_us=10_300.0))
    with pytest.raises(MismatchError, match="none of its events is inside a delegate call"):
        placed(trace, tmp_path, (None, text))
    (found,) = placed(trace, tmp_path, ("0", text))  # the clocks overlap by chance
    assert not found.on_runtime_clock
    assert found.reason == "as --with says"


def test_a_trace_on_another_clock_begins_with_the_call(tmp_path: Path) -> None:
    trace = trace_of(run_of(runs=2))
    (found,) = placed(trace, tmp_path, (None, json.dumps(chrome_trace(begin_us=0.0))))
    assert not found.on_runtime_clock
    assert found.reason == "the only delegate call"
    (spans,) = file_spans([found], TimeScale.NS)
    assert spans.note == "from the start of the call"
    assert set(spans.run.tolist()) == {0}
    assert spans.start.min() == found.calls[0].start[0]
    notes = file_table(found).notes
    assert any("clock is not the dump's" in note for note in notes)


# -- by backend, name and order


def test_names_tell_which_call(tmp_path: Path) -> None:
    trace = trace_of(run_of([("conv_1", "relu_2"), ("conv_7", "relu_8")]))
    second, first = optrace(("conv_7", "relu_8")), qhas(("conv_1", "relu_2"))
    found = placed(trace, tmp_path, (None, second), (None, first))
    assert instructions(found) == [[1], [0]]
    assert found[0].reason == "2 of its 2 node names are in this call"
    # Where names do not tell, the order does.
    unnamed = trace_of(run_of([(), ()]))
    found = placed(unnamed, tmp_path, (None, optrace(("a",))), (None, optrace(("b",))))
    assert instructions(found) == [[0], [1]]
    assert found[1].reason == "file 2 of 2 of this kind"


def test_what_cannot_be_told_has_to_be_said(tmp_path: Path) -> None:
    trace = trace_of(run_of([(), ()]))
    with pytest.raises(UsageError, match="matches 2 calls") as caught:
        placed(trace, tmp_path, (None, optrace()))
    assert "--with CALL=FILE, where CALL is 0 or 1" in str(caught.value)
    (found,) = placed(trace, tmp_path, ("1", optrace()))
    assert found.calls[0].instruction == 1
    assert found.reason == "as --with says"


def test_a_call_has_several_names(tmp_path: Path) -> None:
    trace = ethos_u()
    for name in ("forward:1", "1", "#1", "EthosUBackend"):
        assert instructions(placed(trace, tmp_path, (name, LAYERS))) == [[1]]
    for call in (None, "1"):
        with pytest.raises(MismatchError, match=r"is from QnnBackend, but .* of: EthosUBackend"):
            placed(trace, tmp_path, (call, optrace()))
    for name in ("5", "QnnBackend", ""):
        with pytest.raises(
            UsageError, match=r"the dump has no delegate call .*\n.*0 \(delegate #0\)"
        ):
            placed(trace_of(run_of()), tmp_path, (name, optrace()))


def test_counters_are_of_all_calls_together(tmp_path: Path) -> None:
    trace = trace_of(run_of([(), ()]))
    (found,) = placed(trace, tmp_path, (None, pmu_log()))
    assert instructions([found]) == [[0, 1]]
    assert found.reason == "its numbers cover all calls of the delegate"
    assert found.notes == (
        "Delegate calls per inference: 1 in this log, 2 in the dump. The log may be from another "
        "program.",
    )
    assert file_table(found).values["instruction"][0] is None
    (found,) = placed(trace_of(run_of()), tmp_path, (None, pmu_log()))
    assert found.notes == ()
    (found,) = placed(trace, tmp_path, ("1", pmu_log()))
    assert instructions([found]) == [[1]]


def test_tables_of_webgpu_go_to_the_calls_in_turn(tmp_path: Path) -> None:
    trace = trace_of(run_of([(), ()], runs=2))
    each = [[(f"k{number}", "(1,1,1)", float(number))] for number in range(1, 5)]
    found = placed(trace, tmp_path, (None, webgpu_output(each)))
    assert instructions(found) == [[0], [1]]
    names = [[row.row.name for row in one.rows] for one in found]
    assert names == [["k1 #0", "k3 #0"], ["k2 #0", "k4 #0"]]
    with pytest.raises(UsageError, match="matches 2 calls"):
        placed(trace, tmp_path, (None, webgpu_output(each[:3])))


def test_a_dump_without_delegates_is_refused(tmp_path: Path) -> None:
    writer = ETDumpWriter()
    writer.create_event_block("Execute")
    writer.log_profiling("Method::execute", 0, 100)
    with pytest.raises(MissingDataError, match="no delegate call"):
        placed(trace_of(writer.finish()), tmp_path, (None, optrace()))
    assert placed(trace_of(writer.finish()), tmp_path) == []


# -- nodes of the record


def test_arm_s_map_leads_from_vela_to_lines_and_modules(tmp_path: Path) -> None:
    layers, debug = placed(ethos_u(), tmp_path, (None, LAYERS), (None, DEBUG))
    rows = {row.row.name: row for row in layers.rows}
    second = rows["tosa_rescale_default_1"]
    assert second.module == "second"
    assert [line.text for line in second.lines] == ["x = torch.relu(self.second(x))"]
    assert second.handles == [10]
    assert "aten.convolution.default" in [node.op for node in second.nodes]
    assert rows["#113"].nodes == ()
    assert layers.notes == ("5 of the file's 6 names are in this call.",)
    assert debug.notes == ("10 of the file's 10 names are in this call.",)


def test_a_map_of_another_source_or_none_joins_nothing(tmp_path: Path) -> None:
    (layers,) = placed(ethos_u(), tmp_path, (None, LAYERS))
    assert all(not row.nodes and row.module is None for row in layers.rows)
    (note,) = layers.notes
    assert note.startswith("None of the file's 6 names is in this call")
    assert "debug.json" in note

    document = json.loads(DEBUG.read_text())
    for event in document:
        stack = event["torch_info"]["stack_trace"]
        event["torch_info"]["stack_trace"] = [line.replace("make.py", "other.py") for line in stack]
    (found,) = placed(ethos_u(), tmp_path, (None, json.dumps(document)))
    assert all(not row.nodes for row in found.rows)
    assert "the file is from another program" in found.notes[0]


def test_without_a_record_lines_are_those_of_the_map(tmp_path: Path) -> None:
    trace = trace_of(run_of(kernels=ETHOS_U_KERNELS))
    layers, _ = placed(trace, tmp_path, (None, LAYERS), (None, DEBUG))
    second = next(row for row in layers.rows if row.row.name == "tosa_rescale_default_1")
    assert (second.module, second.handles) == ("second", [])
    assert Path(second.lines[0].file).name == "make.py"


def test_a_delegate_s_own_map_leads_from_qnn_s_names_to_nodes(tmp_path: Path) -> None:
    """As the record of a QNN program has one (backends/qualcomm/qnn_preprocess.py)."""
    record = tmp_path / "qnn.etrecord"
    call = {"name": "QnnBackend", "delegate_map": {"conv_1": [8], "conv_2": [10]}}
    own = {"forward": {"1": call}}
    with zipfile.ZipFile(ETHOS_U / "net.etrecord") as old, zipfile.ZipFile(record, "w") as new:
        for member in old.infolist():
            is_map = member.filename == "delegate_map"
            new.writestr(member, json.dumps(own) if is_map else old.read(member))
    trace = trace_of(run_of([("conv_1", "conv_2")], kernels=ETHOS_U_KERNELS), record)

    for text in (optrace(("conv_2", "conv_1", "Input")), qhas(("conv_2", "conv_1", "Input"))):
        (found,) = placed(trace, tmp_path, (None, text))
        assert found.reason == "the only call of QnnBackend"
        assert found.notes == ("2 of the file's 3 names are in this call.",)
        rows = {row.row.name: row for row in found.rows}
        assert (rows["conv_1"].module, rows["conv_1"].handles) == ("first", [8])
        assert (rows["conv_2"].module, rows["conv_2"].handles) == ("second", [10])
        assert [line.text for line in rows["conv_2"].lines] == ["x = torch.relu(self.second(x))"]
        assert rows["Input"].nodes == ()
        assert rows["q::ConvLayer_s1.opt"].nodes == ()
    with pytest.raises(MismatchError, match="is from EthosUBackend or ArmBackend"):
        placed(trace, tmp_path, (None, LAYERS))


# -- tables and timelines


def test_estimates_are_marked_in_each_row(tmp_path: Path) -> None:
    (layers,) = placed(ethos_u(), tmp_path, (None, LAYERS))
    table = file_table(layers)
    assert set(table.values["basis"]) == {"estimated"}
    assert set(table.values["quantity"]) == {"estimate"}
    assert set(table.values["unit"]) == {"cycles, estimated"}
    assert layers.file.spans is None  # estimates are not drawn


def test_files_have_tracks_below_the_runtime(tmp_path: Path) -> None:
    trace = trace_of(run_of(runs=2))
    given = ((None, json.dumps(chrome_trace())), ("0", optrace()))
    files = placed(trace, tmp_path, *given)
    before = timeline(trace)
    found = with_files(before, files, TimeScale.NS)
    added = found.tracks[len(before.tracks) :]
    assert [(track.name, track.parent, track.note) for track in added] == [
        ("file0 · Chrome trace", 0, None),
        ("app / stream 1", 1, None),
        ("file1 · QNN optrace", 0, "cycles, not time; from the start of the call"),
        ("Core:0 Type: HMX Tid: 256", 3, "cycles, not time; from the start of the call"),
        ("Core:0 Type: HVX Tid: 512", 3, "cycles, not time; from the start of the call"),
    ]
    assert len(found) == len(before) + 3 + 6
    inner = next(i for i in range(len(found)) if found.names[found.name_id[i]] == "inner")
    assert found.args[found.args_id[inner]] == {"m": 8}
    assert np.array_equal(found.start[: len(before)], before.start)
    cycles = placed(trace, tmp_path, *given, source="cycles")
    drawn = [spans.title for spans in file_spans(cycles, TimeScale.CYCLES)]
    assert drawn == ["file1 · QNN optrace"]  # no microseconds among cycles
    lanes = nest_spans(found)  # what all trace formats write
    assert len(lanes.event_span) == 2 * len(found)
