"""`etscope info`, as a person or a script calls it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from etscope.formats.etdump.writer import ETDumpWriter
from tests.support.artifacts import artifacts
from tests.support.cli.fixtures import Run
from tests.support.golden_files import check_golden

CNN = "cnn_xnnpack"


def every_kind() -> list[Path | None]:
    files = artifacts(CNN)
    others = (artifacts("bundled").bpte, artifacts("cond").etrecord)
    return [files.etdump, files.etrecord, files.pte, *others]


@pytest.mark.parametrize("width", [80, 140])
def test_it_fits_the_terminal(run: Run, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))

    code, out, err = run("info", *every_kind())

    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= width
    unfolded = " ".join(out.split())
    for heading in ("ETDump", "ETRecord", "ExecuTorch program", "bundled program", "Blocks",
                    "Graphs", "Delegates", "Test cases"):  # fmt: skip
        assert heading in unfolded


@pytest.mark.parametrize("width", [80, 140])
def test_a_dump_golden(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, width: int
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

    code, out, _ = run("info", "run.etdp")

    assert code == 0
    check_golden(f"info/etdump_{width}.txt", out)


def test_json_is_one_document_of_all_files(run: Run, tmp_path: Path) -> None:
    code, out, err = run("info", *every_kind(), "-o", tmp_path / "info.json")
    assert (code, out, err) == (0, "", "")
    document = json.loads((tmp_path / "info.json").read_text())
    assert document["schema"] == "etscope.info/1"
    kinds = [report["kind"] for report in document["reports"]]
    assert kinds == ["etdump", "etrecord", "pte", "bpte", "etrecord"]
    assert [report["file"] for report in document["reports"]] == list(map(str, every_kind()))


@pytest.mark.parametrize("format", ["csv", "tsv", "jsonl", "md", "table"])
def test_every_format(run: Run, format: str) -> None:
    code, out, _ = run("info", artifacts(CNN).pte, "-f", format)
    assert code == 0
    assert "XnnpackBackend" in out


def test_people_get_the_first_rows_of_a_long_table(run: Run) -> None:
    info = ("info", artifacts("transformer").pte)

    assert "more rows are not shown (--limit)." in run(*info, "--limit", 2)[1]
    whole, limited = (
        json.loads(run(*info, "-f", "json", *limit)[1])["reports"][0]["sections"]["operators"]
        for limit in ((), ("--limit", 2))
    )
    assert len(whole) > 2
    assert limited == whole[:2]


def test_bad_files_do_not_hide_the_others(run: Run, tmp_path: Path) -> None:
    bad, cut = tmp_path / "bad.pte", tmp_path / "cut.etdp"
    bad.write_bytes(b"nothing of this kind")
    cut.write_bytes(artifacts(CNN).etdump.read_bytes()[:3000])

    empty = tmp_path / "empty"
    empty.mkdir()
    code, out, err = run("info", "/nowhere.pte", artifacts(CNN).pte, bad, empty)

    assert code == 3
    assert "ExecuTorch program" in out
    assert "file not found: /nowhere.pte" in err
    assert "bad.pte: not a file that etscope reads" in err
    assert "this is a directory" in err
    for file, number, said in (("/nowhere.pte", 2, "file not found"), (cut, 3, "cut.etdp")):
        code, out, err = run("info", file)
        assert (code, out) == (number, "")
        assert said in err


def imported(*files: object) -> set[str]:
    """The modules in a process that has told of these files."""
    program = (
        "import sys; from etscope.cli import main; code = main(['info', *sys.argv[1:]])\n"
        "print(*sys.modules); sys.exit(code)"
    )
    command = [sys.executable, "-c", program, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_what_is_not_needed_is_not_imported() -> None:
    assert "ml_dtypes" not in imported(*every_kind())
    loaded = imported(artifacts(CNN).pte)
    assert "etscope.formats.program.pte" in loaded
    assert not loaded & {
        "etscope.analysis.matching.matching",
        "etscope.analysis.memory.file_parts",
        "etscope.formats.etdump",
        "etscope.formats.program.bpte",
    }


@pytest.mark.parametrize(
    ("name", "option"),
    [("vulkan_fp16", "force_fp16=true"), ("ethos_u55", "target=ethos-u55-128")],
)
def test_options_of_delegates_have_their_values(run: Run, name: str, option: str) -> None:
    path = Path(__file__).parents[2] / "corpus" / "delegates" / f"{name}.pte"
    code, out, _ = run("info", path, "--format", "json")
    assert code == 0
    for delegate in json.loads(out)["reports"][0]["sections"]["delegates"]:
        assert option in delegate["options"]


@pytest.mark.parametrize("name", ["transformer_portable", "while_loop"])
def test_yaml_for_a_selective_build_is_that_of_executorch(
    run: Run, name: str, tmp_path: Path
) -> None:
    """`gen_oplist` of the wheel, which CMake runs for EXECUTORCH_SELECT_OPS_MODEL."""
    from executorch.codegen.tools.gen_oplist import gen_oplist

    program, theirs, ours = artifacts(name).pte, tmp_path / "theirs.yaml", tmp_path / "ours.yaml"
    gen_oplist(theirs, str(program))
    code, _, err = run("info", program, "-o", ours)  # gen_oplist prints, too
    assert (code, err) == (0, "")
    found = [yaml.safe_load(path.read_text()) for path in (theirs, ours)]
    for one in found:
        assert one["operators"]
        for operator in one["operators"].values():
            del operator["debug_info"]  # the name of the file, which has no folder in ours
        for keys in one["et_kernel_metadata"].values():
            keys.sort()
    assert found[0] == found[1]
