"""What is proposed for a planted layer, held against exports made by hand."""

from __future__ import annotations

import json
import shlex
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from etscope.cli import main
from etscope.cli.options.export import RUN_HERE
from etscope.cli.verbs import sensitivity as command
from etscope.errors import MismatchError, MissingDataError, UsageError
from etscope.run import run
from etscope.search.sensitivity import Sensitivity, _sensitivity, sensitivity
from etscope.search.sensitivity.results import GROUPINGS, Variant
from etscope.search.trial import LOWER
from tests.support.artifacts import ROOT
from tests.support.sensitivity.planted import WIDTH, planted, sample

SAMPLES = [sample(seed) for seed in (0, 1, 2)]
TOLERANCE = 30.0
OPTIONS: dict[str, Any] = {
    "calibration": SAMPLES,
    "samples": SAMPLES,
    "select": "module:wild or module:mix",
    "isolate": False,
    "rounds": 3,
}
MODEL = str(ROOT / "tests/support/sensitivity/planted.py:planted")


class Printed(NamedTuple):
    """What a command that ended with 0 printed."""

    out: str
    err: str


def etscope(*arguments: object, code: int = 0) -> Printed:
    with TemporaryFile("w+") as out, TemporaryFile("w+") as err:
        with redirect_stdout(out), redirect_stderr(err):
            ended = main([str(one) for one in arguments])
        for file in (out, err):
            file.seek(0)
        printed = Printed(out.read(), err.read())
    assert ended == code, printed.err
    return printed


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the samples as files, and what the search keeps."""
    folder = tmp_path_factory.mktemp("sensitivity")
    (folder / "data").mkdir()
    for number, (value,) in enumerate(SAMPLES):
        np.savez(folder / f"data/{number}.npz", x=value.numpy())
    return folder


def arguments(folder: Path, *, tolerance: float) -> list[object]:
    data = ("-X", f"calibration={folder}/data", "--samples", folder / "data")
    options = ("-Xisolate=false", "-Xrounds=1", "--tolerance", tolerance, "--keep", folder / "kept")
    return ["sensitivity", MODEL, "--select", OPTIONS["select"], *data, *options]


@pytest.fixture(scope="module")
def printed(folder: Path) -> Printed:
    """Of the only search that measures: others go on with its results."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("COLUMNS", "160")
        return etscope(*arguments(folder, tolerance=TOLERANCE))


@pytest.fixture(scope="module")
def told() -> list[str]:
    return []


@pytest.fixture(scope="module")
def found(folder: Path, printed: Printed, told: list[str]) -> Sensitivity:
    model, inputs = planted()
    return sensitivity(
        model,
        inputs,
        tolerance=TOLERANCE,
        folder=folder / "kept",
        progress=lambda what, variant: told.append(what),
        **OPTIONS,
    )


def by_hand(folder: Path, keep_float: str) -> tuple[float, int]:
    """The sqnr of all samples as one, and the size of the program, of an export that ends with
    these arguments."""
    files = [f"-Xcalibration={path}" for path in sorted((folder / "data").iterdir())]
    options = ("--backend", "xnnpack", "-q", *files, *shlex.split(keep_float))
    etscope("export", MODEL, *options, "-o", folder / "by_hand")
    program = (folder / "by_hand/model.pte").read_bytes()
    model, _ = planted()
    signal = noise = 0.0
    for one in SAMPLES:
        with torch.no_grad():
            wanted = model(*one).double()
        with run(program, list(one), trace=False, isolate=False, iterations=1) as done:
            error = done.outputs[0].double() - wanted
        signal += float(wanted.square().sum())
        noise += float(error.square().sum())
    return 10 * np.log10(signal / noise), len(program)


def test_the_planted_pair_is_found(found: Sensitivity, told: list[str], printed: Printed) -> None:
    """The value between the two layers is what does not bear int8: neither alone helps."""
    assert [group.selector for group in found.groups] == ["module:wild", "module:mix"]
    alone = [found.variants[frozenset([index])] for index in range(2)]
    assert all(abs(one.error - found.int8.error) < 3 for one in alone)
    assert found.chosen == frozenset({0, 1})
    assert found.keep_float == ("module:wild", "module:mix")
    assert found.reached is True
    assert "1 of 5: nothing: " in printed.err
    assert found.int8.error < TOLERANCE - 5 < TOLERANCE <= found.confirmed.error
    assert "\n5 of 5: module:wild + module:mix: " in printed.err
    assert printed.err.splitlines()[-1].startswith("again: module:wild + module:mix: ")
    assert told == []  # what is known is not made again


def test_the_numbers_are_those_of_exports_by_hand(
    found: Sensitivity, folder: Path, printed: Printed
) -> None:
    last = printed.out.strip().splitlines()[-1]
    assert last == "-X keep_float=module:wild -X keep_float=module:mix"
    error, size = by_hand(folder, last)
    assert found.confirmed.error == pytest.approx(error, abs=1e-4)
    assert found.confirmed.error == pytest.approx(found.variants[found.chosen].error, abs=1e-4)
    assert found.confirmed.size == size
    assert found.int8.worst <= found.int8.error
    assert found.full.error > 100


def test_the_table_has_a_row_for_each_program(found: Sensitivity) -> None:
    table = found.table()
    rows = [dict(zip(table.names, row, strict=True)) for row in table.rows()]
    assert [row["role"] for row in rows] == ["int8", *["variant"] * 3, "float", "chosen"]
    assert rows[1]["what"] == "module:wild + module:mix"
    assert rows[1]["verdict"] == rows[-1]["verdict"] == "good enough"
    assert rows[1]["source"].startswith("planted.py:")
    assert rows[0]["verdict"] == "not good enough"
    assert {row["verdict"] for row in rows[2:4]} <= {"no gain", "helps", "worse"}
    assert rows[1]["gain"] == pytest.approx(rows[1]["sqnr"] - rows[0]["sqnr"])
    for row in rows:
        assert row["time"] > 0
        assert (row["time_cost"] is None) == (row["role"] == "int8")
    assert rows[1]["size_cost"] == rows[1]["size"] - rows[0]["size"] > 0
    assert table.notes[-1] == "-X keep_float=module:wild -X keep_float=module:mix"
    assert {len(times) for times in found.times.values()} == {3}


def test_a_tolerance_that_is_not_reached(found: Sensitivity, folder: Path) -> None:
    asked = (*arguments(folder, tolerance=500), "--limit", 4, "-f", "json")
    document = json.loads(etscope(*asked, code=1).out)
    rows = document["rows"]
    assert [row["role"] for row in rows] == ["int8", *["variant"] * 3, "float"]
    assert rows[1]["keep_float"] == ["module:wild", "module:mix"]
    assert rows[1]["sqnr"] == found.variants[frozenset({0, 1})].error
    assert "No set that was measured reaches 500 dB" in document["notes"][-1]
    state = json.loads((folder / "kept/state.json").read_text())
    assert len(state["trials"]) == len(list((folder / "kept/programs").iterdir()))


def test_the_state_of_another_model_is_refused(found: Sensitivity, folder: Path) -> None:
    model, inputs = planted()
    model.head.bias.data += 1  # type: ignore[union-attr, operator]
    with pytest.raises(MismatchError, match="is from another model"):
        sensitivity(model, inputs, folder=folder / "kept", **OPTIONS)
    with pytest.raises(UsageError, match="is from an earlier search"):
        sensitivity(model, inputs, folder=folder / "kept", resume=False, **OPTIONS)


def test_variants_that_all_fail_are_an_error_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def measured(_: Any, name: str, words: str, lowered: Any) -> Variant:
        is_whole = words in ("nothing", "everything")
        return Variant(error=1.0) if is_whole else Variant(failure=LOWER, detail=f"not {words}")

    monkeypatch.setattr(_sensitivity._Variants, "_measured", measured)
    model, inputs = planted()
    with pytest.raises(MissingDataError, match="none of 3 variants could be measured: not") as why:
        sensitivity(model, inputs, **OPTIONS)
    assert why.value.exit_code == 4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"backend": "portable"}, "does not have a quantizer"),
        ({"metric": "nonsense"}, "unknown metric"),
        ({"tolerance": float("nan")}, "not NaN"),
        ({"group": "file"}, "unknown grouping"),
        ({"rounds": 0}, "at least one round"),
        ({"samples": [(torch.zeros(4, 9),)]}, "sample 0 cannot be fed"),
    ],
)
def test_bad_arguments(options: dict[str, Any], words: str) -> None:
    model, inputs = planted()
    with pytest.raises(UsageError, match=words):
        sensitivity(model, inputs, **{"samples": SAMPLES, **options})


def test_there_must_be_something_to_quantize_and_to_compare() -> None:
    with pytest.raises(MissingDataError, match="finds nothing to quantize"):
        sensitivity(torch.nn.Softmax(dim=1), (torch.ones(1, 4),), samples=[(torch.ones(1, 4),)])
    model, inputs = planted()
    with pytest.raises(MissingDataError, match="picks nothing that would be quantized"):
        sensitivity(model, inputs, samples=SAMPLES, select="module:nowhere")
    with pytest.raises(MissingDataError, match="has NaN for sample 1"):
        nan = (torch.full((4, WIDTH), torch.nan),)
        sensitivity(model, inputs, samples=[inputs, nan])


# -- the command


def test_wrong_usage() -> None:
    printed = etscope("sensitivity", MODEL, "--select", "op:(", code=2)
    assert printed.out == ""
    assert "nothing after op" in printed.err


def test_a_selector_of_an_export_that_picks_nothing(tmp_path: Path) -> None:
    options = ("--backend", "xnnpack", "-q", "-X", "keep_float=module:had", "-o", tmp_path / "made")
    assert "near names: head" in etscope("export", MODEL, *options, code=2).err
    assert not (tmp_path / "made").exists()


def test_the_words_are_those_of_the_library() -> None:
    assert set(command.GROUPINGS) == set(GROUPINGS)
    assert "xnnpack" in RUN_HERE
