"""Dumps that only a C++ program can make; the models are those of the other recipes."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from executorch.devtools import BundledProgram, generate_etrecord
from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
from executorch.devtools.bundled_program.serialize import (
    serialize_from_bundled_program_to_flatbuffer,
)
from torch import nn

from etscope.run.job import (
    DEBUG_BUFFER,
    ETDUMP,
    INTERMEDIATE_OUTPUTS,
    METHOD_ONLY,
    PROGRAM_OUTPUTS,
    Job,
    JobCall,
)
from tests.support.artifact_recipes.cnn import picture, small_cnn
from tests.support.artifact_recipes.workbench import Call, Workbench, eager, exported, portable
from tests.support.native.empty_blocks import run_with_empty_blocks, write_one_empty_block
from tests.support.native.runner import run_job

CASES = 4


class Ranked(nn.Module):
    """The CNN and its three best classes."""

    def __init__(self) -> None:
        super().__init__()
        self.cnn = small_cnn()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, indices = torch.topk(self.cnn(x), 3)
        return values, indices


def bundled(bench: Workbench) -> None:
    """A bundle of four test cases, each run twice under its own bundled input index.

    The record is made with the bundle, so it holds the reference outputs of all cases and the
    representative inputs of the first.
    """
    model, calls = small_cnn(), [Call((picture(seed),), repeat=2) for seed in range(1, CASES + 1)]
    reference = eager(model, *calls)
    program = exported(model, calls[0].inputs)
    edge = portable(program)
    snapshot = copy.deepcopy(edge)
    lowered = edge.to_executorch()
    cases = [MethodTestCase(c.inputs, out) for c, out in zip(calls, reference, strict=True)]
    bundle = BundledProgram(lowered, [MethodTestSuite("forward", cases)])
    bench.pte.write_bytes(lowered.buffer)
    (bench.folder / "program.bpte").write_bytes(
        serialize_from_bundled_program_to_flatbuffer(bundle)
    )
    generate_etrecord(str(bench.folder / "etrecord.bin"), snapshot, bundle, program)
    native = [_native_call(call, case) for case, call in enumerate(calls)]
    _run(bench, native, debug_level=INTERMEDIATE_OUTPUTS)
    _keep(bench, model, calls)


def allocations(bench: Workbench) -> None:
    """Allocators and allocation events in every run, next to the usual profile.

    Loading allocates from the method's allocator; the runs, for top-k's queue, from the
    temporary one.
    """
    model, call = Ranked(), Call((picture(),), repeat=3)
    bench.save(portable(exported(model, call.inputs)))
    _native(bench, model, [call], allocations=True)


def program_outputs(bench: Workbench) -> None:
    """Debug level kProgramOutputs: the outputs of each run are logged, no intermediate is."""
    model, call = small_cnn(), Call((picture(),), repeat=3)
    bench.save(portable(exported(model, call.inputs)))
    _native(bench, model, [call], debug_level=PROGRAM_OUTPUTS)


def method_only(bench: Workbench) -> None:
    """Profiling level kProfileMethodOnly with all intermediate tensors: values without times."""
    model, call = small_cnn(), Call((picture(),), repeat=3)
    bench.save(portable(exported(model, call.inputs)))
    settings = {"profiling_level": METHOD_ONLY, "debug_level": INTERMEDIATE_OUTPUTS}
    _native(bench, model, [call], **settings)


def empty_blocks(bench: Workbench) -> None:
    """Blocks without events: between two runs, at the end, and (``only.etdp``) one alone.

    A dump without any block cannot be made: with nothing recorded, the C++ runtime returns no
    data and the Python one writes no file.
    """
    model, calls = small_cnn(), [Call((picture(),)), Call((picture(),))]
    bench.save(portable(exported(model, calls[0].inputs)))
    inputs = [call.inputs[0].numpy() for call in calls]
    run_with_empty_blocks(bench.pte, bench.folder / "etdump.etdp", inputs)
    write_one_empty_block(bench.folder / "only.etdp")
    _keep(bench, model, calls)


def _native(bench: Workbench, model: nn.Module, calls: Sequence[Call], **settings: Any) -> None:
    """Run with the C++ runner, without bundled input indices."""
    _run(bench, [_native_call(call) for call in calls], **settings)
    _keep(bench, model, calls)


def _native_call(call: Call, index: int = -1) -> JobCall:
    arrays = tuple(value.numpy() for value in call.inputs)
    return JobCall(call.method, arrays, call.repeat, bundled_input_index=index)


def _run(bench: Workbench, calls: Sequence[JobCall], **settings: Any) -> None:
    """Execute the calls in the C++ runner and keep the dump, and the debug buffer if there is
    one."""
    with tempfile.TemporaryDirectory(dir=bench.folder) as name:
        folder = Path(name)
        run_job(Job(bench.pte, tuple(calls), **settings), folder)
        (folder / ETDUMP).rename(bench.folder / "etdump.etdp")
        if (folder / DEBUG_BUFFER).exists():
            (folder / DEBUG_BUFFER).rename(bench.folder / "debug_output.bin")


def _keep(bench: Workbench, model: nn.Module, calls: Sequence[Call]) -> None:
    """The outputs kept are the Python runtime's for the same calls."""
    outputs = bench.run(*calls, etdump="timing.etdp")
    bench.keep(calls, outputs, eager(model, *calls))
