"""Inputs of real programs: what the runtime takes, and names from records."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etscope.errors import MismatchError
from etscope.etrecord._etrecord import as_record
from etscope.formats.etrecord.reader import read_etrecord
from etscope.formats.program.pte import Program, read_pte
from etscope.formats.torch_files.tensor_files import write_tensor_file
from etscope.model.exported_graph import record_input_names
from etscope.run.inputs import method_inputs
from tests.support.artifacts import artifacts


@pytest.mark.parametrize(
    ("name", "method", "expected"),
    [
        ("cnn_portable", "forward", ("x",)),
        ("bf16_fp16", "forward", ("x", "y")),
        ("transformer", "forward", ("tokens",)),
        ("two_methods", "decode", ("inputs_0",)),
        ("two_methods", "forward", None),
        ("bf16_fp16", "decode", None),
    ],
)
def test_names_from_a_record(name: str, method: str, expected: tuple[str, ...] | None) -> None:
    path = artifacts(name).etrecord
    assert path is not None
    assert record_input_names(read_etrecord(path), method) == expected


@pytest.fixture(scope="module")
def exported() -> tuple[Program, Any, Any]:
    """A program that takes all that can be taken, nested; its record's view; its runtime."""
    torch = pytest.importorskip("torch")
    bindings = pytest.importorskip("executorch.extension.pybindings._C")
    from executorch.exir import to_edge
    from torch.export import export

    class Nested(torch.nn.Module):
        def forward(self, x, pair, named, n, f=0.5, b=False, s=None, *, last):
            left, right = pair
            y = x * n + left * 10 + right * 100 + named["u"] * 1000 + named["v"] * 10_000 + f
            return y + last * 100_000 if b else y

    ones = [torch.ones(2) for _ in range(6)]
    given = (ones[0], (ones[1], ones[2]), {"v": ones[3], "u": ones[4]}, 3, 2.5, True, "sum")
    export_ = export(Nested(), given, {"last": ones[5]}, strict=False)
    manager = to_edge(export_, generate_etrecord=True).to_executorch()
    data = bytes(manager.buffer)
    loaded = bindings._load_program_from_buffer(data, enable_etdump=False, debug_buffer_size=0)
    return read_pte(data), as_record(manager.get_etrecord()), loaded


def values_of(names: Sequence[str]) -> dict[str, Any]:
    """A value for each input of `exported`: its place in the sum as its number."""
    ones = {"x": 1, "pair_0": 2, "pair_1": 3, "named_u": 4, "named_v": 5, "last": 6}
    fixed = {"n": 3, "f": 2.5, "b": True, "s": None}
    return {
        name: np.full(2, ones[name], np.float32) if name in ones else fixed[name] for name in names
    }


def test_nested_inputs_run(exported: tuple[Program, Any, Any]) -> None:
    from etscope.bridge.tensors import torch_values

    opened, record, loaded = exported
    names = record_input_names(record, "forward")
    assert names is not None
    assert len(names) == len(opened.method("forward").inputs)
    v = values_of(("x", "pair_0", "pair_1", "named_u", "named_v", "last", "n", "f", "b", "s"))
    nested = (
        *(v["x"], [v["pair_0"], v["pair_1"]], {"u": v["named_u"], "v": v["named_v"]}),
        *(3, 2.5, True, None, v["last"]),
    )
    by_name = values_of(list(reversed(names)))
    for given in (nested, by_name):
        inputs = method_inputs(opened, "forward", given, seed=0, input_names=names)
        (output,) = loaded.load_method("forward")(torch_values(inputs), clone_outputs=True)
        assert output.tolist() == [3 + 20 + 300 + 4000 + 50_000 + 2.5 + 600_000] * 2
    generated = method_inputs(opened, "forward", None, seed=0)
    assert len(loaded.load_method("forward")(torch_values(generated), clone_outputs=True)) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("n", 3), ("n", 4), ("n", 3.0), ("n", True), ("b", False), ("b", 1), ("s", None)),
        *(("s", 1), ("f", 2.5001), ("f", 2.49988), ("f", 2.5002), ("f", float("nan"))),
        *(("x", np.ones(3, np.float32)), ("x", np.ones(2)), ("x", 1.0), ("x", None)),
    ],
)
def test_the_runtime_takes_what_is_taken_here(
    exported: tuple[Program, Any, Any], name: str, value: Any
) -> None:
    from etscope.bridge.tensors import torch_values

    opened, record, loaded = exported
    names = record_input_names(record, "forward")
    assert names is not None
    given = values_of(names) | {name: value}
    run = loaded.load_method("forward")
    try:
        inputs = method_inputs(opened, "forward", given, seed=0, input_names=names)
    except MismatchError:
        with pytest.raises(RuntimeError):
            run(torch_values([given[one] for one in names]), clone_outputs=True)
    else:
        run(torch_values(inputs), clone_outputs=True)


def test_torch_is_not_needed(tmp_path: Path) -> None:
    """Nor imported, for generated inputs, arrays, and files of all kinds."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("safetensors")
    array = np.ones((2, 6), np.float32)
    torch.save([torch.from_numpy(array)], tmp_path / "a.pt")
    for name in ("a.npz", "a.safetensors"):
        write_tensor_file(tmp_path / name, [array], ["x"])
    program = f"""
import sys
sys.modules["torch"] = None
import numpy as np
from etscope.formats.program.pte import read_pte
from etscope.run.inputs import method_inputs
opened = read_pte({str(artifacts("varying_inputs").pte)!r})
files = [{str(tmp_path)!r} + "/a." + suffix for suffix in ("pt", "npz", "safetensors")]
for given in (None, np.ones((2, 6), np.float32), *files):
    (found,) = method_inputs(opened, "forward", given, seed=0)
    print(found.shape)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout == "(2, 6)\n" * 5, done.stderr
