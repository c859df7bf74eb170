"""Measure how many planted faults are named, and how many sound models are accused.

    python -m benchmarks.planted_faults                      prints the table for docs
    python -m benchmarks.planted_faults --only 8da4w --seed 3

A fault is planted into the program that the device runs, and the record is of the right one. It is
*named first* when the first wrong row covers a node that the fault changes: with taps, the row of
one operator; without, that of the delegate call. A change that no output shows is no fault, and is
left out. *Missed* ones run again with other inputs, to see how many samples tell them.
"""

from __future__ import annotations

import argparse
import copy
import math
import multiprocessing
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.export import ExportedProgram

from benchmarks import planted_kinds as kinds
from benchmarks.planted_kinds import Change, Program, aten
from benchmarks.planted_models import (
    MODELS,
    Attention,
    Cached,
    ConvBlocks,
    Convolutions,
    Deep,
    Embedded,
    FeedForward,
    Images,
    Inputs,
    Large,
    OneLarge,
    Recurrent,
    Softmaxes,
    WideRange,
    as_float,
    as_half,
    by_torchao,
    dynamic,
    made,
    static,
)
from etscope.analysis.numerics.rows import Numerics
from etscope.analysis.program.compatibility import instruction_labels
from etscope.export import Exported, export
from etscope.formats.program.pte import read_pte
from etscope.run import run

SAMPLES = 8  # with which a missed fault is tried again
Kind = type[nn.Module]
Quantise = Callable[[nn.Module, Inputs], tuple[ExportedProgram, Inputs]]


@dataclass(frozen=True)
class Group:
    """Programs of one arithmetic: how they are made, whether values are tapped, the faults of
    `FAULTS` and the models that are sound."""

    make: Quantise
    faults: Sequence[str]
    sound: Sequence[Kind]
    backend: str = "xnnpack"
    is_tapped: bool = True


def _flip(numbers: torch.Tensor) -> torch.Tensor:
    return numbers.flip(-1)


def _rolled(axis: int) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda numbers: numbers.roll(1, axis)


_NAN, _INF = math.nan, math.inf
_FF, _CONV, _ATT = "FeedForward", "Convolutions", "Attention"
KINDS = {kind.__name__: kind for kind in MODELS}

# By sort: of all layers' weights; of floats; of nodes; of int8; of groups of weights. The name says
# what is done and where; the same kind may be planted into several places.
_LAYERS: dict[str, tuple[str, Change]] = {
    "channel x1.01": (_FF, kinds.channel(2, 5, 1.01)),
    "channel x1.05": (_FF, kinds.channel(0, 9, 1.05)),
    "channel x1.5": (_FF, kinds.channel(3, 9, 1.5)),
    "channel x2": (_ATT, kinds.channel(2, 11, 2.0)),
    "channel zero": (_FF, kinds.weights(0, kinds.in_place(7, 0.0))),
    "channel negated": (_ATT, kinds.weights(0, kinds.in_place(5, -1.0))),
    "weight of one channel x1.2": (_ATT, kinds.element(3, 1.2)),
    "largest weight negated": (_FF, kinds.element(2, -1.0)),
    "transposed": (_ATT, kinds.weights(2, torch.t)),
    "of another layer": (_FF, kinds.of_other(0, 1)),
    "of the next head": (_ATT, kinds.of_other(0, 1)),
    "two channels exchanged": (_FF, kinds.weights(3, kinds.exchanged(3, 4))),
    "two inputs exchanged": (_FF, kinds.weights(2, kinds.exchanged(3, 4, axis=1))),
    "rows shifted": (_ATT, kinds.weights(1, _rolled(0))),
    "inputs shifted": (_ATT, kinds.weights(3, _rolled(1))),
    "matrix x1.1": (_ATT, kinds.whole(1, 1.1)),
    "matrix x1.01": (_FF, kinds.whole(1, 1.01)),
    "bias missing": (_FF, kinds.bias(3, torch.zeros_like)),
    "bias of one channel x1.5": (_ATT, kinds.bias(2, kinds.in_place(60, 1.5))),
    "bias shifted": (_FF, kinds.bias(1, _rolled(0))),
    "bias negated": (_ATT, kinds.bias(3, torch.neg)),
    "one channel of a large matrix x1.05": ("Large", kinds.channel(0, 511, 1.05)),
    "head beside a large channel x1.1": ("OneLarge", kinds.channel(1, 3, 1.1)),
    "small channel beside a large one x1.5": ("OneLarge", kinds.channel(0, 20, 1.5)),
}
_CONVOLUTIONS: dict[str, tuple[str, Change]] = {
    "kernel mirrored": (_CONV, kinds.weights(0, _flip)),
    "kernel transposed": (_CONV, kinds.weights(1, lambda w: w.transpose(2, 3))),
    "depthwise channel x1.01": (_CONV, kinds.channel(1, 4, 1.01)),
    "depthwise channel x1.5": (_CONV, kinds.channel(1, 4, 1.5)),
    "first channel zero": (_CONV, kinds.weights(0, kinds.in_place(1, 0.0))),
    "input channels in another order": (_CONV, kinds.weights(0, lambda w: w.flip(1))),
    "pointwise channels exchanged": (_CONV, kinds.weights(2, kinds.exchanged(0, 1))),
    "head's bias of one channel x2": (_CONV, kinds.bias(3, kinds.in_place(2, 2.0))),
    "depthwise bias missing": (_CONV, kinds.bias(1, torch.zeros_like)),
}
_FLOATS: dict[str, tuple[str, Change]] = {
    "channel x1.001": (_FF, kinds.channel(3, 9, 1.001)),
    "one weight NaN": (_FF, kinds.element(2, _NAN)),
    "one weight infinite": (_FF, kinds.element(0, _INF)),
    "one weight x1.01": (_FF, kinds.element(2, 1.01)),
    "weights cut off to bfloat16": (_FF, kinds.weights(1, kinds.floored)),
    "weights rounded down": (_ATT, kinds.weights(3, kinds.rounded_down(1e-3))),
    "one bias +1 %": (_FF, kinds.bias(3, kinds.in_place(3, 1.05))),
    "norm's weight of one x1.002": (_FF, kinds.constant("norm.weight", kinds.in_place(63, 1.002))),
    "norm's bias missing": (_FF, kinds.constant("norm.bias", lambda b: b + 1e-3)),
    "one of 262,144 x1.01": ("Large", kinds.constant("scale", lambda s: _at(s, 100, 200, 1.01))),
    "one of 262,144 NaN": ("Large", kinds.constant("scale", lambda s: _at(s, 9, 7, _NAN))),
    "last row of 512 x1.0002": ("Large", kinds.constant("scale", kinds.in_place(511, 1.0002))),
    "rows of 512 shifted": ("Large", kinds.constant("scale", _rolled(0))),
    "one weight of 262,144 x1.1": ("Large", kinds.element(0, 1.1)),
    "63 small channels x1.01": ("OneLarge", kinds.weights(0, lambda w: _small(w, 1.01))),
    "one row looked up x1.001": ("Embedded", kinds.constant("table.weight", lambda t: t * 1.001)),
    "table shifted": ("Embedded", kinds.constant("table.weight", _rolled(0))),
    "one position x1.0002": ("Embedded", kinds.constant("places", lambda p: _at(p, 0, 63, 1.0002))),
    "positions shifted": ("Embedded", kinds.constant("places", _rolled(1))),
    "one gain x1.001": ("Embedded", kinds.constant("gain", kinds.in_place(9, 1.001))),
    "first channel of a convolution x1.001": (_CONV, kinds.channel(0, 1, 1.001)),
    "one weight of a kernel x1.05": (_CONV, kinds.element(0, 1.05)),
}
_NODES: dict[str, tuple[str, Change]] = {
    "norm's epsilon": (_FF, kinds.argument("layer_norm", 0, 4, 1e-2)),
    "gelu by tanh": (_FF, kinds.keyword("gelu", 0, "approximate", "tanh")),
    "relu for gelu": (_FF, kinds.operator("gelu", 0, aten.relu.default)),
    "tanh for relu": (_FF, kinds.operator("relu", 0, aten.tanh.default)),
    "difference for sum": (_FF, kinds.operator("add.Tensor", 0, aten.sub.Tensor)),
    "softmax along the rows": (_ATT, kinds.argument("softmax", 0, 1, -2)),
    "scores / 8": (_ATT, kinds.argument("div", 0, 1, 8)),
    "scores / 4.001": (_ATT, kinds.argument("div", 0, 1, 4.001)),
    "mask moved by one": (_ATT, kinds.constant("mask", lambda m: m.roll(1, 1))),
    "mask in one place": (_ATT, kinds.constant("mask", lambda m: _at(m, 31, 3, 0, -9.0))),
    "relu6 cut at 1.5": (_CONV, kinds.operator("relu6", 0, aten.hardtanh.default, 0.0, 1.5)),
    "dilation of 2": (_CONV, kinds.dilated(1)),
    "epsilon of a norm": ("Embedded", kinds.argument("add.Tensor", 1, 1, 1e-2)),
    "cube for square": ("Embedded", kinds.argument("pow", 0, 1, 3)),
    "slice one further": ("Embedded", kinds.argument("narrow", 1, 2, 31)),
    "halves exchanged": ("Embedded", kinds.swapped_inputs("cat", 0)),
    "tanh for sigmoid": ("Embedded", kinds.operator("sigmoid", 0, aten.tanh.default)),
    "log softmax along the rows": ("Embedded", kinds.argument("log_softmax", 0, 1, 1)),
    "sigmoid for tanh": ("Large", kinds.operator("tanh", 0, aten.sigmoid.default)),
}
_INT8: dict[str, tuple[str, Change]] = {
    "zero point + 1": (_CONV, kinds.activation(3, zero_point=1)),
    "zero point - 1": (_FF, kinds.activation(1, zero_point=-1)),
    "input's scale x1.02": (_ATT, kinds.activation(3, factor=1.02)),
    "scale halved, so that it saturates": (_FF, kinds.activation(3, factor=0.5, both=True)),
    "scale x2": (_CONV, kinds.activation(1, factor=2.0, both=True)),
    "zero point of both + 3": (_ATT, kinds.activation(3, zero_point=3, both=True)),
}
_STEPS: dict[str, tuple[str, Change]] = {
    "weights one step lower": (_FF, kinds.weights(0, lambda w: w - 1)),
    "weights one step lower in a channel": (_ATT, kinds.weights(3, lambda w: _lower(w, 9))),
    "weights rounded down to even steps": (_FF, kinds.weights(2, kinds.rounded_down(2.0))),
}
_SCALES: dict[str, tuple[str, Change]] = {
    "scales of two channels exchanged": (_FF, kinds.scales(2, kinds.exchanged(0, 1))),
    "scales shifted": (_ATT, kinds.scales(3, _rolled(0))),
    "scale of the last channel x2": (_ATT, kinds.scales(0, kinds.in_place(-1, 2.0))),
    "scales all alike": (_FF, kinds.scales(1, lambda s: s * 0 + s.mean())),
}
_GROUPS: dict[str, tuple[str, Change]] = {
    "scales of two groups exchanged": (_FF, kinds.scales(2, kinds.exchanged(0, 1, axis=1))),
    "scales of the groups shifted": (_ATT, kinds.scales(3, _rolled(1))),
    "one group's scale x1.2": (_FF, kinds.scales(3, lambda s: _at(s, 5, 1, 1.2))),
    "one group's scale x2": (_ATT, kinds.scales(1, lambda s: _at(s, 60, 0, 2.0))),
    "halves of bytes exchanged": (_FF, kinds.weights(0, kinds.halves_of_bytes)),
    "one weight + 4 steps": (_ATT, kinds.weights(2, lambda w: _moved(w, 3, 9, 4))),
}
FAULTS = {
    **_LAYERS, **_CONVOLUTIONS, **_FLOATS, **_NODES, **_INT8, **_STEPS, **_SCALES, **_GROUPS
}  # fmt: skip


def _at(numbers: torch.Tensor, row: int, column: int, factor: float, more: float = 0.0) -> Any:
    numbers[row, column] = numbers[row, column] * factor + more
    return numbers


def _small(weight: torch.Tensor, factor: float) -> torch.Tensor:
    rows = [row for row in range(64) if row != 7]
    weight[rows] *= factor
    return weight


def _lower(weight: torch.Tensor, row: int) -> torch.Tensor:
    weight[row] -= 1
    return weight


def _moved(weight: torch.Tensor, row: int, column: int, steps: int) -> torch.Tensor:
    at = weight[row, column]
    weight[row, column] = at + (steps if at < 0 else -steps)
    return weight


def _names(*sorts: dict[str, tuple[str, Change]], step: int = 1, begin: int = 0) -> list[str]:
    """The names of all faults of these sorts, or of each `step`-th, which saves time."""
    return [name for sort in sorts for name in sort][begin::step]


_PLAIN = (FeedForward, Convolutions, Attention, Large, OneLarge, Embedded)
_HARD = (Deep, WideRange, Softmaxes, Recurrent, Images, ConvBlocks)
_STATIC = (FeedForward, Convolutions, Attention, Large, OneLarge, ConvBlocks, Images)
_MATRICES = (FeedForward, Attention, Large, OneLarge, Softmaxes)

GROUPS: dict[str, Group] = {
    "portable": Group(
        as_float,
        _names(_LAYERS, _CONVOLUTIONS, _FLOATS, _NODES),
        (*_PLAIN, *_HARD, Cached),
        backend="portable",
        is_tapped=False,
    ),
    "XNNPACK": Group(
        as_float,
        _names(_LAYERS, _CONVOLUTIONS, _FLOATS, _NODES),
        (*_PLAIN, *_HARD),
    ),
    "XNNPACK, whole calls": Group(
        as_float,
        _names(_LAYERS, _CONVOLUTIONS, step=2),
        (*_PLAIN, Images, Cached),
        is_tapped=False,
    ),
    "fp16": Group(
        as_half,
        _names(_LAYERS, _CONVOLUTIONS, step=2, begin=1),
        (FeedForward, Convolutions, Attention, Large, Deep, Softmaxes, ConvBlocks),
        is_tapped=False,
    ),
    "int8 by channel": Group(
        static(True), _names(_LAYERS, _CONVOLUTIONS, _INT8, _STEPS, _SCALES), (*_STATIC, Deep)
    ),
    "int8 by channel, whole calls": Group(
        static(True),
        _names(_LAYERS, _CONVOLUTIONS, _INT8, _STEPS, _SCALES, step=3, begin=1),
        _STATIC,
        is_tapped=False,
    ),
    "int8 by tensor": Group(
        static(False), _names(_LAYERS, _CONVOLUTIONS, _INT8, _STEPS, step=4), _STATIC
    ),
    "int8 dynamic": Group(dynamic, _names(_LAYERS, _STEPS, _SCALES, step=3, begin=1), _MATRICES),
    "8da4w by 32": Group(
        by_torchao(4, 32),
        [*_names(_LAYERS, _STEPS, _SCALES, step=2), *_GROUPS],
        (*_MATRICES, Deep),
    ),
    "8da4w by row": Group(by_torchao(4, None), _names(_LAYERS, _STEPS, _SCALES, step=5), _MATRICES),
    "8da4w, whole calls": Group(
        by_torchao(4, 32),
        [*_names(_LAYERS, step=5, begin=1), *_GROUPS],
        _MATRICES,
        is_tapped=False,
    ),
    "8da8w": Group(
        by_torchao(8, None), _names(_LAYERS, _STEPS, _SCALES, step=5, begin=2), _MATRICES
    ),
}


# -- one program


@dataclass(frozen=True)
class Right:
    """A program without a fault, exported, and what its record says of a run of it."""

    program: ExportedProgram
    inputs: Inputs
    exported: Exported
    outputs: Sequence[Any]
    numerics: Numerics


def ran(exported: Exported, record: Any, inputs: Inputs) -> tuple[Sequence[Any], Numerics]:
    """The outputs of a run, and what is found with a record."""
    halves = any(one.dtype == torch.float16 for one in inputs)
    with run(
        exported.program,
        inputs,
        debug_level="intermediate_outputs",
        separate=False,
        isolate=halves,
        iterations=1,
        warmup=0,
    ) as done:
        found = done.inspector(etrecord=record, verify=False).diagnose_numerics(inputs=inputs)
        return [np.array(one) for one in done.arrays[0]], found


def right_of(group: Group, kind: Kind, seed: int) -> Right:
    program, inputs = group.make(made(kind, seed), MODELS[kind](seed + 1))
    exported = lowered(group, program, inputs)
    outputs, found = ran(exported, exported.record, inputs)
    return Right(program, inputs, exported, outputs, found)


def lowered(group: Group, program: ExportedProgram, inputs: Inputs) -> Exported:
    """Export a program for the backend of a group."""
    taps = ("op:*",) if group.is_tapped else ()
    return export(program, inputs, backend=group.backend, taps=taps)


# -- one fault


@dataclass(frozen=True)
class Planted:
    """The outcome of a fault: named "first", "in three", "missed", or why it is "none"."""

    group: str
    fault: str
    outcome: str
    detail: str = ""


def with_fault(program: ExportedProgram, fault: str) -> ExportedProgram:
    """A copy of a program with one of `FAULTS`."""
    wrong = copy.deepcopy(program)
    FAULTS[fault][1](Program(wrong))
    wrong.graph_module.recompile()
    return wrong


def planted(name: str, group: Group, fault: str, right: Right) -> Planted:
    """Plant a fault, run the program and look for it."""
    try:
        exported = lowered(group, with_fault(right.program, fault), right.inputs)
    except Exception as error:  # what cannot be planted there
        return Planted(name, fault, "none", f"{type(error).__name__}: {str(error)[:80]}")
    if _instructions(exported) != _instructions(right.exported):
        return Planted(name, fault, "none", "another split into delegates")
    try:
        outputs, found = ran(exported, right.exported.record, right.inputs)
    except Exception as error:
        return Planted(name, fault, "none", f"{type(error).__name__}: {str(error)[:80]}")
    if all(map(partial(np.array_equal, equal_nan=True), outputs, right.outputs)):
        return Planted(name, fault, "none", "no output shows it")
    changed = changed_nodes(right.exported, exported)
    if not changed:
        return Planted(name, fault, "none", "the graph for the backend is the same")
    wrong_rows = [not changed.isdisjoint(row.nodes) for row in found.wrong[:3]]
    if wrong_rows[:1] == [True]:
        return Planted(name, fault, "first")
    if any(wrong_rows):
        return Planted(name, fault, "in three", found.verdict)
    return Planted(name, fault, "missed", _why(group, fault, right, exported, found, changed))


def _why(
    group: Group, fault: str, right: Right, exported: Exported, found: Numerics, changed: set[str]
) -> str:
    rows = [row for row in found.rows if not changed.isdisjoint(row.nodes)]
    row = max(rows, key=lambda row: row.excess, default=None)
    why = "no row covers it" if row is None else _described(row)
    if found.first is not None:
        why += f"; first wrong is {found.first.node}"
    kind = KINDS[FAULTS[fault][0]]
    for sample in range(1, SAMPLES):
        inputs = MODELS[kind](1000 + sample)
        inputs = tuple(one.to(like.dtype) for one, like in zip(inputs, right.inputs, strict=True))
        _, again = ran(exported, right.exported.record, inputs)
        if again.first is not None and not changed.isdisjoint(again.first.nodes):
            return f"{why}; told by sample {sample + 1}"
    return f"{why}; not told by {SAMPLES} samples"


def _described(row: Any) -> str:
    return f"{row.node}: {row.local:.4g} dB, {row.limit:.4g} allowed, {row.excess:.2g} of the limit"


def _instructions(exported: Exported) -> list[tuple[str, ...]]:
    program = read_pte(bytes(exported.program.buffer))
    return [instruction_labels(method) for method in program.methods]


def changed_nodes(right: Exported, wrong: Exported) -> set[str]:
    """The nodes of the right program's graph that the wrong one computes otherwise."""
    one, other = (exported.record.edge_programs["forward"] for exported in (right, wrong))
    known, found = dict(_constants(one)), dict(_constants(other))
    differing = {
        name
        for name, value in known.items()
        if name in found and not torch.equal(_bits(value), _bits(found[name]))
    }
    nodes = list(one.graph.nodes)
    changed = {
        node.name
        for node, same in zip(nodes, other.graph.nodes, strict=False)
        if node.op == "call_function"
        and (str(node.target), str(node.args)) != (str(same.target), str(same.args))
    }
    waiting = [node for node in nodes if node.name in differing]
    while waiting:
        for user in waiting.pop().users:
            changed.add(user.name)
            if any(word in str(user.target) for word in ("dequantize", "permute", "::t(")):
                waiting.append(user)
    return changed


def _bits(value: torch.Tensor) -> torch.Tensor:
    return torch.nan_to_num(value.double(), nan=12345.678, posinf=1e300, neginf=-1e300)


def _constants(program: ExportedProgram) -> Iterator[tuple[str, torch.Tensor]]:
    signature = program.graph_signature
    targets = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    for name, target in targets.items():
        for held in (program.state_dict, program.constants):
            if target in held:
                yield name, held[target]


# -- all of a group


@dataclass
class Outcome:
    """Findings in a group. sound: the number of sound models; alarms: those accused."""

    name: str
    faults: list[Planted] = field(default_factory=list)
    sound: int = 0
    alarms: list[str] = field(default_factory=list)

    def count(self, outcome: str) -> int:
        return sum(one.outcome == outcome for one in self.faults)


def measured(name: str, seed: int, verbose: bool = False) -> Outcome:
    """Plant the faults of a group, and look at its sound models."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    group, outcome, rights = GROUPS[name], Outcome(name), dict[Kind, Right | None]()
    needed = {KINDS[FAULTS[fault][0]] for fault in group.faults}
    for kind in dict.fromkeys((*needed, *group.sound)):
        try:
            right = rights[kind] = right_of(group, kind, seed)
        except Exception as error:
            rights[kind] = None
            outcome.alarms += [f"{kind.__name__} did not run: {error}"] * (kind in group.sound)
            continue
        outcome.sound += 1
        if not right.numerics.is_fine:
            outcome.alarms.append(f"{kind.__name__}: {right.numerics.verdict}")
            if verbose:
                print(name, "ALARM", outcome.alarms[-1], flush=True)
    for fault in group.faults:
        right = rights[KINDS[FAULTS[fault][0]]]
        if right is None:
            continue
        found = planted(name, group, fault, right)
        outcome.faults.append(found)
        if verbose:
            print(f"{name}: {fault}: {found.outcome} {found.detail}", flush=True)
    return outcome


def told(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """The table, and the lists of what was not named."""
    yield "| Group | Faults | Named first | In the first three | Missed | Sound models | Alarms |"
    yield "|---|---|---|---|---|---|---|"
    total = Outcome("all")
    for one in outcomes:
        yield _line(one)
        total.faults += one.faults
        total.sound += one.sound
        total.alarms += one.alarms
    yield _line(total)
    places = {one.fault for one in total.faults if one.outcome != "none"}
    yield f"\n{len(places)} kinds and places of faults."
    for title, outcome in (("Not first", "in three"), ("Missed", "missed"), ("No faults", "none")):
        rows = [one for one in total.faults if one.outcome == outcome]
        if rows:
            yield f"\n{title}:"
            yield from (f"- {one.group}: {one.fault}: {one.detail}" for one in rows)
    if total.alarms:
        yield "\nAlarms:"
        yield from (f"- {one}" for one in total.alarms)


def _line(one: Outcome) -> str:
    first, three, missed = (one.count(what) for what in ("first", "in three", "missed"))
    faults = first + three + missed
    return (
        f"| {one.name} | {faults} | {first} | {first + three} | {missed} | {one.sound} | "
        f"{len(one.alarms)} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", default=[], help="groups with this in the name")
    parser.add_argument("--seed", type=int, default=0, help="of the models and their inputs")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--verbose", action="store_true", help="say what is found as it comes")
    given = parser.parse_args()
    names = [n for n in GROUPS if not given.only or any(one in n for one in given.only)]
    begin = time.monotonic()
    with ProcessPoolExecutor(
        given.processes, mp_context=multiprocessing.get_context("spawn"), max_tasks_per_child=1
    ) as pool:
        work = partial(measured, seed=given.seed, verbose=given.verbose)
        outcomes = list(pool.map(work, names))
    print("\n".join(told(outcomes)))
    print(f"\n{time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
