"""`etscope explain` as a person or a script calls it, on recorded runs."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from etscope.cli import main
from tests.support.artifacts import artifacts


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def portable(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    made = artifacts("cnn_portable")
    monkeypatch.chdir(made.pte.parent)
    record = str(made.etrecord.name if made.etrecord else "")
    return ["explain", made.etdump_timing.name, "-r", record, "-p", made.pte.name]


@pytest.mark.parametrize("width", ["80", "140"])
def test_a_finding_says_what_where_and_what_to_do(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    portable: list[str],
    width: str,
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    code, out, err = run(capsys, *portable, "--rule", "not-delegated")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= int(width)
    text = " ".join(out.split())
    assert "Nothing is delegated: kernels of the runtime take" in text
    assert "convolution.out, instruction 3, stages.0.first.conv, cnn.py:" in text
    assert "To do: Lower the model to a backend: `etscope export MODEL --backend xnnpack`." in text
    assert "etscope inspect timing.etdp" in text


def test_the_record_may_follow_the_dump(
    capsys: pytest.CaptureFixture[str], portable: list[str]
) -> None:
    verb, dump, option, record, *others = portable
    following = run(capsys, verb, dump, record, *others, "--format", "json")
    assert following == run(capsys, *portable, "--format", "json")
    code, out, err = run(capsys, verb, dump, record, option, record)
    assert (code, out) == (2, "")
    assert f"two ETRecords: {record} and -r {record}" in err


def test_programs_get_the_numbers(capsys: pytest.CaptureFixture[str], portable: list[str]) -> None:
    code, out, _ = run(capsys, *portable, "--rule", "not-delegated", "--format", "json")
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
    _, out, _ = run(capsys, *portable, "--rule", "not-delegated", "--format", "csv")
    (again,) = csv.DictReader(io.StringIO(out))
    assert float(again["share"]) == pytest.approx(row["share"])


def test_markdown_has_the_texts(capsys: pytest.CaptureFixture[str], portable: list[str]) -> None:
    _, out, _ = run(capsys, *portable, "--format", "md")
    assert "\n- Nothing is delegated" in out
    assert "\n  - To do: Lower the model to a backend" in out


@pytest.mark.parametrize(
    ("severity", "least", "code"), [("cost", 2, 1), ("problem", 2, 0), ("cost", 100, 0)]
)
def test_a_gate_fails_on_what_it_is_told(
    capsys: pytest.CaptureFixture[str], portable: list[str], severity: str, least: int, code: int
) -> None:
    more = ("--rule", "not-delegated", "--fail-on", severity, "--least", least)
    assert run(capsys, *portable, *more)[0] == code


def test_nothing_found_is_said(capsys: pytest.CaptureFixture[str], portable: list[str]) -> None:
    code, out, _ = run(capsys, *portable, "--rule", "not-delegated", "--least", "100")
    assert code == 0
    assert "No rule found anything that takes 100.0% of the time or more." in " ".join(out.split())


def test_what_was_not_given_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "explain", artifacts("cnn_portable").etdump_timing)
    text = " ".join(out.split())
    assert code == 0
    assert "Without an ETRecord (-r), graphs, lines and refused nodes were not looked at." in text
    assert "Without a program (-p), types of tensors and layouts were not looked at." in text


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (("--rule", "nonsense"), 2, "no rule is called 'nonsense'"),
        (("--method", "nonsense"), 4, "no run of a method 'nonsense'"),
        (("--phase", "decode"), 4, "decode"),
        (("--least", "101"), 2, "101"),
    ],
)
def test_what_cannot_be_done_is_said(
    capsys: pytest.CaptureFixture[str],
    portable: list[str],
    more: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    found, out, err = run(capsys, *portable, *more)
    assert (found, out) == (code, "")
    assert said in err


def test_another_programs_record_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    record = artifacts("transformer").etrecord
    code, out, err = run(capsys, "explain", artifacts("cnn_portable").etdump_timing, "-r", record)
    assert (code, out) == (3, "")
    assert "do not belong together" in err


def test_a_damaged_dump_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.etdp"
    damaged.write_bytes(artifacts("cnn_portable").etdump_timing.read_bytes()[:200])
    code, out, _ = run(capsys, "explain", damaged)
    assert (code, out) == (3, "")


def test_neither_torch_nor_executorch_is_imported(portable: list[str]) -> None:
    code = (
        "import sys; from etscope.cli import main; main(sys.argv[1:]); "
        "print(sorted({'torch', 'executorch', 'pandas', 'matplotlib'} & set(sys.modules)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, *portable], capture_output=True, text=True, check=True
    )
    assert found.stdout.splitlines()[-1] == "[]"
