"""Dumps that only a C++ program can make; the models are those of the other recipes."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from executorch.devtools import BundledProgram, generate_etrecord
from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
from executorch.devtools.bundled_program.serialize import (
    serialize_from_bundled_program_to_flatbuffer,
)
from torch import nn

from tests.artifact_recipes.cnn import picture, small_cnn
from tests.artifact_recipes.workbench import Call, Workbench, eager, exported, portable
from tests.native.runner import NativeCall, run, run_calls

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
    run_calls(
        bench.pte,
        bench.folder / "etdump.etdp",
        *[_native_call(call, case) for case, call in enumerate(calls)],
        settings=_logging(bench, "intermediate"),
    )
    _keep(bench, model, calls)


def allocations(bench: Workbench) -> None:
    """Allocators and allocation events in every run, next to the usual profile.

    Loading allocates from the method's allocator; the runs, for top-k's queue, from the
    temporary one.
    """
    model, call = Ranked(), Call((picture(),), repeat=3)
    bench.save(portable(exported(model, call.inputs)))
    _native(bench, model, [call], settings=["track_allocations"])


def program_outputs(bench: Workbench) -> None:
    """Debug level kProgramOutputs: the outputs of each run are logged, no intermediate is."""
    model, call = small_cnn(), Call((picture(),), repeat=3)
    bench.save(portable(exported(model, call.inputs)))
    _native(bench, model, [call], settings=_logging(bench, "outputs"))


def method_only(bench: Workbench) -> None:
    """Profiling level kProfileMethodOnly with all intermediate tensors: values without times."""
    model, call = small_cnn(), Call((picture(),), repeat=3)
    bench.save(portable(exported(model, call.inputs)))
    settings = ["profiling method", *_logging(bench, "intermediate")]
    _native(bench, model, [call], settings=settings)


def empty_blocks(bench: Workbench) -> None:
    """Blocks without events: between two runs, at the end, and (``only.etdp``) one alone.

    A dump without any block cannot be made: with nothing recorded, the C++ runtime returns no
    data and the Python one writes no file.
    """
    model, calls = small_cnn(), [Call((picture(),)), Call((picture(),))]
    bench.save(portable(exported(model, calls[0].inputs)))
    first, second = (_native_call(call) for call in calls)
    etdump = bench.folder / "etdump.etdp"
    run_calls(bench.pte, etdump, first, "block Between", second, "block Last")
    run(["block Only", f"etdump {bench.folder / 'only.etdp'}"])
    _keep(bench, model, calls)


def _native(
    bench: Workbench, model: nn.Module, calls: Sequence[Call], *, settings: Sequence[str]
) -> None:
    """Run with the C++ runner, without bundled input indices."""
    etdump = bench.folder / "etdump.etdp"
    run_calls(bench.pte, etdump, *map(_native_call, calls), settings=settings)
    _keep(bench, model, calls)


def _native_call(call: Call, index: int = -1) -> NativeCall:
    arrays = tuple(value.numpy() for value in call.inputs)
    return NativeCall(arrays, call.method, call.repeat, index)


def _logging(bench: Workbench, level: str) -> list[str]:
    """The runner's settings for a debug level, with a file for the tensors."""
    return [f"debug {level}", f"sink {bench.folder / 'debug_output.bin'}"]


def _keep(bench: Workbench, model: nn.Module, calls: Sequence[Call]) -> None:
    """The outputs kept are the Python runtime's for the same calls."""
    outputs = bench.run(*calls, etdump="timing.etdp")
    bench.keep(calls, outputs, eager(model, *calls))
