"""A run is its folder: every command takes it, with all that the run was made from."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from torch import nn
from torch.export import export

from etscope import Inspector
from etscope.capture.files import run_of_files
from etscope.cli import main
from etscope.run import program
from tests.support.artifacts import artifacts
from tests.support.cli.fixtures import Run, run

__all__ = ["run"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with values beside its program and record, which its folder does not hold."""
    made, folder = artifacts("net_xnnpack"), tmp_path_factory.mktemp("saved")
    shutil.copy(made.extra("right.pte"), folder / "model.pte")
    assert made.etrecord is not None
    shutil.copy(made.etrecord, folder / "model.etrecord")
    values = ["--debug-level", "intermediate_outputs", "--iterations", "5", "-X", "seed=5"]
    ran = ["run", str(folder / "model.pte"), *values, "--save", str(folder / "ran")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "_MOST_COPIED", 0)  # as if they were large
        assert main(ran) == 0
    return folder / "ran"


# The portable kernel refuses the order of dimensions that the export reads from the strides.
_FAILS = """
import torch
def make():
    x = torch.randn(1, 1, 7, 5).to(memory_format=torch.channels_last)
    return torch.nn.Conv2d(1, 5, 1), (x,)
"""


def test_the_folder_of_a_failed_run_says_why(run: Run, tmp_path: Path) -> None:
    model, folder = tmp_path / "fails.py", tmp_path / "ran"
    model.write_text(_FAILS)
    code, _, failed = run("run", f"{model}:make", "--backend", "portable", "--save", str(folder))
    assert code != 0 and list(folder.glob("*.pte"))
    code, _, err = run("inspect", str(folder))
    assert (code, "has no ETDump, because its run failed: " in err) == (4, True), err
    reason = (folder / "failure.txt").read_text()
    assert reason.splitlines()[0] in err and reason.splitlines()[0] in failed
    for path in folder.glob("model.*"):
        path.unlink()
    shutil.copy(artifacts("net_xnnpack").extra("right.pte"), folder / "model.pte")
    assert run("run", str(folder / "model.pte"), "--save", str(folder))[0] == 0
    assert not (folder / "failure.txt").exists()


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("inspect {}", "conv"),
        ("explain {}", "sureness"),
        ("inspect --roofline {}", "FLOP/B"),
        ("numerics {}", "no operator goes wrong"),
        ("numerics {}/values.etdp", "no operator goes wrong"),
        ("graph {}", "aten_convolution_default"),
        ("info {}", "model.etrecord: ETRecord"),
        ("info --size {}", "model.pte"),
        ("diff {} {}", "cannot tell"),
    ],
)
def test_commands_find_what_the_run_was_made_from(
    run: Run, saved: Path, words: str, shown: str
) -> None:
    code, out, err = run(*words.format(saved, saved).split())
    assert (code, err) == (0, "") and shown in out
    assert "No ETRecord" not in out and "Without an ETRecord" not in out


def test_files_are_written_of_a_folder(run: Run, saved: Path, tmp_path: Path) -> None:
    for verb, option, name in (
        ("convert", "-o", "run.csv"),
        ("report", "-o", "report.json"),
        ("report", "--tensorboard", "logs"),
    ):
        code, _, err = run(verb, saved, option, tmp_path / name)
        assert code == 0, err
    report = (tmp_path / "report.json").read_text()
    assert "model.etrecord" in report
    assert '"values-fine"' in report


def test_an_inspector_finds_the_values_of_a_saved_run(saved: Path) -> None:
    inspector = Inspector(
        etdump_path=saved / "run.etdp",
        debug_buffer_path=saved / "debug.bin",
        etrecord=saved.parent / "model.etrecord",
    )
    assert inspector.diagnose_numerics().is_fine


def test_a_moved_program_is_found_by_its_content(saved: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(saved.parent, tmp_path / "moved")
    found = run_of_files([moved / "ran"])
    # The noted path still is the program that ran; it goes first.
    assert (found.program, found.record) == (
        saved.parent / "model.pte",
        saved.parent / "model.etrecord",
    )
    text = (moved / "ran" / "run.json").read_text()
    (moved / "ran" / "run.json").write_text(text.replace(str(saved.parent), "/elsewhere"))
    found = run_of_files([moved / "ran"])
    assert (found.program, found.record) == (moved / "model.pte", moved / "model.etrecord")

    other = artifacts("cnn_portable").pte.read_bytes()
    (moved / "model.pte").write_bytes(other)  # another program of that name did not run
    found = run_of_files([moved / "ran"])
    assert (found.program, found.record) == (None, None)


def test_a_record_is_found_that_the_run_was_given(run: Run, tmp_path: Path) -> None:
    """Under any name, and though it does not say which program it is of."""
    made = artifacts("cnn_xnnpack")
    assert run("run", made.pte, "-r", made.etrecord, "--save", tmp_path / "ran")[0] == 0
    found = run_of_files([tmp_path / "ran"])
    inside = tmp_path / "ran"
    assert made.etrecord is not None
    assert found.program == inside / made.pte.name
    assert found.record == inside / made.etrecord.name


@pytest.mark.parametrize("verb", ["inspect", "explain", "numerics", "graph"])
def test_folders_without_a_run(run: Run, tmp_path: Path, verb: str) -> None:
    code, out, err = run(verb, tmp_path)
    assert (code, out) == (2, "") and "holds no file of a run" in err


def test_files_of_two_runs_or_kinds_are_refused(run: Run, saved: Path, tmp_path: Path) -> None:
    record = artifacts("cnn_portable").etrecord
    code, _, err = run("inspect", saved, saved / "values.etdp")
    assert code == 2 and "these are the files of 2 runs" in err
    code, _, err = run("inspect", saved / "run.etdp", record, "-r", record)
    assert code == 2 and "two files for the ETRecord" in err
    code, _, err = run("inspect", saved, record)  # named, it goes before the run's own
    assert code == 3 and "do not belong together" in err
    code, _, err = run("inspect", saved, __file__)
    assert code == 2 and "is a MODEL, not a run" in err


class Gauge(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("gauge", torch.full((6,), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.gauge.add_(x)
        return self.gauge * 1.0


class Reset(nn.Module):
    """A second method over the same buffer."""

    def __init__(self, gauge: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("gauge", gauge)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.gauge.copy_(x)
        return x * 1.0


@pytest.mark.parametrize("methods", [("forward",), ("forward", "reset")])
def test_faults_of_a_program_are_told_of_its_folder(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, methods: tuple[str, ...]
) -> None:
    """By upstream's exporter, whose record names neither its program nor itself in that."""
    model, x = Gauge(), (torch.randn(6),)
    exported = {"forward": export(model, x), "reset": export(Reset(model.gauge), x)}
    lowered = to_edge_transform_and_lower(
        {name: exported[name] for name in methods}, generate_etrecord=True
    ).to_executorch()
    folder = tmp_path / "made"
    folder.mkdir()
    (folder / "model.pte").write_bytes(lowered.buffer)
    lowered.get_etrecord().save(folder / "model.etrecord")
    monkeypatch.chdir(tmp_path)  # where the run is kept
    lost = "gauge (float32[6]) starts as 2 in the model and undefined in the program"
    own = "forward has its own copy of gauge: it does not see what reset writes there"
    for words, expected in (("info", 0), ("explain", 4), ("run --iterations 3", 0)):
        verb, *options = words.split()
        code, out, _ = run(verb, str(folder), *options)
        assert code == expected, words
        assert lost in out, words
        assert (own in out) == (len(methods) == 2), words
        assert f"{Path(__file__).name}:{LINE}" in out, words  # by the record
    (tmp_path / "empty").mkdir()
    code, _, err = run("run", str(tmp_path / "empty"))
    assert code == 2 and "holds no file of a run" in err and "config.json" in err


LINE = next(
    number
    for number, line in enumerate(Path(__file__).read_text().splitlines(), 1)
    if "self.gauge.add_" in line
)
