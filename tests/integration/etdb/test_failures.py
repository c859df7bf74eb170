"""An operator that fails: where the run stands, its core, and what the reference does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch.exir")

from etscope.capture.files import run_of_files  # noqa: E402
from etscope.errors import ReferenceFailure  # noqa: E402
from etscope.etdb import Session  # noqa: E402
from tests.support.etdb.lookup import Lookup, write_lookup  # noqa: E402
from tests.support.etdb.runtime_sessions import OPEN, begun, target_of  # noqa: E402
from tests.support.etdb.sessions import refused, said, where  # noqa: E402
from tests.support.run.stateful import Cache  # noqa: E402

FAILED, BEFORE = "aten_embedding_default", "aten_addmm_default"


def line_of(text: str) -> int:
    source = Path(__file__).parents[2] / "support" / "etdb" / "lookup.py"
    lines = source.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


AT = f"lookup.py:{line_of('self.words(index)')}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("lookup")
    write_lookup(found)
    return found


def files(folder: Path) -> Session:
    return Session(folder / "model.etrecord", folder / "model.pte")


def on(folder: Path, kind: str, inputs: str = "unknown", options: str = "") -> Session:
    one = files(folder)
    OPEN.append(one)
    said(one, "set times off", f"target {kind} --inputs {folder / inputs}.npz {options}")
    return one


@pytest.mark.parametrize("kind", ["runtime", "live"])
def test_a_run_stands_at_the_operator_that_failed(folder: Path, kind: str) -> None:
    one = on(folder, kind)
    told = refused(one, "run")
    assert f"{FAILED} " in told and f" at {AT}: " in told
    for _ in range(2):
        assert where(one) == FAILED
        assert AT in said(one, "bt").splitlines()[0]
        shown = said(one, "list").splitlines()
        assert any(line.startswith(">") and "words(" in line for line in shown)
        assert said(one, "info stop").startswith(f"[2] {FAILED} ")
        assert f"{FAILED} failed: it has no value" in refused(one, "print $")
        assert "float32[3, 4]" in said(one, f"print {BEFORE}")
        assert f" at {AT}: " in said(one, "info runs")
        assert told == refused(one, "step")  # again, and it stays there
    assert said(one, "reverse-step").startswith(f"[1] {BEFORE} ")
    assert where(one) == BEFORE
    assert FAILED in refused(one, "step")
    assert "failed" in refused(one, "run")


def test_a_value_that_was_set_lets_the_run_go_on(folder: Path) -> None:
    one = on(folder, "runtime")
    refused(one, "run")
    assert "index = 1" in said(one, "set index = 1")
    assert where(one) == FAILED and target_of(one).failure is None
    assert "after 5 operators" in said(one, "continue")
    live = on(folder, "live")
    refused(live, "run")
    assert "target live FILE" in refused(live, "set index = 1")


@pytest.mark.parametrize("options", ["", "--traced"])
def test_a_core_ends_before_the_operator_that_failed(
    folder: Path, tmp_path: Path, options: str
) -> None:
    one = on(folder, "runtime", options=options)
    refused(one, "run")
    core = tmp_path / "half.etdp"
    said(one, f"gcore {core}")
    seen = Session(folder / "model.etrecord", core, tmp_path / "half.bin")
    assert "after 2 operators" in said(seen, "run")
    for told in (said(seen, "info runs"), said(seen, "run")):
        assert f"{FAILED} (instruction 2) failed at {AT}" in told
    assert "is over" in said(seen, "start", "until op:addmm", "continue")


def test_blame_judges_what_ran_before_the_reference_fails(folder: Path, tmp_path: Path) -> None:
    one = on(folder, "runtime")
    refused(one, "run")
    said(one, f"gcore {tmp_path / 'half.etdp'}")
    seen = Session(folder / "model.etrecord", tmp_path / "half.etdp", tmp_path / "half.bin")
    for session in (one, seen):
        result = session.execute("blame")
        assert result.ok and result.exit_code == 1
        assert f"the device failed: {FAILED} (instruction 2) failed at {AT}" in result.text
        assert f"the reference fails at {FAILED} ({AT}): index out of range" in result.text
        assert "before it, no operator goes wrong: 2 values" in result.text
        rows = session.execute("gap").data[0]["rows"]
        assert {row["node"]: row["verdict"] for row in rows} == {
            "aten_permute_copy_default": "fine",
            BEFORE: "fine",
        }
        assert "SQNR" in said(session, f"print {BEFORE}") or session is seen
    error = seen.execute("print ref(aten_relu_default)").error
    assert isinstance(error, ReferenceFailure) and error.node == FAILED
    assert where(one) == FAILED  # it was repeated for blame


def test_a_core_has_the_inputs_of_its_run(folder: Path, tmp_path: Path) -> None:
    one = on(folder, "runtime", "known")
    said(one, "run", f"gcore {tmp_path / 'other.etdp'}")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "other.bin", "other.etdp", "other.inputs.npz", "other.run.json",
    ]  # fmt: skip
    assert "is there already" in refused(one, f"gcore {tmp_path / 'other.etdp'}")
    seen = Session(folder / "model.etrecord", tmp_path / "other.etdp", tmp_path / "other.bin")
    assert "no operator goes wrong" in said(seen, "blame")
    said(seen, "start", "until op:relu")
    assert float(seen.value("gap(max_abs)")) < 1e-5
    # Without etdb: the files are found by the dump alone.
    found = run_of_files([tmp_path / "other.etdp"])
    assert found.record == folder / "model.etrecord" and found.debug_buffer is not None
    with np.load(tmp_path / "other.inputs.npz") as arrays:
        given = [torch.from_numpy(arrays[name]) for name in arrays.files]
    torch.manual_seed(0)
    expected = Lookup().eval()(*given).detach().numpy()
    np.testing.assert_allclose(seen.value("aten_relu_default"), expected, atol=1e-6)


def test_a_core_has_the_inputs_of_the_calls_before_it(tmp_path: Path) -> None:
    from etscope.export import export

    def inputs(call: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(call)
        return torch.randn(1, 1, 8, generator=generator), torch.tensor([call])

    export(Cache(), inputs(0)).save(tmp_path, "model", bundle=False)
    given = []
    for call in range(3):
        np.savez(tmp_path / f"{call}.npz", *(one.numpy() for one in inputs(call)))
        given.append(f"--inputs {tmp_path}/{call}.npz")
    one = begun(files(tmp_path), " ".join(given))
    said(one, "run 2", f"gcore {tmp_path / 'last.etdp'}")
    seen = Session(tmp_path / "model.etrecord", tmp_path / "last.etdp", tmp_path / "last.bin")
    assert "no operator goes wrong" in said(seen, "blame")
    live = Session(tmp_path / "model.etrecord", tmp_path / "last.etdp", tmp_path / "last.bin")
    said(live, "target live", "run 2", "reverse-step")
    last = where(live)
    assert float(live.value(f"gap(max_abs, {last})")) < 1e-5
    device, reference = live.value(f"device({last})"), live.value(last)
    np.testing.assert_allclose(device, reference, atol=1e-5)
    said(live, "run 0", "reverse-step")
    assert "the dump has 1 run, and none of call 0" in refused(live, f"print device({last})")
