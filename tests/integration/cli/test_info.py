"""`etscope info`, as a person or a script calls it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from etscope.cli import main
from etscope.formats.etdump.writer import ETDumpWriter
from tests.support.artifacts import artifacts
from tests.support.golden_files import check_golden

CNN = "cnn_xnnpack"


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def every_kind() -> list[Path]:
    files, bundled = artifacts(CNN), artifacts("bundled")
    paths = [files.etdump, files.etrecord, files.pte, bundled.bpte, artifacts("cond").etrecord]
    return [path for path in paths if path is not None]


@pytest.mark.parametrize("width", [80, 140])
def test_it_fits_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))

    code, out, err = run(capsys, "info", *every_kind())

    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= width
    unfolded = " ".join(out.split())
    for heading in ("ETDump", "ETRecord", "ExecuTorch program", "bundled program", "Blocks",
                    "Graphs", "Delegates", "Test cases"):  # fmt: skip
        assert heading in unfolded


@pytest.mark.parametrize("width", [80, 140])
def test_a_dump_golden(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    width: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(width))
    writer = ETDumpWriter()
    writer.create_event_block("Default")
    writer.log_profiling("Program::load_method", 0, 700_000)
    for repeat in range(3):
        writer.create_event_block("Execute")
        start = repeat * 2_000_000
        writer.set_chain_debug_handle(0, 0)
        writer.log_profiling("native_call_add.out", start + 10, start + 5_000)
        writer.log_profiling("OPERATOR_CALL", start, start + 6_000)
        writer.set_chain_debug_handle(0, 1)
        writer.log_profiling_delegate("Convolution #1", start + 10_000, start + 900_000)
        writer.log_profiling("DELEGATE_CALL", start + 9_000, start + 950_000)
        writer.set_chain_debug_handle(-1, -1)
        writer.log_profiling("Method::execute", start, start + 1_000_000 + repeat * 1_000)
    writer.save("run.etdp")

    code, out, _ = run(capsys, "info", "run.etdp")

    assert code == 0
    check_golden(f"info/etdump_{width}.txt", out)


def test_json_is_one_document_of_all_files(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "info", *every_kind(), "--format", "json")

    document = json.loads(out)
    assert code == 0
    assert document["schema"] == "etscope.info/1"
    kinds = [report["kind"] for report in document["reports"]]
    assert kinds == ["etdump", "etrecord", "pte", "bpte", "etrecord"]
    assert [report["file"] for report in document["reports"]] == list(map(str, every_kind()))


@pytest.mark.parametrize("format", ["csv", "tsv", "jsonl", "md", "table"])
def test_every_format(capsys: pytest.CaptureFixture[str], format: str) -> None:
    code, out, _ = run(capsys, "info", artifacts(CNN).pte, "-f", format)
    assert code == 0
    assert "XnnpackBackend" in out


def test_a_file_by_its_suffix(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "info.json"
    code, out, _ = run(capsys, "info", artifacts(CNN).pte, "-o", path)
    assert (code, out) == (0, "")
    assert json.loads(path.read_text())["reports"][0]["kind"] == "pte"


def test_people_get_the_first_rows_of_a_long_table(capsys: pytest.CaptureFixture[str]) -> None:
    wide = artifacts("transformer").pte

    _, short, _ = run(capsys, "info", wide, "--limit", "2")
    _, machine, _ = run(capsys, "info", wide, "-f", "json")
    _, limited, _ = run(capsys, "info", wide, "-f", "json", "--limit", "2")

    assert "more rows are not shown (--limit)." in short
    operators = json.loads(machine)["reports"][0]["sections"]["operators"]
    assert len(operators) > 2
    assert json.loads(limited)["reports"][0]["sections"]["operators"] == operators[:2]


def test_a_bad_file_does_not_hide_the_others(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    bad = tmp_path / "bad.pte"
    bad.write_bytes(b"nothing of this kind")

    empty = tmp_path / "empty"
    empty.mkdir()
    code, out, err = run(capsys, "info", "/nowhere.pte", artifacts(CNN).pte, bad, empty)

    assert code == 3
    assert "ExecuTorch program" in out
    assert "file not found: /nowhere.pte" in err
    assert "bad.pte: not a file that etscope reads" in err
    assert "this is a directory" in err


def test_one_missing_file_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "info", "/nowhere.pte")
    assert (code, out) == (2, "")
    assert "ExecuTorch file not found: /nowhere.pte" in err


def test_a_damaged_file_is_bad_input(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    cut = tmp_path / "cut.etdp"
    cut.write_bytes(artifacts(CNN).etdump.read_bytes()[:3000])
    code, out, err = run(capsys, "info", cut)
    assert (code, out) == (3, "")
    assert "cut.etdp" in err


def test_nothing_heavy_is_imported() -> None:
    script = (
        "import sys; from etscope.cli import main; code = main(['info', *sys.argv[1:]])\n"
        "heavy = {'torch', 'executorch', 'pandas', 'rich', 'matplotlib', 'ml_dtypes'}\n"
        "assert code == 0 and not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    command = [sys.executable, "-c", script, *map(str, every_kind())]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_program_is_told_without_what_reads_records() -> None:
    pte = artifacts(CNN).pte
    program = (
        "import sys; from etscope.cli import main; main(['info', sys.argv[1]]); "
        "print(*(name for name in sys.modules if name.startswith('etscope.')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(pte)], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "etscope.formats.program.pte" in loaded
    unused = {
        "etscope.analysis.matching",
        "etscope.analysis.weights",
        "etscope.formats.etdump",
        "etscope.formats.etrecord",
        "etscope.formats.program.bpte",
        "etscope.formats.program.xnnpack",
        "etscope.model.finding",
    }
    assert not loaded & unused


@pytest.mark.parametrize(
    ("name", "option"),
    [("vulkan_fp16", "force_fp16=true"), ("ethos_u55", "target=ethos-u55-128")],
)
def test_options_of_delegates_have_their_values(
    name: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(__file__).parents[2] / "corpus" / "delegates" / f"{name}.pte"
    assert main(["info", str(path), "--format", "json"]) == 0
    (report,) = json.loads(capsys.readouterr().out)["reports"]
    for delegate in report["sections"]["delegates"]:
        assert option in delegate["options"]
