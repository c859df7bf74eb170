"""`etscope lab collect` and `etscope lab sql`, as a person or a script calls them."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from etscope.cli import main
from lab_support.dumps import record_of, saved_run

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for number in range(3):
        saved_run(folder / str(number), seed=number, device=f"d{number}")
    return folder


@pytest.fixture(scope="module")
def dataset(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("commands") / "ds"
    assert main(["lab", "collect", str(runs), "-o", str(folder), "-r", str(record_of())]) == 0
    return folder


def run(capsys: Captured, *arguments: Any) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def collected(capsys: Captured, *arguments: Any) -> tuple[int, dict[str, Any], str]:
    code, out, err = run(capsys, "lab", "collect", *arguments, "--format", "json")
    document = json.loads(out)
    assert document["schema"] == "etscope.collect/1"
    return code, document["reports"][0]["sections"], err


def test_collect(capsys: Captured, runs: Path, tmp_path: Path) -> None:
    options = ("-o", tmp_path / "ds", "--label", "team=a", "--label", "device=mine")
    code, sections, err = collected(capsys, runs / "0", runs / "1", *options)
    assert (code, err) == (0, "")
    assert sections["collected"]["taken"] == 2
    assert sections["collected"]["bytes"] > 1000
    code, sections, _ = collected(capsys, runs, *options)
    assert (code, sections["collected"]["taken"], sections["collected"]["again"]) == (0, 1, 2)
    code, sections, _ = collected(capsys, runs, *options)
    assert (code, sections["collected"]["taken"], sections["collected"]["again"]) == (0, 0, 3)
    code, out, _ = run(
        capsys, "lab", "sql", tmp_path / "ds", "select device, labels['team'] as t from dumps",
        "--format", "csv",
    )  # fmt: skip
    assert out == "device,t\n" + "mine,a\n" * 3


def test_lists_and_standard_input(
    capsys: Captured, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "list").write_text(f"{runs / '0'}\n")
    code, sections, _ = collected(capsys, f"@{tmp_path / 'list'}", "-o", tmp_path / "ds")
    assert (code, sections["collected"]["taken"]) == (0, 1)
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"# more\n{runs / '1'}\n\n"))
    code, sections, _ = collected(capsys, "--files-from", "-", "-o", tmp_path / "ds")
    assert (code, sections["collected"]["taken"]) == (0, 1)
    code, sections, _ = collected(
        capsys, "--files-from", tmp_path / "list", runs / "2", "-o", tmp_path / "ds", "--progress"
    )
    assert (code, sections["collected"]["taken"], sections["collected"]["again"]) == (0, 1, 1)


def test_bad_dumps(capsys: Captured, runs: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.etdp").write_text("no dump")
    named = (runs / "0", tmp_path / "bad.etdp")
    code, sections, err = collected(capsys, *named, "-o", tmp_path / "strict", "--strict")
    assert (code, sections["collected"]["taken"]) == (3, 0)
    assert "nothing was written" in err
    code, sections, err = collected(capsys, *named, "-o", tmp_path / "ds")
    assert (code, sections["collected"]["taken"]) == (3, 1)
    (bad,) = sections["bad"]
    assert bad["dump"].endswith("bad.etdp") and bad["slug"] == "bad-file"
    assert err.startswith(f"bad: {tmp_path / 'bad.etdp'}: not an ETDump")
    code, out, err = run(capsys, "lab", "collect", *named, "-o", tmp_path / "ds")
    assert code == 3 and "Bad dumps" in out


def test_nothing(capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    code, out, err = run(capsys, "lab", "collect", tmp_path / "empty", "-o", tmp_path / "ds")
    assert (code, out) == (4, "") and "no ETDump" in err
    assert not (tmp_path / "ds").exists()
    assert run(capsys, "lab", "collect", "-o", tmp_path / "ds")[0] == 2
    assert run(capsys, "lab", "collect", tmp_path, "-o", tmp_path / "ds", "--label", "x")[0] == 2


def test_sql(capsys: Captured, dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sql = "select op, sum(duration_ns) as total_ns, count(*) as n from events where kind = $kind "
    sql += "group by op order by total_ns desc"
    code, out, err = run(capsys, "lab", "sql", dataset, sql, "--param", "kind=kernel")
    assert (code, err) == (0, "")
    assert "total (ns)" in out and "aten.convolution.default" in out
    code, out, _ = run(capsys, "lab", "sql", dataset, sql, "--param", "kind=kernel", "-f", "json")
    rows = json.loads(out)["rows"]
    assert rows[0]["total_ns"] > rows[1]["total_ns"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("select 1 as one"))
    assert run(capsys, "lab", "sql", dataset, "-", "-f", "csv")[1] == "one\n1\n"
    assert run(capsys, "lab", "sql", dataset, "select $a + 1 as b", "--param", "a=2", "-f", "csv")[
        1
    ] == ("b\n3\n")
    # In quotes, as JSON has it, a number is a text.
    arguments = ("select typeof($a) as t", "--param", 'a="2"', "-f", "csv")
    assert run(capsys, "lab", "sql", dataset, *arguments)[1] == "t\nVARCHAR\n"


def test_sql_limits(capsys: Captured, dataset: Path) -> None:
    code, out, _ = run(capsys, "lab", "sql", dataset, "from range(500)")
    assert "There are more rows than these 100." in out
    assert (
        len(run(capsys, "lab", "sql", dataset, "from range(500)", "-f", "csv")[1].splitlines())
        == 501
    )
    assert (
        len(run(capsys, "lab", "sql", dataset, "from range(9)", "-n", 3, "-f", "csv")[1].split())
        == 4
    )
    code, out, _ = run(capsys, "lab", "sql", dataset, "select 1 as a where false")
    assert code == 0 and "No rows." in out
    code, _, err = run(capsys, "lab", "sql", dataset, "select sum(a.range * b.range) from "
                       "range(100000000) a, range(1000000) b", "--timeout", "0.2")  # fmt: skip
    assert code == 5 and "longer than 0.2 s" in err


def test_sql_errors(capsys: Captured, dataset: Path, tmp_path: Path) -> None:
    code, out, err = run(capsys, "lab", "sql", dataset, "select opp from events")
    assert (code, out) == (2, "") and "LINE 1: select opp" in err and "^" in err
    assert run(capsys, "lab", "sql", dataset, "select * from read_text('/etc/passwd')")[0] == 2
    assert run(capsys, "lab", "sql", dataset)[0] == 2
    assert run(capsys, "lab", "sql", dataset, "select 1", "--saved", "drift")[0] == 2
    assert run(capsys, "lab", "sql", dataset, "select 1", "--param", "x")[0] == 2
    assert run(capsys, "lab", "sql", tmp_path / "none", "select 1")[0] == 2
    assert run(capsys, "lab", "sql", tmp_path, "select 1")[0] == 3


def test_saved(capsys: Captured, dataset: Path) -> None:
    code, out, _ = run(capsys, "lab", "sql", "--list-saved")
    assert code == 0 and "outlier-devices" in out and "threshold=3.5" in out
    code, out, _ = run(capsys, "lab", "sql", "--list-saved", "-f", "json")
    assert {row["query"] for row in json.loads(out)["reports"][0]["sections"]["columns"]} == {
        row["name"] for row in json.loads(out)["reports"][0]["sections"]["queries"]
    }
    assert run(capsys, "lab", "sql", "--show-saved", "drift")[1].startswith("-- question: ")
    code, out, _ = run(
        capsys,
        "lab",
        "sql",
        dataset,
        "--saved",
        "slowest-ops",
        "--param",
        "device=d1",
        "-f",
        "json",
    )
    rows = json.loads(out)["rows"]
    assert code == 0 and {row["device"] for row in rows} == {"d1"}
    code, _, err = run(capsys, "lab", "sql", dataset, "--saved", "drift", "--param", "model=none")
    assert code == 4 and "no row" in err


def test_a_narrow_terminal_keeps_the_verdicts(
    capsys: Captured, dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    sides = ["--param", "label=device", "--param", "before=d0", "--param", "after=d1"]
    code, out, _ = run(capsys, "lab", "sql", dataset, "--saved", "changes", *sides)
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert out.splitlines()[1].endswith("verdict")
    assert "columns not shown at 80 wide: method, phase, low, high, p," in out
    _, out, _ = run(capsys, "lab", "sql", dataset, "--saved", "changes", *sides, "-f", "csv")
    assert out.splitlines()[0].endswith("reason")
