"""`etscope inspect`, as a person or a script calls it."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from etscope.formats.calibration import VARIABLE, keep_calibration, write_calibration
from tests.support.artifacts import Artifact, artifacts
from tests.support.calibrations import calibration
from tests.support.cli.fixtures import Run


def cnn() -> Artifact:
    return artifacts("cnn_portable")


def records_of(out: str) -> list[dict[str, Any]]:
    """The rows of --format jsonl."""
    return [json.loads(line) for line in out.splitlines()]


@pytest.fixture
def peaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A calibration; none is kept for this machine."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_calibration(calibration(), tmp_path / "peaks.json")
    return tmp_path / "peaks.json"


def test_a_person_sees_time_module_and_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.chdir(cnn().etdump.parent)
    code, out, err = run("inspect", cnn().etdump.name, "--etrecord", cnn().etrecord.name)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert re.match(r"forward · (\d of )?5 runs .*· traced load ", lines[0])
    convolution = next(line for line in lines if "stem.conv" in line)
    assert "convolution.out" in convolution and "cnn.py:" in convolution
    assert any(line.strip().startswith("unaccounted") for line in lines)
    assert all(len(line) <= 140 for line in lines)


def test_what_matters_stands_below_in_words_and_in_json(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(cnn().etdump.parent)
    monkeypatch.setenv("COLUMNS", "80")
    files = (cnn().etdump.name, "-r", cnn().etrecord.name, "-p", cnn().pte.name)
    _, text, _ = run("inspect", *files)
    _, out, _ = run("inspect", *files, "-f", "json")
    document = json.loads(out)
    assert max(map(len, text.splitlines())) <= 80
    findings = document["findings"]
    assert {"slowest-module", "slowest-operator", "memory"} <= {one["kind"] for one in findings}
    below = " ".join(text.partition("What matters")[2].replace("\\\n", "").split())
    for one in findings:
        assert one["sentence"] in below
        assert " ".join(one["next"].split()) in below
    # A command that was followed does not say it all again, and programs get the same tables.
    for options in (("--by", "op"), ("--select", "op:conv*")):
        assert "What matters" not in run("inspect", *files, *options)[1]
    assert document["schema"] == "etscope.table/1"


def test_machines_get_all_columns_of_all_methods(run: Run) -> None:
    files = artifacts("two_methods")
    for options in ((), ("--by", "op")):
        code, out, _ = run("inspect", files.etdump, "-r", files.etrecord, "-f", "jsonl", *options)
        rows = records_of(out)
        assert code == 0
        assert {row["method"] for row in rows} == {"encode", "decode"}
        assert options or {"instruction", "avg_ms", "sources", "debug_handles"} <= set(rows[0])


@pytest.mark.parametrize("format", ["csv", "tsv"])
def test_columns_of_a_choice_in_order(run: Run, tmp_path: Path, format: str) -> None:
    options = ("--columns", "event,avg,#", "-X", "unit=us", "--sort", "run")
    code, out, _ = run("inspect", cnn().etdump, "-f", format, *options)
    rows = list(csv.reader(io.StringIO(out), delimiter="," if format == "csv" else "\t"))
    assert code == 0
    assert rows[0] == ["event", "avg_us", "instruction"]  # a heading names a column, too
    assert rows[1][0] == "convolution.out" and float(rows[1][1]) > 0
    # No rows of what is selected are no error; and it writes files.
    code, out, _ = run("inspect", cnn().etdump, "-s", "relu*", "-n", "0", "-f", format)
    assert code == 0 and "not shown" in out
    code, out, _ = run("inspect", cnn().etdump, "-o", tmp_path / "out.md")
    assert (code, out) == (0, "")
    assert (tmp_path / "out.md").read_text().count("|") > 50


def test_select_shows_what_matches_and_still_adds_up(run: Run) -> None:
    selected = ("-s", "op:conv* and module:stem", "-f", "jsonl")
    code, out, _ = run("inspect", cnn().etdump, "-r", cnn().etrecord, *selected)
    rows = records_of(out)
    assert code == 0
    assert [row["kind"] for row in rows] == ["kernel", "hidden", "unaccounted", "total"]
    assert rows[0]["module"] == "stem.conv"
    averages = [row["avg_ms"] for row in rows]
    assert sum(averages[:-1]) == pytest.approx(averages[-1])


def test_a_program_alone_gives_operators_sizes_and_memory(run: Run) -> None:
    code, out, _ = run("inspect", cnn().etdump, "-p", cnn().pte, "-f", "jsonl", "--sort", "run")
    kernels = [row for row in records_of(out) if row["kind"] == "kernel"]
    assert code == 0
    assert kernels[0]["operator"] == "aten::convolution.out"
    assert all(row["operator"] and row["outputs"] and row["bytes_written"] for row in kernels)


WORK = "the FLOPs and bytes of the operators are unknown"
RECORD = ["-r", cnn().etrecord]
TRANSFORMER = artifacts("transformer")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["/nowhere.etdp"], 2, "ETDump file not found"),
        ([__file__], 2, "is a MODEL, not a run"),
        (["/"], 2, "the folder / holds no file of a run"),
        (["/dev/null"], 3, "not a regular file"),
        ([cnn().etrecord], 3, "not"),
        ([cnn().etdump, "-r", TRANSFORMER.etrecord], 3, "do not belong together"),
        ([cnn().etdump, "-p", TRANSFORMER.pte], 3, "do not belong together"),
        ([cnn().etdump, "-b", cnn().pte], 3, "the ETDump refers to"),
        ([cnn().etdump, "-s", "op:nothing"], 4, "nothing matches"),
        ([cnn().etdump, "-s", "op:("], 2, "selector"),
        ([cnn().etdump, "-s", "avg>200us"], 4, "hint: a selector is KEY:PATTERN, of name, op"),
        ([cnn().etdump, "-s", "avg > 200us"], 2, "a comparison such as flops>1e6"),
        ([cnn().etdump, "-s", "convo"], 4, "hint: did you mean name:*convo* or op:*convo*?"),
        ([cnn().etdump, "-s", "aten::convolution.out"], 4, "did you mean convolution.out?"),
        ([cnn().etdump, "--method", "backward"], 4, "no run of the method 'backward'"),
        ([cnn().etdump, "--columns", "evnet"], 2, "unknown column 'evnet'"),
        ([cnn().etdump, "--sort", "color"], 2, "cannot sort by"),
        ([cnn().etdump, "--by", "op", "--sort", "p50"], 2, "does not go with --by"),
        ([cnn().etdump, "-X", "unit=cycles"], 2, "cycles"),
        ([artifacts("empty_blocks").folder / "only.etdp"], 4, "no run of any method"),
        ([cnn().etdump, "--work"], 4, WORK),
        ([cnn().etdump, "--columns", "event,gflops"], 4, WORK),
        ([cnn().etdump, "--sort", "flops"], 4, WORK),
        ([cnn().etdump, *RECORD, "-s", "flops>x"], 2, "expected a number right after flops>"),
        ([cnn().etdump, *RECORD, "-s", "flops >1"], 2, "in one word"),
        ([cnn().etdump, *RECORD, "-s", "flops>1e15"], 4, "flops is 0 to"),
        ([cnn().etdump, *RECORD, "--by", "bound"], 4, "need a calibration of the run's machine"),
        ([cnn().etdump, *RECORD, "--sort", "peak"], 4, "need a calibration"),
        ([cnn().etdump, *RECORD, "-s", "peak>0.1"], 4, "need a calibration"),
        ([cnn().etdump, *RECORD, "--work", "--coverage"], 2, "does not go with --coverage"),
        ([cnn().etdump, *RECORD, "--work", "-Xpeaks=/no.json"], 2, "calibration file not found"),
        ([cnn().etdump, *RECORD, "--work", "-X", f"peaks={cnn().etrecord}"], 3, "not a"),
    ],
)
def test_bad_input_has_a_message_and_a_code(
    run: Run, peaks: Path, arguments: list[object], code: int, message: str
) -> None:
    actual, out, err = run("inspect", *arguments)
    assert (actual, out) == (code, "")
    assert message in err and "Traceback" not in err
    assert message != WORK or "name the ETRecord or the program" in err
    if TRANSFORMER.etrecord in arguments:
        code, out, _ = run("inspect", *arguments, "--force")
        assert code == 0 and "convolution.out" in out


# -- work


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize("by", [None, "op", "module"])
def test_work_is_shown_when_it_is_asked_for(
    run: Run, monkeypatch: pytest.MonkeyPatch, width: int, by: str | None
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    files = artifacts("cnn_xnnpack")
    monkeypatch.chdir(files.etdump.parent)
    options = [] if by is None else ["--by", by]
    files_given = (files.etdump.name, "-r", files.etrecord.name, "-p", files.pte.name)
    code, out, _ = run("inspect", *files_given, "--work", *options)
    assert code == 0
    lines = out.splitlines()
    assert max(map(len, lines)) <= width
    head = next(line for line in lines if "GFLOP/s" in line)
    assert width == 80 or all(name in head for name in ("FLOPs", "bytes", "FLOP/B", "GB/s"))
    assert "a multiply-add is two" in out
    assert "FLOP" not in run("inspect", *files_given, *options)[1]


@pytest.mark.parametrize("width", [80, 140])
def test_work_has_the_share_of_the_peak_and_the_bound(
    run: Run, monkeypatch: pytest.MonkeyPatch, peaks: Path, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    files = artifacts("transformer")
    given = [files.etdump, "-r", files.etrecord, "-p", files.pte, "--work"]
    code, out, _ = run("inspect", *given, "-X", f"peaks={peaks}")
    head = next(line for line in out.splitlines() if "GFLOP/s" in line)
    assert code == 0 and "peak" in head and "bound" in head
    assert "Method::execute" in out
    assert re.search(r"\d% +memory", out) and re.search(r"\d% +compute", out)
    told = " ".join(out.split())
    assert "Peaks: bench (Test CPU, 2 cores), threads: 1, measured 2026-05-01" in told
    assert "The machine of the run is unknown" in told
    without = run("inspect", *given)[1]
    assert "need a calibration of the machine" in " ".join(without.split())
    assert "bound" not in next(line for line in without.splitlines() if "GFLOP/s" in line)


def test_rows_are_selected_by_bound_and_numbers(run: Run, peaks: Path) -> None:
    files = artifacts("transformer")
    words = ["inspect", files.etdump, "-r", files.etrecord, "-p", files.pte, "-f", "json"]
    words += ["-X", f"peaks={peaks}"]
    everything = json.loads(run(*words)[1])["rows"]
    code, out, _ = run(*words, "-s", "bound:memory and flops>=5000 and share<50%")
    leaves = [row for row in json.loads(out)["rows"] if row["kind"] in ("kernel", "delegated")]
    wanted = [
        row["event"]
        for row in everything
        if row["kind"] in ("kernel", "delegated")
        and row["bound"] == "memory"
        and (row["flops"] or 0) >= 5000
        and row["share"] < 0.5
    ]
    assert code == 0 and len(wanted) > 5
    assert sorted(row["event"] for row in leaves) == sorted(wanted)
    by_peak = json.loads(run(*words, "--by", "op", "--sort", "peak")[1])["rows"][:-2]
    shares = [row["peak"] for row in by_peak if row["peak"] is not None]
    assert len(shares) > 5 and shares == sorted(shares, reverse=True)
    bounds = [row["bound"] for row in json.loads(run(*words, "--by", "bound")[1])["rows"]]
    assert {"compute", "memory", "overhead", "Method::execute"} <= set(bounds)
    code, _, err = run("diff", files.etdump, files.etdump, *RECORD, "-s", "flops>1")
    assert code == 2 and "cannot select by flops" in err


def test_the_calibration_of_the_runs_machine_is_found(
    run: Run, peaks: Path, tmp_path: Path
) -> None:
    keep_calibration(calibration())
    files = artifacts("cnn_portable")
    shutil.copy(files.etdump, tmp_path / "run.etdp")
    for cpu, found in (("Test CPU", True), ("Other CPU", False)):
        about = {"conditions": {"cpu": cpu, "cores": 2, "load": 0.1}, "threads": 2}
        (tmp_path / "run.json").write_text(json.dumps(about))
        words = ["inspect", tmp_path / "run.etdp", "-r", files.etrecord]
        code, out, err = run(*words, "--by", "bound")
        assert (code == 0) == found, err
        if found:
            assert "the number of threads is 1 in the calibration and 2" in " ".join(out.split())
        else:
            assert code == 4 and "need a calibration" in err and "etscope calibrate" in err


def test_a_terminal_gets_a_screen_of_rows(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etscope.cli.output.tables._SCREEN_ROWS", 3)
    whole = run("inspect", cnn().etdump)[1]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    few = run("inspect", cnn().etdump)[1]
    assert "rows not shown)" in few and "-n 0 shows all rows." in few
    assert "not shown" not in whole
    assert "rows not shown" not in run("inspect", cnn().etdump, "-n", 0)[1]
