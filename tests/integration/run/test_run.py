"""`run()`: what comes out of a run of a real program."""

from __future__ import annotations

import gc
import json
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest
import torch
from executorch.exir import EdgeCompileConfig, to_edge

import etscope
from etscope.errors import EtscopeWarning, MissingDataError, UsageError
from etscope.formats.etdump.reader import logged_values, read_etdump
from etscope.formats.run_json import read_run_json
from etscope.run import Call, run
from tests.support.artifacts import artifacts
from tests.support.run.ran import case, expected, traced_cnn


def test_outputs_are_those_of_the_bindings() -> None:
    made = artifacts("cnn_portable")

    done = traced_cnn()

    assert isinstance(done.outputs[0], torch.Tensor)
    np.testing.assert_array_equal(done.outputs[0].numpy(), expected(made, "forward/0")[0])
    np.testing.assert_array_equal(done.arrays[0][0], expected(made, "forward/0")[0])
    # Operators of quantized_decomposed are in a library beside the runtime.
    made = artifacts("cnn_xnnpack_int8")
    done = run(made.pte, case(made, "forward/0"), iterations=1, trace=False)
    np.testing.assert_array_equal(done.arrays[0][0], expected(made, "forward/0")[0])


def test_latency_times_and_values_are_separate_runs() -> None:
    done = traced_cnn()

    assert list(done.passes) == ["latency", "profile", "values"]
    assert [latency.traced for latency in done.latencies] == [None, "times", "values"]
    assert [len(latency.samples_ns) for latency in done.latencies] == [4, 4, 3]
    assert done.latency.traced is None
    assert 0 < done.latency.samples_ns.min() <= done.latency.p50_ns
    assert done.latency.first_ns > 0
    assert done.latency.load_ns > 0
    rows = list(done.latency_table().values["run"])
    assert rows == ["untraced", "traced: times", "traced: values"]
    for path, executions in ((done.profile_path, 4), (done.etdump_path, 3)):
        dump = read_etdump(path)
        names = [dump.run_name_of(index) for index in range(dump.num_runs)]
        assert names.count("Execute") == executions  # of the warm-up, none
        assert "Default" in names  # loading stays
    # The debug buffer ends with its last tensor.
    assert done.debug_buffer_path is not None
    used = logged_values(read_etdump(done.etdump_path)).buffer_size
    assert done.debug_buffer_path.stat().st_size == used > 0


def test_the_inspector_reads_it_all_back() -> None:
    done = traced_cnn()

    block = next(b for b in done.inspector().event_blocks if b.name == "Execute")

    torch.testing.assert_close(block.run_output[0], done.outputs[0], rtol=0, atol=0)
    assert len(block.run_outputs) == 3
    kernels = [event for event in block.events if event.name.startswith("native_call")]
    assert kernels
    assert all(event.debug_data for event in kernels)
    assert any("cnn" in str(event.stack_traces) for event in kernels)
    assert all(event.module_hierarchy for event in kernels)

    times = done.inspector(etdump_path=done.profile_path)  # hold no recording of values
    block = next(b for b in times.event_blocks if b.name == "Execute")
    assert block.run_output == []
    assert all(len(event.perf_data.raw) == 4 for event in block.events if event.perf_data)


def test_program_outputs_only() -> None:
    made = artifacts("cnn_portable")

    done = run(
        made.pte,
        case(made, "forward/0"),
        iterations=1,
        debug_level="program_outputs",
        traced_iterations=2,
    )

    assert done.passes["values"].result.runner == "native"  # the bindings cannot
    block = next(b for b in done.inspector().event_blocks if b.name == "Execute")
    np.testing.assert_array_equal(block.run_output[0], expected(made, "forward/0")[0])
    assert not any(event.debug_data for event in block.events)


@pytest.mark.parametrize("form", ["bytes", "ETRecord path", "ETRecord", "BundledProgram path"])
def test_forms_of_a_program(form: str, tmp_path: Path) -> None:
    made = artifacts("cnn_portable")
    inputs = case(made, "forward/0")
    if form.startswith("ETRecord"):
        from tests.support.run.recorded import recorded_program

        path, inputs, wanted = recorded_program(tmp_path)
        program: object = path if form.endswith("path") else etscope.parse_etrecord(path)
    elif form == "bytes":
        program, wanted = made.pte.read_bytes(), expected(made, "forward/0")[0]
    else:
        bundle = artifacts("bundled")
        program, inputs, wanted = bundle.bpte, None, expected(bundle, "forward/0")[0]

    done = run(program, inputs, iterations=1, warmup=0, trace=False)

    np.testing.assert_allclose(done.arrays[0][0], wanted, rtol=1e-4, atol=1e-5)


def test_several_calls_under_one_load() -> None:
    made = artifacts("two_methods")
    methods = dict.fromkeys(name for name, _, _ in made.meta["runs"])
    calls = [Call(name, case(made, f"{name}/0"), iterations=2) for name in methods]

    done = run(
        made.pte, calls, etrecord=made.etrecord, warmup=0, debug_level="intermediate_outputs"
    )

    assert [call.method for call in done.calls] == list(methods)
    for name, outputs in zip(methods, done.arrays, strict=True):
        np.testing.assert_array_equal(outputs[0], expected(made, f"{name}/0")[0])
    blocks = {b.method: b for b in done.inspector().event_blocks if b.name == "Execute"}
    assert set(blocks) == set(methods)
    for name, outputs in zip(methods, done.arrays, strict=True):
        np.testing.assert_array_equal(blocks[name].run_output[0], outputs[0])
    with pytest.raises(UsageError, match="2 calls"):
        _ = done.outputs


def test_one_run_for_all_is_labelled() -> None:
    made = artifacts("cnn_portable")

    done = run(
        made.pte,
        case(made, "forward/0"),
        iterations=2,
        warmup=1,
        debug_level="intermediate_outputs",
        separate=False,
        isolate=False,
    )

    assert list(done.passes) == ["values"]
    assert done.latency.traced == "values"
    assert done.profile_path == done.etdump_path


def test_without_a_trace() -> None:
    begin = datetime.now(timezone.utc)
    done = run(artifacts("cnn_portable").pte, iterations=2, trace=False, isolate=False, threads=1)

    assert begin <= done.recorded_at <= datetime.now(timezone.utc)
    told = datetime.fromisoformat(done.facts()["recorded_at"])
    assert told.utcoffset() == timedelta(0)
    assert abs(told - done.recorded_at) <= timedelta(milliseconds=1)
    assert not done.is_traced
    assert done.facts()["threads"] == 1
    assert done.memory is None and done.conditions is not None  # it was this process
    with pytest.raises(MissingDataError, match="nothing was traced"):
        _ = done.etdump_path
    with pytest.raises(MissingDataError):
        done.save_debug_buffer("debug.bin")
    with pytest.raises(MissingDataError, match="no test case with expected outputs was run"):
        done.verify()


def test_saved_files(tmp_path: Path) -> None:
    done = traced_cnn()

    files = done.save(tmp_path / "kept")

    dumps = ["run.etdp", "values.etdp", "debug.bin"]
    copies = ["etrecord.bin", "program.pte"]
    tensors = ["outputs.npz", "inputs.npz"]
    assert [file.name for file in files] == [*dumps, *tensors, *copies, "run.json"]
    inspector = etscope.Inspector(
        etdump_path=files[1],
        debug_buffer_path=files[2],
        etrecord=artifacts("cnn_portable").etrecord,
    )
    block = next(b for b in inspector.event_blocks if b.name == "Execute")
    with np.load(files[3]) as outputs:
        np.testing.assert_array_equal(outputs["output_0"], block.run_output[0])
    facts = json.loads(files[-1].read_text())
    assert facts["executorch"] == "1.5.1"
    assert [len(one["samples_ns"]) for one in facts["latencies"]] == [4, 4, 3]
    saved = read_run_json(files[-1])
    assert saved.conditions is not None and done.conditions is not None
    assert saved.conditions.cores == os.cpu_count()
    assert saved.conditions.in_words(2) == done.conditions.in_words(2)
    assert saved.memory == done.memory is not None
    table = done.latency_table()
    assert table.title == f"Latency · {done.conditions.in_words(facts['threads'])}"
    assert "load " in table.title
    assert any("Python and torch included" in note for note in table.notes)


@pytest.mark.usefixtures("real_python")
def test_the_memory_is_that_of_the_runners_process() -> None:
    found = [
        run(artifacts("cnn_portable").pte, iterations=1, trace=False, runner=runner).memory
        for runner in ("python", "native")
    ]
    python, native = found
    assert python is not None and native is not None
    for one in (python, native):
        assert one.traced is None and one.rss_before is not None
        assert one.peak_rss > one.rss_before > 1 << 20
    assert python.peak_rss > native.peak_rss  # Python and torch
    assert "torch" not in native.in_words()


def test_a_second_save_leaves_nothing_of_the_first(tmp_path: Path) -> None:
    traced_cnn().save(tmp_path / "run")

    done = run(artifacts("cnn_portable").pte, iterations=1, trace=False, isolate=False)
    done.save(tmp_path / "run")

    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert left == {"inputs.npz", "outputs.npz", "program.pte", "run.json"}
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot make the folder"):
        done.save(tmp_path / "file")


def test_the_files_go_with_the_run() -> None:
    done = run(artifacts("cnn_portable").pte, iterations=1, warmup=0, isolate=False)
    folder = done.profile_path.parent
    assert folder.exists()

    del done
    gc.collect()

    assert not folder.exists()


@pytest.mark.parametrize(
    "options",
    [
        {"iterations": 0},
        {"warmup": -1},
        {"traced_iterations": 0},
        {"debug_level": "all"},
        {"profiling_level": "none"},
        {"runner": "java"},
        {"runner": "native", "isolate": False},
        {"trace": False, "debug_level": "intermediate_outputs"},
        {"testset_index": 0},
        {"inputs": [Call(), 1]},
        {"isolate": False, "timeout": 1.0},
        {"delegate_filters": "conv.*"},
        {"debug_buffer_size": 1000},
        {"traced_iterations": 2},
        {"trace": False, "separate": False},
        {"trace": False, "profiling_level": "method"},
        {"debug_level": "intermediate_outputs", "separate": False, "traced_iterations": 2},
        {"debug_level": "intermediate_outputs", "delegate_filters": "("},
        {"debug_level": "program_outputs", "isolate": False},
        {"threads": 0},
        {"threads": -1},
        {"timeout": -1.0},
        {"seed": "a"},
    ],
)
def test_arguments_that_make_no_sense_or_would_do_nothing(options: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        run(artifacts("cnn_portable").pte, **options)


@pytest.mark.parametrize("isolate", [True, False])
def test_half_and_bfloat16_are_recorded_wider(isolate: bool) -> None:
    """The runtime's own tracer would leave a dump behind that nobody can read."""
    made = artifacts("bf16_fp16")
    cases = torch.load(made.inputs_pt, weights_only=True)["forward"]

    with pytest.warns(EtscopeWarning, match=r"float16.*native runner records them as float32"):
        done = run(
            made.pte,
            cases[0],
            iterations=1,
            etrecord=made.etrecord,
            debug_level="intermediate_outputs",
            isolate=isolate,
        )

    assert done.memory.runner == "native"
    block = next(b for b in done.inspector().event_blocks if b.name == "Execute")
    for logged, output in zip(block.run_output, done.outputs, strict=True):
        torch.testing.assert_close(logged.to(output.dtype), output, rtol=0, atol=0)
    assert {logged.dtype for logged in block.run_output} == {torch.float32}
    assert {torch.float16, torch.bfloat16} & {output.dtype for output in done.outputs}


def test_test_cases_of_a_bundle_and_what_they_expect() -> None:
    made = artifacts("bundled")

    done = run(made.bpte, iterations=1, warmup=1, debug_level="intermediate_outputs")

    assert [call.case for call in done.calls] == [0, 1, 2, 3]
    assert done.verify().passed
    blocks = [b for b in done.inspector().event_blocks if b.name == "Execute"]
    assert [block.bundled_input_index for block in blocks] == [0, 1, 2, 3]
    for block in blocks:
        assert block.reference_output is not None
        torch.testing.assert_close(
            block.run_output[0], block.reference_output[0], rtol=1e-3, atol=1e-5
        )
    one = run(made.bpte, iterations=1, testset_index=2, trace=False, isolate=False)
    np.testing.assert_array_equal(one.arrays[0][0], done.arrays[2][0])


def test_a_wrong_expectation_does_not_pass() -> None:
    from etscope.formats.program.bpte import Case, Suite, read_bundled, write_bundled

    bundle = read_bundled(artifacts("bundled").bpte)
    good = bundle.suites[0].cases[0]
    wrong = Case(good.inputs, tuple(output + 0.01 for output in good.expected_outputs))
    data = write_bundled(bundle.program_bytes, [Suite("forward", (good, wrong))])

    done = run(data, iterations=1, trace=False, isolate=False)

    verification = done.verify()
    assert [case.passed for case in verification.cases] == [True, False]
    assert not verification.passed
    assert done.verify(rtol=0, atol=0.02).passed


def test_complex_numbers_run_and_are_left_out_of_the_dump() -> None:
    class Turned(torch.nn.Module):
        def forward(self, x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
            return torch.view_as_real_copy(x * turn)

    random = torch.Generator().manual_seed(0)
    inputs = tuple(torch.randn(4, dtype=torch.complex64, generator=random) for _ in range(2))
    config = EdgeCompileConfig(_check_ir_validity=False)  # the edge dialect knows no complex types
    exported = torch.export.export(Turned(), inputs)
    edge = to_edge(exported, compile_config=config, generate_etrecord=True)
    program = edge.to_executorch()

    with pytest.warns(EtscopeWarning, match="complex64"):
        done = run(program, inputs, iterations=1, debug_level="intermediate_outputs")

    np.testing.assert_allclose(done.arrays[0][0], Turned()(*inputs).numpy(), rtol=1e-6, atol=1e-6)
    found = done.inspector().diagnose_numerics(inputs=inputs)
    assert found.is_fine
    assert [row.op for row in found.rows] == ["aten.view_as_real_copy.default"]
    assert "1 of 2 reference nodes compared" in str(found.coverage)
