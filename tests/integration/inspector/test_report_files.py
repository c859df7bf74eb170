"""Which files of a report belong together, and what is found beside them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from etscope import Inspector
from etscope.capture.files import RunFiles, runs_of_files
from etscope.errors import (
    FormatError,
    MismatchError,
    MissingFileError,
    NumericGapError,
    UsageError,
)
from etscope.formats.program.ptd import read_ptd, write_ptd
from etscope.reporting.report import ReportOptions, report_inputs
from etscope.views.page import document_of
from tests.support.artifacts import artifacts


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two dumps with their records by name, a program, and a buffer."""
    files = artifacts("cnn_xnnpack")
    for name, source in {
        "a.etdp": files.etdump,
        "b.etdp": files.etdump_timing,
        "a.etrecord": files.etrecord,
        "b.etrecord": files.etrecord,
        "model.pte": files.pte,
    }.items():
        shutil.copy(source, tmp_path / name)
    return tmp_path


def test_pairs_are_told_by_their_names(folder: Path) -> None:
    names = ("b.etrecord", "a.etdp", "model.pte", "b.etdp", "a.etrecord")
    first, second = runs_of_files([folder / name for name in names])

    assert (first.dump, first.record) == (folder / "a.etdp", folder / "a.etrecord")
    assert (second.dump, second.record) == (folder / "b.etdp", folder / "b.etrecord")
    assert first.program == second.program == folder / "model.pte"


def test_pairs_of_other_names_are_told_by_what_ran(tmp_path: Path) -> None:
    made = {"before": artifacts("cnn_portable"), "after": artifacts("cnn_xnnpack")}
    paths = {}
    for name, files in made.items():
        for what, source in (("dump", files.etdump), ("record", files.etrecord)):
            suffix = {"dump": ".etdp", "record": ".etrecord"}[what]
            path = tmp_path / ("dumps" if what == "dump" else ".") / f"{name}-{what}{suffix}"
            path.parent.mkdir(exist_ok=True)
            paths[name, what] = shutil.copy(source, path)
        paths[name, "program"] = shutil.copy(files.pte, tmp_path / f"{name}-program.pte")
    backwards = [
        paths[name, what] for name in ("after", "before") for what in ("record", "program")
    ]
    dumps = [paths[name, "dump"] for name in ("before", "after")]

    for run, name in zip(runs_of_files([*backwards, *dumps]), made, strict=True):
        assert (run.dump, run.record, run.program) == tuple(
            paths[name, what] for what in ("dump", "record", "program")
        )


def test_one_record_goes_with_all_dumps(folder: Path) -> None:
    runs = runs_of_files([folder / name for name in ("a.etdp", "b.etdp", "b.etrecord")])
    assert {files.record for files in runs} == {folder / "b.etrecord"}


def test_a_folder_is_its_files(folder: Path) -> None:
    runs = runs_of_files([folder])
    assert [files.dump for files in runs] == [folder / "a.etdp", folder / "b.etdp"]
    assert [files.record for files in runs] == [folder / "a.etrecord", folder / "b.etrecord"]


def test_a_named_file_goes_before_one_of_the_folder(folder: Path, tmp_path: Path) -> None:
    one = tmp_path / "one"
    one.mkdir()
    for name in ("a.etdp", "a.etrecord"):
        (folder / name).rename(one / name)
    named = folder / "b.etrecord"
    (run,) = runs_of_files([one, named])
    assert (run.dump, run.record) == (one / "a.etdp", named)

    # Of several runs, it is of those that it fits; a file of another export is not left out.
    two, wrong = tmp_path / "two", tmp_path / "wrong.etrecord"
    two.mkdir()
    shutil.copy(artifacts("cnn_portable").etdump, two / "b.etdp")
    shutil.copy(artifacts("cnn_portable").etrecord, two / "b.etrecord")
    runs = runs_of_files([one, two, named])
    assert [found.record for found in runs] == [named, two / "b.etrecord"]
    shutil.copy(artifacts("transformer_portable").etrecord, wrong)
    with pytest.raises(UsageError, match=r"wrong\.etrecord does not belong to any run"):
        runs_of_files([one, two, wrong])


def test_records_and_programs_alone(folder: Path) -> None:
    (alone,) = runs_of_files([folder / "a.etrecord", folder / "model.pte"])
    assert (alone.record, alone.program) == (folder / "a.etrecord", folder / "model.pte")
    runs = runs_of_files([folder / "a.etrecord", folder / "b.etrecord", folder / "model.pte"])
    # Both records fit the program: the first has it.
    assert [(run.record, run.program) for run in runs] == [
        (folder / "b.etrecord", None),
        (folder / "a.etrecord", folder / "model.pte"),
    ]


def test_programs_are_in_their_order_each_with_its_own_record(tmp_path: Path) -> None:
    paths = []
    for name in ("cnn_xnnpack", "cnn_portable"):
        made = artifacts(name)
        assert made.etrecord is not None
        for file, suffix in ((made.pte, "pte"), (made.etrecord, "etrecord")):
            # Names that say nothing: the content does.
            path = tmp_path / f"{len(paths)}.{suffix}"
            path.write_bytes(file.read_bytes())
            paths.append(path)
    xnnpack, its_record, portable, other_record = paths

    runs = runs_of_files([other_record, xnnpack, its_record, portable])

    assert [(run.program, run.record) for run in runs] == [
        (xnnpack, its_record),
        (portable, other_record),
    ]


def test_a_file_of_no_form_is_a_debug_buffer() -> None:
    files = artifacts("cnn_xnnpack")
    (run,) = runs_of_files([files.debug_buffer, files.etdump, files.etrecord])
    assert run.debug_buffer == files.debug_buffer


def test_what_nothing_tells_is_refused(folder: Path) -> None:
    (folder / "c.etdp").write_bytes((folder / "a.etdp").read_bytes())
    with pytest.raises(UsageError, match=r"which ETRecord goes with .*c\.etdp"):
        runs_of_files([folder / n for n in ("a.etdp", "c.etdp", "a.etrecord", "b.etrecord")])
    with pytest.raises(UsageError, match="nothing to report"):
        runs_of_files([])
    with pytest.raises(UsageError, match="holds no file"):
        empty = folder / "empty"
        empty.mkdir()
        runs_of_files([empty])


def test_bad_files_are_refused(folder: Path) -> None:
    with pytest.raises(MissingFileError):
        runs_of_files([folder / "none.etdp"])
    (folder / "text.bin").write_text("hello, this is text")
    with pytest.raises(FormatError):
        runs_of_files([folder / "text.bin"])
    (folder / "a.etdp").write_bytes(b"PK\x03\x04 not a zip")
    with pytest.raises(FormatError):
        runs_of_files([folder / "a.etdp"])


def test_files_of_two_exports_are_refused() -> None:
    runs = runs_of_files([artifacts("cnn_portable").etdump, artifacts("cnn_xnnpack").etrecord])
    with pytest.raises(MismatchError):
        list(report_inputs(runs))
    (forced,) = report_inputs(runs, ReportOptions(force=True))
    assert forced.trace is not None and forced.trace.forced


# -- what `etscope run --save` leaves


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A folder as `etscope run --save` leaves it."""
    files = artifacts("cnn_xnnpack")
    for name, source in {
        "run.etdp": files.etdump_timing,
        "values.etdp": files.etdump,
        "debug.bin": files.debug_buffer,
        "model.etrecord": files.etrecord,
        "model.pte": files.pte,
    }.items():
        shutil.copy(source, tmp_path / name)
    facts = {
        "program": "model.pte",
        "program_sha256": None,
        "runner": "native",
        "executorch": "1.5.1",
        "threads": 2,
        "calls": [{"method": "forward", "case": None, "iterations": 3, "warmup": 1}],
        "debug_level": "none",
        "latencies": [
            {"traced": None, "method": "forward", "case": None, "load_ns": 2_000_000,
             "first_ns": 1_500_000, "samples_ns": [1_000_000, 3_000_000, 2_000_000]}
        ],
    }  # fmt: skip
    (tmp_path / "run.json").write_text(json.dumps(facts))
    return tmp_path


def test_a_saved_run_is_used_whole(saved: Path) -> None:
    (files,) = runs_of_files([saved])

    assert files.dump == saved / "run.etdp"
    assert (files.values, files.values_buffer) == (saved / "values.etdp", saved / "debug.bin")
    (found,) = report_inputs([files], ReportOptions(numerics=False))
    sections = {section.name: section.table for section in found.sections}
    assert sections["environment"].values["executorch"] == ["1.5.1"]
    assert sections["latency"].values["p50"] == [2.0]
    assert sections["latency"].values["load"] == [2.0]


def test_facts_of_another_program_are_not_used(saved: Path) -> None:
    facts = json.loads((saved / "run.json").read_text())
    (saved / "run.json").write_text(json.dumps({**facts, "program_sha256": "0" * 64}))

    (found,) = report_inputs(runs_of_files([saved]), ReportOptions(numerics=False))

    assert found.sections == []
    assert any("another program" in note for note in found.notes)


@pytest.mark.parametrize("text", ["", "[]", '{"latencies": [{"samples_ns": ["1"]}]}', "{"])
def test_damaged_facts_are_refused(saved: Path, text: str) -> None:
    (saved / "run.json").write_text(text)
    with pytest.raises(FormatError, match=r"run\.json"):
        list(report_inputs(runs_of_files([saved]), ReportOptions(numerics=False)))


def test_values_of_the_saved_run_are_diagnosed(saved: Path) -> None:
    pytest.importorskip("executorch")
    files = artifacts("cnn_xnnpack")
    ran = [np.load(files.inputs)["forward/0/0"]]
    options = ReportOptions(numerics=True, inputs=lambda *_: ran)

    (found,) = report_inputs(runs_of_files([saved]), options)

    assert (
        found.trace is not None and not found.trace.refers_to_tensors
    )  # the times are of run.etdp
    inspector = Inspector(
        files.etdump, etrecord=files.etrecord, debug_buffer_path=files.debug_buffer
    )
    expected = inspector.diagnose_numerics(inputs=ran)
    assert found.numerics is not None
    assert found.numerics.table().values["total"] == expected.table().values["total"]
    assert found.numerics.rows


@pytest.mark.parametrize("method", ["encode", "decode"])
def test_inputs_tell_which_of_two_methods_is_compared(method: str) -> None:
    pytest.importorskip("executorch")
    files = artifacts("two_methods")
    paths = [files.etdump, files.etrecord, files.debug_buffer]
    ran = [np.load(files.inputs)[f"{method}/0/0"]]
    other = {"encode": "decode", "decode": "encode"}[method]

    (found,) = report_inputs(runs_of_files(paths), ReportOptions(inputs=lambda *_: ran))

    assert found.numerics is not None and found.numerics.method == method
    assert f"not {other}" in (found.numerics_note or "")
    named = ReportOptions(inputs=lambda *_: ran, method=other)
    with pytest.raises(NumericGapError, match="takes"):  # they are of the other one
        list(report_inputs(runs_of_files(paths), named))


def test_two_methods_without_inputs_are_no_failure() -> None:
    pytest.importorskip("executorch")
    files = artifacts("two_methods")
    paths = [files.etdump, files.etrecord, files.debug_buffer]

    (found,) = report_inputs(runs_of_files(paths))

    assert found.numerics is None
    note = found.numerics_note or ""  # methods in the order of the record, which is any
    orders = ("encode, decode", "decode, encode")
    assert any(f"Several methods ran: {order}" in note for order in orders)
    with pytest.raises(UsageError, match="several methods ran"):
        list(report_inputs(runs_of_files(paths), ReportOptions(numerics=True)))


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (("etdump", "etrecord"), "in the debug buffer"),
        (("etdump", "debug_buffer"), "Add the ETRecord"),
        (("etdump_timing", "etrecord"), "does not have logged values"),
        (("etrecord",), "without a dump"),
    ],
)
def test_missing_numerics_are_explained(files: tuple[str, ...], words: str) -> None:
    made = artifacts("cnn_xnnpack")
    (found,) = report_inputs(runs_of_files([getattr(made, name) for name in files]))
    assert found.numerics is None
    assert words in (found.numerics_note or "")


# -- weights in .ptd files


@pytest.fixture
def external(tmp_path: Path) -> Path:
    """Two programs with a .ptd each, and a program that has all of its data."""
    for name, model in (("a", "external_portable"), ("b", "external_xnnpack")):
        made = artifacts(model)
        shutil.copy(made.pte, tmp_path / f"{name}.pte")
        shutil.copy(made.extra("weights.ptd"), tmp_path / f"{name}.ptd")
    shutil.copy(artifacts("cnn_portable").pte, tmp_path / "whole.pte")
    return tmp_path


def data_of(paths: list[Path], data: list[Path]) -> list[list[str]]:
    """The names of the .ptd files of each program."""
    found = report_inputs(runs_of_files(paths, RunFiles.given(data)))
    return [[Path(one.source.name).name for one in run.export.data] for run in found]


def test_a_ptd_goes_with_the_program_that_has_its_keys(external: Path) -> None:
    programs = [external / name for name in ("whole.pte", "a.pte", "b.pte")]
    a, b = external / "a.ptd", external / "b.ptd"
    expected: list[list[str]] = [[], ["a.ptd"], ["b.ptd"]]
    assert data_of(programs, [b, a]) == expected
    assert data_of([*programs, b], [a]) == expected
    assert data_of([a, *programs], []) == [[], ["a.ptd"], []]
    assert sorted(data_of([external], [])) == sorted(expected)


def test_two_ptds_of_the_same_keys_are_those_of_the_programs_in_order(external: Path) -> None:
    tuned = external / "tuned.pte"
    shutil.copy(external / "a.pte", tuned)
    other = external / "other.ptd"
    shutil.copy(external / "a.ptd", other)
    programs = [external / "a.pte", external / "whole.pte", tuned]
    assert data_of(programs, [other, external / "a.ptd"]) == [["other.ptd"], [], ["a.ptd"]]
    assert data_of(programs, [other]) == [["other.ptd"], [], ["other.ptd"]]
    with pytest.raises(UsageError, match=r"both have the key"):
        data_of([external / "a.pte"], [other, external / "a.ptd"])


def test_a_ptd_that_fits_no_program_is_refused(external: Path) -> None:
    with pytest.raises(MismatchError, match="none of its 5 keys is needed"):
        data_of([external / "a.pte"], [external / "b.ptd"])
    part = external / "part.ptd"
    write_ptd({"first.bias": read_ptd(external / "a.ptd").tensor("first.bias")}, part)
    with pytest.raises(MismatchError, match=r"it has no data for 'first\.weight'"):
        data_of([external / "a.pte"], [part])
    for alone in ([external / "a.ptd"], [artifacts("external_portable").etdump, part]):
        with pytest.raises(UsageError, match=r"the program of .* is missing"):
            data_of(alone, [])
    broken = external / "broken.ptd"
    broken.write_bytes((external / "a.ptd").read_bytes()[:-40])
    with pytest.raises(FormatError, match="cut off"):
        data_of([external / "a.pte"], [broken])


def test_the_report_has_the_bytes_of_ptd_files(external: Path) -> None:
    files = [external / "a.pte", external / "a.ptd"]
    (found,) = document_of(list(report_inputs(runs_of_files(files))))["runs"]
    values = found["weights"]["values"]
    assert sum(values["size"]) == sum(path.stat().st_size for path in files)
    assert set(values["file"]) == {"a.pte", "a.ptd"}
    assert [(one["role"], one["name"]) for one in found["files"]] == [
        ("program", "a.pte"), ("external weights", "a.ptd"),
    ]  # fmt: skip
    assert not any(".ptd" in note for note in found["notes"])
    (found,) = document_of(list(report_inputs(runs_of_files(files[:1]))))["runs"]
    assert "file" not in found["weights"]["values"]
    assert any("5 weights: unknown without their .ptd" in note for note in found["notes"])


def test_programs_of_a_report_are_compared_with_their_ptd_files(external: Path) -> None:
    files = [external / name for name in ("a.pte", "b.pte", "a.ptd", "b.ptd")]
    (found,) = document_of(list(report_inputs(runs_of_files(files))))["programs"]
    (size,) = (one for one in found["sections"] if one["name"] == "size")
    assert size["table"]["values"]["kind"][0] == "files"
    assert size["table"]["values"]["before"][0] == sum(
        path.stat().st_size for path in files if path.name.startswith("a")
    )
