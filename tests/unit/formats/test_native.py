"""Graphs and packages of ExecuTorch's native backend, written by `to_native` of 1.5.1."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from etscope.analysis.info import file_info
from etscope.analysis.info.native_info import native_nodes
from etscope.analysis.memory.size import size_files
from etscope.errors import EtscopeError, FormatError
from etscope.formats.identify import identify
from etscope.formats.program.native import GRAPHS, read_native, read_ptn
from tests.support.formats.handmade import Number, build

CORPUS = Path(__file__).parents[2] / "corpus" / "delegates"
PACKAGE = CORPUS / "native.ptn"


def test_a_package_is_described_and_its_bytes_have_owners() -> None:
    report = file_info(PACKAGE)
    assert report.about["kind"] == "ptn"
    operators = {row[1]: row[2] for row in report.section("operators").table.rows()}
    assert operators["aten.convolution.default"] == 2 and "aten.linear.default" in operators
    (found,) = size_files([PACKAGE])
    assert sum(part.size for part in found.parts) == PACKAGE.stat().st_size
    expected = np.load(CORPUS / "weights.npz")
    parts = {part.name: part for part in found.parts if part.kind == "weights"}
    assert parts.keys() == set(expected.files)
    for name, part in parts.items():
        held = np.frombuffer(found.data[part.offset : part.offset + part.size], "float32")
        np.testing.assert_array_equal(held.reshape(part.shape), expected[name])
    (nodes,) = native_nodes(read_ptn(PACKAGE))
    row = next(row for row in nodes.rows() if row[1] == "aten.linear.default")
    assert row[2:] == (
        "float32[1, 10]",
        ["aten_view_copy_default"],
        ["classes.weight", "classes.bias"],
    )
    with pytest.raises(FormatError, match="native backend"):
        identify(PACKAGE)


def test_quantized_and_dynamic_types() -> None:
    """In the shape of native_graph.fbs: groups of 32 in int4, a codec, and unknown numbers."""
    dims = [{0: Number("q", 1), 1: Number("q", -1)}, {0: Number("q", 8), 1: Number("q", 8)}]
    group = {0: "w.scale", 2: Number("i", -8), 3: Number("i", 7), 4: Number("i", 32), 5: "w.zero"}
    quantized = {0: Number("b", 0), 1: dims, 3: {0: Number("B", 1), 1: group}}
    packed = {0: Number("b", 0), 1: dims[1:], 3: {0: Number("B", 2), 1: {0: "gguf:q4k"}}}
    later = {0: Number("b", 99)}
    metas = (quantized, packed, later)
    constants = [{0: f"p{n}", 1: f"key{n}", 2: meta} for n, meta in enumerate(metas)]
    node = {0: "n", 1: Number("b", 7)}
    graph = {0: [node]}
    data = build({1: [{0: "forward", 1: graph, 2: constants}]}, b"NPTG")
    (method,) = read_native(memoryview(data))
    first, second, third = method.constants
    assert str(first.type) == "-8..7 by groups of 32 [1..?, 8]"
    assert (first.type.keys, first.size) == (("w.scale", "w.zero"), 0)
    assert str(second.type) == "gguf:q4k [8]" and str(third.type) == "unknown[]"
    assert method.nodes[0].kind == "kind 7"


def test_damaged_packages_are_refused(tmp_path: Path) -> None:
    """Never an error of Python's own."""
    random, path = np.random.default_rng(0), tmp_path / "damaged.ptn"
    whole = read_ptn(PACKAGE).archive
    members = {name: bytes(whole.read(name)) for name in whole.members}
    outcomes = set()
    for _ in range(150):
        changed = {name: bytearray(data) for name, data in members.items()}
        data = changed[GRAPHS if random.random() < 0.7 else "program.safetensors"]
        for place in random.integers(0, min(len(data), 3000), 3):
            data[place] = random.integers(256)
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in changed.items():
                archive.writestr(name, bytes(content))
        try:
            file_info(path), size_files([path])
            outcomes.add("read")
        except EtscopeError as error:
            outcomes.add(type(error).__name__)
    assert {"read", "FormatError"} == outcomes
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(GRAPHS, members[GRAPHS])
        archive.writestr("program.safetensors", struct.pack("<Q", 1 << 60))
    with pytest.raises(FormatError, match="longer than their file"):
        read_ptn(path)
