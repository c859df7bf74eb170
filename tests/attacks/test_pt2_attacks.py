"""Hostile .pt2 files: refused with a typed error, and nothing of them is run."""

from __future__ import annotations

import io
import json
import pickle
import random
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from etscope.errors import FormatError
from etscope.export import load_model
from etscope.formats.torch_files.pt2_archive import is_pt2, read_pt2
from tests.attacks.hostile import Call
from tests.attacks.mutations import attack
from tests.support.etrecord_files import members_of, zip_bytes
from tests.support.fuzz import fuzzed

torch = pytest.importorskip("torch")

Program = dict[str, Any]
MODEL = "x/models/model.json"
WEIGHTS = "x/data/weights/model_weights_config.json"
CONSTANTS = "x/data/constants/model_constants_config.json"
SAMPLE = "x/data/sample_inputs/model.pt"


class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A weight, a constant, an input by keyword and a size that is not fixed."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.constant = torch.ones(4)

    def forward(self, x: Any, *, y: Any) -> Any:
        return {"sum": self.linear(x) + y + self.constant}


@pytest.fixture(scope="module")
def good() -> dict[str, bytes]:
    """The members of a good file, by names of one root."""
    batch = torch.export.Dim("batch", min=2, max=9)
    program = torch.export.export(
        Net(),
        (torch.ones(3, 4),),
        {"y": torch.ones(4)},
        dynamic_shapes={"x": {0: batch}, "y": None},
    )
    stream = io.BytesIO()
    torch.export.save(program, stream)
    members = members_of(stream.getvalue())
    return {"x/" + name.partition("/")[2]: data for name, data in members.items()}


def written(tmp_path: Path, members: dict[str, bytes]) -> Path:
    path = tmp_path / "model.pt2"
    path.write_bytes(zip_bytes(members))
    return path


def edited(good: dict[str, bytes], member: str, edit: Callable[[Any], object]) -> dict[str, bytes]:
    content = json.loads(good[member])
    edit(content)
    return {**good, member: json.dumps(content).encode()}


def use(path: Path) -> None:
    """Load, run and export it: all that `etscope export` does."""
    load_model(str(path)).export()


def pickled(witness: Path) -> bytes:
    stream = io.BytesIO()
    torch.save(Call(witness), stream)
    return stream.getvalue()


def test_the_good_file_is_loaded_and_exported(good: dict[str, bytes], tmp_path: Path) -> None:
    source = load_model(str(written(tmp_path, good)))
    x, y = torch.randn(5, 4), torch.randn(4)
    found = source.model.module()(x, y=y)["sum"]
    state = source.model.state_dict
    torch.testing.assert_close(
        found, x @ state["linear.weight"].T + state["linear.bias"] + y + torch.ones(4)
    )
    assert set(source.export().example_inputs) == {"forward"}


def test_weights_that_share_memory_still_do(tmp_path: Path) -> None:
    class Tied(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.a = torch.nn.Linear(4, 4, bias=False)
            self.b = torch.nn.Linear(4, 4, bias=False)
            self.b.weight = self.a.weight
            self.register_buffer("part", self.a.weight.detach()[1:3, ::2])

        def forward(self, x: Any) -> Any:
            return self.a(x) + self.b(x) + self.part.sum()

    model = Tied()
    path = tmp_path / "tied.pt2"
    torch.export.save(torch.export.export(model, (torch.ones(2, 4),)), path)
    loaded = load_model(str(path)).model
    for name, value in model.state_dict().items():
        torch.testing.assert_close(loaded.state_dict[name].detach(), value)


def test_inputs_may_be_called_as_fields_of_the_file_are(tmp_path: Path) -> None:
    class Named(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, name: Any, target: Any, expr_str: Any) -> Any:
            return name + target * expr_str

    path = tmp_path / "named.pt2"
    torch.export.save(torch.export.export(Named(), (torch.ones(2),) * 3), path)
    loaded = load_model(str(path)).model
    torch.testing.assert_close(loaded.module()(*[torch.ones(2)] * 3), torch.full((2,), 2.0))


# -- code in the program


def first_graph(program: Program) -> Program:
    graph: Program = program["graph_module"]["graph"]
    return graph


def signature(program: Program) -> Program:
    found: Program = program["graph_module"]["module_call_graph"][0]["signature"]
    return found


def in_a_size(program: Program, code: str, form: str = "[{}, 1][1]") -> None:
    for value in first_graph(program)["tensor_values"].values():
        for size in value["sizes"]:
            if "as_expr" in size:
                size["as_expr"]["expr_str"] = form.format(code)


def in_a_symbol(program: Program, code: str) -> None:
    in_a_size(program, code, "Symbol('s0', integer={})")


def in_a_range(program: Program, code: str) -> None:
    program["range_constraints"] = {f"[{code}][0]": {"min_val": 2, "max_val": 9}}


def in_the_name_of_an_input(program: Program, code: str) -> None:
    program.update(json.loads(json.dumps(program).replace('"y"', json.dumps(f"y={code}"))))
    signature(program)["forward_arg_names"] = ["x", "y"]


def in_the_names_of_arguments(program: Program, code: str) -> None:
    signature(program)["forward_arg_names"] = ["x", f"y={code}"]


def in_a_keyword(program: Program, code: str) -> None:
    spec = json.loads(signature(program)["in_spec"])
    spec[1]["children_spec"][1]["context"] = json.dumps([f"y={code}"])
    signature(program)["in_spec"] = json.dumps(spec)
    signature(program)["forward_arg_names"] = []


def in_an_import(program: Program, _: str) -> None:
    """A default dictionary names a module, which is imported."""
    context = {
        "default_factory_module": "imported_by_attack",
        "default_factory_name": "x",
        "dict_context": ["sum"],
    }
    spec = json.loads(signature(program)["out_spec"])
    spec[1].update(type="collections.defaultdict", context=context)
    signature(program)["out_spec"] = json.dumps(spec)


def in_an_enumeration(program: Program, _: str) -> None:
    """So does an enumeration that is a key."""
    spec = json.loads(signature(program)["out_spec"])
    key = {"__enum__": True, "fqn": "imported_by_attack:x", "name": "sum"}
    spec[1]["context"] = json.dumps([key])
    signature(program)["out_spec"] = json.dumps(spec)


def call_with_text(target: str) -> Callable[[Program, str], None]:
    """A node that calls a function of torch with a text."""

    def plant(program: Program, code: str) -> None:
        graph = first_graph(program)
        graph["nodes"].insert(
            0,
            {
                "target": target,
                "inputs": [{"name": "", "arg": {"as_string": code}, "kind": 1}],
                "outputs": [],
                "metadata": {},
                "is_hop_single_tensor_return": None,
                "name": "call",
            },
        )
        program["verifiers"] = []

    plant.__name__ = f"call_of_{target}"
    return plant


FUNCTIONS = (
    *("torch.os.system", "torch.hub.load", "torch.sys.modules", "torch.ops.load_library"),
    *("torch.ops.load_library.__call__.__call__", "torch.ops.aten.from_file.default"),
    *("torch.ops.aten.save.default", "torch.ops.aten._print.default"),
    *("torch.ops.mine.evil.default", "torch.ops.higher_order.print", "_operator.methodcaller"),
    *("_operator.attrgetter", "math.__loader__.load_module", "#ext:evil"),
    "torch.ops.aten.add.Tensor\n",
)
CODE = [
    in_a_size,
    in_a_symbol,
    in_a_range,
    in_the_name_of_an_input,
    in_the_names_of_arguments,
    in_a_keyword,
    in_an_import,
    in_an_enumeration,
    *map(call_with_text, FUNCTIONS),
]


def planted(good: dict[str, bytes], plant: Any, witness: Path) -> dict[str, bytes]:
    code = f"open({str(witness)!r},'w').close()"
    if plant.__name__.startswith("call_of"):
        code = f"touch {witness}"
    return edited(good, MODEL, lambda program: plant(program, code))


RUNS_IN_TORCH = (in_a_size, in_the_name_of_an_input, in_an_import, in_an_enumeration)


@pytest.mark.parametrize("plant", CODE, ids=lambda plant: plant.__name__)
def test_code_in_a_program_is_refused(
    plant: Any, good: dict[str, bytes], tmp_path: Path, witness: Path
) -> None:
    path = written(tmp_path, planted(good, plant, witness))
    with pytest.raises(FormatError) as caught:
        use(path)
    assert not witness.exists()
    assert caught.value.path == str(path)
    assert caught.value.hint
    if plant in RUNS_IN_TORCH:
        runs_in_torch(path, witness)


def runs_in_torch(path: Path, witness: Path) -> None:
    """torch's own loader runs what is planted."""
    with suppress(Exception):
        torch.export.load(path).module()(torch.ones(3, 4), y=torch.ones(4))
    assert witness.exists()


def test_guards_are_left_out(good: dict[str, bytes], tmp_path: Path, witness: Path) -> None:
    """Conditions on inputs, as Python text, which `ExportedProgram.module()` executes."""
    guard = f"[open({str(witness)!r}, 'w').close(), 1][1]"
    members = edited(good, MODEL, lambda program: program.update(guards_code=[guard]))
    path = written(tmp_path, members)
    use(path)
    assert not witness.exists()
    runs_in_torch(path, witness)


# -- pickles


@pytest.mark.parametrize(
    ("config", "file"),
    [
        (WEIGHTS, "weight_9"),
        (CONSTANTS, "tensor_9"),
        (CONSTANTS, "custom_obj_9"),
        (CONSTANTS, "opaque_obj_9"),
    ],
)
def test_pickled_weights_are_refused(
    config: str, file: str, good: dict[str, bytes], tmp_path: Path, witness: Path
) -> None:
    def plant(content: Program) -> None:
        entry = next(iter(content["config"].values()))
        entry.update(path_name=file, use_pickle=True)

    members = edited(good, config, plant)
    members[f"{config.rpartition('/')[0]}/{file}"] = pickled(witness)
    path = written(tmp_path, members)
    with pytest.raises(FormatError, match="is a pickle, which could run code"):
        use(path)
    assert not witness.exists()


@pytest.mark.parametrize("payload", ["archive", "pickle"])
def test_pickled_inputs_are_refused(
    payload: str, good: dict[str, bytes], tmp_path: Path, witness: Path
) -> None:
    data = pickled(witness) if payload == "archive" else pickle.dumps(Call(witness))
    path = written(tmp_path, {**good, SAMPLE: data})
    with pytest.raises(FormatError):
        use(path)
    assert not witness.exists()
    with suppress(Exception):
        torch.export.load(path)
    assert witness.exists() or payload == "pickle"


def test_inputs_of_another_form_are_refused(
    good: dict[str, bytes], tmp_path: Path, witness: Path
) -> None:
    # What is safe to load may be bytes, and torch would load a pickle in those in turn.
    for inputs in ([(), {}], ((),), ((), {}, 1), ({}, ()), 3, pickled(witness)):
        stream = io.BytesIO()
        torch.save(inputs, stream)
        with pytest.raises(FormatError, match="not a tuple and a dict"):
            use(written(tmp_path, {**good, SAMPLE: stream.getvalue()}))
    assert not witness.exists()


def test_old_files_are_refused(good: dict[str, bytes], tmp_path: Path, witness: Path) -> None:
    members = {name: data for name, data in good.items() if name != WEIGHTS}
    members["x/data/weights/model.pt"] = pickled(witness)
    with pytest.raises(FormatError, match=r"PyTorch 2\.8 and older"):
        use(written(tmp_path, members))
    older = {"serialized_exported_program.json": b"{}", "version": b"8.8"}
    with pytest.raises(FormatError, match=r"PyTorch 2\.7 or older"):
        use(written(tmp_path, older))
    assert not witness.exists()


# -- damage


def weight(good: dict[str, bytes], **meta: Any) -> dict[str, bytes]:
    return edited(
        good,
        WEIGHTS,
        lambda content: content["config"]["linear.weight"]["tensor_meta"].update(meta),
    )


@pytest.mark.parametrize(
    "meta",
    [
        {"sizes": [{"as_int": 400}, {"as_int": 4}]},
        {"sizes": [{"as_int": -4}, {"as_int": 4}]},
        {"sizes": [{"as_int": 1 << 60}, {"as_int": 4}]},
        {"sizes": [{"as_expr": {"expr_str": "1", "hint": None}}, {"as_int": 4}]},
        {"sizes": [{"as_int": 4}]},
        {"strides": [{"as_int": 1 << 40}, {"as_int": 1}]},
        {"storage_offset": {"as_int": 1}},
        {"dtype": 99},
        {"dtype": 8},
        {"dtype": "7"},
        {"sizes": None},
    ],
)
def test_weights_that_do_not_fit_their_bytes(
    meta: dict[str, Any], good: dict[str, bytes], tmp_path: Path
) -> None:
    with pytest.raises(FormatError):
        use(written(tmp_path, weight(good, **meta)))


@pytest.mark.parametrize("member", [MODEL, WEIGHTS, CONSTANTS, "x/data/weights/weight_0"])
@pytest.mark.parametrize("data", [None, b"", b"{}", b"[]", b"{", b"null", b"\xff" * 40])
def test_members_that_are_not_what_they_should_be(
    member: str, data: bytes | None, good: dict[str, bytes], tmp_path: Path
) -> None:
    members: dict[str, bytes | None] = {**good, member: data}
    path = written(
        tmp_path, {name: content for name, content in members.items() if content is not None}
    )
    with pytest.raises(FormatError):
        use(path)


def test_truncations(good: dict[str, bytes], tmp_path: Path) -> None:
    data = zip_bytes(good)
    for end in range(0, len(data), len(data) // 40):
        with suppress(FormatError):
            assert read_pt2(memoryview(data[:end])) == {}
        assert not is_pt2(memoryview(data[:end]))


@fuzzed(400, nightly=10_000)
def test_mutations(good: dict[str, bytes], seed: int, count: int) -> None:
    """Any byte of the JSON changed: a program or a typed error."""

    def changed(rng: random.Random) -> bytes:
        member = rng.choice([MODEL, MODEL, WEIGHTS, CONSTANTS])
        data = bytearray(good[member])
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.choice(b'09"{}[],:xN')
        return zip_bytes({**good, member: bytes(data)})

    def touch(data: bytes) -> None:
        read_pt2(memoryview(data))

    attack(seed, count, changed, touch)


def test_deep_programs_and_zip_bombs_are_refused(good: dict[str, bytes], tmp_path: Path) -> None:
    for text in ("[" * 200_000, '{"a":' * 200_000, '{"guards_code":' + "[" * 5000):
        with pytest.raises(FormatError):
            use(written(tmp_path, {**good, MODEL: text.encode()}))

    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {**good, MODEL: b" " * (200 << 20)}.items():
            archive.writestr(name, data)
    with pytest.raises(FormatError, match="unpacks from"):
        read_pt2(memoryview(stream.getvalue()))
