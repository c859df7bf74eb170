"""`etscope diff`, as a person, a pull request or a CI job calls it."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from functools import cache, partial
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from etscope.analysis.comparison.changes import Diff
from etscope.analysis.comparison.diff import diff_profiles
from etscope.analysis.profile.profile import MethodProfile
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.trace import Trace
from etscope.formats.etdump.reader import read_etdump
from etscope.units import TimeScale
from etscope.views.tables import junit
from tests.support.artifacts import Artifact, artifacts
from tests.support.cli.fixtures import Run
from tests.support.golden_files import check_golden
from tests.support.timed_dumps import timed_dump

MS = Scale(TimeScale.NS, TimeScale.MS)


def cnn() -> Artifact:
    return artifacts("cnn_portable")


@pytest.fixture
def run(run: Run) -> Run:
    return partial(run, "diff")


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Before; the same again; one kernel slower; all of them slower; seven runs only."""
    folder = tmp_path_factory.mktemp("dumps")
    source = cnn().etdump_timing
    assert source is not None
    return {
        "before": timed_dump(source, folder / "a.etdp", seed=1, runs=100),
        "same": timed_dump(source, folder / "b.etdp", seed=2, runs=100),
        "kernel": timed_dump(source, folder / "c.etdp", seed=3, runs=100, slower={7: 1.25}),
        "all": timed_dump(
            source, folder / "d.etdp", seed=4, runs=100, slower=dict.fromkeys(range(24), 1.1)
        ),
        "few": timed_dump(source, folder / "e.etdp", seed=5, runs=7),
    }


@pytest.mark.parametrize(
    ("after", "options", "code"),
    [
        ("same", (), 0),
        ("all", (), 1),
        ("kernel", ("--per-op", "-r", cnn().etrecord), 1),
        ("all", ("--min-effect", "20%"), 0),
        ("few", (), 0),
        ("few", ("--strict",), 4),
        ("same", ("--strict",), 0),
    ],
)
def test_exit_codes(
    run: Run, dumps: dict[str, Path], after: str, options: tuple[object, ...], code: int
) -> None:
    given = (dumps["before"], dumps[after], *options)
    found, out, err = run(*given)
    assert (found, err) == (code, "")
    words = {("same", 0): "no difference", ("all", 1): "regressed", ("few", 4): "cannot tell"}
    assert words.get((after, code), "") in out.splitlines()[0]
    found, out, _ = run(*given, "-f", "junit")  # which fails when the command does
    root = checked(out)
    assert found == code
    assert len(root.findall(".//testcase")) == 25  # the method and 24 operators
    assert (code == 1) == (int(root.attrib["failures"]) > 0)
    assert after != "all" or root.attrib["failures"] == str(code)
    assert root.attrib["errors"] == ("1" if code == 4 else "0")


def test_mistakes(run: Run, dumps: dict[str, Path]) -> None:
    before = dumps["before"]
    xnnpack, other = artifacts("cnn_xnnpack"), artifacts("transformer_portable")
    records = ("-r", cnn().etrecord, "-r", other.etrecord)
    for given, wanted, said in (
        ((), 2, ""),
        ((before, "nothing.etdp"), 2, ""),
        ((before, before, "--min-effect", "much"), 2, ""),
        ((before, before, "--confidence", "1"), 2, ""),
        ((before, cnn().pte), 2, "a dump is not comparable with a program"),
        ((before,) * 3 + ("-r", cnn().etrecord) * 2, 2, "--etrecord is given 2 times for 3 dumps"),
        ((before, other.etdump_timing, *records), 3, "different models"),
        (
            (before, dumps["same"], other.etdump_timing, "-r", cnn().etrecord, *records),
            3,
            f"{other.etdump_timing.name}: the dumps are from different models",
        ),
        ((before, before, "-s", "op:nothing"), 4, "nothing was selected"),
        ((before, before, "-m", "nothing"), 4, ""),
    ):
        code, _, err = run(*given)
        assert code == wanted and said in err, err
    assert run(before, xnnpack.etdump_timing)[0] == 0  # another backend is no other model
    given = (before, other.etdump_timing, "--force", "--limit", "1")
    code, _, err = run(*given, "-r", cnn().etrecord)
    assert code == 0 and "Name an ETRecord for each dump" in err
    code, _, err = run(*given, *records)
    assert code == 0 and err == ""


def test_the_slower_kernel_stands_first_with_its_line(run: Run, dumps: dict[str, Path]) -> None:
    code, out, _ = run(
        dumps["before"], dumps["kernel"], "-r", cnn().etrecord, "-f", "json", "--per-op"
    )
    document = json.loads(out)
    regressed = [row for row in document["rows"] if row["verdict"] == "regressed"]
    assert code == 1
    operators = [row for row in regressed if row["kind"] == "kernel"]
    assert [row["instruction"] for row in operators] == [7]
    assert operators[0]["module"] and "cnn.py:" in operators[0]["source"]
    assert operators[0]["ratio"] == pytest.approx(1.25, abs=0.05)
    rows = [row for row in document["rows"] if row["kind"] != "total"]
    assert sum(row["change"] for row in rows) == pytest.approx(document["rows"][-1]["change"])


@pytest.mark.parametrize("by", ["module", "op", "type", "source"])
def test_sums_stand_by_name_and_add_up(run: Run, dumps: dict[str, Path], by: str) -> None:
    xnnpack = artifacts("cnn_xnnpack")
    records = ("-r", cnn().etrecord, "-r", xnnpack.etrecord)
    code, out, _ = run(dumps["before"], xnnpack.etdump_timing, *records, "--by", by, "-f", "json")
    document = json.loads(out)
    rows = document["rows"]
    assert code == 0 and rows[0][by]
    depths = document.get("depth") or [0] * len(rows)
    tops = [row for row, depth in zip(rows, depths, strict=True) if not depth][:-1]
    assert sum(row["change"] for row in tops) == pytest.approx(rows[-1]["change"])
    assert any("XnnpackBackend after" in note for note in document["notes"])


def test_each_of_several_dumps_is_compared_with_the_first(run: Run, dumps: dict[str, Path]) -> None:
    files = [dumps[name] for name in ("before", "same", "kernel", "all")]
    code, out, err = run(*files, "-r", cnn().etrecord, "-f", "json")
    document = json.loads(out)
    rows, total = document["rows"], document["rows"][-1]
    assert (code, err) == (1, "") and total["event"] == "Method::execute"
    verdicts = [total[f"verdict_{n}"] for n in (2, 3, 4)]
    assert verdicts[0] == "no difference" and verdicts[2] == "regressed"
    slower = [row["module"] for row in rows[:-2] if row["verdict_3"] == "regressed"]
    assert len(slower) == 1 and slower[0]
    for n in (2, 3, 4):  # the same times and verdicts as of the two alone, and they add up
        _, alone, _ = run(files[0], files[n - 1], "-r", cnn().etrecord, "-f", "json")
        other = json.loads(alone)["rows"][-1]
        mine = [total["time_1"], *(total[f"{k}_{n}"] for k in ("time", "change", "verdict"))]
        assert mine == [other[k] for k in ("before", "after", "change", "verdict")]
        changes = sum(row[f"change_{n}"] for row in rows[:-1])
        assert changes == pytest.approx(total[f"change_{n}"])
    assert any(note.startswith("Dump 3, c.etdp: forward takes ") for note in document["notes"])
    assert run(*files[:2], files[0])[0] == 0
    code, out, _ = run(files[0], files[1], files[3], "-f", "junit")
    root = checked(out)
    suites = [suite.attrib["name"] for suite in root.iter("testsuite")]
    assert suites == ["method: b.etdp", "method: d.etdp"]
    assert code == 1 and root.attrib["failures"] == "1"


@pytest.mark.parametrize("by", [None, "module", "op", "type", "source", "delegate"])
def test_several_dumps_add_up_across_backends(
    run: Run, dumps: dict[str, Path], by: str | None
) -> None:
    xnnpack, int8 = artifacts("cnn_xnnpack"), artifacts("cnn_xnnpack_int8")
    runs = (dumps["before"], xnnpack.etdump_timing, int8.etdump_timing)
    options = [x for one in (cnn(), xnnpack, int8) for x in ("-r", one.etrecord, "-p", one.pte)]
    grouping = () if by is None else ("--by", by)
    for limit in ((), ("-n", "3"), ("-n", "1")):
        _, out, err = run(*runs, *options, *grouping, *limit, "-f", "json")
        assert err == ""
        document = json.loads(out)
        rows = document["rows"]
        depths = document.get("depth") or [0] * len(rows)
        tops = [row for row, depth in zip(rows, depths, strict=True) if not depth]
        assert len(rows) >= (2 if limit else 4)
        for n in (2, 3):
            changes = sum(row[f"change_{n}"] or 0.0 for row in tops[:-1])
            assert changes == pytest.approx(tops[-1][f"change_{n}"]), (limit, n)
        if limit:
            names = [row[by or "event"] for row in tops]
            left_out = [name for name in names if "not shown" in name]
            assert len(left_out) == 1 or by in ("type", "delegate")  # of which there are few
            noun = {None: "rows", "module": "modules?"}.get(by, "groups?")
            number = "" if by is None else r"\d+ "
            pattern = rf"\({number}{noun} not shown\)"
            assert all(re.fullmatch(pattern, name) for name in left_out), left_out
    _, out, _ = run(*runs, *options, *grouping)
    assert "XnnpackBackend after" in out and "Dump 3, " in out


def test_what_several_dumps_added_is_one_row(
    run: Run, dumps: dict[str, Path], tmp_path: Path
) -> None:
    xnnpack = artifacts("cnn_xnnpack")
    copied = shutil.copy(xnnpack.etdump_timing, tmp_path / "again.etdp")
    records = ("-r", cnn().etrecord, *("-r", xnnpack.etrecord) * 2)
    _, out, _ = run(dumps["before"], xnnpack.etdump_timing, copied, *records, "-f", "json")
    delegates = [row for row in json.loads(out)["rows"] if row["event"] == "XnnpackBackend"]
    assert delegates and all(row["time_2"] == row["time_3"] for row in delegates)
    assert all(row["time_1"] is None and row["status_2"] == "added" for row in delegates)


def test_folders_of_saved_runs_are_compared_with_their_files(
    run: Run, dumps: dict[str, Path], tmp_path: Path
) -> None:
    folders = []
    for name in ("before", "kernel", "all"):
        folder = tmp_path / name
        folder.mkdir()
        shutil.copy(dumps[name], folder / "run.etdp")
        shutil.copy(cnn().etrecord, folder / "run.etrecord")
        folders.append(folder)
    _, out, _ = run(*folders, "-f", "json")
    document = json.loads(out)
    assert any("aligned by module" in note for note in document["notes"])
    assert any(note.startswith("Dump 3, all/run.etdp: ") for note in document["notes"])
    _, out, _ = run(*folders[:2], "-f", "md")
    assert out.startswith("**forward: ")


@pytest.mark.filterwarnings("always::etscope.errors.EtscopeWarning")
def test_logged_values_are_warned_of(run: Run) -> None:
    code, out, err = run(cnn().etdump, cnn().etdump_timing, "-f", "csv")
    assert code == 0 and out.startswith("method,event,")
    assert "only the first dump logged intermediate values" in err


def test_noise_and_limits_for_people(
    run: Run, dumps: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = ("--baseline-noise", dumps["same"], "--baseline-noise", dumps["all"])
    code, out, _ = run(dumps["before"], dumps["all"], *noise, "-f", "md", "-n", "3")
    assert code == 0
    assert "3 dumps of one program" in out
    # A comment for a pull request, and a terminal.
    target = tmp_path / "comment.md"
    given = (dumps["before"], dumps["kernel"], "-n", "3", "-o", target, "--min-effect", "0.05")
    assert run(*given)[0] == 0
    text = target.read_text()
    assert text.startswith("**method: ")
    assert "| convolution.out |" in text and "(21 rows not shown)" in text
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = run(dumps["before"], dumps["all"], "-r", cnn().etrecord)
    assert max(map(len, out.splitlines())) <= 80
    assert "verdict" in out and "regressed" in out


REQUIRED = {
    "testsuites": {"name", "tests", "failures", "errors"},
    "testsuite": {"name", "tests", "failures", "errors", "skipped"},
    "property": {"name", "value"},
    "testcase": {"name", "classname", "time"},
    "failure": {"message", "type"},
    "error": {"message", "type"},
    "skipped": {"message"},
}


@cache
def jenkins_schema() -> Any:
    """tests/schemas/junit-10.xsd is that of Jenkins' xUnit plugin, as pytest's sources have it."""
    from xmlschema import XMLSchema

    return XMLSchema(Path(__file__).parents[2] / "schemas" / "junit-10.xsd")


def checked(text: str) -> ElementTree.Element:
    """The document, held against the form that Jenkins, GitLab and GitHub read."""
    jenkins_schema().validate(text)
    root = ElementTree.fromstring(text.encode())
    for element in root.iter():
        assert REQUIRED.get(element.tag, set()) <= set(element.attrib)
    for suite in root.iter("testsuite"):
        cases = suite.findall("testcase")
        assert suite[0].tag == "properties"  # before the cases
        assert int(suite.attrib["tests"]) == len(cases)
        for kind, attribute in (("failure", "failures"), ("error", "errors")):
            assert int(suite.attrib[attribute]) == sum(c.find(kind) is not None for c in cases)
        assert len({case.attrib["name"] for case in cases}) == len(cases)
        assert all(float(case.attrib["time"]) >= 0 for case in cases)
    return root


def test_junit_golden(run: Run, tmp_path: Path) -> None:
    """Times made of nothing but seeds, and so the whole document."""
    profile = Trace(read_etdump(_made(tmp_path / "a.etdp", 1.0))).profiles()[0]
    other = Trace(read_etdump(_made(tmp_path / "b.etdp", 1.2))).profiles()[0]
    check_golden("diff/one_slower.xml", junit_of(profile, other, per_op=True))
    code, text, _ = run(tmp_path / "a.etdp", tmp_path / "b.etdp", "-f", "md")
    assert code == 1
    check_golden("diff/one_slower.md", text)
    hostile = "a]]><b>&\"'\x00\x1b[31m\ud800\u202e\n</testcase>"
    rows = tuple(replace(row, name=hostile) for row in profile.rows)
    profile = replace(profile, rows=rows, method=hostile)
    document = junit_of(profile, profile)
    assert re.fullmatch(r"[\t\n\x20-\ud7ff]*", document)
    case = checked(document).findall(".//testcase")[1]
    assert case.attrib["name"] == "#0 a]]><b>&\"'\\x00\\x1b[31m\\ud800\\u202e\\n</testcase>"


def junit_of(before: MethodProfile, after: MethodProfile, **options: bool) -> str:
    out = StringIO()
    junit.write(Diff((diff_profiles(before, after),)), out, MS, **options)
    return out.getvalue()


def _made(path: Path, factor: float) -> Path:
    """Two kernels of 1 and 3 ms whose times walk in a fixed pattern; the second takes longer."""
    from etscope.formats.etdump.writer import ETDumpWriter

    writer = ETDumpWriter()
    for run in range(40):
        writer.create_event_block("Execute")
        jitter = (run * 7919) % 40 * 500 + (200_000 if run == 0 else 0)
        middle = 1_000_000 + jitter
        end = middle + int(3_000_000 * factor) + (run * 104_729) % 40 * 700
        writer.log_profiling("native_call_add.out", 0, middle, chain_index=0, instruction_id=0)
        writer.log_profiling("OPERATOR_CALL", 0, middle, chain_index=0, instruction_id=0)
        writer.log_profiling("native_call_mm.out", middle, end, chain_index=0, instruction_id=1)
        writer.log_profiling("OPERATOR_CALL", middle, end, chain_index=0, instruction_id=1)
        writer.log_profiling("Method::execute", 0, end + 1000)
    writer.save(path)
    return path
