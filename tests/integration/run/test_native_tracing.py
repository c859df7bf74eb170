"""What the native runner records: levels, filters, types, limits."""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etscope.formats.etdump.reader import ETDump, EventKind, read_etdump
from etscope.formats.program import pte_schema as pte
from etscope.formats.program.scalar_type import ScalarType
from etscope.inspector import Inspector
from etscope.run._runner_host import DEBUG_BUFFER_FULL, native_command
from etscope.run.job import (
    DEBUG_BUFFER,
    ETDUMP,
    INTERMEDIATE_OUTPUTS,
    METHOD_ONLY,
    PROGRAM_OUTPUTS,
    Job,
    JobCall,
)
from tests.support.artifacts import artifacts
from tests.support.native.compiling import compiled
from tests.support.native.runner import run_flags, run_job, runner
from tests.support.run.echo import NOTHING, echo_program, typed
from tests.support.run.ran import case

BACKEND = Path(__file__).parents[2] / "support" / "native" / "demo_backend.cpp"


def recorded(folder: Path) -> ETDump:
    return read_etdump(folder / ETDUMP)


def inspector(folder: Path) -> Inspector:
    return Inspector(etdump_path=folder / ETDUMP, debug_buffer_path=folder / DEBUG_BUFFER)


def names(dump: ETDump, kind: EventKind) -> list[str]:
    rows = np.flatnonzero(dump.kind == kind)
    return [dump.strings[one] if one >= 0 else "" for one in dump.name[rows]]


def run_cnn(folder: Path, **settings: Any) -> ETDump:
    made = artifacts("cnn_portable")
    call = JobCall("forward", case(made, "forward/0"), iterations=2)
    run_job(Job(made.pte, (call,), **settings), folder)
    return recorded(folder)


def of_kind(dump: ETDump, kind: EventKind) -> int:
    return int((dump.kind == kind).sum())


# -- levels


def test_intermediate_outputs_are_those_that_the_python_runtime_logs(tmp_path: Path) -> None:
    made = artifacts("cnn_portable")
    run_cnn(tmp_path, debug_level=INTERMEDIATE_OUTPUTS)
    theirs = Inspector(etdump_path=made.etdump, debug_buffer_path=made.debug_buffer)
    ours = inspector(tmp_path)
    wanted, found = theirs.event_blocks[1].events, ours.event_blocks[1].events
    assert [event.name for event in found] == [event.name for event in wanted]
    logged = 0
    for one, other in zip(found, wanted, strict=True):
        for value, reference in zip(one.debug_data, other.debug_data, strict=True):
            np.testing.assert_array_equal(value, reference)
            logged += 1
    assert logged > 10


def test_levels(tmp_path: Path) -> None:
    dump = run_cnn(tmp_path, allocations=True)
    assert of_kind(dump, EventKind.DEBUG) == 0
    assert {"OPERATOR_CALL", "Method::execute"} <= set(names(dump, EventKind.PROFILE))
    assert of_kind(dump, EventKind.ALLOCATION) > 0
    assert set(dump.run_allocators) == {("MethodAllocator", "TemporaryAllocator")}
    assert not (tmp_path / DEBUG_BUFFER).exists()
    dump = run_cnn(tmp_path, profiling_level=METHOD_ONLY, debug_level=INTERMEDIATE_OUTPUTS)
    timed = set(names(dump, EventKind.PROFILE))
    assert timed == {"Program::load_method", "Method::init", "Method::execute"}
    assert of_kind(dump, EventKind.DEBUG) > 20
    assert of_kind(dump, EventKind.ALLOCATION) == 0


def test_tensors_start_on_boundaries_of_64_bytes(tmp_path: Path) -> None:
    program = echo_program(tmp_path / "x.pte", [typed(ScalarType.CHAR, size) for size in (3, 65)])
    inputs = (np.arange(3, dtype=np.int8), np.arange(65, dtype=np.int8))
    job = Job(program, (JobCall("forward", inputs, iterations=2),), debug_level=PROGRAM_OUTPUTS)
    run_job(job, tmp_path)
    data = (tmp_path / DEBUG_BUFFER).read_bytes()
    assert len(data) == 64 + 128 + 64 + 65
    for start, value in ((0, inputs[0]), (64, inputs[1]), (192, inputs[0]), (256, inputs[1])):
        assert data[start : start + value.size] == value.tobytes()


# -- types that ETDumpGen cannot log


@pytest.mark.parametrize(
    ("kind", "wider"),
    [
        (ScalarType.HALF, np.float32),
        (ScalarType.BFLOAT16, np.float32),
        (ScalarType.UINT32, np.int64),
        (ScalarType.UINT64, np.int64),
    ],
    ids=lambda one: getattr(one, "torch_name", None),
)
def test_narrow_types_are_logged_in_a_wider_one(
    kind: ScalarType, wider: type, tmp_path: Path
) -> None:
    """In the order of dimensions that they have, so that strides mean what they say."""
    program = echo_program(tmp_path / "x.pte", [typed(kind, 2, 3, dim_order=(1, 0))])
    highest = np.iinfo(np.int64).max if kind is ScalarType.UINT64 else 4294967295
    plain = [[0, 1, 2], [3, 4, highest]] if wider is np.int64 else [[0, 1e-7, 2], [-3, 4, 6e4]]
    value = np.array(plain).astype(kind.numpy_dtype)
    call = JobCall("forward", (value,))
    run_job(Job(program, (call,), debug_level=PROGRAM_OUTPUTS), tmp_path)
    (output,) = inspector(tmp_path).event_blocks[1].run_output
    found = np.asarray(output)
    assert found.dtype == wider
    np.testing.assert_array_equal(found, value.astype(wider))


def test_every_bit_pattern_of_half_and_bfloat16_is_kept(tmp_path: Path) -> None:
    kinds = (ScalarType.HALF, ScalarType.BFLOAT16)
    program = echo_program(tmp_path / "x.pte", [typed(kind, 65536) for kind in kinds])
    bits = np.arange(65536, dtype=np.uint16)
    inputs = tuple(bits.view(kind.numpy_dtype) for kind in kinds)
    job = Job(program, (JobCall("forward", inputs),), debug_level=PROGRAM_OUTPUTS)
    run_job(job, tmp_path)
    for found, value in zip(inspector(tmp_path).event_blocks[1].run_output, inputs, strict=True):
        np.testing.assert_array_equal(np.asarray(found), value.astype(np.float32))


def test_what_cannot_be_widened_is_left_out_and_said_once(tmp_path: Path) -> None:
    kinds = (ScalarType.UINT64, ScalarType.FLOAT8E4M3FN, ScalarType.FLOAT)
    text = pte.ScalarValue(pte.ValueKind.STRING, "text")
    tensors = [typed(kind, 1) for kind in kinds]
    program = echo_program(tmp_path / "x.pte", tensors, [NOTHING, text])
    inputs = tuple(np.array([255], np.uint8).astype(kind.numpy_dtype) for kind in kinds)
    large = (np.array([1 << 63], np.uint64), *inputs[1:])
    calls = (JobCall("forward", large, iterations=3),)
    job = Job(program, calls, debug_level=PROGRAM_OUTPUTS)
    done = run_flags(*native_command([runner()], job, tmp_path)[1:])
    assert done.returncode == 0
    said = "etscope-runner: an output of the program is a {}, which an ETDump cannot hold"
    assert done.stderr.splitlines() == [
        said.format(what) + "; it is left out"
        for what in ("tensor of uint64", "tensor of float8_e4m3fn", "string")
    ]
    for block in inspector(tmp_path).event_blocks[1:]:
        assert [np.asarray(one).tolist() for one in block.run_output] == [[255.0]]


# -- delegates


def values_of_cnn(folder: Path, *flags: str) -> dict[str, int]:
    """How many times each kernel of a CNN logged values, by the name of its event."""
    dump, debug = folder / "run.etdp", folder / "debug.bin"
    level = ("--debug-level", "intermediate_outputs", "--debug-buffer-out", debug)
    done = run_flags(
        "--program", artifacts("cnn_portable").pte, "--etdump-out", dump, *level, *flags
    )
    assert done.returncode == 0, done.stderr
    found = Inspector(etdump_path=dump, debug_buffer_path=debug)
    return Counter(
        str(event.name)
        for block in found.event_blocks
        for event in block.events
        if str(event.name).startswith("native_call_") and len(event.debug_data)
    )


def test_values_of_chosen_instructions(tmp_path: Path) -> None:
    logged = values_of_cnn(tmp_path)
    assert logged["native_call_relu.out"] > 1 and logged["native_call_convolution.out"] > 1
    relus = values_of_cnn(tmp_path, "--value-filter", "relu.*")
    assert relus == {"native_call_relu.out": logged["native_call_relu.out"]}
    two = values_of_cnn(tmp_path, "--value-filter", "2", "--value-filter", "13")
    assert sum(two.values()) == 2
    none = values_of_cnn(tmp_path, "--value-filter", "relu")  # the whole name is relu.out
    assert not none


@functools.cache
def delegated_program() -> bytes:
    """sin(x) for a backend that logs one value of each kind that a delegate may log."""
    import torch
    from executorch.exir import to_edge
    from executorch.exir.backend.backend_api import to_backend
    from executorch.exir.backend.test import backend_with_compiler_demo

    class Sine(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sin(x)

    edge = to_edge(torch.export.export(Sine(), (torch.zeros(2, 3),)))
    name = backend_with_compiler_demo.BackendWithCompilerDemo.__name__
    return bytes(to_backend(name, edge.exported_program(), []).buffer())


def run_delegate(folder: Path, *patterns: str, **settings: Any) -> dict[str, Any]:
    """What was logged inside the delegate, by name."""
    (folder / "delegate.pte").write_bytes(delegated_program())
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    job = Job(
        folder / "delegate.pte",
        (JobCall("forward", (value,)),),
        libraries=(compiled(BACKEND, shared=True),),
        delegate_filters=patterns,
        **settings,
    )
    run_job(job, folder)
    debug_buffer = folder / DEBUG_BUFFER if job.debug_level != "none" else None
    found = Inspector(etdump_path=folder / ETDUMP, debug_buffer_path=debug_buffer)
    return {
        str(event.name): event.debug_data
        for event in found.event_blocks[1].events
        if event.name not in ("DELEGATE_CALL", "Method::execute") and len(event.debug_data)
    }


def test_delegates_log_values_of_every_kind(tmp_path: Path) -> None:
    logged = run_delegate(tmp_path, debug_level=INTERMEDIATE_OUTPUTS)
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    for name in ("input", "7"):
        np.testing.assert_array_equal(logged.pop(name)[0], value)
    for one in logged.pop("list")[0]:
        np.testing.assert_array_equal(one, value)
    assert [logged.pop(name) for name in ("int", "bool", "double")] == [[3], [True], [0.5]]
    wanted = {
        "half": [1.0, 2.0**-24, -np.inf],
        "bfloat16": [1.0, 2.0**-133, -np.inf],
        "uint32": [0, 0xFFFFFFFF],
        "uint64": [0, (1 << 63) - 1],
    }
    assert {name: np.asarray(value[0]).tolist() for name, value in logged.items()} == wanted


def test_filters_keep_what_they_match_whole_and_lower_levels_nothing(tmp_path: Path) -> None:
    logged = run_delegate(tmp_path, "uint.*", "inp", "7", debug_level=INTERMEDIATE_OUTPUTS)
    assert set(logged) == {"uint32", "uint64", "7"}
    for level in ("none", PROGRAM_OUTPUTS):
        assert run_delegate(tmp_path, debug_level=level) == {}


def test_a_backend_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "delegate.pte").write_bytes(delegated_program())
    done = run_flags("--program", "delegate.pte", "--etdump-out", "x.etdp", folder=tmp_path)
    assert done.returncode == 5
    assert "Backend BackendWithCompilerDemo is not registered" in done.stderr
    assert "loading method 'forward' failed with Error::NotFound (32)" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["delegate.pte"]


def test_a_runtime_that_aborts_leaves_no_files(tmp_path: Path) -> None:
    (tmp_path / "delegate.pte").write_bytes(delegated_program())
    value = np.full((2, 3), -13, np.float32)
    calls, libraries = (JobCall("forward", (value,)),), (compiled(BACKEND, shared=True),)
    program, level = tmp_path / "delegate.pte", INTERMEDIATE_OUTPUTS
    job = Job(program, calls, libraries=libraries, debug_level=level)
    done = run_flags(*native_command([runner()], job, tmp_path)[1:])
    assert done.returncode == 5
    assert "the backend gives up" in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last == "etscope-runner: the runtime gave up while executing method 'forward'"
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["delegate.pte", "flags.txt", "input-0-0.raw"]


# -- the size of the debug buffer


def test_a_full_debug_buffer_says_what_is_needed(tmp_path: Path) -> None:
    made = artifacts("cnn_portable")
    call = JobCall("forward", case(made, "forward/0"), iterations=2)
    run_job(Job(made.pte, (call,), debug_level=INTERMEDIATE_OUTPUTS), tmp_path)
    needed = (tmp_path / DEBUG_BUFFER).stat().st_size
    folder = tmp_path / "small"
    folder.mkdir()
    too_small = Job(
        made.pte, (call,), debug_level=INTERMEDIATE_OUTPUTS, debug_buffer_size=needed - 1
    )
    done = run_flags(*native_command([runner()], too_small, folder)[1:])
    assert done.returncode == DEBUG_BUFFER_FULL
    assert f"{needed} bytes were to be logged, --debug-buffer-size is {needed - 1}" in done.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["flags.txt", "input-0-0.raw"]

    enough = Job(made.pte, (call,), debug_level=INTERMEDIATE_OUTPUTS, debug_buffer_size=needed)
    run_job(enough, folder)
    assert (folder / DEBUG_BUFFER).read_bytes() == (tmp_path / DEBUG_BUFFER).read_bytes()


def test_a_debug_buffer_without_tensors_can_be_opened(tmp_path: Path) -> None:
    held = pte.ScalarValue(pte.ValueKind.INT, 3)
    program = echo_program(tmp_path / "x.pte", [], [held])
    job = Job(program, (JobCall("forward", ()),), debug_level=PROGRAM_OUTPUTS)
    run_job(job, tmp_path)
    assert (tmp_path / DEBUG_BUFFER).read_bytes() == bytes(64)
    assert inspector(tmp_path).event_blocks[1].run_output == [3]
