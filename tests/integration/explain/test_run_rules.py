"""Rules that look at times, work and the machine, on programs that are exported and run here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from etscope.cli import main
from etscope.run import run

torch = pytest.importorskip("torch")


class Loop(torch.nn.Module):
    """A recurrent cell in a loop of Python, which export writes out."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = torch.nn.GRUCell(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.zeros(1, 8)
        for step in range(12):
            hidden = self.cell(x[step], hidden)
        return hidden


def two_layers() -> torch.nn.Module:
    size = 512
    layers = torch.nn.Linear(size, size), torch.nn.ReLU(), torch.nn.Linear(size, size)
    return torch.nn.Sequential(*layers).eval()


def saved(folder: Path, model: torch.nn.Module, inputs: Any, backend: str, **options: Any) -> Path:
    """Export a model, run it, and save the run with its program; return the folder of the run."""
    from etscope.export import export

    exported = export(model, inputs, backend=backend)
    exported.save(folder / "model")
    return again(folder, "ran", **options)


def again(folder: Path, name: str, **options: Any) -> Path:
    """Run the program of a folder with other options."""
    model = folder / "model"
    record = model / "model.etrecord"
    done = run(model / "model.pte", etrecord=record, seed=0, **{"iterations": 10, **options})
    done.save(folder / name)
    return folder / name


def explained(
    capsys: pytest.CaptureFixture[str], ran: Path, *rules: str
) -> dict[str, dict[str, Any]]:
    """The findings of rules by name, as `etscope explain --format json` has them."""
    model = ran.parent / "model"
    files = [str(ran / "run.etdp"), "-r", str(model / "model.etrecord")]
    only = [word for rule in rules for word in ("--rule", rule)]
    program = ["-p", str(model / "model.pte")]
    assert main(["explain", *files, *program, *only, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out).get("findings", [])
    return {one["kind"]: one for one in found}


@pytest.fixture(scope="module")
def portable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("portable")
    return saved(folder, two_layers(), (torch.rand(32, 512),), "portable", iterations=3)


@pytest.fixture(scope="module")
def delegated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("delegated")
    return saved(folder, two_layers(), (torch.rand(32, 512),), "xnnpack", threads=1)


def test_linear_layers_on_portable_kernels(
    capsys: pytest.CaptureFixture[str], portable: Path
) -> None:
    found = explained(capsys, portable)
    one = found["not-delegated"]
    assert one["quantity"]["share"] > 0.8
    assert {"addmm.out"} <= {site["name"] for site in one["explanation"]["sites"]}
    text = " ".join(one["explanation"]["evidence"])
    assert "GFLOP/s" in text and "have no optimised one" in text
    assert "portable-kernels" not in found
    assert not {"float-weights", "threads", "whole-caches", "small-operators"} & found.keys()


def test_linear_layers_that_are_kept_whole_have_an_optimised_kernel(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """When what the finding says is done, no finding is left."""
    from executorch.exir import EdgeCompileConfig, to_edge

    from etscope.etrecord import generate_etrecord

    inputs = (torch.rand(32, 512),)
    config = EdgeCompileConfig(preserve_ops=[torch.ops.aten.linear.default])
    edge = to_edge(torch.export.export(two_layers(), inputs), compile_config=config)
    folder = tmp_path / "model"
    folder.mkdir()
    from copy import deepcopy

    before = deepcopy(edge)
    program = edge.to_executorch()
    (folder / "model.pte").write_bytes(program.buffer)
    generate_etrecord(folder / "model.etrecord", before, program)
    ran = again(tmp_path, "ran", iterations=3)
    text = " ".join(explained(capsys, ran)["not-delegated"]["explanation"]["evidence"])
    assert "GFLOP/s" not in text


def test_threads_of_large_products(capsys: pytest.CaptureFixture[str], delegated: Path) -> None:
    cores = json.loads((delegated / "run.json").read_text())["conditions"]["cores"]
    found = explained(capsys, delegated, "threads", "float-weights")
    assert found["float-weights"]["quantity"]["share"] > 0.5
    assert ("threads" in found) == (cores > 1)
    many = again(delegated.parent, "many", threads=4 * cores)
    one = explained(capsys, many, "threads")["threads"]
    assert one["severity"] == "cost"
    assert one["explanation"]["remedies"][0]["change"] == "threads"
    fitting = again(delegated.parent, "fitting", threads=cores)
    found = explained(capsys, fitting, "threads")
    assert "threads" not in found or found["threads"]["severity"] == "fact" or cores == 1


def test_threads_of_small_products(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for rows in (1, 256):  # 2 kFLOP a layer, and 524
        folder = tmp_path / str(rows)
        layers = torch.nn.Sequential(*(torch.nn.Linear(32, 32) for _ in range(24))).eval()
        ran = saved(folder, layers, (torch.rand(rows, 32),), "xnnpack", threads=2)
        found = explained(capsys, ran, "threads")
        if rows > 1:
            assert "threads divide" not in str(found)
            continue
        one = found["threads"]
        assert (
            one["severity"] == "fact"
            or json.loads((ran / "run.json").read_text())["conditions"]["cores"] == 1
        )
        if one["severity"] == "fact":
            assert "2 threads divide 24 products" in one["sentence"]
            assert "computes 2.05 kFLOP" in one["explanation"]["evidence"][0]
            assert one["explanation"]["remedies"][0]["arguments"] == {"threads": 1}


def test_a_loop_that_export_writes_out(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    ran = saved(tmp_path, Loop().eval(), (torch.rand(12, 1, 8),), "portable")
    one = explained(capsys, ran, "small-operators")["small-operators"]
    text = " ".join([*one["explanation"]["evidence"], one["explanation"]["remedies"][0]["text"]])
    assert "of this run that read and write at most 512 bytes" in text
    assert "test_run_rules.py:" in text
    assert "a loop, which export writes out" in text
    assert one["explanation"]["sureness"] == "likely"
