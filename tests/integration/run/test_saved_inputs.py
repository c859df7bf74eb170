"""A run keeps its inputs: what is compared with it later takes these, and no others."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch.exir")

from etscope.cli import main  # noqa: E402
from etscope.errors import FormatError, MissingFileError, UsageError  # noqa: E402
from etscope.etdb import Session  # noqa: E402
from etscope.export import export  # noqa: E402
from etscope.formats.run_json import SavedInputs, call_of_run, saved_calls  # noqa: E402
from tests.support.artifacts import artifacts  # noqa: E402


class Steep(torch.nn.Module):
    """Other inputs give far other values."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(6, 8), torch.nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.exp(self.first(x)))


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(3)
    folder = tmp_path_factory.mktemp("exported")
    export(Steep(), (torch.full((1, 6), 0.5),)).save(folder)
    (found,) = folder.glob("*.etrecord")
    return found


def ran(record: Path, folder: Path, *options: object) -> Path:
    """Run as the README does, and save into the folder."""
    words = ["run", record, "--debug-level", "intermediate_outputs", "--save", folder, *options]
    assert main([str(word) for word in words]) == 0
    return folder


@pytest.fixture(scope="module")
def plain(record: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ran(record, tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def seeded(record: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ran(record, tmp_path_factory.mktemp("a run"), "-X", "seed=7")


def saved_inputs(dump: Path) -> SavedInputs | None:
    """The inputs that were kept of the first run of forward."""
    call = call_of_run(saved_calls(dump), "forward", 0)
    return None if call is None else call.inputs


def numerics(record: Path, folder: Path) -> int:
    """The exit code of the command on a saved run."""
    files = [folder / "run.etdp", "-r", record, "-b", folder / "debug.bin"]
    return main(["numerics", *map(str, files)])


def test_a_correct_model_is_fine_whatever_it_ran_on(
    record: Path, plain: Path, seeded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in (plain, seeded):
        capsys.readouterr()
        assert numerics(record, folder) == 0
        assert "no operator goes wrong" in capsys.readouterr().out


def test_the_records_inputs_run_unless_a_seed_is_given(plain: Path, seeded: Path) -> None:
    found = saved_inputs(plain / "run.etdp")
    assert found is not None and found.values is not None
    assert found.source == "record"
    np.testing.assert_array_equal(found.values[0], np.full((1, 6), 0.5, np.float32))
    found = saved_inputs(seeded / "run.etdp")
    assert found is not None and found.source == "seed 7"


def test_inputs_of_a_file_are_kept(record: Path, tmp_path: Path) -> None:
    given = np.linspace(-1, 1, 6, dtype=np.float32)[None]
    np.savez(tmp_path / "mine.npz", x=given)
    ran(record, tmp_path / "ran", "--inputs", tmp_path / "mine.npz")
    found = saved_inputs(tmp_path / "ran" / "values.etdp")
    assert found is not None and found.values is not None and found.source == "given"
    np.testing.assert_array_equal(found.values[0], given)


def test_the_debugger_takes_the_folder_of_a_saved_run(
    record: Path, seeded: Path, tmp_path: Path
) -> None:
    folder = str(shutil.copytree(seeded, tmp_path / "a run"))
    with Session(str(record), folder) as session:
        assert "no operator goes wrong" in session.execute("gap").text  # on the inputs that ran
        assert session.start().ok
        assert "gap: SQNR" in session.print("$").text
        files = session.debugger.files
    assert files.dump == Path(folder, "values.etdp")
    assert files.debug_buffer == Path(folder, "debug.bin")
    values = f"'{folder}/values.etdp' '{folder}/debug.bin'"
    named = f"the values are in files next to the dump; load them with: core {values}"
    with Session(str(record), f"{folder}/run.etdp") as session:
        assert session.start().ok
        for line in ("print $", "gap", "blame", "info tensors"):
            assert named in session.execute(line).text, line
        assert session.watch("nan").ok
        assert "it is unknown" in session.execute("continue").text
        assert session.execute(f"core '{folder}'").ok
        assert session.start().ok
        assert session.print("$").ok
    (tmp_path / "none").mkdir()
    with pytest.raises(UsageError, match=r"holds no file of a run"):
        Session(str(tmp_path / "none"))


def test_inputs_that_were_not_saved_are_not_replaced_by_others(
    record: Path, seeded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(seeded, tmp_path / "a run")
    facts = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**facts, "inputs": None}))
    assert numerics(record, folder) == 4
    assert "inputs of this run (seed 7) were not saved" in capsys.readouterr().err


def test_bad_files_of_inputs(plain: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(plain, tmp_path / "a run")
    inputs, about = folder / "inputs.npz", folder / "run.json"
    inputs.write_bytes(b"PK\x03\x04 not an archive")
    with pytest.raises(FormatError, match=r"inputs\.npz"):
        saved_inputs(folder / "run.etdp")
    inputs.unlink()
    with pytest.raises(MissingFileError, match=r"inputs\.npz"):
        saved_inputs(folder / "run.etdp")
    about.write_text('{"calls": 3}')
    with pytest.raises(FormatError, match=r"run\.json"):
        saved_inputs(folder / "run.etdp")
    assert saved_inputs(folder / "other.etdp") is None


def test_a_saved_run_knows_its_method(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two methods of the same instructions: the command named one."""
    files = artifacts("forward_and_extra")
    words = ["run", files.pte, "-m", "extra", "--save", tmp_path]
    assert main([str(word) for word in words]) == 0
    shown = capsys.readouterr().out
    assert main(["inspect", str(tmp_path / "run.etdp"), "-p", str(files.pte)]) == 0
    for out in (shown, capsys.readouterr().out):
        assert re.search(r"extra · \d+ (of \d+ )?runs", out)
        assert "extra or forward" not in out and "forward or extra" not in out


def test_runs_of_methods_with_the_same_events_are_told_apart(tmp_path: Path) -> None:
    """Two methods that log the same: the calls say which run is of which."""
    from executorch.exir import to_edge

    from etscope import Inspector
    from etscope.run import Call, run

    class Twice(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + x

    def traced() -> torch.export.ExportedProgram:
        return torch.export.export(Twice(), (torch.ones(2),))

    path = tmp_path / "same.pte"
    path.write_bytes(to_edge({"decode": traced(), "prefill": traced()}).to_executorch().buffer)
    calls = [
        Call("prefill", iterations=2, warmup=1),
        Call("decode", iterations=3, warmup=1),
        Call("prefill", iterations=1, warmup=0),
    ]
    wanted = ["prefill"] * 2 + ["decode"] * 3 + ["prefill"]
    done = run(path, calls)
    done.save(tmp_path / "ran")
    saved = Inspector(etdump_path=str(tmp_path / "ran" / "run.etdp"), program=str(path))
    for trace in (done.trace, done.inspector().trace, saved.trace):
        found: dict[int, str | None] = {}
        for block in trace.blocks:
            if block.name == "Execute":
                assert not trace.also_fitting(block)
                found.update(dict.fromkeys(block.runs.tolist(), trace.method_of(block)))
        assert [found[run] for run in sorted(found)] == wanted
