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
from tests.artifact_recipes.cnn import picture, small_cnn
from tests.artifact_recipes.workbench import Call, Workbench, eager, exported, portable
from tests.native.runner import NativeCall, run, run_calls
from torch import nn

CASES = 4


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
    _native(bench, model, calls, debug="intermediate", indexed=True)


def allocations(bench: Workbench) -> None:
    """Allocators and allocation events in every run, next to the usual profile."""
    model, calls = small_cnn(), [Call((picture(),), repeat=3)]
    bench.save(portable(exported(model, calls[0].inputs)))
    _native(bench, model, calls, debug="none", settings=("track_allocations",))


def program_outputs(bench: Workbench) -> None:
    """Debug level kProgramOutputs: the outputs of each run are logged, no intermediate is."""
    model, calls = small_cnn(), [Call((picture(),), repeat=3)]
    bench.save(portable(exported(model, calls[0].inputs)))
    _native(bench, model, calls, debug="outputs")


def method_only(bench: Workbench) -> None:
    """Profiling level kProfileMethodOnly with all intermediate tensors: values without times."""
    model, calls = small_cnn(), [Call((picture(),), repeat=3)]
    bench.save(portable(exported(model, calls[0].inputs)))
    _native(bench, model, calls, debug="intermediate", settings=("profiling method",))


def empty_blocks(bench: Workbench) -> None:
    """Blocks without events: one between two runs, and (``only.etdp``) one alone.

    A dump without any block cannot be made: with nothing recorded the runtime returns no data.
    """
    model, calls = small_cnn(), [Call((picture(),))]
    bench.save(portable(exported(model, calls[0].inputs)))
    _native(bench, model, calls, debug="none", settings=("block Empty",))
    run(["block Empty", f"etdump {bench.folder / 'only.etdp'}"])


def _native(
    bench: Workbench,
    model: nn.Module,
    calls: Sequence[Call],
    *,
    debug: str,
    settings: Sequence[str] = (),
    indexed: bool = False,
) -> None:
    """Run with the C++ runner; the outputs kept are the Python runtime's for the same calls."""
    sink = [] if debug == "none" else [f"sink {bench.folder / 'debug_output.bin'}"]
    run_calls(
        bench.pte,
        bench.folder / "etdump.etdp",
        *[
            NativeCall(
                tuple(value.numpy() for value in call.inputs if isinstance(value, torch.Tensor)),
                repeat=call.repeat,
                index=case if indexed else -1,
            )
            for case, call in enumerate(calls)
        ],
        settings=[f"debug {debug}", *sink, *settings],
    )
    outputs = bench.run(*calls, etdump="timing.etdp")
    bench.keep(calls, outputs, eager(model, *calls))
