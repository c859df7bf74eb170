"""`etscope diff` on programs, as a person, a pull request or a CI job calls it."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

import pytest

from etscope.formats.program.ptd import read_ptd, write_ptd
from tests.support.artifacts import artifacts
from tests.support.cli.fixtures import Run


@pytest.fixture
def run(run: Run) -> Run:
    return partial(run, "diff")


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Programs and records by the name of their model, in one folder."""
    found = {}
    for name in ("cnn_portable", "cnn_xnnpack", "cnn_xnnpack_int8", "cnn_portable_inserted"):
        made = artifacts(name)
        found[name] = Path(shutil.copy(made.pte, tmp_path / f"{name}.pte"))
        assert made.etrecord is not None
        found[f"{name} record"] = Path(shutil.copy(made.etrecord, tmp_path / f"{name}.etrecord"))
    found["dump"] = Path(shutil.copy(artifacts("cnn_portable").etdump, tmp_path / "run.etdp"))
    return found


def test_sentences_come_first_and_those_that_break_an_app_before_the_others(
    files: dict[str, Path], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = files["cnn_portable"], files["cnn_portable_inserted"]
    code, out, _ = run(*given)
    assert code == 1
    assert out.startswith("The app must register 1 new kernel: aten::sigmoid.out.\n")
    assert out.index("cnn_portable_inserted.pte is 128 B larger") < out.index("Size by owner")
    # Order is that of the files: a program with a record stays behind one without.
    code, out, _ = run(*given, files["cnn_portable_inserted record"])
    assert code == 1 and "cnn_portable_inserted.pte is 128 B larger" in out
    _, out, _ = run(*given, "-f", "csv")
    head, first, *rest = out.splitlines()
    assert head == "before,after,result,section,row,name,value"
    assert ",summary,0,sentence," in first and "aten::sigmoid.out" in first
    assert any(",size,0,change,128" in line for line in rest)
    for width in (80, 140):
        monkeypatch.setenv("COLUMNS", str(width))
        _, out, _ = run(files["cnn_xnnpack"], files["cnn_xnnpack_int8"])
        assert max(map(len, out.splitlines())) <= width


def test_bytes_that_say_nothing_are_a_difference_all_the_same(
    files: dict[str, Path], tmp_path: Path, run: Run
) -> None:
    copy = Path(shutil.copy(files["cnn_portable"], tmp_path / "copy.pte"))
    code, out, _ = run(files["cnn_portable"], copy)
    assert (code, out) == (0, "copy.pte is identical to cnn_portable.pte: 43,280 bytes.\n")
    made = artifacts("bundled")
    code, out, _ = run(made.bpte, made.pte)  # bundled programs are programs
    assert code == 0 and "is identical to" in out
    copy.write_bytes(copy.read_bytes() + bytes(16))
    code, out, _ = run(files["cnn_portable"], copy)
    assert code == 1
    assert "weights, delegates and memory are the same" in out and "padding +16 B" in out


def test_records_among_the_files_or_by_option_give_names(files: dict[str, Path], run: Run) -> None:
    programs = files["cnn_xnnpack"], files["cnn_xnnpack_int8"]
    records = files["cnn_xnnpack record"], files["cnn_xnnpack_int8 record"]
    code, out, err = run(*programs, "-r", records[0], "-r", records[1])
    assert code == 1 and not err and "head.fc.weight" in out
    assert run(records[1], *programs, records[0]) == (code, out, err)
    # Without one of them there are no modules, and a note says so.
    _, out, err = run(*programs, records[1])
    assert "head.fc" not in out
    assert "note: cnn_xnnpack.pte has no ETRecord" in err


def test_one_record_is_used_where_it_fits_and_refused_where_it_fits_none(
    files: dict[str, Path], run: Run
) -> None:
    programs = files["cnn_portable"], files["cnn_xnnpack"]
    code, _, err = run(*programs, "-r", files["cnn_xnnpack record"])
    assert code == 1 and "note: cnn_portable.pte has no ETRecord" in err
    code, out, err = run(*programs, "-r", files["cnn_portable_inserted record"])
    assert (code, out) == (3, "") and "cnn_portable.pte and the ETRecord" in err
    wrong = files["cnn_xnnpack record"]
    code, out, err = run(*programs, "-r", wrong, "-r", wrong)
    assert (code, out) == (3, "") and "cnn_portable.pte and the ETRecord" in err
    assert run(*programs, "-r", wrong, "-r", wrong, "--force")[0] == 1


def test_several_programs_are_compared_with_the_first(files: dict[str, Path], run: Run) -> None:
    names = "cnn_portable", "cnn_xnnpack", "cnn_xnnpack_int8"
    code, out, _ = run(*(files[name] for name in names), "-f", "json")
    document = json.loads(out)
    assert code == 1 and document["schema"] == "etscope.program_diff/1"
    assert [(one["before"], one["after"]) for one in document["reports"]] == [
        ("cnn_portable.pte", "cnn_xnnpack.pte"),
        ("cnn_portable.pte", "cnn_xnnpack_int8.pte"),
    ]
    for report in document["reports"]:
        assert report["result"] == "different" and report["summary"]
        file, *owners = report["sections"]["size"]
        assert file["change"] == sum(owner["change"] for owner in owners)


def test_folders_with_files_of_the_same_names(
    files: dict[str, Path], tmp_path: Path, run: Run
) -> None:
    for name in ("cnn_portable", "cnn_portable_inserted"):
        (folder := tmp_path / name).mkdir()
        shutil.copy(files[name], folder / "model.pte")
        shutil.copy(files[f"{name} record"], folder / "model.etrecord")
    before = tmp_path / "cnn_portable"
    code, out, _ = run(before, tmp_path / "cnn_portable_inserted")
    assert code == 1 and "model.pte is 128 B larger" in out
    code, out, _ = run(before, before)
    assert code == 0 and "is identical to" in out


def test_markdown_folds_the_tables(files: dict[str, Path], tmp_path: Path, run: Run) -> None:
    comment = tmp_path / "comment.md"
    code, out, _ = run(files["cnn_portable"], files["cnn_xnnpack"], "-o", comment, "-n", "5")
    assert (code, out) == (1, "")
    text = comment.read_text()
    sentences, *tables = text.split("<details>")
    assert sentences.startswith("- The app must link XnnpackBackend")
    assert all(line.startswith("- ") for line in sentences.splitlines() if line)
    assert len(tables) == text.count("</details>") > 5
    for table in tables:
        assert table.startswith("<summary>") and "</summary>\n\n| " in table


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("cnn_portable", "dump"), "a dump is not comparable with a program"),
        (("cnn_portable",), "diff needs two programs, but the files have 1"),
        (("cnn_portable", "cnn_xnnpack", "--per-op"), "--per-op is for times"),
        (("cnn_portable", "cnn_xnnpack", "-m", "forward"), "--method is for times"),
        (("cnn_portable", "cnn_xnnpack", "-f", "junit"), "--format junit is for times"),
        (("cnn_portable", "cnn_xnnpack", "--sort", "time"), "--sort is for times"),
        ((), "has no runs"),
    ],
)
def test_what_is_not_comparable_is_refused_with_what_to_give(
    files: dict[str, Path], arguments: tuple[str, ...], said: str, run: Run
) -> None:
    code, out, err = run(*(files.get(one, one) for one in arguments))
    assert (code, out) == (2, "") and said in err and "hint: " in err


def test_weights_in_ptd_files(tmp_path: Path, run: Run) -> None:
    made = artifacts("external_portable")
    before = shutil.copy(made.pte, tmp_path / "before.pte")
    after = shutil.copy(made.pte, tmp_path / "after.pte")
    weights = made.extra("weights.ptd")
    content = bytearray(weights.read_bytes())
    content[-64:] = bytes(64)  # the end of a weight
    other = tmp_path / "other.ptd"
    other.write_bytes(content)
    code, out, err = run(before, after)
    assert (code, "identical" in out) == (0, True)
    assert "before.pte, after.pte are in a .ptd file and compared by key only" in err
    code, out, err = run(before, after, "--data", weights)
    assert (code, err) == (0, "")
    code, out, err = run(before, after, "--data", weights, "--data", other)
    assert code == 1
    assert "Weights: 4 unchanged, 1 changed." in out


def test_a_program_may_have_several_ptd_files_in_any_order(
    files: dict[str, Path], tmp_path: Path, run: Run
) -> None:
    made, opaque = artifacts("external_portable"), artifacts("external_xnnpack")
    before = shutil.copy(made.pte, tmp_path / "before.pte")
    after = shutil.copy(opaque.pte, tmp_path / "after.pte")
    data = read_ptd(made.extra("weights.ptd"))
    half, rest = tmp_path / "half.ptd", tmp_path / "rest.ptd"
    write_ptd({"first.weight": data.tensor("first.weight")}, half)
    write_ptd({key: data.tensor(key) for key in data.entries if key != "first.weight"}, rest)
    given = (rest, opaque.extra("weights.ptd"), half)
    ships = [
        sum(Path(path).stat().st_size for path in paths)
        for paths in ((before, half, rest), (after, given[1]))
    ]
    options = [word for path in given for word in ("--data", path)]
    code, out, err = run(before, after, *options, "-f", "json")
    (report,) = json.loads(out)["reports"]
    total, *owners = report["sections"]["size"]
    assert (code, err) == (1, "")
    assert [total["before"], total["after"]] == ships
    assert [sum(owner[one] for owner in owners) for one in ("before", "after")] == ships
    assert "weights" not in report["sections"]  # none of them changed


def test_ptd_files_that_do_not_belong(files: dict[str, Path], tmp_path: Path, run: Run) -> None:
    made, opaque = artifacts("external_portable"), artifacts("external_xnnpack")
    before = shutil.copy(made.pte, tmp_path / "before.pte")
    weights, part = made.extra("weights.ptd"), tmp_path / "part.ptd"
    write_ptd({"first.weight": read_ptd(weights).tensor("first.weight")}, part)
    portable, xnnpack, dump = (files[one] for one in ("cnn_portable", "cnn_xnnpack", "dump"))
    for given, data, wanted, said in (
        ((before, before), [opaque.extra("weights.ptd")], 3, "none of its 5 keys is needed"),
        ((before, portable), [weights] * 2, 2, "both have the key"),
        ((portable, xnnpack), [weights], 3, "is not the .ptd of"),
        ((before, before), [part], 3, "it has no data for 'first.bias'"),
        ((dump, dump), [weights], 2, "not for times"),
    ):
        code, _, err = run(*given, *(word for path in data for word in ("--data", path)))
        assert (code, said in err) == (wanted, True), err
