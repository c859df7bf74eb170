"""Several calls under one load: order, warm-up, state, test cases."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from etscope.errors import MismatchError, MissingDataError
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.program.bpte import write_bundled
from etscope.run import Call, run
from etscope.run.job import Job, JobCall
from tests.support.artifacts import artifacts
from tests.support.native.runner import run_job
from tests.support.run.ran import case
from tests.support.run.stateful import cache_calls


@pytest.mark.parametrize("runner", ["python", "native"])
def test_warm_up_of_each_call_is_taken_out(runner: str) -> None:
    made = artifacts("two_methods")
    first, second = dict.fromkeys(name for name, _, _ in made.meta["runs"])
    inputs = {name: case(made, f"{name}/0") for name in (first, second)}
    calls = [
        Call(first, inputs[first], iterations=1, warmup=2),
        Call(second, inputs[second], iterations=2, warmup=1),
        Call(first, inputs[first], iterations=3, warmup=1),
    ]

    done = run(made.pte, calls, etrecord=made.etrecord, runner=runner)

    trace = done.trace
    order = {}
    for block in trace.blocks:
        if block.name == "Execute":
            order.update(dict.fromkeys(block.runs.tolist(), trace.method_of(block)))
    assert [order[index] for index in sorted(order)] == [first, second, second] + [first] * 3
    assert [len(one.samples_ns) for one in done.latencies if not one.traced] == [1, 2, 3]


@pytest.mark.parametrize("runner", ["python", "native"])
def test_test_cases_do_not_see_each_others_state(runner: str) -> None:
    done = run(artifacts("stateful").extra("counter.bpte"), iterations=3, warmup=2, runner=runner)

    assert done.verify().passed
    np.testing.assert_array_equal(done.arrays[1][0], [3.0, 3.0])
    indices = read_etdump(done.profile_path).run_bundled_input_index
    assert [index for index in indices.tolist() if index >= 0] == [0, 0, 0, 1, 1, 1]


def test_calls_of_one_method_share_its_state() -> None:
    x = np.ones(2, np.float32)
    calls = [Call(inputs=(x,), iterations=2, warmup=0), Call(inputs=(x,), iterations=1, warmup=0)]

    program = artifacts("stateful").extra("counter.bpte")
    done = run(program, calls, trace=False)

    assert [outputs[0].tolist() for outputs in done.arrays] == [[2, 2], [3, 3]]
    assert run(program, calls[1], trace=False).arrays[0][0].tolist() == [1, 1]  # a call alone
    with pytest.raises(MissingDataError, match="no test cases"):
        run(write_bundled(artifacts("cnn_portable").pte.read_bytes(), []))


@pytest.mark.parametrize("runner", ["python", "native"])
def test_methods_that_share_a_cache_see_what_the_other_wrote(runner: str) -> None:
    calls = cache_calls()
    given = [
        Call(method, tuple(value.numpy() for value in values), iterations=1, warmup=0)
        for method, values, _ in calls
    ]

    done = run(artifacts("stateful").extra("shared_cache.pte"), given, runner=runner)

    for outputs, (_, _, expected) in zip(done.arrays, calls, strict=True):
        np.testing.assert_allclose(outputs[0], expected, atol=1e-5)
    order = [done.trace.method_of(b) for b in done.trace.blocks if b.name == "Execute"]
    assert sorted(set(order)) == ["decode", "prefill"]


def test_a_fresh_call_finds_the_shared_cache_empty(tmp_path: Path) -> None:
    program = artifacts("stateful").extra("shared_cache.pte")
    prefill, decode, *_ = cache_calls()
    first, later = (tuple(v.numpy() for v in values) for _, values, _ in (prefill, decode))
    calls = [JobCall("decode", later), JobCall("prefill", first)]
    calls += [JobCall("decode", later, fresh=True), JobCall("decode", later)]

    result = run_job(Job(program, tuple(calls), trace=False), tmp_path)

    empty, _, fresh, again = (call.outputs[0] for call in result.calls)
    np.testing.assert_array_equal(fresh, empty)
    np.testing.assert_array_equal(again, empty)
    assert np.abs(empty - decode[2].numpy()).max() > 0.01


def test_the_bundle_tells_what_to_expect_though_a_record_is_there(tmp_path: Path) -> None:
    """The record of an export has the outputs for its own example inputs, not for the cases."""
    import torch

    from etscope.bundled_program import bundle_cases
    from etscope.export import export

    exported = export(torch.nn.ReLU(), (torch.ones(2),))
    record, _ = exported.save(tmp_path, bundle=False)[::-1]
    cases = [((torch.tensor([x, -x]),), (torch.tensor([x, 0.0]),)) for x in (5.0, 7.0)]
    data = bundle_cases(exported.program_bytes(), {"forward": cases})

    done = run(data, etrecord=record, iterations=1, debug_level="program_outputs")

    blocks = [b for b in done.inspector().event_blocks if b.name == "Execute"]
    assert [block.reference_output[0].tolist() for block in blocks] == [[5, 0], [7, 0]]
    assert [block.run_output[0].tolist() for block in blocks] == [[5, 0], [7, 0]]


def test_a_record_of_another_program_is_refused_before_anything_runs(tmp_path: Path) -> None:
    from tests.support.run.recorded import recorded_program

    record, _, _ = recorded_program(tmp_path)
    pte = artifacts("cnn_portable").pte

    with pytest.raises(MismatchError, match="has other instructions"):
        run(pte, etrecord=record)
    forced = run(pte, etrecord=record, verify=False, iterations=1, isolate=False)

    assert forced.inspector().event_blocks


def test_a_tensor_without_elements() -> None:
    import torch
    from executorch.exir import to_edge

    class Joined(torch.nn.Module):
        def forward(self, nothing: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return torch.cat([nothing, x]) + 1

    inputs = (torch.zeros(0, 4), torch.ones(2, 4))
    program = bytes(to_edge(torch.export.export(Joined(), inputs)).to_executorch().buffer)

    for runner in ("python", "native"):
        done = run(program, inputs, iterations=1, trace=False, runner=runner)
        np.testing.assert_array_equal(done.arrays[0][0], np.full((2, 4), 2.0), runner)
