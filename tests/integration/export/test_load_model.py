"""What may be named as a model, and what is said of what may not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from etscope.errors import EtscopeError, FormatError, MissingFileError, UsageError
from etscope.export import check_model_name, load_model
from tests.integration.export.conftest import FACTORIES
from tests.support.artifacts import ROOT
from tests.support.export import factories

MODULE = "tests.support.export.factories"


@pytest.fixture(autouse=True)
def from_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "path", list(sys.path))


def shapes(inputs: Any) -> Any:
    if isinstance(inputs, dict):
        return {name: tuple(value.shape) for name, value in inputs.items()}
    if isinstance(inputs, torch.Tensor):
        return tuple(inputs.shape)
    return inputs and [tuple(value.shape) for value in inputs]


@pytest.mark.parametrize(
    ("attribute", "inputs", "name"),
    [
        ("WithInputs", (2, 8), "WithInputs"),
        ("WithListOfInputs", [(2, 8)], "WithListOfInputs"),
        ("WithGetter", [(2, 8)], "WithGetter"),
        ("instance", (2, 8), "instance"),
        ("EagerModel", [(2, 8)], "EagerModel"),
        ("eager_model", [(2, 8)], "eager_model"),
        ("pair", [(2, 8)], "pair"),
        ("triple", [(2, 8)], "triple"),
        ("single_tensor", (2, 8), "single_tensor"),
        ("by_keyword", {"second": (3,), "first": (3,)}, "by_keyword"),
        ("module_only", None, "module_only"),
        ("Tiny", None, "Tiny"),
        ("Zoo.static", [(2, 8)], "static"),
        ("Zoo.of_class", [(2, 8)], "of_class"),
        ("Zoo.bound", [(2, 8)], "bound"),
    ],
)
@pytest.mark.parametrize("target", [MODULE, FACTORIES])
def test_attributes_that_give_a_module(target: str, attribute: str, inputs: Any, name: str) -> None:
    source = load_model(f"{target}:{attribute}")
    assert isinstance(source.model, torch.nn.Module)
    assert shapes(source.inputs) == inputs
    assert source.name == name
    assert (source.dynamic_shapes is None) == (
        attribute not in ("triple", "EagerModel", "eager_model")
    )


@pytest.mark.parametrize(("attribute", "kind"), [("program", "forward"), ("methods", None)])
def test_attributes_that_give_programs(attribute: str, kind: str | None) -> None:
    model = load_model(f"{MODULE}:{attribute}").model
    if kind is None:
        assert list(model) == ["encode", "decode"]
        model = model["encode"]
    assert isinstance(model, torch.export.ExportedProgram)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (f"{FACTORIES}:number", "is of type int\n  hint: name a torch.nn.Module"),
        (f"{FACTORIES}:wrong", r"wrong\(\) is a list of int, int\n  hint: return a torch.nn"),
        (f"{FACTORIES}:nothing", r"nothing\(\) is None"),
        (f"{FACTORIES}:with_arguments", "needs arguments: path"),
        (f"{FACTORIES}:pairr", "module .* has no 'pairr'\n  hint: did you mean 'pair'?"),
        (f"{FACTORIES}:Zoo.bond", "class Zoo has no 'bond'\n  hint: did you mean 'bound'"),
        (f"{FACTORIES}:leaving", r"leaving\(\) fails: SystemExit: usage: train.py"),
        (f"{FACTORIES}:", "does not name a model"),
        (":pair", "does not name a model"),
        ("no_such_module:x", "cannot import no_such_module .*ModuleNotFoundError"),
        ("not-a-name:x", "is not the name of a module"),
        (FACTORIES, "does not say what the model is"),
        (MODULE, "does not say what the model is"),
        ("weights", "does not say what the model is"),
    ],
)
def test_what_gives_no_model(spec: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        load_model(spec)


@pytest.mark.parametrize("spec", ["none.py:x", "none.pt2", "no/folder/none.py:make"])
def test_files_that_are_not_there(spec: str) -> None:
    with pytest.raises(MissingFileError, match="not found"):
        load_model(spec)


def test_an_error_in_a_factory_has_its_line() -> None:
    with pytest.raises(UsageError, match=r"raising\(\) fails: ValueError: weights") as caught:
        load_model(f"{FACTORIES}:raising")
    line = str(caught.value).splitlines()[-1]
    assert line.startswith(f"  at {ROOT / FACTORIES}:")
    assert 'raise ValueError("weights are not here")' in line
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import not_installed\n", "ModuleNotFoundError: No module named 'not_installed'"),
        ("def make(:\n", "SyntaxError"),
        ("x = 1 / 0\n", "ZeroDivisionError"),
        ("import sys\nsys.exit('usage')\n", "SystemExit: usage"),
    ],
)
def test_files_that_cannot_be_imported(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "broken_model.py"
    path.write_text(text + "make = None\n")
    before = set(sys.modules)
    with pytest.raises(UsageError, match=words):
        load_model(f"{path}:make")
    assert not {name for name in set(sys.modules) - before if "broken" in name or "model_" in name}


def test_a_model_that_is_not_named_is_refused_without_torch(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "class Net: pass\ndef _hidden(): pass\ndef sized(n): pass\ndef make(): return Net()\n"
    )
    (tmp_path / "dynamic.py").write_text("globals()['make'] = None\n")
    (tmp_path / "weights.pt").write_bytes(b"PK")
    words = {
        "net.py": "net.py:make (or Net, sized)",
        "net.py:maek": "module net has no 'maek'\n  hint: did you mean 'make'?",
        "none.py:make": "file not found: none.py",
        "weights.pt": "loading that runs code",
    }
    verbs = (["export"], ["sensitivity"], ["bisect", "-o", "x"])
    lines = [[verb[0], spec, *verb[1:]] for verb in verbs for spec in words]
    lines.remove(["bisect", "weights.pt", "-o", "x"])  # which might be a record
    code = (
        "import sys; from etscope.cli import main\n"
        f"for line in {lines}: print(main(line), 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["2 False"] * len(lines)
    for spec, text in words.items():
        assert done.stderr.count(text) == sum(spec in line for line in lines)
    check_model_name(f"{tmp_path}/dynamic.py:make")
    check_model_name(f"{tmp_path}/net.py:Net.forward")


def test_a_file_of_any_name_may_import_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "layers_of_mine.py").write_text("import torch\nNet = torch.nn.ReLU\n")
    (tmp_path / "json.py").write_text("from layers_of_mine import Net\n")  # a name that is taken
    (tmp_path / "my.best-model.py").write_text("from layers_of_mine import Net\n")
    for name in ("json", "my.best-model"):
        source = load_model(f"{tmp_path / name}.py:Net")
        assert isinstance(source.model, torch.nn.ReLU)
    assert hasattr(sys.modules["json"], "loads")


def test_modules_are_seen_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "package_of_mine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "nets.py").write_text("import torch\nnet = torch.nn.ReLU()\n")
    monkeypatch.chdir(tmp_path)
    assert isinstance(load_model("package_of_mine.nets:net").model, torch.nn.ReLU)


def test_the_seed_makes_the_same_weights_each_time() -> None:
    def weight(seed: int) -> torch.Tensor:
        found: torch.Tensor = load_model(f"{MODULE}:Tiny", seed=seed).model.linear.weight
        return found

    assert torch.equal(weight(3), weight(3))
    assert not torch.equal(weight(3), weight(4))


def test_weights_and_pickled_modules_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save(factories.Tiny().state_dict(), path)
    with pytest.raises(UsageError, match=r"model\.pt holds weights .*\n.*write a function"):
        load_model(str(path))
    torch.save(factories.Tiny(), path)
    with pytest.raises(UsageError, match="write a function"):
        load_model(str(path))


@pytest.mark.parametrize("data", [b"", b"x" * 100, b"PK\3\4" + b"\0" * 60])
def test_other_files_are_no_models(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "model.pt2"
    path.write_bytes(data)
    with pytest.raises(FormatError):
        load_model(str(path))


# -- inputs in files


def inputs_in(spec: str, path: Path) -> Any:
    return load_model(f"{MODULE}:{spec}", inputs=path).inputs


def test_inputs_of_a_file_stand_in_for_the_models_own(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", np.ones((3, 8), np.float32))
    assert shapes(inputs_in("pair", tmp_path / "x.npz")) == [(3, 8)]
    torch.save((torch.ones(5, 8),), tmp_path / "x.pt")
    assert shapes(inputs_in("Tiny", tmp_path / "x.pt")) == [(5, 8)]


def test_inputs_are_matched_by_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", second=np.ones(3), first=np.zeros(3))
    assert [array.sum() for array in inputs_in("Keywords", tmp_path / "x.npz")] == [0, 3]
    torch.save({"second": torch.ones(3), "first": torch.zeros(3)}, tmp_path / "x.pt")
    assert set(inputs_in("Keywords", tmp_path / "x.pt")) == {"first", "second"}


def test_inputs_without_order_need_names(tmp_path: Path) -> None:
    numpy = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "x.safetensors"
    numpy.save_file({"b": np.ones(3), "a": np.zeros(3)}, path)
    with pytest.raises(UsageError, match="does not keep the order"):
        inputs_in("Keywords", path)
    numpy.save_file({"second": np.ones(3), "first": np.zeros(3)}, path)
    assert [array.sum() for array in inputs_in("Keywords", path)] == [0, 3]


def test_a_file_of_inputs_that_is_none(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz")
    with pytest.raises(EtscopeError):
        inputs_in("Keywords", tmp_path / "x.npz")
    with pytest.raises(MissingFileError):
        inputs_in("Keywords", tmp_path / "none.npz")
