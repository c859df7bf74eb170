"""The comparison of two programs: sums over all pairs, and changes that are known."""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etscope.analysis.comparison.program_report import program_diff_report
from etscope.analysis.comparison.program_weights import (
    WeightChange,
    compare_weights,
    weight_sentence,
)
from etscope.analysis.comparison.programs import ProgramDiff, Side, diff_programs, value_text
from etscope.analysis.memory.stored import WEIGHTS, Quantized
from etscope.errors import MismatchError
from etscope.formats.bytes.flatbuffer import Span
from etscope.formats.etrecord.reader import read_etrecord
from etscope.formats.program.ptd import read_ptd
from etscope.formats.program.pte import Program, read_pte
from etscope.formats.program.pte_schema import (
    CompileSpec,
    KernelCall,
    ListValue,
    ScalarValue,
    Value,
    ValueKind,
)
from etscope.model.common_subsequence import matched_in_turn
from tests.support.analysis.traces import side
from tests.support.artifacts import artifacts

PROGRAMS = (
    *("cnn_portable", "cnn_xnnpack", "cnn_xnnpack_int8", "cnn_portable_inserted", "two_methods"),
    *("forward_and_extra", "while_loop"),
)


def diff(before: str, after: str, *, with_records: bool = False) -> ProgramDiff:
    sides = (side(name, with_record=with_records) for name in (before, after))
    return diff_programs(*sides)


def edited(name: str, edit: dict[int, bytes]) -> Side:
    """A program with other bytes at some offsets."""
    data = bytearray(artifacts(name).pte.read_bytes())
    for at, content in edit.items():
        data[at : at + len(content)] = content
    return Side("edited.pte", read_pte(bytes(data)))


def changed(found: ProgramDiff) -> list[WeightChange]:
    return [change for change in found.weights if change.status != "unchanged"]


def summary(found: ProgramDiff) -> str:
    return "\n".join(program_diff_report(found).summary)


# -- what holds for any two programs


@pytest.mark.parametrize("with_records", [True, False])
@pytest.mark.parametrize(
    ("before", "after"), [pair for one in pairwise(PROGRAMS) for pair in (one, one[::-1])]
)
def test_everything_of_both_sides_is_in_the_comparison_once(
    before: str, after: str, with_records: bool
) -> None:
    found = diff(before, after, with_records=with_records)
    for number, one in enumerate(found.sides):
        size = artifacts((before, after)[number]).pte.stat().st_size
        assert sum((owner.before, owner.after)[number] for owner in found.sizes) == size
        weights = [(change.before, change.after)[number] for change in found.weights]
        assert Counter(map(id, filter(None, weights))) == Counter(map(id, one.weights))
        assert sum(weight.tensor.span.size for weight in one.weights) == sum(
            part.size for part in one.parts if part.kind in (WEIGHTS, "initial state")
        )
        kernels = [change for change in found.operators if change.inside is None]
        assert sum((kernel.before, kernel.after)[number] for kernel in kernels) == sum(
            isinstance(instruction, KernelCall)
            for method in one.program.methods
            for instruction in method.instructions
        )
        for method in found.shared:
            pairs = [change for change in found.instructions if change.method == method]
            records = [(change.before, change.after)[number] for change in pairs]
            numbers = [record.instruction_id for record in records if record is not None]
            assert sorted(numbers) == list(range(len(one.methods[method].instructions)))
        delegates = Counter((change.method, change.numbers[number]) for change in found.delegates)
        for method in one.program.methods:
            for index in range(len(method.delegates)):
                assert delegates.pop((method.name, index)) == 1
        assert {number for _, number in delegates} <= {None}
    sizes = program_diff_report(found).section("size")
    file, *owners = sizes.table.values["change"]
    assert file == sum(owners) == found.after.size - found.before.size
    assert found.differs and not found.identical


@pytest.mark.parametrize("with_records", [True, False])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_does_not_differ_from_itself(name: str, with_records: bool) -> None:
    found = diff(name, name, with_records=with_records)
    assert found.identical and not found.differs
    assert {change.status for change in found.weights} <= {"unchanged"}
    assert {change.status for change in found.instructions} == {"same"}
    assert summary(found) == (
        f"{name}.pte is identical to {name}.pte: {artifacts(name).pte.stat().st_size:,} bytes."
    )


def test_pairs_of_later_tokens_lie_between_those_of_earlier_ones() -> None:
    before, after = ["a1", "b1", "c1", "a2"], ["b2", "a1", "b3", "a3", "c1"]
    found = matched_in_turn(before, after, [lambda text: text, lambda text: text[0]])
    assert found == [(0, 1), (1, 2), (2, 4)]
    assert matched_in_turn([], after, [str]) == matched_in_turn(before, after, []) == []


# -- changes that are known


@pytest.mark.parametrize("model", ["cnn_portable", "cnn_xnnpack"])
def test_one_number_of_one_weight(model: str) -> None:
    found = diff(model, f"{model}_finetuned", with_records=True)
    (change,) = changed(found)
    assert change.status == "changed" and change.shown.place == "head.fc.weight"
    norm = float(np.linalg.norm(change.before.elements.astype(np.float64)))
    assert (change.differing, change.largest) == (1, 0.25)
    assert change.relative == pytest.approx(0.25 / norm, rel=1e-5)
    # The name of the weight in the delegate's data is another: its content is compared by itself.
    assert {one.status for one in found.delegates} <= {"same"}
    assert {one.status for one in found.instructions} == {"same"}
    text = summary(found)
    assert "Weights: " in text and " 1 changed." in text
    assert "head.fc.weight changed most: 1 of 640 values differ, by at most 0.25000" in text


def test_an_inserted_layer_moves_the_weights_behind_it() -> None:
    names = "cnn_portable", "cnn_portable_inserted"
    found = diff(*names, with_records=True)
    (new,) = (one for one in found.instructions if one.status != "same")
    assert (new.status, new.module) == ("added", "stages.2")
    assert new.after is not None and new.after.label == "sigmoid"
    moved = {
        (change.before.name, change.after.name)
        for change in changed(found)
        if change.status == "moved" and change.before and change.after
    }
    assert ("stages.2.first.conv.weight", "stages.3.first.conv.weight") in moved
    assert all((one or "").replace("stages.2", "stages.3") == other for one, other in moved)
    assert len(moved) == len(changed(found)) == 6
    # The sentence that breaks an app comes first.
    assert summary(found).startswith("The app must register 1 new kernel: aten::sigmoid.out.")
    assert found.after.kernels - found.before.kernels == {"aten::sigmoid.out"}
    # Without records the order of the weights tells that nothing changed.
    assert not changed(diff(*names))


def test_quantized_weights_are_those_of_the_same_modules() -> None:
    found = diff("cnn_xnnpack", "cnn_xnnpack_int8", with_records=True)
    retyped = {
        change.shown.module: (change.before.tensor.dtype, change.after.tensor.dtype)
        for change in changed(found)
        if change.before and change.after and change.after.tensor.dtype == "int8"
    }
    assert set(retyped.values()) == {("float32", "int8")}
    assert {"stem.conv", "stages.1.conv", "stages.2.second.conv", "head.fc"} <= set(retyped)
    assert not {change.status for change in changed(found)} & {"added", "removed"}
    assert all(change.differing is None for change in changed(found))
    assert f"{len(retyped)} weights went from float32 to int8: " in summary(found)
    owners = {owner.owner: owner for owner in found.sizes if owner.kind == WEIGHTS}
    assert owners["stages.1.conv"].change < 0
    assert owners["stages.1.conv"].dtypes[0] == ("float32",)


def test_weights_that_went_to_a_delegate() -> None:
    """XNNPACK keeps the matrix of the last layer as it is in PyTorch, and so do the kernels."""
    found = diff("cnn_portable", "cnn_xnnpack", with_records=True)
    statuses = {change.shown.place: change.status for change in found.weights}
    assert statuses["head.fc.weight"] == statuses["head.fc.bias"] == "unchanged"
    assert found.after.backends == {"XnnpackBackend"}
    assert "The app must link XnnpackBackend" in summary(found)
    assert "1 delegate instead of 0." in summary(found)


def test_weights_with_their_elements_in_another_order() -> None:
    """The module is a convolution: XNNPACK has the channels last."""
    weights = {one.name: one for one in side("cnn_portable", with_record=True).weights}
    weight = weights["stem.conv.weight"]
    turned = np.ascontiguousarray(weight.elements.reshape(8, 3, 3, 3).transpose(0, 2, 3, 1))
    after = edited("cnn_portable", {weight.tensor.span.offset: turned.tobytes()})
    method = after.program.method("forward")
    values = tuple(
        replace(value, dim_order=(0, 2, 3, 1)) if value == weight.tensor.value else value
        for value in method.values
    )
    (change,) = changed(
        diff_programs(side("cnn_portable"), with_method(after.program, "forward", values=values))
    )
    assert change.status == "reordered"


def test_zeros_in_two_modules_are_not_the_same_weight() -> None:
    """Of equal size and content, but nothing says that one came from the other."""
    names = "stem.bn.running_mean", "stages.0.first.bn.running_mean"
    sides = side("cnn_portable", with_record=True)
    places = {one.name: one.tensor.span for one in sides.weights if one.name in names}
    zeros = edited("cnn_portable", {span.offset: bytes(span.size) for span in places.values()})
    weights = {one.name: one for one in replace(zeros, record=sides.record).weights}
    found = compare_weights(*([weights[name]] for name in names))
    assert [change.status for change in found] == ["added", "removed"]


def test_methods_without_a_partner() -> None:
    found = diff("two_methods", "forward_and_extra")
    assert sorted(found.removed_methods) == ["decode", "encode"]
    assert sorted(found.added_methods) == ["extra", "forward"] and not found.shared
    text = summary(found)
    assert f"Methods gone: {', '.join(found.removed_methods)}." in text
    assert f"Methods new: {', '.join(found.added_methods)}." in text
    assert not found.instructions


def test_inputs_of_another_shape() -> None:
    before, after = side("two_methods"), side("two_methods")
    method = after.program.method("decode")
    (index,) = method.inputs
    tensor = method.values[index]
    values = list(method.values)
    values[index] = replace(tensor, sizes=(5, 4))  # type: ignore[call-arg, arg-type]
    after = with_method(after.program, "decode", values=tuple(values))
    (change,) = diff_programs(before, after).signatures
    assert (change.method, change.what) == ("decode", "input 0")
    assert (change.before, change.after) == ("float32[2, 4]", "float32[5, 4]")


def test_options_of_a_delegate() -> None:
    before = side("cnn_xnnpack")
    method = before.program.method("forward")
    (delegate,) = method.delegates
    specs = (CompileSpec("level", b"fast\0"), CompileSpec("raw", b"\xff\x01"))
    longer = read_pte(artifacts("cnn_xnnpack").pte.read_bytes() + bytes(1))
    after = with_method(longer, "forward", delegates=(replace(delegate, compile_specs=specs),))
    found = diff_programs(before, after)
    (change,) = found.delegates
    assert change.status == "changed"
    assert change.after.options == specs
    section = program_diff_report(found).section("delegates")
    assert section.table.values["options"] == [["level: none → fast", "raw: none → 0xff01"]]


def test_planned_memory_and_the_tensors_behind_it() -> None:
    found = diff("cnn_portable", "cnn_xnnpack", with_records=True)
    report = program_diff_report(found)
    memory, tensors = report.section("memory"), report.section("memory_tensors")
    planned = [one.plans["forward"].planned_bytes for one in found.sides]
    assert (sum(memory.table.values["before"]), sum(memory.table.values["after"])) == tuple(planned)
    ends = zip(*(tensors.table.values[side] for side in ("before", "after")), strict=True)
    assert all(before != after for before, after in ends)
    assert any("Planned memory of forward: " in text for text in report.summary)


def test_an_instruction_that_reads_another_value() -> None:
    """`x + second(first(x))` with its arguments the other way round: types and counts stay."""
    program = side("cnn_portable").program
    method = program.method("forward")
    call = next(
        one
        for one in method.instructions
        if isinstance(one, KernelCall)
        and method.operators[one.operator].full_name == "aten::add.out"
        and str(method.values[one.args[0]]) == str(method.values[one.args[1]])
    )
    old = struct.pack(f"<{len(call.args)}i", *call.args)
    data = artifacts("cnn_portable").pte.read_bytes()
    assert data.count(old) == 1
    swapped = (call.args[1], call.args[0], *call.args[2:])
    after = edited("cnn_portable", {data.index(old): struct.pack(f"<{len(swapped)}i", *swapped)})
    found = diff_programs(side("cnn_portable"), after)
    (change,) = (one for one in found.instructions if one.status != "same")
    assert change.status == "changed"
    assert change.what == (
        "tensor 0: read from another instruction",
        "tensor 1: read from another instruction",
    )
    assert {one.status for one in found.operators} == {"same"} and not changed(found)


@pytest.mark.parametrize(
    ("before", "after", "differing", "largest"),
    [
        ([np.nan, 1.0], [np.nan, 1.5], 1, 0.5),
        ([np.nan, 1.0], [2.0, 1.5], 2, 0.5),
        ([np.inf, 1.0], [np.inf, 1.25], 1, 0.25),
        ([3e38, 1.0], [-3e38, 1.0], 1, 6e38),
        ([0.0, 1.0], [-0.0, 2.0], 1, 1.0),
    ],
)
def test_numbers_that_are_none_or_large(
    before: list[float], after: list[float], differing: int, largest: float
) -> None:
    weight = next(w for w in side("cnn_portable").weights if w.tensor.dtype == "float32")
    place = weight.tensor.span.offset
    sides = [
        edited("cnn_portable", {place: np.asarray(values, np.float32).tobytes()})
        for values in (before, after)
    ]
    (change,) = changed(diff_programs(*sides))
    assert change.differing == differing
    assert change.largest == pytest.approx(largest, rel=1e-6)


def test_values_as_text() -> None:
    number, nothing = ScalarValue(ValueKind.INT, 2), ScalarValue(ValueKind.NULL, None)
    values: list[Value] = [number, nothing, ListValue(ValueKind.TENSOR_LIST, (0, 1, -1, 2))]
    assert value_text(values[2], values) == "[2, None, None, […]]"
    assert value_text(ListValue(ValueKind.BOOL_LIST, (True,)), values) == "[True]"
    assert value_text(ScalarValue(ValueKind.STRING, "same"), values) == "same"


# -- records


def test_the_record_of_a_program_with_the_same_instructions_serves_both() -> None:
    record = read_etrecord(artifacts("cnn_portable").etrecord)
    sides = side("cnn_portable", with_record=True), side("cnn_portable_finetuned")
    found = diff_programs(sides[0], replace(sides[1], record=record))
    assert [change.shown.name for change in changed(found)] == ["head.fc.weight"]
    other = replace(side("cnn_xnnpack"), record=record)
    with pytest.raises(MismatchError, match=r"cnn_xnnpack\.pte and the ETRecord .*belong"):
        diff_programs(other, side("cnn_xnnpack_int8"))
    assert diff_programs(other, side("cnn_xnnpack_int8"), force=True).differs


# -- programs by hand


def with_method(program: Program, name: str, **fields: object) -> Side:
    methods = tuple(
        replace(method, **fields) if method.name == name else method  # type: ignore[arg-type]
        for method in program.methods
    )
    return Side("by hand.pte", replace(program, methods=methods))


# -- weights in a .ptd file


def external(name: str, path: Path | None = None) -> Side:
    made = artifacts(name)
    data = read_ptd(made.extra("weights.ptd") if path is None else path)
    return Side(f"{name}.pte", read_pte(made.pte), data=(data,))


@pytest.mark.parametrize("name", ["external_portable", "external_xnnpack"])
def test_weights_in_a_ptd_file_are_compared_by_content(name: str, tmp_path: Path) -> None:
    made = artifacts(name)
    data = read_ptd(made.extra("weights.ptd"))
    largest = max(data.entries.values(), key=lambda one: one.blob.size)
    content = bytearray(made.extra("weights.ptd").read_bytes())
    struct.pack_into("<f", content, largest.blob.offset, 1e3)
    path = tmp_path / "other.ptd"
    path.write_bytes(content)
    found = diff_programs(external(name), external(name, path))
    assert not found.identical
    (one,) = changed(found)
    assert (one.status, one.differing) == ("changed", 1)
    assert one.largest == pytest.approx(1e3, rel=1e-2)
    assert len(found.weights) == len(data.entries)
    assert diff_programs(external(name), external(name)).identical


def test_weights_that_went_to_a_ptd_file_are_the_same_weights(tmp_path: Path) -> None:
    """The names in a .ptd are the model's; the content says which is which."""
    weights = external("external_portable").weights
    assert {weight.name for weight in weights} == {
        "first.weight", "first.bias", "second.weight", "second.bias", "tied.bias",
    }  # fmt: skip
    inside = external("external_xnnpack").weights
    pairs = compare_weights(weights, inside)
    assert {change.status for change in pairs} <= {"moved", "unchanged"}
    assert len(pairs) == len(weights)


def test_weights_in_a_ptd_file_count(tmp_path: Path) -> None:
    """Weights that move out of a program into its .ptd are not lost."""
    made = artifacts("external_portable")
    ships = made.pte.stat().st_size + made.extra("weights.ptd").stat().st_size
    inside, outside = side("cnn_portable"), external("external_portable")
    found = diff_programs(inside, outside)
    assert sum(one.before for one in found.sizes) == inside.size == inside.program.source.size
    assert sum(one.after for one in found.sizes) == outside.size == ships
    kinds = {one.kind: one.after for one in found.sizes}
    assert kinds["weights in .ptd files"] == 608
    facts = {one.what: (one.before, one.after) for one in found.facts}
    told = "5, only here: first.bias, first.weight, second.bias and 2 more"
    assert facts["weights in a .ptd file"] == ("0", told)
    size = program_diff_report(found).section("size").table
    assert size.values["kind"][0] == "files" and size.values["after"][0] == ships
    without = diff_programs(inside, replace(outside, data=()))
    size = program_diff_report(without).section("size").table
    assert "Not counted: 5 weights of external_portable.pte in a .ptd file (--data)." in size.notes


# -- quantized against float weights


@pytest.mark.parametrize("with_records", [True, False])
@pytest.mark.parametrize("back", [False, True], ids=["to int8", "to float"])
def test_quantized_weights_are_compared_with_the_floats(with_records: bool, back: bool) -> None:
    """The quantizer's rule gives the error: the scale is the largest value by 127."""
    names = ["cnn_xnnpack", "cnn_xnnpack_int8"]
    found = diff(*(reversed(names) if back else names), with_records=with_records)
    quantized = [one for one in found.weights if one.is_quantized]
    assert Counter(one.status for one in quantized) == {"changed": 14}
    for change in quantized:
        sides = [one for one in (change.before, change.after) if one is not None]
        exact, rounded = sorted(sides, key=lambda one: not one.is_float)
        if rounded.tensor.dtype != "int8":
            assert change.sqnr > 80  # a bias of 32 bits
            continue
        numbers = exact.elements.astype(np.float64)
        scale = np.abs(numbers).max() / 127
        error = np.linalg.norm(numbers - np.round(numbers / scale) * scale)
        expected = 20 * np.log10(np.linalg.norm(numbers) / error)
        assert change.sqnr == pytest.approx(expected, abs=0.1)
    (said,) = (text for text in program_diff_report(found).summary if "quantized" in text)
    least = min(one.sqnr for one in quantized if one.sqnr is not None)
    assert said.startswith(f"14 weights are quantized on one side: SQNR at least {least:.1f} dB (")


def test_integers_whose_scale_is_not_known_are_said_to_be_so() -> None:
    floats, integers = side("cnn_xnnpack"), side("cnn_xnnpack_int8")
    unknown = [replace(one, tensor=replace(one.tensor, quantized=None)) for one in integers.weights]
    changes = [one for one in compare_weights(floats.weights, unknown) if one.is_quantized]
    assert [one.sqnr for one in changes] == [None] * 14
    assert all(weight_sentence(one).endswith("quantized: scale not known") for one in changes)


@pytest.mark.parametrize("axis", [0, 3])
def test_each_channel_has_its_scale(axis: int) -> None:
    (weight, *_) = (one for one in side("cnn_xnnpack_int8").weights if len(one.tensor.shape) == 4)

    def dequantized(scales: tuple[float, ...] | Span, zero_point: int, axis: int) -> Any:
        quantized = Quantized(scales, zero_point, axis)
        return replace(weight, tensor=replace(weight.tensor, quantized=quantized)).dequantized

    shape = weight.tensor.shape
    scales = tuple(0.5 + np.arange(shape[axis], dtype=np.float32))
    along = [-1 if number == axis else 1 for number in range(4)]
    expected = (weight.elements.reshape(shape) - 3.0) * np.reshape(scales, along)
    np.testing.assert_allclose(dequantized(scales, 3, axis), expected.reshape(-1))
    for wrong in ((scales[1:], 3, axis), (scales, 3, 4), (scales, 3, -1)):
        assert dequantized(*wrong) is None
    # Scales that are bytes of the file.
    span = Span(weight.tensor.span.offset, 4 * shape[0])
    held = np.frombuffer(weight.held_in.source.buffer, np.float32, shape[0], span.offset)
    found = dequantized(span, 0, 0)
    assert found is not None
    np.testing.assert_array_equal(found, dequantized(tuple(held.tolist()), 0, 0))
