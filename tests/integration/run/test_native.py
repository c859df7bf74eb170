"""Jobs through the native runner: inputs, outputs, calls, and the answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etscope.errors import UsageError
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.program import pte_schema as pte
from etscope.formats.program.pte import read_pte
from etscope.formats.program.scalar_type import ScalarType
from etscope.run._runner_host import native_command
from etscope.run.inputs import generate_inputs
from etscope.run.job import RESULT, Job, JobCall
from tests.support.artifacts import artifacts
from tests.support.native.runner import run_flags, run_job
from tests.support.run.echo import NOTHING, echo_program, typed
from tests.support.run.ran import case, expected

PLAIN = [
    kind
    for kind in ScalarType
    if kind.values_per_unit == 1 and not kind.torch_name.startswith(("q", "bits"))
]
FLOAT8 = [kind for kind in PLAIN if kind.torch_name.startswith("float8")]


def same(found: Any, wanted: Any) -> None:
    """Equal in type, shape and every bit."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    assert found.tobytes() == wanted.tobytes()


# -- calls


def test_calls_of_several_methods_share_one_load_and_one_dump(tmp_path: Path) -> None:
    made = artifacts("two_methods")
    encode, decode = case(made, "encode/0"), case(made, "decode/0")
    calls = (
        JobCall("encode", encode, iterations=2, warmup=1),
        JobCall("decode", decode, iterations=1, bundled_input_index=4),
        JobCall("encode", encode, iterations=3),
    )
    result = run_job(Job(made.pte, calls), tmp_path)
    assert [len(call.warmup_ns) for call in result.calls] == [1, 0, 0]
    assert [len(call.samples_ns) for call in result.calls] == [2, 1, 3]
    assert all((call.samples_ns > 0).all() for call in result.calls)
    assert result.load_ns > 0
    dump = read_etdump(tmp_path / "run.etdp")
    # What the runtime itself says of how long it loaded: the third call has nothing to load.
    loads = [name == "Program::load_method" for name in map(dump.strings.__getitem__, dump.name)]
    first, second = (dump.end - dump.start)[loads].tolist()
    assert result.calls[0].load_ns >= first > 0
    assert result.calls[1].load_ns >= second > 0
    names = [dump.strings[name] for name in dump.run_name]
    assert names == ["Default"] * 1 + ["Execute"] * 3 + ["Default"] + ["Execute"] * 4
    indices = dump.run_bundled_input_index.tolist()
    assert [index for index in indices if index != -1] == [4]
    same(result.calls[1].outputs[0], expected(made, "decode/0")[0])
    same(result.calls[2].outputs[0], expected(made, "encode/0")[0])


def test_a_program_with_external_tensors(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from executorch.exir import ExecutorchBackendConfig, to_edge

    torch.manual_seed(0)
    model, x = torch.nn.Linear(3, 2), torch.ones(1, 3)
    config = ExecutorchBackendConfig(external_constants=True)
    lowered = to_edge(torch.export.export(model, (x,))).to_executorch(config)
    lowered.save(str(tmp_path / "linear.pte"))
    lowered.write_tensor_data_to_file(str(tmp_path))
    (data,) = tmp_path.glob("*.ptd")
    call = JobCall("forward", (x.numpy(),))
    result = run_job(Job(tmp_path / "linear.pte", (call,), data=data), tmp_path)
    np.testing.assert_allclose(result.calls[0].outputs[0], model(x).detach(), rtol=1e-6)
    without = run_flags("--program", tmp_path / "linear.pte")
    assert without.returncode == 5
    assert "loading method 'forward' failed with Error::" in without.stderr


# -- values


@pytest.mark.parametrize("kind", PLAIN, ids=lambda kind: kind.torch_name)
def test_tensors_of_every_type_pass_through(kind: ScalarType, tmp_path: Path) -> None:
    program = echo_program(tmp_path / "echo.pte", [typed(kind, 2, 3)])
    data = np.frombuffer(np.random.default_rng(0).bytes(6 * kind.itemsize), np.uint8)
    value = (data & 1 if kind is ScalarType.BOOL else data).view(kind.numpy_dtype).reshape(2, 3)
    result = run_job(Job(program, (JobCall("forward", (value,)),)), tmp_path)
    same(result.calls[0].outputs[0], value)


def test_inputs_and_outputs_that_are_no_tensors(tmp_path: Path) -> None:
    scalars = [
        pte.ScalarValue(pte.ValueKind.INT, -(1 << 62)),
        pte.ScalarValue(pte.ValueKind.BOOL, True),
        pte.ScalarValue(pte.ValueKind.DOUBLE, 0.1),
        NOTHING,
    ]
    doubles = [np.nan, np.inf, -np.inf, 1.0, 1e-300, 2.0**60]
    held = [pte.ScalarValue(pte.ValueKind.DOUBLE, number) for number in doubles]
    text = pte.ScalarValue(pte.ValueKind.STRING, 'say "hi"\n\x01 ü')
    tensors = [typed(ScalarType.FLOAT), typed(ScalarType.LONG, 0, 3)]
    program = echo_program(tmp_path / "echo.pte", [*scalars, *tensors], [text, *held])
    plain = (-(1 << 62), True, 0.1, None)
    arrays = (np.array(2.5, np.float32), np.zeros((0, 3), np.int64))
    job = Job(program, (JobCall("forward", (*plain, *arrays)),), threads=1)
    result = run_job(job, tmp_path)
    assert (result.runner, result.threads) == ("native", 1)
    assert result.executorch is not None and result.executorch.startswith("1.")
    outputs = result.calls[0].outputs
    assert (*outputs[:4], outputs[6]) == (*plain, 'say "hi"\n\x01 ü')
    assert type(outputs[1]) is bool
    for found, wanted in zip(outputs[4:6], arrays, strict=True):
        same(found, wanted)
    assert all(isinstance(number, float) for number in outputs[7:])
    np.testing.assert_equal(outputs[7:], doubles)
    # Generated, they are those that the program holds.
    _, (call,) = ran(program, tmp_path)
    assert [one.get("value") for one in call["outputs"][:4]] == list(plain)


def ran(program: Path, folder: Path, *flags: object) -> tuple[str, list[dict[str, Any]]]:
    """What the runner said of a run that went well, and the calls of its answer."""
    done = run_flags("--program", program, "--result-out", folder / RESULT, *flags)
    assert done.returncode == 0, done.stderr
    return done.stderr, json.loads((folder / RESULT).read_text())["calls"]


def test_files_of_outputs(tmp_path: Path) -> None:
    program = echo_program(tmp_path / "echo.pte", [typed(ScalarType.FLOAT, 2)])
    _, (call,) = ran(program, tmp_path)
    plain = {"kind": "tensor", "dtype": "float32", "sizes": [2], "dim_order": [0]}
    assert call["outputs"] == [plain]
    (tmp_path / "out").mkdir()
    _, (call,) = ran(program, tmp_path, "--outputs-dir", tmp_path / "out")
    assert Path(call["outputs"][0]["file"]) == tmp_path / "out" / "output-0-0.raw"


def test_bytes_are_put_in_the_order_that_the_program_takes(tmp_path: Path) -> None:
    program = echo_program(
        tmp_path / "echo.pte", [typed(ScalarType.SHORT, 1, 2, 3, 4, dim_order=(0, 2, 3, 1))]
    )
    value = np.arange(24, dtype=np.int16).reshape(1, 2, 3, 4)
    for given in (value, np.ascontiguousarray(value.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)):
        result = run_job(Job(program, (JobCall("forward", (given,)),)), tmp_path)
        found = result.calls[0].outputs[0]
        same(found, value)
        stored = np.fromfile(tmp_path / "output-0-0.raw", np.int16)
        same(stored, value.transpose(0, 2, 3, 1).ravel())


def test_a_file_whose_name_ends_like_an_order_of_dimensions(tmp_path: Path) -> None:
    program = echo_program(tmp_path / "echo.pte", [typed(ScalarType.FLOAT, 2)])
    (tmp_path / "x:0").write_bytes(np.array([1, 2], np.float32).tobytes())
    for spec in ("float32:2:x:0", "float32:2:x:0:0"):
        done = run_flags("--program", program, "--input", spec, folder=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")


def test_what_a_job_cannot_hold(tmp_path: Path) -> None:
    """The name of a method is the program's, which may come from anybody."""
    more_flags = JobCall("forward\n--etdump-out\n/tmp/precious", ())
    text = JobCall("forward", ("text",))  # type: ignore[arg-type]
    for call, words in ((more_flags, "no line break"), (text, "cannot be a str")):
        with pytest.raises(UsageError, match=words):
            native_command(["runner"], Job(tmp_path / "a.pte", (call,)), tmp_path)
    assert not list(tmp_path.iterdir())


# -- generated inputs


@pytest.mark.parametrize("seed", [0, 7, (1 << 64) - 1])
def test_generated_inputs_are_those_of_python(seed: int, tmp_path: Path) -> None:
    kinds = [kind for kind in PLAIN if kind not in FLOAT8]
    inputs = [typed(kind, 3, 5, dim_order=(1, 0)) for kind in kinds] + [typed(ScalarType.FLOAT)]
    program = echo_program(tmp_path / "echo.pte", inputs)
    ran(program, tmp_path, "--seed", seed, "--outputs-dir", tmp_path)
    wanted = generate_inputs(read_pte(program), "forward", seed)
    for index, value in enumerate(wanted):
        stored = (tmp_path / f"output-0-{index}.raw").read_bytes()
        assert isinstance(value, np.ndarray)
        assert stored == np.ascontiguousarray(value.T).tobytes(), value.dtype
    program = echo_program(tmp_path / "float8.pte", [typed(ScalarType.FLOAT8E5M2, 2)])
    done = run_flags("--program", program)
    assert done.returncode == 3
    assert "input 0, a tensor of float8_e5m2; give it by --input" in done.stderr
