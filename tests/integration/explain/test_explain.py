"""`etscope explain` as a person or a script calls it, on recorded runs."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from etscope.formats.calibration import write_calibration
from tests.support.artifacts import artifacts
from tests.support.calibrations import calibration
from tests.support.cli.fixtures import Run


@pytest.fixture
def portable(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    made = artifacts("cnn_portable")
    monkeypatch.chdir(made.pte.parent)
    assert made.etrecord is not None
    return ["explain", made.etdump_timing.name, "-r", made.etrecord.name, "-p", made.pte.name]


@pytest.mark.parametrize("width", ["80", "140"])
def test_a_finding_says_what_where_and_what_to_do(
    run: Run, monkeypatch: pytest.MonkeyPatch, portable: list[str], width: str
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    code, out, err = run(*portable, "--rule", "not-delegated")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= int(width)
    text = " ".join(out.split())
    assert "Nothing is delegated: kernels of the runtime take" in text
    assert "convolution.out, instruction 3, stages.0.first.conv, cnn.py:" in text
    assert "To do: Lower the model to a backend: `etscope export MODEL --backend xnnpack`." in text
    assert "etscope inspect timing.etdp" in text


def test_the_record_may_follow_the_dump(run: Run, portable: list[str]) -> None:
    verb, dump, option, record, *others = portable
    following = run(verb, dump, record, *others, "--format", "json")
    assert following == run(*portable, "--format", "json")
    code, out, err = run(verb, dump, record, option, record)
    assert (code, out) == (2, "")
    assert f"two files for the ETRecord: {record} and {record}" in err


def test_programs_get_the_numbers(run: Run, portable: list[str]) -> None:
    code, out, _ = run(*portable, "--rule", "not-delegated", "--format", "json")
    document = json.loads(out)
    (row,), (finding,) = document["rows"], document["findings"]
    assert code == 0
    assert row["low"] <= row["time"] <= row["high"]
    assert row["share"] > 0.9
    assert finding["kind"] == row["finding"] == "not-delegated"
    explained = finding["explanation"]
    assert explained["sureness"] == row["sureness"] == "measured"
    assert explained["low"] == row["low"]
    times = [site["time"] for site in explained["sites"]]
    assert times == sorted(times, reverse=True)
    assert sum(times) <= row["time"] * 1.000001
    (remedy,) = explained["remedies"]
    assert (remedy["change"], remedy["arguments"]) == ("backend", {"backend": "xnnpack"})
    _, out, _ = run(*portable, "--rule", "not-delegated", "--format", "csv")
    (again,) = csv.DictReader(io.StringIO(out))
    assert float(again["share"]) == pytest.approx(row["share"])
    _, out, _ = run(*portable, "--format", "md")  # for people
    assert "\n- Nothing is delegated" in out
    assert "\n  - To do: Lower the model to a backend" in out


@pytest.mark.parametrize(
    ("severity", "least", "code"), [("cost", 2, 1), ("problem", 2, 0), ("cost", 100, 0)]
)
def test_a_gate_fails_on_what_it_is_told(
    run: Run, portable: list[str], severity: str, least: int, code: int
) -> None:
    more = ("--rule", "not-delegated", "--fail-on", severity, "--least", least)
    found, out, _ = run(*portable, *more)
    assert found == code
    nothing = "No rule found anything that takes 100.0% of the time or more."
    assert (nothing in " ".join(out.split())) == (least == 100)


def test_what_was_not_given_is_said(run: Run) -> None:
    code, out, _ = run("explain", artifacts("cnn_portable").etdump_timing)
    text = " ".join(out.split())
    assert code == 0
    assert "Without an ETRecord (-r), graphs, lines and refused nodes were not looked at." in text
    assert "Without a program (-p), types of tensors and layouts were not looked at." in text


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (("--rule", "nonsense"), 2, "no rule is called 'nonsense'"),
        (("--method", "nonsense"), 4, "no run of the method 'nonsense'"),
        (("--calls", "decode"), 4, "decode"),
        (("--least", "101"), 2, "101"),
    ],
)
def test_what_cannot_be_done_is_said(
    run: Run, portable: list[str], more: tuple[str, ...], code: int, said: str
) -> None:
    found, out, err = run(*portable, *more)
    assert (found, out) == (code, "")
    assert said in err


def test_other_and_damaged_files_are_refused(run: Run, tmp_path: Path) -> None:
    dump, damaged = artifacts("cnn_portable").etdump_timing, tmp_path / "damaged.etdp"
    damaged.write_bytes(dump.read_bytes()[:200])
    other = (dump, "-r", artifacts("transformer").etrecord)
    for files, said in ((other, "do not belong together"), ((damaged,), "damaged.etdp")):
        code, out, err = run("explain", *files)
        assert (code, out) == (3, "")
        assert said in err


# -- calibrations


@pytest.fixture
def peaks(tmp_path: Path) -> Path:
    """A calibration of another machine than that of the run, which tells of none."""
    path = tmp_path / "phone.json"
    write_calibration(replace(calibration(), marks=("it was warm",)), path)
    return path


def test_what_speaks_against_a_calibration_is_said(
    run: Run, portable: list[str], peaks: Path
) -> None:
    code, out, err = run(*portable, "--rule", "not-delegated", "-X", f"peaks={peaks}")
    assert (code, err) == (0, "")
    assert "The calibration is marked: it was warm." in " ".join(out.split())


def test_a_damaged_calibration_is_no_reason_to_guess(
    run: Run, portable: list[str], peaks: Path
) -> None:
    peaks.write_text(peaks.read_text().replace("1e11", "-1").replace("100000000000.0", "-1"))
    code, out, err = run(*portable, "-X", f"peaks={peaks}")
    assert (code, out) == (3, "")
    assert "flop_per_s" in err
