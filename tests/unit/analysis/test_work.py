"""The work of real runs: rows that add up, sizes of the run, and what nobody can know."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from etscope.analysis.graphs.linked_graph import linked_graph, short_name
from etscope.analysis.graphs.node_costs import node_work
from etscope.analysis.matching.export import Export
from etscope.analysis.matching.run_nodes import RunNodes
from etscope.analysis.profile.calls import RunCalls
from etscope.analysis.profile.profile import MethodProfile, Row
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.trace import Trace
from etscope.analysis.program.correlate import DelegateMap, MethodSymbols
from etscope.analysis.tables.profile_table import grouped_table, profile_table
from etscope.analysis.work.columns import SHOWN
from etscope.analysis.work.graph_work import GraphWork
from etscope.analysis.work.limits import ProfileLimits
from etscope.analysis.work.operation import Traffic, UnfitError, sum_of
from etscope.analysis.work.profile_work import InstructionWork, ProfileWork, profile_work
from etscope.analysis.work.program_work import (
    ProgramWork,
    clamp_work,
    instruction_table,
    operator_work,
)
from etscope.analysis.work.sizes import Sizes, solved
from etscope.errors import UsageError
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.etrecord.reader import read_etrecord
from etscope.formats.program.pte import read_pte
from etscope.formats.program.xnnpack import XnnConstant, XnnNode, XnnTensor
from etscope.formats.run_json import SavedCall, SavedInputs
from etscope.model.graph import TensorSpec
from etscope.units import TimeScale
from tests.support.analysis import graphs
from tests.support.analysis.traces import open_trace
from tests.support.artifacts import artifacts

NS = Scale(TimeScale.NS, TimeScale.NS)
NAMES = (
    *("cnn_portable", "cnn_xnnpack", "cnn_xnnpack_lowered", "cnn_xnnpack_int8", "transformer"),
    *("transformer_portable", "deconvolution", "dynamic_shape", "cond", "attention_xnnpack"),
    *("many_delegates", "recurrent_xnnpack", "llama_xnnpack", "llama_generate"),
)
PARTLY = (
    *("cnn_xnnpack", "cnn_xnnpack_int8", "transformer_portable", "cond", "recurrent_xnnpack"),
    *("dynamic_shape", "llama_generate"),
)


def works(trace: Trace) -> list[tuple[MethodProfile, ProfileWork]]:
    found = [(profile, profile_work(trace, profile)) for profile in trace.profiles()]
    assert found
    return [(profile, work) for profile, work in found if work is not None]


def only(trace: Trace) -> tuple[MethodProfile, ProfileWork]:
    (found,) = works(trace)
    return found


def limits_of(work: ProfileWork, source: TimeScale = TimeScale.NS) -> ProfileLimits:
    """The rates alone."""
    return ProfileLimits(work, source)


def flops_of(work: ProfileWork, row: Row) -> float | None:
    found = work.of([row])
    return None if found is None else found.known_flops


# -- rows that add up


@pytest.mark.parametrize(
    ("given", "name"), [*product(["both"], NAMES), *product(["record", "program"], PARTLY)]
)
def test_the_flops_of_leaves_add_up_to_those_of_the_method(name: str, given: str) -> None:
    found = works(open_trace(name, record=given != "program", program=given != "record"))
    assert found
    for profile, work in found:
        leaves = [leaf for group in profile.instructions for leaf in group.leaves]
        added = work.of(leaves)
        assert work.total.flops > 0
        assert math.isclose(added.flops, work.total.flops, rel_tol=1e-9)


@pytest.mark.parametrize(
    "name",
    ["cnn_portable", "transformer", "transformer_portable", "llama_xnnpack", "deconvolution"],
)
def test_program_and_record_count_the_same(name: str) -> None:
    totals = {
        only(open_trace(name, record=record, program=program))[1].total.flops
        for record, program in ((True, True), (True, False), (False, True))
    }
    assert len(totals) == 1
    trace = open_trace(name)
    edge = trace.symbols("forward").graph
    assert totals == {sum_of(map(GraphWork(edge).of, edge.nodes)).flops}


def test_a_kernel_has_the_work_of_its_node() -> None:
    trace = open_trace("cnn_portable")
    profile, work = only(trace)
    edge = trace.symbols("forward").graph
    of_graph = GraphWork(edge)
    kernels = [row for row in profile.rows if len(row.attribution.nodes) == 1]
    kernels = [row for row in kernels if row.attribution.operator != "executorch_prim::et_view"]
    assert len(kernels) > 20
    for row in kernels:
        (node,) = row.attribution.nodes
        assert flops_of(work, row) == of_graph.of(node).known_flops


def test_a_fused_convolution_has_its_relu_and_no_batch_norm() -> None:
    trace = open_trace("cnn_xnnpack")
    profile, work = only(trace)
    edge = trace.symbols("forward").graph
    of_graph = GraphWork(edge)
    convolutions = [row for row in profile.rows if row.name.startswith("Convolution")]
    assert len(convolutions) == 6
    for row in convolutions:
        (node,) = row.attribution.nodes
        tensor = node.outputs[0].tensor
        elements = math.prod(map(int, tensor.shape))
        assert flops_of(work, row) == of_graph.of(node).flops + elements
    norms = sum(of_graph.of(node).flops for node in edge.nodes if "batch_norm" in node.op)
    whole = sum_of(map(of_graph.of, edge.nodes)).flops
    assert work.total.flops == whole - norms


def test_the_call_of_a_delegate_has_the_bytes_at_its_border() -> None:
    profile, work = only(open_trace("cnn_xnnpack"))
    call = work.of([profile.rows[0]])
    assert call.traffic.activations_read == 4 * 3 * 16 * 16
    assert call.traffic.activations_written == 4 * 10
    # 3x3 kernels of the six convolutions with their biases, and the last layer.
    channels = [(3, 8), (8, 8), (8, 8), (8, 16), (16, 16), (16, 16)]
    assert call.traffic.weights == 4 * (
        sum(9 * into * out + out for into, out in channels) + 64 * 10 + 10
    )
    inside = sum_of(
        found for row in profile.rows[1:] if (found := work.of([row])) is not None
    ).traffic
    assert call.inner == inside.activations - call.traffic.activations


def test_integers_take_a_quarter_of_the_bytes() -> None:
    profile, work = only(open_trace("cnn_xnnpack_int8"))
    row = next(row for row in profile.rows if "IGEMM #2" in row.name)
    found = work.of([row])
    elements = 8 * 16 * 16
    assert found.flops == 2 * elements * 9 * 8 + elements
    assert found.traffic.activations == 2 * elements  # int8
    assert found.traffic.weights == 9 * 8 * 8 + 4 * 8  # int8, with biases of int32


def test_what_is_known_of_events_without_the_record_or_the_program() -> None:
    profile, work = only(open_trace("cnn_xnnpack", record=False))
    whole, of_record = only(open_trace("cnn_xnnpack"))
    alone = [flops_of(work, row) for row in profile.rows]
    assert alone == [flops_of(of_record, row) for row in whole.rows]
    bare = open_trace("cnn_portable", record=False, program=False)  # of an unknown method
    assert [profile_work(bare, profile) for profile in bare.profiles()] == [None]
    # Without the program nothing tells which of equal calls runs a node.
    known = only(open_trace("recurrent_xnnpack"))[1].total.flops
    assert only(open_trace("recurrent_xnnpack", program=False))[1].total.flops == known


def test_what_runs_in_a_loop_counts_each_time() -> None:
    trace = open_trace("while_loop")
    profile, work = only(trace)
    rows = [row for row in profile.rows if row.attribution.operator == "aten::tanh.out"]
    assert rows
    for row in rows:
        once = ProgramWork(read_pte(artifacts("while_loop").pte), "forward").of(
            row.instruction_id or 0
        )
        assert row.calls.mean() > 1
        assert flops_of(work, row) == once.flops * row.calls.mean()


def test_a_branch_counts_in_the_runs_that_took_it() -> None:
    profile, work = only(open_trace("cond"))
    row = next(row for row in profile.rows if row.attribution.operator == "aten::tanh.out")
    assert 0 < row.ran.mean() < 1
    elements = math.prod(int(size) for size in row.attribution.outputs[0][8:-1].split(", "))
    assert flops_of(work, row) == elements * row.calls.mean()


# -- sizes of the run


def test_logged_values_tell_the_sizes_of_a_run() -> None:
    _, work = only(open_trace("dynamic_shape"))  # a batch of five, of eight at most
    assert not work.total.is_bound
    bound = only(open_trace("dynamic_shape", record=False))[1].total
    assert bound.is_bound
    assert work.total.flops / bound.flops == 5 / 8


def test_the_tokens_of_a_call_tell_its_sizes() -> None:
    trace = open_trace("llama_generate")
    edge = trace.symbols("forward").graph
    found = {profile.phase: (profile, work) for profile, work in works(trace)}
    assert set(found) == {"prefill", "decode"}
    for profile, work in found.values():
        (tokens,) = set(profile.calls.tokens.tolist())
        (symbol,) = edge.limits
        whole = sum_of(map(GraphWork(edge, Sizes({symbol: tokens})).of, edge.nodes))
        assert not work.total.is_bound
        assert work.total.flops == whole.flops
    prefill, decode = found["prefill"][1].total, found["decode"][1].total
    # Each token reads all weights: the intensity of a prefill is higher by far.
    assert prefill.traffic.weights == pytest.approx(decode.traffic.weights, rel=0.01)
    assert prefill.intensity > 3 * decode.intensity


@pytest.mark.parametrize("record", [True, False])
def test_attention_grows_with_the_position_of_the_call(record: bool) -> None:
    trace = open_trace("llama_quantized_cache", record=record)
    (plain,) = (one for one in trace.profiles() if one.method == "forward")
    runs = len(plain.runs)
    calls = RunCalls(plain.runs, ("decode",) * runs, np.arange(runs) + 3, np.ones(runs, np.int64))
    profile = replace(plain, calls=calls)
    work = profile_work(trace, profile)
    whole = profile_work(trace, plain)
    rows = [row for row in profile.rows if row.attribution.operator == "llama::custom_sdpa.out"]
    assert len(rows) == 2  # layers, with 4 heads of 16, and a cache of 32 tokens
    keys = float(calls.position.mean()) + 1
    for row in rows:
        found, largest = work.of([row]), whole.of([row])
        assert found.flops == pytest.approx(2 * 4 * keys * (16 + 16))
        assert (found.is_bound, largest.is_bound) == (False, True)
        assert largest.flops == 2 * 4 * 32 * (16 + 16)
        assert found.traffic.total < largest.traffic.total


def test_saved_inputs_tell_the_sizes_of_a_run() -> None:
    files = artifacts("dynamic_shape")
    dump = read_etdump(files.etdump_timing)  # without values
    record, program = read_etrecord(files.etrecord), read_pte(files.pte)
    trace = Trace(dump, record=record, program=program, all_runs=True)
    assert only(trace)[1].total.is_bound
    runs = len(trace.executions)

    def given(rows: int, count: int) -> SavedCall:
        inputs = SavedInputs("given", (np.zeros((rows, 4), np.float32),))
        return SavedCall("forward", runs=count, warmup=0, inputs=inputs)

    three = only(replace(trace, calls=(given(3, runs),)))[1].total
    five = only(replace(trace, calls=(given(5, runs),)))[1].total
    both = only(replace(trace, calls=(given(3, 1), given(5, runs - 1))))[1].total
    assert not (three.is_bound or five.is_bound or both.is_bound)
    assert three.flops / five.flops == 3 / 5
    assert both.flops == pytest.approx((three.flops + (runs - 1) * five.flops) / runs)
    # Inputs of fewer runs than the dump has may be of any of them.
    assert only(replace(trace, calls=(given(3, runs - 1),)))[1].total.is_bound


def test_a_dump_may_hold_any_number_as_an_instruction() -> None:
    far = graphs.profile(
        graphs.row("kernel", "add.out", 10**6, 5), graphs.row("delegate", "Any", -7, 5), total=[10]
    )
    of_program = ProgramWork(read_pte(artifacts("cnn_portable").pte), "forward")
    symbols = MethodSymbols("forward", None)
    work = InstructionWork(RunNodes(symbols), of_program, None, None, {})
    assert [done.known_flops for _, done in work.of(far.instructions)] == [None, None]


def test_without_the_sizes_of_the_run_there_are_no_rates() -> None:
    profile, work = only(open_trace("dynamic_shape", record=False))
    table = profile_table(profile, NS, limits=limits_of(work))
    assert "largest" in table.values["work_sizes"]
    assert table.values["flops"][-1] > 0
    assert table.values["gflops"][-1] is None
    assert any("the largest" in note for note in table.notes)


def test_expressions_of_sizes() -> None:
    sizes = Sizes({"s6": 7, "u0": 2})
    assert sizes.size(3) == 3
    assert sizes.size("2*s6 + 1") == 15
    assert sizes.size("((s6 - 1)//2)**2") == 9
    assert sizes.size("Max(1, s6 - u0*3)") == 1
    assert sizes.size("CeilDiv(s6, 2)") == 4
    for broken in (
        *("s9", "s6/2", "1//(s6 - 7)", "s6 - 8", "s6/(s6*1.0e-300*1.0e-300)"),
        *("__import__('os')", "s6.real"),
    ):
        with pytest.raises(UnfitError):
            sizes.size(broken)


def test_symbols_that_stand_alone_are_solved() -> None:
    pairs = [(TensorSpec("float32", (1, "s0", "2*s1")), (1, 5, 8)),
             (TensorSpec("float32", ("s1",)), (4,)),
             (TensorSpec("float32", ("s2",)), (4, 4))]  # fmt: skip
    assert solved(pairs) == {"s0": 5, "s1": 4}


# -- XNNPACK's operators


def test_operators_of_xnnpack() -> None:
    def tensor(*sizes: int, constant: int | None = None, dtype: str = "float32") -> XnnTensor:
        data = () if constant is None else (XnnConstant(None, 0, constant, dtype, ""),)
        return XnnTensor(dtype, sizes, constants=data)

    def flops(kind: str, inputs: list[XnnTensor], output: XnnTensor, **more: object) -> float:
        node = XnnNode(kind, 1, inputs=tuple(inputs), outputs=(output,), **more)  # type: ignore[arg-type]
        return operator_work(node).flops

    x = tensor(1, 8, 8, 4)
    assert flops("Conv2d", [x, tensor(6, 3, 3, 2, constant=432)], tensor(1, 8, 8, 6)) == (
        2 * 8 * 8 * 6 * 9 * 2  # two groups of two channels
    )
    assert flops("DepthwiseConv2d", [x, tensor(1, 3, 3, 4, constant=144)], x) == 2 * 256 * 9
    # Two groups: each of the 256 inputs goes to 3 channels and 2 x 2 places.
    up = tensor(1, 16, 16, 6)
    assert flops("ConvTranspose2d", [x, tensor(6, 2, 2, 2, constant=192)], up) == 2 * 256 * 3 * 4
    assert flops("FullyConnected", [tensor(3, 4), tensor(5, 4, constant=80)], tensor(3, 5)) == 120
    assert flops("AvgPooling2d", [x], tensor(1, 4, 4, 4), window=4) == 5 * 64
    assert flops("MaxPooling2d", [x], tensor(1, 4, 4, 4), window=9) == 9 * 64
    assert flops("Add", [x, x], x, clamped=True, bounds=(0.0, math.inf)) == 2 * 256
    assert flops("Add", [x, x], x, clamped=True, bounds=(0.0, 6.0)) == 3 * 256
    assert flops("StaticTranspose", [x], x) == 0
    quantized = XnnTensor("int8", (1, 8, 8, 4), is_quantized=True)
    assert flops("Convert", [x], quantized, quantizes=True) == 5 * 256
    assert flops("Convert", [quantized], x) == 2 * 256
    dynamic = XnnTensor("int8", (1, 8, 8, 4), is_quantized=True, is_dynamic=True)
    assert flops("Convert", [x], dynamic, quantizes=True) == 7 * 256
    clamp = XnnNode("Add", 1, clamped=True, inputs=(x, x), outputs=(x,), bounds=(0.0, 6.0))
    assert operator_work(clamp, clamps=False).flops == 256
    assert clamp_work(clamp).flops == 2 * 256
    # What the schema may have one day.
    later = operator_work(XnnNode(None, 1, inputs=(x,), outputs=(x,)))
    assert (later.known_flops, later.unknown) == (None, ("xnnpack.operator",))


# -- events of other backends, by their nodes


def test_events_that_share_a_node_have_it_once() -> None:
    shown = graphs.graph(
        graphs.placeholder("x"),
        graphs.call("a", "aten.exp.default", "x", handle=1),
        graphs.call("b", "aten.silu.default", "a", handle=2),
        graphs.call("c", "aten.neg.default", "b", handle=3),
        graphs.output("c"),
    )
    a, b, c = shown.nodes[1:4]
    symbols = MethodSymbols("forward", shown, {0: [1, 2, 3]}, {0: DelegateMap("Other", {})})
    rows = [
        graphs.row("delegate", "Other", 0, 100),
        graphs.row("delegated", "first half", 0, 10, depth=1, nodes=[a, b]),
        graphs.row("delegated", "second half", 0, 30, depth=1, nodes=[b]),
        graphs.row("delegated", "neg", 0, 20, depth=1, nodes=[c]),
        graphs.row("delegated", "copy", 0, 5, depth=1),
        graphs.row("unaccounted", "(rest)", 0, 35, depth=1),
    ]
    instructions = graphs.profile(*rows, total=[100]).instructions
    of_graph = GraphWork(shown)
    work = InstructionWork(RunNodes(symbols), None, of_graph, of_graph, {})
    found = {one.name: done for one, done in work.of(instructions)}
    assert found["Other"].flops == 8 * (1 + 2 + 1)  # x is [1, 8]
    assert found["Other"].traffic == Traffic(activations_read=32, activations_written=32)
    assert found["Other"].inner == 4 * 32
    assert "first half" not in found
    assert found["second half"].flops == 8 * (1 + 2)
    assert work.together == {id(rows[2]): (rows[1], rows[2])}
    assert found["neg"].flops == 8
    assert found["copy"].unknown == ("copy",)


def test_a_call_has_no_nodes_that_a_kernel_is_known_to_run() -> None:
    shown = graphs.graph(
        graphs.placeholder("x"),
        graphs.call("a", "aten.exp.default", "x", handle=1),
        graphs.call("b", "aten.neg.default", "a", handle=1),
        graphs.output("b"),
    )
    symbols = MethodSymbols("forward", shown, {0: 1, 1: [1, 1]}, {1: DelegateMap("Other", {})})
    rows = [graphs.row("kernel", "exp.out", 0, 10), graphs.row("delegate", "Other", 1, 10)]
    of_graph = GraphWork(shown)
    work = InstructionWork(RunNodes(symbols, ["aten::exp.out", ""]), None, of_graph, of_graph, {})
    found = work.of(graphs.profile(*rows, total=[20]).instructions)
    assert [(one.name, done.flops) for one, done in found] == [("exp.out", 8), ("Other", 8)]


# -- what is not known


def test_unknown_work_is_told_with_its_share_of_the_time() -> None:
    profile, work = only(open_trace("int_outputs"))
    row = next(row for row in profile.rows if row.attribution.operator == "aten::topk.values")
    assert flops_of(work, row) is None
    assert work.total.unknown == ("aten.topk",)
    assert work.unknown_share == pytest.approx(row.ticks.mean() / profile.total.mean())
    notes = profile_table(profile, NS, limits=limits_of(work)).notes
    assert any("aten.topk is not known" in note for note in notes)


# -- tables


def test_rates_are_the_work_in_the_time_of_the_row() -> None:
    profile, work = only(open_trace("cnn_portable"))
    table = profile_table(profile, NS, limits=limits_of(work))
    names = ("avg", "flops", "bytes", "gflops", "gbps", "intensity")
    rows = list(zip(*(table.values[name] for name in names), strict=True))
    rated = [row for row in rows if row[3] is not None]
    assert len(rated) > 20
    for avg, flops, moved, *rates in rated:  # in a nanosecond
        assert rates == pytest.approx([flops / avg, moved / avg, flops / moved])
    assert not set(SHOWN) & set(profile_table(profile, NS).names)  # without work
    with pytest.raises(UsageError, match="cannot sort by 'watts'"):
        profile_table(profile, NS, sort="watts")
    unit = TimeScale.CYCLES
    cycles = profile_table(profile, Scale(unit, unit), limits=limits_of(work, unit))
    assert not any(cycles.values["gflops"])
    assert cycles.values["flops"] == table.values["flops"]


@pytest.mark.parametrize("sort", ["flops", "bytes", "intensity", "gflops", "gbps"])
def test_rows_are_sorted_by_their_work(sort: str) -> None:
    profile, work = only(open_trace("cnn_portable"))
    table = profile_table(profile, NS, limits=limits_of(work), sort=f"-{sort}")
    values = [value for value in table.values[sort][: min(table.breaks)] if value is not None]
    assert len(values) > 20
    assert values == sorted(values, reverse=True)
    by_op = grouped_table(profile, NS, "op", sort=sort, limits=limits_of(work))
    values = [value for value in by_op.values[sort][: min(by_op.breaks)] if value is not None]
    assert values == sorted(values, reverse=True)


@pytest.mark.parametrize("by", ["op", "type", "source", "delegate"])
def test_groups_have_the_sum_of_their_rows(by: str) -> None:
    profile, work = only(open_trace("transformer"))
    table = grouped_table(profile, NS, by, limits=limits_of(work))
    groups = table.values["flops"][: min(table.breaks)]
    assert sum(value for value in groups if value is not None) == pytest.approx(work.total.flops)
    assert table.values["flops"][-1] == work.total.flops


def test_modules_have_the_sum_of_what_is_below() -> None:
    profile, work = only(open_trace("transformer"))
    table = grouped_table(profile, NS, "module", limits=limits_of(work))
    found = dict(zip(table.values["module"], table.values["flops"], strict=True))
    blocks = [found[f"blocks.{number}"] for number in range(3)]
    assert blocks[0] == blocks[1] == blocks[2]
    # Two products and the activation between them.
    width, length = 32, 16
    assert found["blocks.0.mlp"] == 2 * 2 * length * width * 4 * width + 5 * length * 4 * width


def test_rows_that_are_not_shown_have_their_work() -> None:
    profile, work = only(open_trace("cnn_xnnpack"))
    table = profile_table(profile, NS, limits=limits_of(work), limit=3)
    shown = zip(table.values["kind"], table.depth or (), table.values["flops"], strict=True)
    flops = [value for kind, depth, value in shown if depth == 1 and value is not None]
    assert sum(flops) == work.total.flops
    few = profile_table(profile, NS, limits=limits_of(work), limit=0)
    assert few.values["flops"][0] == work.total.flops


# -- graphs and programs


def test_instructions_of_a_program_have_their_work() -> None:
    table = instruction_table(read_pte(artifacts("cnn_portable").pte), "forward")
    (convolution,) = (at for at, op in enumerate(table.values["op"][:1]) if op == "convolution")
    assert table.values["flops"][convolution] == 2 * 8 * 16 * 16 * 27
    assert table.values["weight_bytes"][convolution] == 4 * 8 * 27
    found = [value for value in table.values["flops"] if value is not None]
    assert sum(found) == only(open_trace("cnn_portable"))[1].total.flops


def test_views_that_memory_planning_made_move_nothing() -> None:
    files = artifacts("cnn_portable")
    record, program = read_etrecord(files.etrecord), read_pte(files.pte)
    linked = linked_graph(Export(program, record), "edge_dialect_exported_program/forward")
    assert short_name(linked.name) == "edge/forward"
    work_of = node_work(linked)
    views = [node for node in linked.graph.nodes if node.op == "aten.view_copy.default"]
    assert views
    for node in views:
        assert work_of(node).known_bytes == 0
        assert GraphWork(linked.graph).of(node).known_bytes > 0  # type: ignore[operator]


def test_buffers_that_the_graph_writes_are_state() -> None:
    trace = open_trace("rewritten_state")
    edge = trace.symbols("forward").graph
    assert {edge.parameters[name] for name in edge.state} == {"cache"}
    program = only(trace)[1].total.traffic
    assert program.state_read > 0 and program.state_written > 0
