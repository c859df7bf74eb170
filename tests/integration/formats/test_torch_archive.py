"""Tensors of torch.save files and of plain pickles, against torch; and what must be refused."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

from etscope.errors import FormatError
from etscope.formats.torch_files import pickle_reader, torch_archive
from etscope.formats.torch_files.torch_archive import FakeTensor, fake_tensors, read_tensors
from tests.support.etrecord_files import members_of, zip_bytes

DTYPES = [
    *("uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64", "bool"),
    *("float16", "float32", "float64", "bfloat16", "complex64", "complex128"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
]


def saved(value: Any) -> memoryview:
    torch = pytest.importorskip("torch")
    stream = io.BytesIO()
    torch.save(value, stream)
    return memoryview(stream.getvalue())


def pickled(value: Any, protocol: int = 4) -> memoryview:
    return memoryview(pickle.dumps(value, protocol=protocol))


def bits(value: Any) -> tuple[str, tuple[int, ...], bytes]:
    """Type, shape and bytes in order of a tensor or an array."""
    if isinstance(value, np.ndarray):
        return value.dtype.name, value.shape, value.tobytes()
    torch = pytest.importorskip("torch")
    content = value.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    return str(value.dtype).removeprefix("torch."), tuple(value.shape), content


@pytest.mark.parametrize("write", [saved, pickled])
def test_every_type_with_strides_and_offsets(write: Any) -> None:
    torch = pytest.importorskip("torch")
    for dtype in DTYPES:
        tensor = (torch.arange(24).reshape(2, 3, 4) % 2).to(getattr(torch, dtype))
        views = [tensor, tensor.transpose(0, 2), tensor[1:, :, 1::2]]
        for array, view in zip(read_tensors(write(views)), views, strict=True):
            assert bits(array) == bits(view)


def test_tensors_keep_strides_share_storage_and_are_views_of_the_file() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.rand(1, 3, 2, 2).contiguous(memory_format=torch.channels_last)
    array = read_tensors(saved(tensor))
    assert array.strides == tuple(4 * step for step in tensor.stride())
    tensor = torch.arange(1000.0)
    whole, half = read_tensors(saved([tensor, tensor[500:]]))
    assert np.shares_memory(whole, half) and not whole.flags.writeable
    assert read_tensors(saved(torch.zeros(0, 3))).shape == (0, 3)
    expanded = read_tensors(saved(torch.ones(3).expand(5, 3)))
    assert expanded.shape == (5, 3) and expanded.strides[0] == 0
    assert read_tensors(saved(torch.tensor(3.0))).shape == ()
    members = members_of(bytes(saved(torch.arange(5))))
    deflated = memoryview(zip_bytes(members, zipfile.ZIP_DEFLATED))
    assert read_tensors(deflated).tolist() == [0, 1, 2, 3, 4]


def test_values_that_are_no_tensors() -> None:
    value = {
        "a": [(1, -7, 2.5, None, True, False, "ü", 2**40, -(2**70)), [], {}, ()],
        3: {"nested": [[[1]]]},
        "many": list(range(2000)),
        "same": ["x" * 300] * 3,
    }
    for data in (saved(value), *(pickled(value, protocol) for protocol in (2, 3, 4, 5))):
        assert read_tensors(data) == value


def test_state_dicts_of_modules() -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    module[0].weight.attribute = "tagged"
    parameters = OrderedDict(module.named_parameters())
    for weights in (module.state_dict(), parameters, dict(parameters)):
        read = read_tensors(saved(weights))
        expected = {key: bits(value) for key, value in weights.items()}
        assert {key: bits(value) for key, value in read.items()} == expected


def test_fake_tensors_are_described() -> None:
    torch = pytest.importorskip("torch")
    serde = pytest.importorskip("executorch.exir.serde.export_serialize")
    with torch._subclasses.FakeTensorMode():
        fake = torch.empty(2, 5, dtype=torch.float16)
    data = memoryview(serde.serialize_torch_artifact({"w": fake, "list": [fake]}))
    content = read_tensors(data)
    assert isinstance(content["w"], FakeTensor)
    assert (content["w"].dtype, content["w"].shape) == ("float16", (2, 5))
    assert len(fake_tensors(data)) == 2
    assert fake_tensors(saved({"w": torch.ones(1)})) == []


# -- what must be refused


class Evil:
    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        return self.call[0], self.call[1:]


def test_other_values_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    evil = [Evil(exec, "raise SystemExit"), Evil(print, "called"), {"a": [Evil(eval, "1")]}]
    for value in (*evil, {1, 2}, bytearray(b"1"), slice(1), object, np.arange(3)):
        for protocol in (0, 2, 4):
            with pytest.raises(FormatError, match="not allowed"):
                read_tensors(pickled(value, protocol))
    for value in (torch.eye(2).to_sparse(), torch.nn.Linear(2, 2)):
        with pytest.raises(FormatError, match="not allowed"):
            read_tensors(saved(value))
    assert capsys.readouterr().out == ""


def test_names_do_not_lead_from_allowed_modules_elsewhere() -> None:
    for name in ("load", "nn.Module", "os.system", "FloatStorage.__init__", "hub"):
        data = b"\x80\x02ctorch\n" + name.encode() + b"\n."
        with pytest.raises(FormatError, match="not allowed"):
            read_tensors(memoryview(data))


BROKEN = [
    *(b"", b"\x80", b"\x80\x02", b"\x80\x02(.", b"\x80\x02u.", b"\x80\x02}]a."),
    *(b"\x80\x02]K\x01b.", b"\x80\x02NNR.", b"\x80\x02ctorch\nFloatStorage\n)R."),
    b"\x80\x02.",  # nothing to give back
    b"\x80\x02N",  # no end
    b"\x80\x02]h\x05.",  # refers to what is not there
    b"\x80\x02}(K\x01u.",  # a key without a value
    b"\x80\x02](K\x01K\x02u.",  # items of a list
    b"\x80\x02}]K\x01s.",  # a list for a key
    *(b"\x80\x02ctorch", b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n)R."),
    *(b"\x80\x02X\xff\xff\xff\xff.", b"\x80\x04\x8e" + b"\xff" * 8 + b"."),  # longer than the file
    b"\x80\x02X\x01\x00\x00\x00\xff.",  # not UTF-8
    *(b"\x80\x02c" + b"a" * 1000 + b"\n.", b"\x80\x02I1\n.", b"\x80\x02(i."),
]


@pytest.mark.parametrize("data", BROKEN, ids=range(len(BROKEN)))
def test_broken_pickles(data: bytes) -> None:
    with pytest.raises(FormatError):
        read_tensors(memoryview(data))


def test_values_of_little_text_and_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_tensors(memoryview(b"\x80\x02]r\xff\xff\xff\x7f.")) == []  # a large memo index
    loop: list[Any] = []
    loop.append([loop])
    with pytest.raises(FormatError, match="contains itself"):
        read_tensors(pickled(loop))
    value: list[Any] = [1]
    for _ in range(60):
        value = [value, value]
    with pytest.raises(FormatError, match="more than 20,000,000 values"):
        read_tensors(pickled(value))
    lists = b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b"."
    tuples = b"\x80\x02)" + b"\x85" * 100_000 + b"."
    for data in (lists, tuples):
        with pytest.raises(FormatError, match="deeper than 200"):
            read_tensors(memoryview(data))
    monkeypatch.setattr(pickle_reader, "MAX_OPCODES", 100)
    with pytest.raises(FormatError, match="more than 100 opcodes"):
        read_tensors(memoryview(b"\x80\x02(" + b"N" * 200 + b"t."))


def tensor_pickle(size: tuple[int, ...], stride: tuple[int, ...], offset: int = 0) -> bytes:
    """data.pkl of one float tensor on the storage "0"."""
    head = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(("

    def number(value: int) -> bytes:
        return b"\x8a\x09" + value.to_bytes(9, "little", signed=True)

    def text(value: str) -> bytes:
        return b"X" + struct.pack("<I", len(value)) + value.encode()

    pid = text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu") + number(4) + b"tQ"
    sizes = b"(" + b"".join(map(number, size)) + b"t"
    strides = b"(" + b"".join(map(number, stride)) + b"t"
    return head + pid + number(offset) + sizes + strides + b"\x89NtR."


def tensor_file(*args: Any, storage: bytes = b"\0" * 16, **members: bytes) -> memoryview:
    content = {"archive/data.pkl": tensor_pickle(*args), "archive/data/0": storage}
    return memoryview(zip_bytes({**content, **members}))


@pytest.mark.parametrize(
    ("size", "stride", "offset"),
    [
        *(((5,), (1,), 0), ((4,), (1,), 1), ((2, 2), (3, 1), 0), ((4,), (2,), 0)),
        *(((1 << 47,), (1,), 0), ((1 << 47, 1 << 47), (0, 0), 0)),
        ((1 << 30,), (0,), 0),  # one element, repeated
        *(((-1,), (1,), 0), ((2,), (-1,), 1), ((2,), (1,), -1)),
        *(((2, 2), (1,), 0), ((1,) * 40, (0,) * 40, 0)),
    ],
)
def test_tensors_outside_of_their_storage(
    size: tuple[int, ...], stride: tuple[int, ...], offset: int
) -> None:
    assert read_tensors(tensor_file((2, 2), (2, 1))).tolist() == [[0, 0], [0, 0]]
    with pytest.raises(FormatError):
        read_tensors(tensor_file(size, stride, offset))


def test_archives_that_lack_something_or_have_too_much() -> None:
    alone = {"archive/data.pkl": tensor_pickle((2,), (1,))}
    for data, message in (
        (tensor_file((2,), (1,), storage=b"\0" * 15), "shorter than declared"),
        (memoryview(zip_bytes(alone)), "missing"),
        (tensor_file((2,), (1,), **{"archive/byteorder": b"big"}), "big-endian"),
        (tensor_file((2,), (1,), **{"archive/byteorder": b""}), "big-endian"),
        (memoryview(zip_bytes({"archive/version": b"3"})), "found 0"),
        (tensor_file((2,), (1,), **{"other/data.pkl": b"\x80\x02N."}), "found 2"),
    ):
        with pytest.raises(FormatError, match=message):
            read_tensors(data)


def test_every_allowed_function_refuses_nonsense() -> None:
    for module, name in torch_archive._FUNCTIONS:
        for arguments in (b")", b"N\x85", b"(NNNNNNNt", b"(K\x01K\x01))\x89NNt"):
            call = f"c{module}\n{name}\n".encode() + arguments + b"R."
            try:
                value = read_tensors(memoryview(b"\x80\x02" + call))
            except FormatError:
                continue
            assert value in (None, 1, {}), name
