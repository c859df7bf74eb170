"""What is proposed for a planted layer, held against exports made by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from etscope.errors import MismatchError, MissingDataError, UsageError
from etscope.export import export
from etscope.run import run
from etscope.search import LOWER
from etscope.sensitivity import Sensitivity, _sensitivity, sensitivity
from etscope.sensitivity.results import Variant
from tests.support.sensitivity.planted import planted, sample

SAMPLES = [sample(seed) for seed in (0, 1, 2)]
TOLERANCE = 30.0
OPTIONS: dict[str, Any] = {
    "calibration": SAMPLES,
    "samples": SAMPLES,
    "select": "module:wild or module:mix",
    "isolate": False,
    "rounds": 3,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept")


@pytest.fixture(scope="module")
def told() -> list[str]:
    return []


@pytest.fixture(scope="module")
def found(folder: Path, told: list[str]) -> Sensitivity:
    model, inputs = planted()
    return sensitivity(
        model,
        inputs,
        tolerance=TOLERANCE,
        folder=folder,
        progress=lambda what, variant: told.append(what),
        **OPTIONS,
    )


def by_hand(keep_float: Sequence[str]) -> tuple[float, int]:
    """The sqnr of all samples as one, and the size of the program."""
    model, inputs = planted()
    program = export(
        model,
        inputs,
        backend="xnnpack",
        quantize=True,
        calibration=SAMPLES,
        keep_float=keep_float,
    ).program_bytes()
    signal = noise = 0.0
    for one in SAMPLES:
        with torch.no_grad():
            wanted = model(*one).double()
        with run(program, list(one), trace=False, isolate=False, iterations=1) as done:
            error = done.outputs[0].double() - wanted
        signal += float(wanted.square().sum())
        noise += float(error.square().sum())
    return 10 * np.log10(signal / noise), len(program)


def test_the_planted_pair_is_found(found: Sensitivity, told: list[str]) -> None:
    """The value between the two layers is what does not bear int8: neither alone helps."""
    assert [group.selector for group in found.groups] == ["module:wild", "module:mix"]
    alone = [found.variants[frozenset([index])] for index in range(2)]
    assert all(abs(one.error - found.int8.error) < 3 for one in alone)
    assert found.chosen == frozenset({0, 1})
    assert found.keep_float == ("module:wild", "module:mix")
    assert found.reached is True
    assert found.int8.error < TOLERANCE - 5 < TOLERANCE <= found.confirmed.error
    assert "module:wild + module:mix" in told
    assert told[-1] == "again: module:wild + module:mix"


def test_the_numbers_are_those_of_exports_by_hand(found: Sensitivity) -> None:
    error, size = by_hand(found.keep_float)
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
    assert table.notes[-1] == "--keep-float module:wild --keep-float module:mix"
    assert {len(times) for times in found.times.values()} == {3}


def test_what_is_known_is_not_made_again(found: Sensitivity, folder: Path) -> None:
    model, inputs = planted()
    told: list[str] = []
    again = sensitivity(
        model,
        inputs,
        tolerance=500,
        folder=folder,
        resume=True,
        progress=lambda what, variant: told.append(what),
        **{**OPTIONS, "rounds": 1},
    )
    assert told == []
    assert again.reached is False
    assert again.variants[frozenset({0, 1})] == found.variants[frozenset({0, 1})]
    assert again.best >= {0, 1}
    assert "No set that was measured reaches 500 dB" in again.table().notes[-1]
    state = json.loads((folder / "state.json").read_text())
    assert len(state["variants"]) == len(list((folder / "programs").iterdir()))


def test_the_state_of_another_model_is_refused(found: Sensitivity, folder: Path) -> None:
    model, inputs = planted()
    model.head.bias.data += 1  # type: ignore[union-attr, operator]
    with pytest.raises(MismatchError, match="is from another model"):
        sensitivity(model, inputs, folder=folder, resume=True, **OPTIONS)
    with pytest.raises(UsageError, match="is from an earlier search"):
        sensitivity(model, inputs, folder=folder, **OPTIONS)


def test_the_plot_is_a_picture(found: Sensitivity, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from etscope.sensitivity.results import save_plot

    save_plot(found, tmp_path / "plot.svg")
    assert "<svg" in (tmp_path / "plot.svg").read_text()


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
        ({"backend": "portable"}, "has no quantizer"),
        ({"metric": "nonsense"}, "unknown metric"),
        ({"tolerance": float("nan")}, "not NaN"),
        ({"group": "file"}, "no grouping"),
        ({"resume": True}, "nothing to resume"),
        ({"rounds": 0}, "at least one round"),
        ({"samples": [(torch.zeros(1, 3, 9, 8),)]}, "sample 0 cannot be fed"),
    ],
)
def test_bad_arguments(options: dict[str, Any], words: str) -> None:
    model, inputs = planted()
    with pytest.raises(UsageError, match=words):
        sensitivity(model, inputs, **{"samples": SAMPLES, **options})


def test_there_must_be_something_to_quantise_and_to_compare() -> None:
    with pytest.raises(MissingDataError, match="finds nothing to quantise"):
        sensitivity(torch.nn.Softmax(dim=1), (torch.ones(1, 4),), samples=[(torch.ones(1, 4),)])
    model, inputs = planted()
    with pytest.raises(MissingDataError, match="nothing that would be quantised is picked"):
        sensitivity(model, inputs, samples=SAMPLES, select="module:nowhere")
    with pytest.raises(MissingDataError, match="has NaN for sample 1"):
        nan = (torch.full((1, 3, 8, 8), torch.nan),)
        sensitivity(model, inputs, samples=[inputs, nan])
