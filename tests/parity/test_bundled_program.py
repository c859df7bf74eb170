"""Bundled programs: ours and upstream's, on the same programs, and both on ExecuTorch's runtime."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etscope.bundled_program import bundle_cases
from etscope.bundled_program import config as our_config
from etscope.bundled_program import core as our_core
from etscope.bundled_program import serialize as our_serialize
from etscope.errors import BundleError, UsageError
from etscope.formats.program.bpte import read_bundled
from etscope.formats.program.scalar_type import as_numpy
from tests.support.artifacts import artifacts

torch = pytest.importorskip("torch")
pytest.importorskip("executorch.devtools")

from executorch.devtools.bundled_program import config as their_config  # noqa: E402
from executorch.devtools.bundled_program import core as their_core  # noqa: E402
from executorch.devtools.bundled_program import serialize as their_serialize  # noqa: E402
from executorch.exir import EdgeCompileConfig, to_edge  # noqa: E402
from executorch.exir._serialize._flatbuffer import _flatc_compile  # noqa: E402

from etscope.etrecord import generate_etrecord, parse_etrecord  # noqa: E402
from tests.support.etrecord.small_models import lowered  # noqa: E402

# In a child: the runtime ends the process where upstream's layout is not the program's.
VERIFY = """
import json, sys, torch
from executorch.extension.pybindings import _C
for job in map(json.loads, sys.stdin):
    data = open(job[0], "rb").read()
    module = _C._load_bundled_program_from_buffer(data, 1 << 20)
    try:
        module.verify_result_with_bundled_expected_output(job[1], job[2])
        answer = "passed"
    except RuntimeError as error:
        answer = str(error)
    print(json.dumps([job, answer]), flush=True)
"""

MISMATCH = "Result verification failed with status 32"
ON_THE_RUNTIME = (
    "cnn_portable",
    "two_methods",
    "channels_last",
    "varying_inputs",
    "inf_output",
    "dynamic_shape",
)


class Runtime:
    """ExecuTorch's runtime in one process for all tests, which is started anew where it ended."""

    def __init__(self) -> None:
        self.child: subprocess.Popen[str] | None = None

    def __call__(self, *jobs: tuple[Path, str, int]) -> list[str]:
        """What the runtime says to each (file, method, case); "died" where it said nothing."""
        return [self._answer([str(path), *rest]) for path, *rest in jobs]

    def _answer(self, job: list[object]) -> str:
        if self.child is None:
            command = [sys.executable, "-c", VERIFY]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            self.child = subprocess.Popen(command, text=True, stderr=subprocess.DEVNULL, **pipes)
        assert self.child.stdin is not None and self.child.stdout is not None
        self.child.stdin.write(json.dumps(job) + "\n")
        self.child.stdin.flush()
        for line in self.child.stdout:
            if line.startswith("[["):
                return str(json.loads(line)[1])
        self.end()
        return "died"

    def end(self) -> None:
        if self.child is not None:
            self.child.communicate()
            self.child = None


@pytest.fixture(scope="module")
def verified() -> Iterator[Runtime]:
    runtime = Runtime()
    yield runtime
    runtime.end()


def made_cases(name: str) -> dict[str, list[tuple[Any, Any]]]:
    """The inputs that an artefact was run on, and its outputs on the runtime."""
    artifact = artifacts(name)
    assert artifact.inputs_pt is not None and artifact.outputs is not None
    outputs = np.load(artifact.outputs)
    return {
        method: [
            (inputs, [outputs[key] for key in outputs if key.startswith(f"{method}/{case}/")])
            for case, inputs in enumerate(some)
        ]
        for method, some in torch.load(artifact.inputs_pt, weights_only=False).items()
    }


@pytest.mark.parametrize("name", ON_THE_RUNTIME)
def test_the_runtime_verifies_what_we_write(name: str, verified: Runtime, tmp_path: Path) -> None:
    cases = made_cases(name)
    program = artifacts(name).pte
    good, bad = tmp_path / "good.bpte", tmp_path / "bad.bpte"
    good.write_bytes(bundle_cases(program, cases))
    method, some = next(iter(cases.items()))
    inputs, outputs = some[0]
    wrong = [np.where(outputs[0] > 0, outputs[0], 1).astype(outputs[0].dtype) * 2, *outputs[1:]]
    bad.write_bytes(bundle_cases(program, {method: [(inputs, wrong)]}))
    jobs = [(good, name, index) for name, some in cases.items() for index in range(len(some))]
    assert verified(*jobs, (bad, method, 0)) == [*["passed"] * len(jobs), MISMATCH]


class Twice(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x + x


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float64", "uint8", "int64", "bool"])
def test_types_of_elements(name: str, verified: Runtime, tmp_path: Path) -> None:
    x = torch.arange(6).reshape(2, 3).to(getattr(torch, name))
    program = to_edge(torch.export.export(Twice(), (x,))).to_executorch()
    path, wrong = tmp_path / "torch.bpte", tmp_path / "wrong.bpte"
    made = bundle(*OURS, program, (x,), (Twice()(x),))
    made.save(path)
    arrays = [as_numpy(x)], [as_numpy(Twice()(x))]
    assert bundle(*OURS, program, *arrays).to_bytes() == path.read_bytes()
    bundle(*OURS, program, (x,), (~x if name == "bool" else x + 1,)).save(wrong)
    assert verified((path, "forward", 0), (wrong, "forward", 0)) == ["passed", MISMATCH]


# -- the same program in both


class Mixed(torch.nn.Module):
    """Tensors, nested, and a number of each kind."""

    def forward(self, pair: Any, more: Any, n: int, f: float, b: bool) -> Any:
        return pair[0] * n + more["y"] * f, pair[1].to(torch.int64) + int(b)


def mixed_inputs() -> tuple[Any, ...]:
    torch.manual_seed(0)
    pair = (torch.randn(2, 3), torch.arange(4, dtype=torch.int32))
    return (pair, {"y": torch.randn(2, 3)}, 3, 2.5, True)


@pytest.fixture(scope="module")
def program() -> Any:
    exported = torch.export.export(Mixed(), mixed_inputs())
    return to_edge(
        exported, compile_config=EdgeCompileConfig(_check_ir_validity=False)
    ).to_executorch()


def bundle(core: Any, config: Any, program: Any, inputs: Any, outputs: Any = None) -> Any:
    case = config.MethodTestCase(inputs=inputs, expected_outputs=outputs)
    suites = [config.MethodTestSuite(method_name="forward", test_cases=[case])]
    return core.BundledProgram(executorch_program=program, method_test_suites=suites)


OURS = (our_core, our_config)
THEIRS = (their_core, their_config)


@pytest.fixture(scope="module")
def both(program: Any) -> tuple[Any, Any]:
    inputs = mixed_inputs()
    outputs = Mixed()(*inputs)
    return bundle(*OURS, program, inputs, outputs), bundle(*THEIRS, program, inputs, outputs)


def test_objects_and_schema_are_the_same(both: tuple[Any, Any]) -> None:
    ours, theirs = both
    assert ours.executorch_program is theirs.executorch_program
    assert ours._pte_file_path is theirs._pte_file_path is None
    for one, other in zip(ours.method_test_suites, theirs.method_test_suites, strict=True):
        assert one.method_name == other.method_name
        for mine, yours in zip(one.test_cases, other.test_cases, strict=True):
            assert [type(v) for v in mine.inputs] == [type(v) for v in yours.inputs]
            assert str(mine.inputs) == str(yours.inputs)
            assert str(mine.expected_outputs) == str(yours.expected_outputs)
    schemas = [dataclasses.asdict(one.serialize_to_schema()) for one in both]
    assert schemas[0] == schemas[1]


def test_each_reads_what_the_other_writes(
    both: tuple[Any, Any], program: Any, verified: Runtime, tmp_path: Path
) -> None:
    ours = our_serialize.serialize_from_bundled_program_to_flatbuffer(both[0])
    theirs = their_serialize.serialize_from_bundled_program_to_flatbuffer(both[1])
    read = [
        dataclasses.asdict(module.deserialize_from_flatbuffer_to_bundled_program(data))
        for module in (our_serialize, their_serialize)
        for data in (ours, theirs)
    ]
    assert read[0] == read[1] == read[2] == read[3]
    assert type(read[0]["program"]) is type(read[3]["program"]) is bytes
    for index, data in enumerate((ours, theirs)):
        path = tmp_path / f"{index}.bpte"
        path.write_bytes(data)
        assert verified((path, "forward", 0)) == ["passed"]

    # The reader of files takes upstream's, and the writer upstream's objects.
    (case,) = read_bundled(theirs).suite("forward").cases
    suites = both[1].method_test_suites
    for found, wanted in zip(case.inputs, suites[0].test_cases[0].inputs, strict=True):
        if isinstance(wanted, torch.Tensor):
            np.testing.assert_array_equal(found, as_numpy(wanted))
        else:
            assert (type(found), found) == (type(wanted), wanted)
    for made in (both[1], our_core.BundledProgram(program, suites)):
        assert our_serialize.serialize_from_bundled_program_to_flatbuffer(made) == ours


# -- JSON


def test_the_json_is_the_same_and_each_reads_it(both: tuple[Any, Any]) -> None:
    ours, theirs = (one.serialize_to_schema() for one in both)
    text = our_serialize.serialize_from_bundled_program_to_json(ours)
    assert text == their_serialize.serialize_from_bundled_program_to_json(theirs)
    for content in (both[0], both[1], theirs):
        assert our_serialize.serialize_from_bundled_program_to_json(content) == text
    assert our_serialize.deserialize_from_json_to_bundled_program(text) == ours

    data = our_serialize.serialize_from_bundled_program_to_flatbuffer(both[0])
    wanted = dataclasses.asdict(ours)
    texts = [module.convert_from_flatbuffer(data) for module in (our_serialize, their_serialize)]
    assert json.loads(texts[0]) == json.loads(texts[1])
    for module in (our_serialize, their_serialize):
        for text in texts:
            found = module.deserialize_from_json_to_bundled_program(text)
            assert dataclasses.asdict(found) == wanted
            made = module.convert_to_flatbuffer(text.decode())
            read = our_serialize.deserialize_from_flatbuffer_to_bundled_program(made)
            assert dataclasses.asdict(read) == wanted


def test_the_schemas_are_the_same(both: tuple[Any, Any], tmp_path: Path) -> None:
    """To flatc: it makes the same bytes by them."""
    text = our_serialize.convert_from_flatbuffer(both[0].to_bytes())
    (tmp_path / "case.json").write_bytes(text)
    for name in (
        our_serialize.BUNDLED_PROGRAM_SCHEMA_NAME,
        our_serialize.SCALAR_TYPE_SCHEMA_NAME,
    ):
        our_serialize.write_schema(tmp_path, name)
    schema = tmp_path / f"{their_serialize.BUNDLED_PROGRAM_SCHEMA_NAME}.fbs"
    _flatc_compile(str(tmp_path), str(schema), str(tmp_path / "case.json"))
    made = (tmp_path / "case.bpte").read_bytes()
    assert made == their_serialize.convert_to_flatbuffer(text.decode())


# -- what both refuse

Change = Callable[[list[Any]], Any]


def changed(index: int, to: Any) -> Change:
    return lambda flat: [*flat[:index], to, *flat[index + 1 :]]


REFUSED = (
    (lambda flat: flat[:-1], "5 inputs, but the method has 6"),
    (lambda flat: [*flat, 1], "7 inputs, but the method has 6"),
    (
        changed(0, torch.zeros(2, 3, dtype=torch.float64)),
        r"input 0: float64\[2, 3\] where the program takes float32",
    ),
    (changed(0, 1), "input 0: the int 1 where the program takes float32"),
    (changed(3, torch.zeros(())), r"input 3: float32\[\] where the program takes the int"),
    (changed(3, True), "input 3: the bool True where the program takes the int"),
    (changed(4, 2), "input 4: the int 2 where the program takes the float"),
    (changed(0, "text"), "input 0 is of type str"),
    (changed(0, None), "input 0 is of type NoneType"),
)


@pytest.mark.parametrize(("change", "message"), REFUSED)
def test_both_refuse(change: Change, message: str, program: Any, both: tuple[Any, Any]) -> None:
    inputs = change(list(both[0].method_test_suites[0].test_cases[0].inputs))
    with pytest.raises(AssertionError):
        bundle(*THEIRS, program, inputs)
    with pytest.raises(AssertionError, match=message) as caught:
        bundle(*OURS, program, inputs)
    assert isinstance(caught.value, BundleError)


@pytest.mark.parametrize("parts", [OURS, THEIRS])
def test_both_refuse_other_outputs_methods_and_programs(parts: Any, program: Any) -> None:
    core, config = parts
    with pytest.raises(AssertionError):
        bundle(core, config, program, mixed_inputs(), [torch.zeros(2, 3), torch.zeros(4)])
    with pytest.raises(AssertionError, match="encode"):
        core.BundledProgram(program, [config.MethodTestSuite("encode", [])])
    with pytest.raises(RuntimeError, match="Either executorch_program or pte_file_path must be"):
        core.BundledProgram(None, [])
    with pytest.raises(RuntimeError, match="Only one of executorch_program or pte_file_path"):
        core.BundledProgram(program, [], "model.pte")


# -- where we differ, on purpose: see docs/appendix/differences.md

ACCEPTED_UPSTREAM = {
    "shape of an input": (changed(0, torch.zeros(3, 2)), None),
    "value of a number": (changed(3, 4), None),
    "shape of an output": (list, [torch.zeros(3, 2), torch.zeros(4, dtype=torch.int64)]),
    "too few outputs": (list, [torch.zeros(2, 3)]),
}


@pytest.mark.parametrize("name", ACCEPTED_UPSTREAM)
def test_what_would_fail_on_the_device_is_refused(
    name: str, program: Any, both: tuple[Any, Any], verified: Runtime, tmp_path: Path
) -> None:
    change, outputs = ACCEPTED_UPSTREAM[name]
    inputs = change(list(both[0].method_test_suites[0].test_cases[0].inputs))
    theirs = tmp_path / "theirs.bpte"
    made = bundle(*THEIRS, program, inputs, outputs or Mixed()(*mixed_inputs()))
    theirs.write_bytes(their_serialize.serialize_from_bundled_program_to_flatbuffer(made))
    assert verified((theirs, "forward", 0)) != ["passed"]
    with pytest.raises(BundleError, match="method 'forward', case 0"):
        bundle(*OURS, program, inputs, outputs)


def test_a_program_file_is_checked_too(program: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.pte"
    path.write_bytes(program.buffer)
    for core, config in (THEIRS, OURS):
        suites = [config.MethodTestSuite("forward", [config.MethodTestCase([torch.zeros(1)])])]
        if core is their_core:
            core.BundledProgram(None, suites, str(path))
            core.BundledProgram(None, suites, str(tmp_path / "none.pte"))
            continue
        with pytest.raises(BundleError, match="1 inputs, but the method has 6"):
            core.BundledProgram(None, suites, str(path))
        with pytest.raises(FileNotFoundError):
            core.BundledProgram(None, suites, str(tmp_path / "none.pte"))


class Layouts(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x.clone(memory_format=torch.channels_last)


def test_channels_last_outputs_can_be_verified(verified: Runtime, tmp_path: Path) -> None:
    x = torch.randn(1, 2, 3, 4)
    program = to_edge(torch.export.export(Layouts(), (x,))).to_executorch()
    answers = {}
    for name, parts in {"ours": OURS, "theirs": THEIRS}.items():
        serialize = our_serialize if name == "ours" else their_serialize
        path = tmp_path / f"{name}.bpte"
        made = bundle(*parts, program, (x,), (Layouts()(x),))
        path.write_bytes(serialize.serialize_from_bundled_program_to_flatbuffer(made))
        (answers[name],) = verified((path, "forward", 0))
    assert answers == {"ours": "passed", "theirs": "died"}


def test_views_and_parameters_are_taken_and_no_tensor_without_data() -> None:
    net = lowered()
    wide = torch.randn(4, 4)
    inputs = {"a view": wide[1:3], "a transpose": wide.t()[:2], "numpy": wide[:2].numpy()}
    for value in (*inputs.values(), torch.nn.Parameter(wide[:2])):
        data = our_serialize.serialize_from_bundled_program_to_flatbuffer(
            bundle(*OURS, net.program, (value,), None)
        )
        (found,) = read_bundled(data).suite("forward").cases[0].inputs
        np.testing.assert_array_equal(found, as_numpy(value))
    with pytest.raises(BundleError, match="input 0: this tensor cannot be read"):
        bundle(*OURS, net.program, (torch.zeros(2, 4, device="meta"),))


# -- records


def test_a_record_takes_our_bundle(tmp_path: Path) -> None:
    net = lowered()
    (x,) = net.inputs
    expected = net.model(x).detach()
    made = bundle(*OURS, net.program, (x.numpy(),), (expected.numpy(),))
    generate_etrecord(tmp_path / "ours.etrecord", net.edge, made)
    generate_etrecord(tmp_path / "theirs.etrecord", net.edge, net.bundled(cases=1))
    ours, theirs = (parse_etrecord(tmp_path / f"{name}.etrecord") for name in ("ours", "theirs"))
    assert str(ours._reference_outputs) == str(theirs._reference_outputs)
    assert str(ours._representative_inputs) == str(theirs._representative_inputs)
    torch.testing.assert_close(ours._reference_outputs["forward"][0][0], expected)
    with pytest.raises(UsageError, match="Missing at least one set of expected outputs"):
        generate_etrecord(
            tmp_path / "one.etrecord", net.edge, bundle(*OURS, net.program, net.inputs)
        )
