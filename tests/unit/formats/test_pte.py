from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etscope.errors import FormatError, MissingDataError, UsageError, VersionError
from etscope.formats.identify import identify
from etscope.formats.program.pte import program_fingerprint, read_pte
from etscope.formats.program.pte_schema import (
    Allocation,
    DelegateCall,
    Frame,
    FreeCall,
    JumpFalseCall,
    KernelCall,
    ListValue,
    MoveCall,
    Operator,
    ScalarValue,
    ShapeDynamism,
    TensorValue,
    ValueKind,
)
from etscope.formats.program.scalar_type import ScalarType
from tests.support.artifacts import artifacts
from tests.support.etrecord_files import zip_bytes
from tests.support.formats.handmade import (
    Number,
    Raw,
    build,
    integer,
    ints,
    method,
    pte_file,
    tensor,
    tensor_list,
)

WEIGHT = np.arange(6, dtype=np.float32)


def with_constant(*sizes: int, data: bytes, offsets: Sequence[int] = (0, 0), **more: Any) -> bytes:
    """A program with one constant in a segment, behind the placeholder number 0."""
    return pte_file(
        method([tensor(*sizes, data_index=1, **more)]),
        segments=[data],
        more={5: {0: Number("I", 0), 1: Number("Q", offsets)}},
    )


def with_weight(**more: Any) -> bytes:
    return with_constant(2, 3, data=bytes(16) + WEIGHT.tobytes(), offsets=[0, 16], **more)


def with_value(content: dict[int, Any] | None) -> bytes:
    """A program of one tensor, of which the file says this."""
    return pte_file({**method([]), 2: [{0: Number("B", 5), 1: content}]})


def segment(offset: int, size: int) -> dict[int, Any]:
    return {0: Number("Q", offset), 1: Number("Q", size)}


# -- what a file says


def test_a_method_is_what_was_written() -> None:
    values = [
        tensor(2, 3, at=(1, 64)),
        integer(-4),
        ScalarValue(ValueKind.BOOL, True),
        ScalarValue(ValueKind.DOUBLE, 0.5),
        ScalarValue(ValueKind.STRING, "tanh"),
        ScalarValue(ValueKind.NULL, None),
        ListValue(ValueKind.INT_LIST, (1, 1)),
        ListValue(ValueKind.DOUBLE_LIST, (0.5, 2.0)),
        ListValue(ValueKind.BOOL_LIST, (True, False)),
        tensor_list(0, 0),
        ListValue(ValueKind.OPTIONAL_TENSOR_LIST, (-1, 0)),
        tensor(4, at=(2, 0), dynamism=ShapeDynamism.DYNAMIC_BOUND),
    ]
    calls = [KernelCall(0, (0, 1, 11, 11)), DelegateCall(0, (0, 11))]
    instructions = [*calls, MoveCall(0, 11), JumpFalseCall(2, 5), FreeCall(0)]
    made = method(
        values,
        instructions,
        name="decode",
        inputs=[0],
        outputs=[11],
        operators=["aten::add.out"],
        delegates=[("Backend", 0, 0)],
        buffer_sizes=[0, 512, 64],
    )
    program = read_pte(pte_file(made, more={3: [{0: b"blob"}]}))
    found = program.method("decode")
    assert found.values == tuple(values)
    assert found.instructions == tuple(instructions)
    assert found.operators == (Operator("aten::add", "out"),)
    assert found.operators[0].full_name == "aten::add.out"
    assert (found.inputs, found.outputs) == ((0,), (11,))
    assert found.buffer_sizes == (0, 512, 64)
    assert program.delegate_blob("decode", 0) == b"blob"
    assert program.header is None


def test_a_tensors_places_and_sizes() -> None:
    activation = tensor(2, 3, at=(1, 2**31))
    assert activation.allocation == Allocation(1, 2**31)
    assert not activation.is_constant
    assert activation.nbytes == 24
    assert str(activation) == "float32[2, 3]"
    bounded = tensor(8, 4, dynamism=ShapeDynamism.DYNAMIC_BOUND)
    assert str(bounded) == "float32[<=8, 4]"
    assert bounded.nbytes == 128
    assert tensor(8, dynamism=ShapeDynamism.DYNAMIC_UNBOUND).nbytes is None
    assert tensor(5, scalar_type=ScalarType.QUINT4X2).nbytes == 3
    assert tensor().nbytes == 4
    assert tensor(3, data_index=1).is_constant
    assert tensor(3, data_index=1).has_data
    state = tensor(3, data_index=1, at=(1, 0))
    assert not state.is_constant
    assert state.has_data
    assert tensor(3, external=True).is_constant
    assert not tensor(3, external=True).has_data


def test_large_offsets_and_unknown_devices() -> None:
    place = {0: Number("I", 1), 1: Number("I", 5), 2: Number("I", 3)}
    extra = {3: Number("b", 9), 4: Number("b", 2)}
    value = {0: Number("b", 6), 2: ints(2), 3: bytes([0]), 6: place, 9: extra}
    (found,) = read_pte(with_value(value)).methods[0].values
    assert isinstance(found, TensorValue)
    assert found.allocation == Allocation(1, (3 << 32) + 5)
    assert found.device == "device9:2"


def test_stack_traces() -> None:
    frames = [
        {0: "model.py", 1: Number("i", 12), 2: "forward", 3: "return self.fc(x)"},
        {0: "fc.py", 1: Number("i", 3), 2: "forward", 3: "return x + 1"},
    ]
    moves = [MoveCall(0, 0), MoveCall(0, 0)]
    made = method([integer(1)], moves, stacktrace=[{0: frames}, {0: []}])
    program = read_pte(pte_file(made))
    assert program.stack_traces("forward") == (
        (
            Frame("model.py", 12, "forward", "return self.fc(x)"),
            Frame("fc.py", 3, "forward", "return x + 1"),
        ),
        (),
    )
    assert read_pte(with_weight()).stack_traces("forward") == ()


# -- data


def test_a_constant_is_a_view_of_the_file() -> None:
    data = with_weight()
    view = read_pte(data).constant("forward", 0)
    np.testing.assert_array_equal(view, WEIGHT.reshape(2, 3))
    assert np.shares_memory(view, np.frombuffer(data, np.uint8))
    with pytest.raises(ValueError, match="read-only"):
        view[0, 0] = 1
    turned = read_pte(with_weight(dim_order=(1, 0))).constant("forward", 0)
    np.testing.assert_array_equal(turned, WEIGHT.reshape(3, 2).T)
    assert turned.strides == (4, 8)


def test_constants_in_the_tables_of_old_files_and_initial_states() -> None:
    blobs = [{0: b""}, {0: WEIGHT.tobytes()}]
    old = read_pte(pte_file(method([tensor(2, 3, data_index=1)]), more={2: blobs}))
    assert old.header is None
    mutable = pte_file(
        method([tensor(2, 3, data_index=1, at=(1, 0))]),
        segments=[b"", WEIGHT.tobytes()],
        more={6: [{0: Number("I", 1), 1: Number("Q", [0, 0])}]},
    )
    for program in (old, read_pte(mutable)):
        np.testing.assert_array_equal(program.constant("forward", 0), WEIGHT.reshape(2, 3))


def test_types_without_a_numpy_type_and_packed_ones() -> None:
    data = with_constant(2, data=b"\x80\x3f\x00\x40", scalar_type=ScalarType.BFLOAT16)
    view = read_pte(data).constant("forward", 0)
    assert view.dtype.name == "bfloat16"
    assert view.astype(np.float32).tolist() == [1.0, 2.0]
    packed = with_constant(3, data=b"\x21\x03", scalar_type=ScalarType.QUINT4X2)
    assert read_pte(packed).constant("forward", 0).tolist() == [0x21, 0x03]  # its bytes


def test_a_constant_outside_of_its_segment() -> None:
    """Refused before anything of its size is allocated."""
    for data, message in (
        (with_constant(2, 3, data=WEIGHT.tobytes(), offsets=[0, 1000]), "needs 24 bytes"),
        (with_constant(2, 3, data=WEIGHT.tobytes(), offsets=[0]), "tensor data 1 does not exist"),
        (with_constant(*[2**31 - 1] * 4, data=b"few"), "needs 85,070,591,"),
    ):
        with pytest.raises(FormatError, match=message):
            read_pte(data).constant("forward", 0)


def test_what_is_not_there() -> None:
    program = read_pte(pte_file(method([], name="encode"), method([], name="decode")))
    with pytest.raises(MissingDataError, match="not have a method 'forward'") as caught:
        program.method("forward")
    assert "encode, decode" in str(caught.value)
    program = read_pte(pte_file(method([tensor(2, at=(1, 0)), integer(3)])))
    with pytest.raises(MissingDataError, match="when the program runs"):
        program.constant("forward", 0)
    for value in (1, 2, -1):
        with pytest.raises(UsageError, match="is not a tensor"):
            program.constant("forward", value)
    with pytest.raises(UsageError, match="has 0 delegates"):
        program.delegate_blob("forward", 0)
    with pytest.raises(VersionError, match="etscope reads ET12"):
        read_pte(b"\0\0\0\0ET11" + bytes(64))


def test_named_data_and_delegates_in_segments() -> None:
    named = {7: [{0: "key", 1: Number("I", 0)}]}
    made = method([], delegates=[("Backend", 1, 1)])
    program = read_pte(pte_file(made, segments=[b"weights", b"graph"], more=named))
    [entry] = program.named_data
    assert (entry.key, program.blob(entry.blob)) == ("key", b"weights")
    assert program.delegate_blob("forward", 0) == b"graph"


def test_a_real_file_is_mapped_and_not_read() -> None:
    path = artifacts("cnn_xnnpack").pte
    program = read_pte(path)
    data = path.read_bytes()
    blob = program.delegate_blob("forward", 0)
    assert bytes(blob) in data
    assert blob.readonly
    assert type(program.source.buffer.obj).__name__ == "mmap"
    assert program.methods[0].delegates[0].backend_id == "XnnpackBackend"


def test_the_fingerprint_is_of_all_bytes(tmp_path: Path) -> None:
    data = with_weight()
    path = tmp_path / "model.pte"
    path.write_bytes(data)
    assert program_fingerprint(path) == hashlib.sha256(data).hexdigest()
    assert program_fingerprint(data) == program_fingerprint(path)
    assert program_fingerprint(data[:-1] + b"\0") != program_fingerprint(data)


# -- what is wrong with a file


def with_header(length: int, program: int = 0, base: int = 0, size: int = 0) -> bytes:
    header = struct.pack("<4sIQQQ", b"eh00", length, program, base, size)
    return pte_file(method([]), segments=[b"data"], header=header)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"ET", "not an ExecuTorch program"),
        (b"\0\0\0\0BP08" + bytes(40), "this is a bundled program"),
        (b"\0\0\0\0ED00" + bytes(40), "this is an ETDump"),
        (b"\x40\0\0\0\0\0\0\0ED00" + bytes(40), "this is an ETDump"),
        (b"\0\0\0\0FT01" + bytes(40), "external tensors of a program"),
        (b"\x80\x04\x95" + bytes(40), "a Python pickle, which etscope never loads"),
        (b'{"a": 1}' + bytes(40), "JSON"),
        (b"\x7fELF" + bytes(40), "ELF"),
        (bytes(64), "begins with zeros"),
        (b"nonsense" * 8, "6e 6f 6e 73 65 6e 73 65, do not match a known format"),
        (b"\xff\xff\xff\xffET12" + bytes(40), "points to byte"),
        (build({0: Number("I", 0)}, b"ET12"), "without methods"),
        (with_header(8), "8 bytes is too short"),
        (with_header(32, 10**6), "tables end at byte 1,000,000"),
        (with_header(32, 64, 2**60, 2**60), "segments end at byte"),
        (with_weight()[:-1], "its segments end at byte"),
        (pte_file(method([]), more={4: [segment(0, 5)]}), "the extended header that locates it"),
        (pte_file(method([]), segments=[b"x"], more={4: [segment(9, 9)]}), "segment 0 is bytes"),
        (pte_file(method([]), more={7: [{1: Number("I", 3)}]}), "segment 3 does not exist"),
        (pte_file(method([]), more={5: {1: Number("Q", [0])}}), "segment 0 does not exist"),
        (pte_file({**method([]), 2: [{0: Number("B", 12), 1: {}}]}), "unknown kind of value 12"),
        (with_value(None), "a kind but no content"),
        (pte_file(method([tensor(*[1] * 33)])), "a tensor has 33 dimensions"),
        (pte_file(method([tensor(-1)])), r"has the negative size \[-1\]"),
        (pte_file(method([tensor(2, dim_order=(0, 1))])), "is not an order of 1 dimensions"),
        (pte_file(method([tensor(2, 2, dim_order=(0, 0))])), "is not an order of 2 dimensions"),
        (with_value({0: Number("b", 99)}), "unknown scalar type 99"),
        (with_value({8: Number("b", 3)}), "unknown shape dynamism 3"),
        (pte_file(method([tensor_list(1)])), "a list names value 1, but there are 1"),
        (pte_file(method([tensor_list(-1)])), "a list names value -1"),
        (pte_file(method([integer(0)], inputs=[1])), "an index names value 1"),
        (pte_file(method([], [KernelCall(0, ())])), "names operator 0, but there are 0"),
        (pte_file(method([], [KernelCall(0, (0,))], operators=["a::b"])), "an index names value 0"),
        (pte_file(method([], [DelegateCall(0, ())])), "names delegate 0, but there are 0"),
        (pte_file(method([integer(0)], [MoveCall(0, 7)])), "names value 7"),
        (pte_file(method([integer(0)], [JumpFalseCall(0, 2)])), "a jump goes to instruction 2"),
        (pte_file(method([integer(0)], [JumpFalseCall(0, -1)])), "a jump goes to instruction -1"),
        (pte_file({**method([]), 5: [{2: [{0: Number("B", 9), 1: {}}]}]}), "instruction 9"),
        (pte_file({**method([]), 5: [{2: [{0: Number("B", 1)}]}]}), "kind of instruction 1"),
        (pte_file(method([], delegates=[("B", 0, 0)])), "names blob 0, but there are 0"),
        (pte_file({**method([]), 7: [{0: "B"}]}), "a delegate without data"),
        (pte_file({**method([]), 0: "caf\udce9"}), "not UTF-8"),
        (pte_file({**method([]), 2: Raw(2**31)}), "points to byte"),
    ],
)
def test_a_broken_file_says_what_is_wrong(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.pte"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=message) as caught:
        read_pte(path)
    assert str(path) in str(caught.value)


# -- which format


def test_identify_artefacts() -> None:
    found = artifacts("bundled")
    for kind in ("pte", "bpte", "etdump", "etrecord"):
        path = getattr(found, kind)
        assert identify(path) == identify(str(path)) == identify(path.read_bytes()) == kind


def test_identify_says_what_else_a_file_is(tmp_path: Path) -> None:
    other = zip_bytes({"readme": b"hello"})
    for data, message in (
        (zip_bytes({"model/data.pkl": b""}), "archive of torch.save"),
        (other, "without the member ETRECORD_V0"),
        (other[:40], "damaged"),
    ):
        (tmp_path / "file").write_bytes(data)
        with pytest.raises(FormatError, match=message) as caught:
            identify(tmp_path / "file")
        assert str(tmp_path / "file") in str(caught.value)
