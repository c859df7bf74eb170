"""What a run on the runtime is given: generated inputs, and all files that `etscope run` takes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from etscope.etdb import Session
from etscope.run.inputs import generate_inputs
from tests.support.artifacts import artifacts
from tests.support.etdb.runtime_sessions import OPEN, begun, target_of
from tests.support.etdb.sessions import refused, said, session


@pytest.mark.parametrize(("options", "seed"), [("", 0), ("--seed 7", 7)])
def test_without_inputs_they_are_generated_as_run_does(options: str, seed: int) -> None:
    artifact = artifacts("cnn_portable")
    one = Session(artifact.pte, artifact.etrecord)
    OPEN.append(one)
    assert f"inputs are generated: seed {seed}\n" in said(one, f"target runtime {options}")
    assert f"inputs are generated: seed {seed}\n" in said(one, "info target")
    target = target_of(one)
    made = generate_inputs(one.debugger.program, "forward", seed)  # type: ignore[arg-type]
    assert len(made) == len(target.inputs) == 1
    np.testing.assert_array_equal(target.inputs[0], made[0])
    assert "is over" in said(one, "run")
    # The reference is given the same.
    assert float(said(one, "print gap(sqnr, aten__softmax_default)")) > 90


def test_a_seed_goes_before_the_records_inputs_and_not_with_a_file(tmp_path: Path) -> None:
    one = session("cnn_portable")
    assert "seed" not in said(begun(one), "info target")
    assert "seed 5" in said(one, "target runtime --seed 5")
    np.save(tmp_path / "x.npy", np.zeros((2, 3, 32, 32), np.float32))
    assert "--inputs and --seed exclude each other" in refused(
        one, f"target runtime --seed 5 --inputs {tmp_path / 'x.npy'}"
    )
    assert "a whole number" in refused(one, "target runtime --seed one")


def test_files_are_read_by_names(tmp_path: Path) -> None:
    artifact = artifacts("forward_and_extra")
    assert artifact.inputs is not None
    with np.load(artifact.inputs) as arrays:
        first, second = (arrays[f"extra/0/{n}"] for n in (0, 1))
    numbered, wrong = tmp_path / "numbered.npz", tmp_path / "wrong.npz"
    np.savez(numbered, b_1=second, b_0=first)
    np.savez(wrong, a_0=first)
    one = Session(artifact.pte, artifact.etrecord)
    OPEN.append(one)
    said(one, f"target runtime --method extra --inputs {numbered}")
    np.testing.assert_array_equal(target_of(one).inputs[0], first)
    np.testing.assert_array_equal(target_of(one).inputs[1], second)
    assert "do not fit" in refused(one, f"target runtime --method extra --inputs {wrong}")
    live = Session(artifact.pte, artifact.etrecord)
    assert "forward" in refused(live, f"target live {numbered}")
    assert "reference of forward" in said(live, f"target live {wrong}")
