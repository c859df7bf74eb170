"""The reader of XNNPACK's operators in a delegate's data."""

from __future__ import annotations

import itertools
import random

import pytest

from etscope.errors import FormatError
from etscope.formats.program.pte import read_pte
from etscope.formats.program.xnnpack import XnnNode, is_xnnpack, read_xnnpack
from tests.support.artifacts import artifacts
from tests.support.fuzz import fuzzed


@pytest.fixture(scope="module")
def data() -> bytes:
    return bytes(read_pte(str(artifacts("cnn_xnnpack").pte)).delegate_blob("forward", 0))


def test_operators_in_order(data: bytes) -> None:
    nodes = read_xnnpack(memoryview(data))
    assert [node.kind for node in nodes] == [
        "StaticTranspose", "Conv2d", "Conv2d", "Conv2d", "Add", "Conv2d", "Conv2d", "Conv2d", "Add",
        "AvgPooling2d", "StaticTranspose", "StaticReshape", "FullyConnected", "Softmax",
    ]  # fmt: skip
    assert nodes[0] == XnnNode("StaticTranspose", None)
    assert nodes[1] == XnnNode("Conv2d", 1, clamped=True)
    assert [node.debug_handle for node in nodes[2:5]] == [4, 7, 10]
    # The same without a header.
    offset, size = (int.from_bytes(data[at : at + 4], "little") for at in (10, 14))
    assert read_xnnpack(memoryview(data)[offset : offset + size]) == nodes


def test_conversions_and_types_of_what_is_quantized() -> None:
    program = read_pte(str(artifacts("cnn_xnnpack_int8").pte))
    nodes = read_xnnpack(program.delegate_blob("forward", 0))
    ways = [node.quantizes for node in nodes if node.kind == "Convert"]
    assert ways == [True, False, True, False]
    assert not any(node.quantizes for node in nodes if node.kind != "Convert")
    (dtypes,) = {tuple(v.dtype for v in n.inputs) for n in nodes if n.kind == "Conv2d"}
    assert dtypes == ("int8", "int8", "int32")
    first = next(node for node in nodes if node.kind == "Convert")
    assert [first.inputs[0].dtype, first.outputs[0].dtype] == ["float32", "int8"]


def test_types_and_shapes_of_what_operators_read_and_write(data: bytes) -> None:
    nodes = read_xnnpack(memoryview(data))
    told = {node.kind: ([*map(str, node.inputs)], [*map(str, node.outputs)]) for node in nodes}
    images, linear = told["StaticTranspose"], told["FullyConnected"]
    assert all(node.inputs and node.outputs for node in nodes)
    # What one operator writes, a later one reads.
    for node, following in itertools.pairwise(nodes[:4]):
        assert node.outputs[0] in following.inputs
    assert sorted(nodes[0].inputs[0].sizes) == sorted(nodes[0].outputs[0].sizes)
    assert images[0][0].startswith("float32[")
    (before, weight, bias), (after,) = (
        [text.partition("[")[2].strip("]").split(", ") for text in texts] for texts in linear
    )
    assert weight == [after[-1], before[-1]] and bias == [after[-1]]


def test_other_data_is_not_xnnpack(data: bytes) -> None:
    assert is_xnnpack(memoryview(data))
    for other in (b"", b"XH00", bytes(100), b"1234VK00" + bytes(90)):
        assert not is_xnnpack(memoryview(other))
        with pytest.raises(FormatError):
            read_xnnpack(memoryview(other))
    for at in (10, 14):
        broken = bytearray(data)
        broken[at : at + 4] = b"\xff\xff\xff\x7f"
        with pytest.raises(FormatError, match="operators"):
            read_xnnpack(memoryview(broken))


@fuzzed(1000, nightly=100_000)
def test_cut_off_and_changed_data_is_an_error_or_an_answer(
    data: bytes, seed: int, count: int
) -> None:
    end = int.from_bytes(data[10:14], "little") + int.from_bytes(data[14:18], "little")
    refused = 0
    for length in range(0, end, 97):
        with pytest.raises(FormatError):
            read_xnnpack(memoryview(data)[:length])
    chance = random.Random(seed)
    for _ in range(count):
        broken = bytearray(data[:end])
        for _ in range(chance.randint(1, 4)):
            broken[chance.randrange(30, len(broken))] = chance.randrange(256)
        try:
            nodes = read_xnnpack(memoryview(broken))
        except FormatError:
            refused += 1
        else:
            assert len(nodes) <= len(broken)
    assert refused > count / 20
