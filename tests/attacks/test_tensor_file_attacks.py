"""Hostile files of tensors: arrays or an error of etscope, in bounded time and memory, and nothing
that they hold ever runs."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import struct
import zipfile
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etscope.errors import EtscopeError, FormatError
from etscope.formats.torch_files.tensor_files import read_tensor_file
from tests.attacks.hostile import MIB, Call, little_memory
from tests.attacks.mutations import (
    Mutation,
    attack,
    cut_out,
    flip,
    limited,
    mutated,
    number,
    truncate,
)
from tests.support.etrecord_files import members_of, zip_bytes
from tests.support.fuzz import fuzzed

WORDS = (
    *(b"-1", b"0", b"1", b"99999999999", b"true", b"null", b"{}", b"[]", b'"', b"'", b"("),
    b"\xe9",
)


def word(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    """A number of the text at the file's head (of NumPy's and safetensors' headers) changes."""
    digits = [i for i in range(min(len(data), 600)) if 0x30 <= data[i] <= 0x39]
    if digits:
        place = rng.choice(digits)
        data[place : place + 1] = rng.choice(WORDS)


MUTATIONS: tuple[Mutation, ...] = (flip, truncate, cut_out, number, word)


def damaged(rng: random.Random, files: Sequence[bytes]) -> bytes:
    """A changed file; of a zip file mostly the members are changed, and packed in order again."""
    data = rng.choice(files)
    if data.startswith(b"PK") and rng.random() < 0.8:
        members = members_of(data)
        name = rng.choice(list(members))
        members[name] = mutated(rng, [members[name]], MUTATIONS)
        return zip_bytes(members)
    return mutated(rng, [data], MUTATIONS)


def touch(path: Path) -> None:
    for value in read_tensor_file(path).values:
        if isinstance(value, np.ndarray) and value.size:
            value[(-1,) * value.ndim].item()
            assert not value.flags.writeable
            assert value.nbytes < 100 * MIB


def good_files(folder: Path) -> list[bytes]:
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors.torch")
    tensors = {"x": torch.ones(2, 3), "y.1": torch.ones(4).to(torch.bfloat16), "n": torch.tensor(3)}
    arrays = {name: np.ones((2, 3), name) for name in ("float32", "int64", "bool")}
    safetensors.save_file(tensors, folder / "a.safetensors")
    np.savez(folder / "a.npz", **arrays)
    np.savez_compressed(folder / "b.npz", **arrays)
    np.save(folder / "a.npy", arrays["float32"])
    torch.save(tensors, folder / "a.pt")
    torch.save([tensors["x"].t(), (2, 3.5, None), tensors["n"]], folder / "b.pt")
    return [path.read_bytes() for path in sorted(folder.iterdir())]


@fuzzed(1500, nightly=40_000)
def test_mutated_files(seed: int, count: int, tmp_path: Path) -> None:
    files = good_files(tmp_path)
    path = tmp_path / "mutated"

    def touch_bytes(data: bytes) -> None:
        path.unlink(missing_ok=True)  # to shorten a mapped file would end this process
        path.write_bytes(data)
        touch(path)

    for data in files:
        touch_bytes(data)
    attack(seed, count, lambda rng: damaged(rng, files), touch_bytes)


HEADS = (b"\x93NUMPY\1\0", b"PK\3\4", b"PK\5\6", b"\x80\4", struct.pack("<Q", 40) + b'{"')


@given(st.binary(max_size=200), st.sampled_from(HEADS))
def test_any_bytes_behind_a_known_beginning(rest: bytes, head: bytes) -> None:
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"etscope-any-bytes-{os.getpid()}"
    path.write_bytes(head + rest)
    try:
        with suppress(EtscopeError):
            touch(path)
    finally:
        path.unlink()


# -- small files that stand for large ones


def refused_in_little_memory(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    limit = 16 * MIB + 100 * len(data)
    with little_memory(limit), limited(), pytest.raises(FormatError) as caught:
        read_tensor_file(path)
    return str(caught.value)


def npy(shape: str, dtype: str = "<f4", data: bytes = b"") -> bytes:
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header = header.ljust(117) + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + data


@pytest.mark.parametrize(
    "data",
    [
        npy("(1 << 40,)"),
        npy("(1000000000000,)"),
        npy("(4611686018427387904, 4)"),
        npy("(0, 4611686018427387904, 4611686018427387904)"),
        npy(str((1,) * 70)),
        npy("(" * 40 + ")" * 40),
        npy("(-1, -4)", data=bytes(16)),
        npy("(4,)", "|O", bytes(32)),
        npy("(4,)", "|V0", bytes(32)),
        npy("(2,)", "<f4')] + [('a', '<f4", bytes(32)),
    ],
)
def test_arrays_that_claim_too_much(data: bytes, tmp_path: Path) -> None:
    refused_in_little_memory(tmp_path / "a.npy", data)
    refused_in_little_memory(tmp_path / "a.npz", zip_bytes({"x.npy": data}))


def deflated(name: str, blocks: int) -> bytes:
    """A zip file with a member of so many MiB of zeros after an array's header."""
    stream = io.BytesIO()
    with (
        zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open(name, "w", force_zip64=True) as member,
    ):
        member.write(npy(f"({blocks << 18},)"))
        for _ in range(blocks):
            member.write(bytes(MIB))
    return stream.getvalue()


def test_a_bomb_of_zeros(tmp_path: Path) -> None:
    data = deflated("x.npy", 200)
    assert len(data) < MIB
    assert "unpacks from" in refused_in_little_memory(tmp_path / "a.npz", data)

    # A member that unpacks to more than it says.
    lying = bytearray(deflated("x.npy", 60))
    with zipfile.ZipFile(io.BytesIO(lying)) as archive:
        end = archive.start_dir
    struct.pack_into("<I", lying, end + 24, 1000)
    refused_in_little_memory(tmp_path / "a.npz", bytes(lying))


def test_a_list_of_lists_of_one_list(tmp_path: Path) -> None:
    value: Any = [0] * 10
    for _ in range(30):
        value = [value] * 10
    members = {"archive/data.pkl": pickle.dumps(value, 2), "archive/version": b"3"}
    refused_in_little_memory(tmp_path / "a.pt", zip_bytes(members))


def test_headers_of_safetensors(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")

    def file(header: Any, data: bytes = b"") -> bytes:
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + data

    def entry(shape: list[int], end: int) -> dict[str, Any]:
        return {"dtype": "F32", "shape": shape, "data_offsets": [0, end]}

    for data in (
        file({"x": entry([1 << 40], 1 << 42)}),
        file({"x": entry([1 << 63, 2], 0)}),
        file({"x": entry([0] + [1 << 62] * 40, 0)}),
        file({"x": entry([1] * 100, 4)}, bytes(4)),
        file({"x": entry([-1], 4)}, bytes(4)),
        file(b'{"x":' * 100_000),
        file(b'{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},' * 2 + b"}", bytes(8)),
        struct.pack("<Q", (1 << 64) - 1) + b'{"x"',
    ):
        refused_in_little_memory(tmp_path / "a.safetensors", data)


# -- nothing runs


def test_a_payload_never_runs(tmp_path: Path) -> None:
    sign = tmp_path / "was-run"
    for protocol in range(6):
        payload = pickle.dumps({"x": Call(sign)}, protocol)
        for data in (
            payload,
            zlib.compress(payload),
            zip_bytes({"a/data.pkl": payload, "a/byteorder": b"little", "a/version": b"3"}),
            zip_bytes({"a/data.pkl": payload, "x.npy": npy("(1,)", data=bytes(4))}),
            zip_bytes({"x.npy": npy("(1,)", "|O", payload)}),
            npy("(1,)", "|O", payload),
        ):
            refused_in_little_memory(tmp_path / "some.pt", data)
    assert not sign.exists()
