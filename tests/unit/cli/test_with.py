"""`--with` of inspect, convert and report, as a person or a script calls it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.backend_files import (
    ETHOS_U_KERNELS,
    chrome_trace,
    optrace,
    pmu_log,
    run_of,
    webgpu_output,
)
from tests.support.cli.fixtures import Run

ETHOS_U = Path(__file__).parents[2] / "corpus" / "ethos_u"
LAYERS, DEBUG = ETHOS_U / "out_per-layer.csv", ETHOS_U / "debug.json"


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dumps and files in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "140")
    Path("run.etdp").write_bytes(run_of(runs=3, kernels=ETHOS_U_KERNELS))
    Path("qnn.etdp").write_bytes(run_of([("conv_1", "relu_2")]))
    Path("host.json").write_text(json.dumps({"traceEvents": chrome_trace(runs=3)}))
    Path("optrace_0.json").write_text(optrace())
    Path("pmu.txt").write_text(pmu_log())
    Path("webgpu.txt").write_text(webgpu_output())


def ethos_u(*more: object) -> tuple[object, ...]:
    return ("inspect", "run.etdp", "-r", ETHOS_U / "net.etrecord", *more)


def test_files_stand_below_the_profile(run: Run) -> None:
    code, out, err = run(*ethos_u("--with", LAYERS, "--with", DEBUG, "--with", "pmu.txt"))
    assert (code, err) == (0, "")
    title = out.index("out_per-layer.csv · Vela per-layer estimate · EthosUBackend #1 of forward")
    assert out.index("Method::execute") < title
    layer = next(line for line in out.splitlines() if line.startswith("tosa_rescale_default_1"))
    assert "768" in layer and "second" in layer and "make.py:" in layer
    assert "Belongs to EthosUBackend #1 of forward: the only call of EthosUBackend." in out
    assert "not measurements" in out.replace("\n", " ")
    assert "AXI0_RD_DATA_BEAT_RECEIVED" in out and "beats" in out


def test_programs_get_one_table(run: Run) -> None:
    more = ("--with", LAYERS, "--with", DEBUG, "--with", "host.json")
    code, out, _ = run(*ethos_u(*more, "--format", "json"))
    document: dict[str, Any] = json.loads(out)
    assert code == 0
    kinds = [row["file_kind"] for row in document["rows"]]
    counts = {kind: kinds.count(kind) for kind in kinds}
    estimated = {"Vela per-layer estimate": 6, "Arm debug map": 10}
    assert counts == {None: 5, **estimated, "Chrome trace": 4}
    row = next(one for one in document["rows"] if one["event"] == "tosa_rescale_default")
    assert {name: row[name] for name in ("value", "unit", "quantity", "basis", "clock")} == {
        "value": 1826,
        "unit": "cycles, estimated",
        "quantity": "estimate",
        "basis": "estimated",
        "clock": "device",
    }
    assert row["placed_by"] == "the only call of EthosUBackend"
    assert (row["instruction"], row["debug_handles"], row["avg"]) == (1, [8], None)
    inner = next(one for one in document["rows"] if one["event"] == "inner")
    assert (inner["clock"], inner["value"], inner["unit"]) == ("runtime", 91.5, "us")
    code, out, _ = run(*ethos_u(*more, "--format", "csv", "--columns", "event,file,value"))
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["value"] for row in rows if row["event"] == "inner"] == ["91.5"]
    assert len(rows) == len(document["rows"])


def test_columns_are_shown_where_they_are(run: Run) -> None:
    more = ("--with", LAYERS, "--columns", "event,avg,npu_cycles")
    code, out, _ = run(*ethos_u(*more))
    assert code == 0
    heads = [line.split() for line in out.splitlines() if line.startswith("event")]
    assert heads == [["event", "avg", "(ms)"], ["event", "NPU", "(cycles)"]]


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        (("--with", LAYERS, "-n", "2"), 0, "4 more rows are not shown (--limit)."),
        (("--with", f"forward:1={LAYERS}"), 0, "as --with says"),
        (("--with", f"9={LAYERS}"), 2, "the dump has no delegate call '9'"),
        (("--with", "a=b.csv"), 0, "a=b.csv · Vela"),  # a file with a sign in its name
        (("--with", LAYERS, "--columns", "nothing"), 2, "unknown column 'nothing'"),
        (("--with", "nowhere.json"), 2, "not found"),
        (("--with", "run.etdp"), 3, "not a vendor tool's file"),
        (("--with", "optrace_0.json"), 3, "is from QnnBackend, but this run has delegates of: E"),
    ],
)
def test_what_is_said(run: Run, given: tuple[object, ...], code: int, words: str) -> None:
    Path("a=b.csv").write_bytes(LAYERS.read_bytes())
    found, out, err = run(*ethos_u(*given))
    assert (found, words in (err if code else out)) == (code, True)
    assert not (out if code else err)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("convert", "run.etdp", "-o", "out.csv"), "etscope inspect --with FILE --format csv"),
        (("report", "run.etdp", "qnn.etdp", "-o", "out.html"), "--with needs exactly one dump"),
    ],
)
def test_where_there_is_no_place_for_a_file(run: Run, command: tuple[str, ...], words: str) -> None:
    code, _, err = run(*command, "--with", "host.json")
    assert (code, words in err) == (2, True)
    assert not Path(command[-1]).exists()


def test_a_chrome_trace_has_their_tracks(run: Run) -> None:
    assert run("convert", "run.etdp", "--with", "host.json", "-o", "out.json")[0] == 0
    events = json.loads(Path("out.json").read_text())["traceEvents"]
    threads = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    inner = [event for event in events if event["name"] == "inner"]
    assert {threads[event["tid"]] for event in inner} == {"app / stream 1"}
    assert "host.json · Chrome trace" in threads.values()
    assert [event["dur"] for event in inner] == [30.5] * 3
    calls = [event for event in events if event["name"] == "DELEGATE_CALL"]
    assert [event["ts"] - call["ts"] for event, call in zip(inner, calls, strict=True)] == [20] * 3


def test_other_traces_have_them_too(run: Run) -> None:
    """And names of the dump's own events are known."""
    code, out, _ = run("inspect", "qnn.etdp", "--with", "optrace_0.json")
    assert code == 0
    assert "2 of the file's 2 names are in this call." in out
    assert "├ q::*InputSlice" in out
    for name in ("out.pftrace", "out.speedscope.json"):
        code, _, err = run("convert", "qnn.etdp", "--with", "optrace_0.json", "-o", name)
        assert (code, err) == (0, "")
        content = Path(name).read_bytes()
        assert b"q::ConvLayer_s1.opt" in content and b"cycles, not time" in content


def test_a_report_has_tables_and_tracks(run: Run) -> None:
    more = ("--with", "host.json", "--with", LAYERS, "--with", DEBUG, "-o", "out.json")
    code, _, _ = run("report", "run.etdp", ETHOS_U / "net.etrecord", *more)
    (found,) = json.loads(Path("out.json").read_text())["runs"]
    assert code == 0
    tables = {s["name"]: s["table"] for s in found["summary"] if "backend_file" in s["name"]}
    titles = [table["title"].partition(" · ")[0] for table in tables.values()]
    assert titles == ["host.json", "out_per-layer.csv", "debug.json"]
    timeline = found["timeline"]
    tracks = timeline["tracks"]
    added = [n for n, track in enumerate(tracks) if "host.json" in track["name"]]
    assert len(added) == 3  # one for each run
    for number in added:
        assert tracks[tracks[number]["parent"]]["name"].startswith("forward · run")
        spans = [n for n, track in enumerate(timeline["track"]) if track == number]
        names = [timeline["names"][timeline["name"][n]] for n in spans]
        assert names == ["gemm", "inner", "sync"]
        assert [timeline["level"][n] for n in spans] == [0, 1, 0]
        assert [timeline["start"][n] for n in spans] == pytest.approx([0.012, 0.022, 0.072])
    assert {fact["name"] for fact in found["files"]} >= {"host.json", "debug.json"}


def test_a_report_says_how_many_spans_it_leaves_out(run: Run) -> None:
    events = [
        {"ph": "X", "name": f"k{n}", "pid": 1, "tid": 1, "ts": 10**9 + 3 * n, "dur": 1 + n % 2}
        for n in range(30_000)
    ]
    Path("long.json").write_text(json.dumps(events))
    assert run("report", "run.etdp", "--with", "long.json", "-o", "out.json")[0] == 0
    timeline = json.loads(Path("out.json").read_text())["runs"][0]["timeline"]
    assert timeline["note"] == "10,000 of the shortest spans are left out."
    names = [track["name"] for track in timeline["tracks"]]
    track = names.index("long.json · Chrome trace · thread 1")
    mine = [n for n, of in enumerate(timeline["track"]) if of == track]
    assert len(mine) == 20_000
    longest = [timeline["duration"][n] for n in mine]
    assert sum(duration > 0.0015 for duration in longest) == 15_000  # all of those of 2 µs
