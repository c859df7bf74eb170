"""Owners of the bytes of files: they sum to each file, and are what the export says."""

from __future__ import annotations

import csv
import json
import shutil
import struct
import zipfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etscope.analysis.matching.export import Export
from etscope.analysis.memory.file_parts import Claim, Claims, FilePart, ProgramClaims, equal_content
from etscope.analysis.memory.size import (
    SizedFile,
    part_by_part,
    savings,
    size_files,
    size_reports,
)
from etscope.analysis.memory.stored import STATE, WEIGHTS, stored_tensors
from etscope.cli import main
from etscope.errors import EtscopeError, MismatchError
from etscope.formats.bytes.flatbuffer import Span
from etscope.formats.etdump.reader import bytes_by_kind, read_etdump
from etscope.formats.etrecord.reader import read_etrecord
from etscope.formats.program.delegate_data import DelegatePart, delegate_parts, delegate_words
from etscope.formats.program.ptd import write_ptd
from etscope.formats.program.pte import read_pte
from etscope.formats.program.pte_schema import KernelCall, ScalarValue, ValueKind
from tests.support.artifacts import artifacts
from tests.support.cli.fixtures import Run
from tests.support.formats.handmade import Number, build, method, pte_file, tensor

NAMES = (
    *("cnn_portable", "cnn_xnnpack", "cnn_xnnpack_int8", "cnn_xnnpack_lowered", "bundled"),
    *("two_methods", "cond", "written_state", "bf16_fp16", "attention_xnnpack", "many_delegates"),
    *("external_portable", "external_xnnpack", "record_variants", "allocations", "int_outputs"),
)


def sized(path: Path, record: Path | None = None) -> SizedFile:
    (found,) = size_files([path], None if record is None else read_etrecord(record))
    return found


def weights_of(name: str) -> dict[str | None, FilePart]:
    """The weights of an artefact's program by each name that its record gives them."""
    made = artifacts(name)
    parts = [part for part in sized(made.pte, made.etrecord).parts if part.kind == WEIGHTS]
    return {name: part for part in parts for name in part.names or [None]}


def check_sums(found: SizedFile) -> None:
    """Fail unless the parts, and each of their tables, sum to the file."""
    assert sum(part.size for part in found.parts) == len(found.data)
    assert all(part.size > 0 for part in found.parts)
    for by in ("kind", "module", "dtype", "owner"):
        (report,) = size_reports([found], by)
        for name in ("size", "parts"):
            section = report.section(name)
            assert sum(section.table.values["size"]) == len(found.data)


@pytest.mark.parametrize("name", NAMES)
def test_owners_sum_to_every_file_of_an_artefact(name: str) -> None:
    kinds = set()
    for path in sorted(artifacts(name).folder.iterdir()):
        is_sized = path.suffix in (".pte", ".bpte", ".ptd", ".etdp") or path.name == "etrecord.bin"
        if is_sized and path.name != "malformed.etdp":
            found = sized(path)
            assert len(found.data) == path.stat().st_size
            check_sums(found)
            kinds.add(found.kind)
    assert {"pte", "etdump", "etrecord"} <= kinds


@pytest.mark.parametrize("release", ["0.4.0", "0.7.0", "1.0.1", "1.2.0", "1.3.1", "1.4.1"])
def test_records_of_older_releases(release: str) -> None:
    corpus = Path(__file__).parents[2] / "corpus" / "etrecord"
    check_sums(sized(corpus / f"executorch-{release}.etrecord"))


@pytest.mark.parametrize("file", ["program.pte", "etdump.etdp", "etrecord.bin", "program.bpte"])
def test_files_that_are_cut_off_are_refused(file: str, tmp_path: Path) -> None:
    data = (artifacts("bundled").folder / file).read_bytes()
    path = tmp_path / file
    for size in (12, len(data) // 3, len(data) - 200):
        path.write_bytes(data[:size])
        with pytest.raises(EtscopeError):
            sized(path)


def checked(data: bytes, folder: Path, name: str = "made.pte") -> SizedFile:
    """A file of these bytes, whose sums are right."""
    (folder / name).write_bytes(data)
    found = sized(folder / name)
    check_sums(found)
    return found


# -- programs


def test_weights_have_the_names_of_the_parameters() -> None:
    for name in ("cnn_portable", "cnn_xnnpack"):
        weights = weights_of(name)
        stem = weights["stem.conv.weight"]
        assert (stem.module, stem.size, stem.dtype) == ("stem.conv", 216 * 4, "float32")
        assert sorted(stem.shape) == [3, 3, 3, 8]
        assert stem.line is not None and stem.line.startswith("cnn.py:")
        assert stem.owner == "stem.conv.weight"
        assert all(len(part.names) > 1 for part in weights.values() if part.shared_by)
    quantized = weights_of("cnn_xnnpack_int8")
    assert {"stem.conv.weight", "head.fc.weight", "head.fc.bias"} <= quantized.keys()
    assert not [name for name in quantized if str(name).startswith("_frozen")]
    assert {part.dtype for part in quantized.values()} == {"int8", "int32"}


# The number of weights of convolutions, by module.
CONVOLUTIONS = {"stem.conv": 216, "stages.1.conv": 1152, "stages.2.second.conv": 2304}


@pytest.mark.parametrize("model", ["cnn_portable", "cnn_xnnpack", "cnn_xnnpack_int8"])
def test_weights_are_in_the_modules_that_read_them(model: str) -> None:
    made = artifacts(model)
    sizes = dict.fromkeys(CONVOLUTIONS, 0)
    for part in sized(made.pte, made.etrecord).parts:
        if part.module in CONVOLUTIONS and str(part.label).endswith("]"):
            sizes[part.module] = max(sizes[part.module], part.size)
    width = 1 if model.endswith("int8") else 4
    assert sizes == {module: count * width for module, count in CONVOLUTIONS.items()}


def test_weights_of_one_shape_are_named_by_their_position() -> None:
    weights = weights_of("cnn_portable")
    norm = {f"stem.bn.{one}" for one in ("weight", "bias", "running_mean", "running_var")}
    assert norm <= weights.keys() and None not in weights
    # Batch norms that were not trained are alike: one copy of the bytes has the names of all.
    shared = weights["stem.bn.running_mean"]
    assert "stages.1.bn.running_mean" in shared.names or shared.shared_by == ()
    made = artifacts("cnn_portable")
    table = part_by_part([sized(made.pte, made.etrecord)]).table
    assert set(table.values["name"]) == {None, *(part.named for part in weights.values())}
    assert sum(table.values["size"]) == made.pte.stat().st_size


def test_initial_state_has_its_name_module_and_line() -> None:
    made = artifacts("cnn_portable")
    program, record = read_pte(made.pte), read_etrecord(made.etrecord)
    run = Export(program, record).edge_nodes("forward")
    stored = next(one for one in stored_tensors(program, lambda _: run) if one.nodes)
    as_state = ProgramClaims(program, lambda _: run, [replace(stored, kind=STATE)]).parts()
    as_weight = ProgramClaims(program, lambda _: run, [stored]).parts()
    (state,) = (part for part in as_state if part.kind == STATE)
    (weight,) = (part for part in as_weight if part.kind == WEIGHTS)
    assert state == replace(weight, kind=STATE)
    assert state.name is not None and state.module is not None and state.line is not None


def test_the_record_of_another_program_is_an_error() -> None:
    program, other = artifacts("cnn_portable").pte, artifacts("cnn_xnnpack").etrecord
    record = read_etrecord(other)
    with pytest.raises(MismatchError, match="do not belong together"):
        size_files([program], record)
    (found,) = size_files([program], record, force=True)
    check_sums(found)
    assert main(["info", "--size", str(program), "-r", str(other)]) == 3
    assert main(["info", "--size", str(program), "-r", str(other), "--force"]) == 0


def test_a_shared_weight_names_its_readers() -> None:
    made = artifacts("external_portable")
    _, data = size_files([made.pte, made.extra("weights.ptd")], read_etrecord(made.etrecord))
    tied = next(part for part in data.parts if part.name == "first.weight")
    assert (tied.shared_by, tied.module) == (("first", "tied"), "")
    parts = sized(artifacts("forward_and_extra").pte).parts
    readers = {part.label: part.shared_by for part in parts if part.kind == WEIGHTS}
    assert readers["float32[8, 8]"] == readers["float32[8]"] == ("extra", "forward")
    assert readers["float32[3, 8]"] == ()


def test_bytes_that_nothing_refers_to_are_not_padding(tmp_path: Path) -> None:
    data = artifacts("cnn_portable").pte.read_bytes() + b"appended" + bytes(8)
    parts = checked(data, tmp_path).parts
    (extra,) = (part for part in parts if part.kind == "unreferenced")
    assert extra.size >= 16


OVERLAPPING = {0: Number("I", 0), 1: Number("Q", [0, 0, 16])}


def test_overlapping_constants_count_once(tmp_path: Path) -> None:
    made = method([tensor(2, 3, data_index=1), tensor(4, data_index=2)])
    found = checked(pte_file(made, segments=[bytes(32)], more={5: OVERLAPPING}), tmp_path)
    sizes = {part.label: part.size for part in found.parts if part.kind == WEIGHTS}
    assert sizes == {"float32[2, 3]": 16, "float32[4]": 16}
    assert found.notes == ("2 constants overlap: each byte counts for the smallest of them.",)
    assert sized(artifacts("cnn_portable").pte).notes == ()


def test_a_byte_is_of_the_smallest_claim_of_it_by_all_of_its_names() -> None:
    claims = Claims()
    for label, start, size in (
        ("around", 0, 12), ("within", 4, 4), ("twice", 4, 4), ("behind", 16, 8), ("before", 14, 4),
    ):  # fmt: skip
        claims.add(Span(start, size), Claim(WEIGHTS, label=label))
    parts = claims.parts(memoryview(bytes(24)))
    # (offset, size): of bytes that are not in a row there is no offset.
    assert {part.label: (part.offset, part.size) for part in parts} == {
        "around": (None, 8), "within": (4, 4), "behind": (18, 6), "before": (14, 4),
        None: (None, 2),
    }  # fmt: skip
    assert [part.kind for part in parts if part.label is None] == ["padding"]
    assert claims.overlapping() == 4
    claims = Claims()
    for number in range(6):
        claims.add(Span(0, 4), Claim(WEIGHTS, "int8", "int8[4]", names=[f"w{number}"]))
    (part,) = claims.parts(memoryview(bytes(4)))
    assert part.names == ("w0", "w1", "w2", "w3", "w4", "w5")
    assert part.owner == "w0, w1, w2, w3 and 2 more"


# -- the tables of a program


def contents(found: SizedFile) -> Counter[str]:
    """The bytes of the tables by content."""
    sizes: Counter[str] = Counter()
    for part in found.parts:
        if part.kind == "tables":
            sizes[part.detail or ""] += part.size
    return sizes


LAYOUT = ("alignment", "table layouts")


@pytest.mark.parametrize("name", NAMES)
def test_every_byte_of_the_tables_is_known(name: str) -> None:
    made = artifacts(name)
    found, program = sized(made.pte), read_pte(made.pte)
    assert not [part for part in found.parts if part.kind == "unreferenced"]
    sizes = contents(found)
    assert "" not in sizes and {"header", "instructions", "inputs and outputs"} <= sizes.keys()
    assert sizes.total() == program.tables_size
    assert sizes["alignment"] < 0.1 * sizes.total()
    assert sizes["unread values"] == 0


def test_instructions_are_counted_by_operator() -> None:
    made = artifacts("cnn_portable")
    program = read_pte(made.pte)
    (method,) = program.methods
    expected = Counter(
        method.operators[one.operator].full_name
        for one in method.instructions
        if isinstance(one, KernelCall)
    )
    (report,) = size_reports([sized(made.pte)])
    table = report.section("operators").table
    shown = dict(zip(table.values["operator"], table.values["calls"], strict=True))
    assert shown == dict(expected) and len(shown) > 3
    # Two thirds of the tables of a portable program are what its operators need.
    assert sum(table.values["size"]) > program.tables_size // 2


def grown(folder: Path, **changes: Any) -> Counter[str]:
    """The contents of the tables that grow by a change of a method."""
    plain: dict[str, Any] = {
        "values": [tensor(2, 3), tensor(2, 3), ScalarValue(ValueKind.INT, -1)],
        "instructions": [KernelCall(0, (0, 2, 1))],
        "operators": ["aten::neg.out"],
        "inputs": [0],
        "outputs": [1],
    }
    made = (pte_file(method(**chosen), segments=[bytes(16)]) for chosen in (plain, plain | changes))
    before, after = (contents(checked(data, folder)) for data in made)
    after.subtract(before)
    return Counter({what: size for what, size in after.items() if what not in LAYOUT and size > 0})


def test_tables_grow_where_something_is_added(tmp_path: Path) -> None:
    frame = {0: "net.py", 1: Number("i", 3), 2: "forward", 3: "return -x"}
    assert grown(tmp_path, operators=["aten::negative.out"]) == {"operator names": 5}
    assert grown(tmp_path, name="forward_2") == {"inputs and outputs": 2}
    assert grown(tmp_path, stacktrace=[{0: [frame]}])["stack traces"] > 6 + 7 + 9
    more = grown(tmp_path, instructions=[KernelCall(0, (0, 2, 1)), KernelCall(0, (1, 2, 0))])
    assert set(more) == {"instructions"}
    assert more["instructions"] >= 3 * 4 + 2 * 8  # three arguments and two tables


def test_values_that_nothing_reads_could_be_left_out(tmp_path: Path) -> None:
    values = [tensor(4, data_index=1), tensor(4, data_index=2), tensor(4), tensor(4)]
    call = {"instructions": [KernelCall(0, (0, 2))], "operators": ["aten::neg.out"], "inputs": [3]}
    for outputs, dead in (([2], 16), ([2, 1], 0)):
        made = method(values, **call, outputs=outputs)  # type: ignore[arg-type]
        found = checked(pte_file(made, segments=[bytes(32)], more={5: OVERLAPPING}), tmp_path)
        assert sum(part.size for part in found.parts if part.is_unread) == dead
        tables = contents(found)["unread values"]
        rows = {row[0]: row[1:] for row in savings(found).table.rows()}
        assert (tables > 0) == (dead > 0)
        assert rows.get("without unread weights and values") == (
            (1, dead + tables, 0, dead + tables) if dead else None
        )


def test_a_number_may_lie_outside_of_its_table(tmp_path: Path) -> None:
    """As some programs have it: the vtable leaves half of the int64 out."""
    made = method([ScalarValue(ValueKind.INT, -1)])
    data = bytearray(pte_file(made, segments=[bytes(16)]))
    at = data.index(struct.pack("<q", -1))
    table = next(start for start in range(at - 4, at - 16, -4) if _is_table_of(data, start, at))
    vtable = table - struct.unpack_from("<i", data, table)[0]
    struct.pack_into("<H", data, vtable + 2, at - table + 4)
    found = checked(bytes(data), tmp_path)
    assert not [part for part in found.parts if part.kind == "unreferenced"]


def _is_table_of(data: bytearray, start: int, field: int) -> bool:
    """True if a table whose only field is at `field` begins at `start`."""
    vtable = start - struct.unpack_from("<i", data, start)[0]
    if not 0 <= vtable < len(data) - 6:
        return False
    size, _, first = struct.unpack_from("<3H", data, vtable)
    return bool(size == 6 and first == field - start)


def test_data_of_older_files_is_not_that_of_tables(tmp_path: Path) -> None:
    """Constants and delegates' data were inside of the tables before 1.0."""
    made = method([tensor(8, data_index=1)], delegates=[("AnotherBackend", 0, 0)])
    inline = {2: [{0: b""}, {0: bytes(range(32))}], 3: [{0: b"delegate"}]}
    found = checked(pte_file(made, more=inline), tmp_path)
    sizes = {part.kind: part.size for part in found.parts if part.kind != "tables"}
    assert sizes == {"weights": 32, "delegates' data": 8}
    assert "data" not in contents(found) or contents(found)["data"] <= 3 * 4


# -- external tensors


@pytest.mark.parametrize("name", ["external_portable", "external_xnnpack"])
def test_a_program_and_its_ptd_explain_each_other(name: str) -> None:
    made = artifacts(name)
    data = made.extra("weights.ptd")
    program, external = size_files([made.pte, data], read_etrecord(made.etrecord))
    check_sums(external)
    assert program.notes == ()
    weights = [part for part in external.parts if part.kind == WEIGHTS]
    assert sum(part.size for part in weights) == 4 * (2 * 64 + 3 * 8)
    assert {part.dtype for part in weights} == {"float32"}
    assert {part.name for part in weights} >= {"second.weight", "second.bias"}
    (alone,) = size_files([made.pte])
    assert "5 weights are in a .ptd file" in alone.notes[0]


# -- bundles, records, dumps


def test_a_bundle_has_its_cases_and_the_program() -> None:
    made = artifacts("bundled")
    found, program = size_files([made.bpte, made.pte])
    cases = [part for part in found.parts if part.kind == "test cases"]
    assert {part.label for part in cases} >= {"forward, case 0", "forward, case 3"}
    inner = [part for part in found.parts if part.kind == WEIGHTS]
    outer = [part for part in program.parts if part.kind == WEIGHTS]
    assert [(part.label, part.size) for part in inner] == [(p.label, p.size) for p in outer]
    assert {one.offset - two.offset for one, two in zip(inner, outer, strict=True)} != {0}  # type: ignore[operator]


def test_a_record_is_its_members_as_stored(tmp_path: Path) -> None:
    source, packed = artifacts("cnn_portable").etrecord, tmp_path / "packed.etrecord"
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(packed, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name), zipfile.ZIP_DEFLATED)
    found = sized(packed)
    check_sums(found)
    with zipfile.ZipFile(packed) as archive:
        for info in archive.infolist():
            if info.compress_size:
                part = next(part for part in found.parts if part.label == info.filename)
                assert (part.size, part.unpacked) == (info.compress_size, info.file_size)


def test_the_program_in_a_record_has_its_parts(tmp_path: Path) -> None:
    source = artifacts("cnn_portable")
    path = tmp_path / "with.etrecord"
    path.write_bytes(source.etrecord.read_bytes())
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("etscope/program_buffer_constants", source.pte.read_bytes())
    found = sized(path)
    check_sums(found)
    assert sum(part.size for part in found.parts if part.kind == WEIGHTS) == sum(
        part.size for part in sized(source.pte).parts if part.kind == WEIGHTS
    )
    assert "stem.conv.weight" in {part.name for part in found.parts}


def test_the_bytes_of_a_dump_grow_with_its_events() -> None:
    small, large = (read_etdump(artifacts(name).etdump) for name in ("cond", "large_20k"))
    assert bytes_by_kind(large)["events"] > 20 * bytes_by_kind(small)["events"]
    for dump in (small, large):
        assert bytes_by_kind(dump)["unreferenced"] == 0
    with_values = artifacts("cnn_portable")
    assert bytes_by_kind(read_etdump(with_values.etdump))["values"] > 0


def test_a_debug_buffer_is_known_by_its_dump() -> None:
    made = artifacts("cnn_portable")
    _, found = size_files([made.etdump, made.debug_buffer])
    check_sums(found)
    sizes = {part.kind: part.size for part in found.parts}
    assert sizes["logged values"] + sizes["unused"] > 0.9 * len(found.data)
    with pytest.raises(EtscopeError):
        size_files([made.debug_buffer])
    other = artifacts("cnn_xnnpack").etdump
    with pytest.raises(MismatchError, match="not the debug buffer"):
        size_files([made.etdump, other, made.debug_buffer])


# -- delegates' data, in the shape of their writers


def vulkan_data() -> bytes:
    values = [
        {0: Number("B", 5), 1: {0: Number("b", 5), 1: Number("I", [2, 3]), 2: Number("i", 0)}},
        {0: Number("B", 5), 1: {0: Number("b", 4), 1: Number("I", [4]), 2: Number("i", 1)}},
    ]
    constants = [
        {0: Number("Q", 16), 1: Number("Q", 24)},
        {0: Number("Q", (1 << 64) - 1), 1: Number("Q", 8), 2: "a key"},
    ]
    tables = build({2: values, 5: constants}, b"VK00")
    tables += bytes(-len(tables) % 16)
    head = struct.pack("<4x4sHIIIQ", b"VH00", 30, 32, len(tables), 32 + len(tables), 48)
    return head + bytes(2) + tables + bytes(48)


def test_parts_of_the_data_of_backends() -> None:
    graph, first, second = delegate_parts("VulkanBackend", memoryview(vulkan_data()))
    assert graph.name == "graph"
    assert (first.dtype, first.shape, first.size, first.key) == ("float32", (2, 3), 24, None)
    assert (second.dtype, second.shape, second.key) == ("float16", (4,), "a key")
    context = struct.pack("<IqQ", 0x5678ABCD, 7, 100)
    for header in (20, 256):
        data = memoryview(context.ljust(header, b"\0") + bytes(100))
        assert delegate_parts("QnnBackend", data) == (DelegatePart("context binary", header, 100),)
    mlx = struct.pack("<4x4sQQ", b"MLX0", 32, 16) + bytes(8 + 16)
    assert delegate_parts("MLXBackend", memoryview(mlx)) == (
        DelegatePart("graph", 24, 8),
        DelegatePart("constants", 32, 16, True),
    )
    network = memoryview(struct.pack("<BIII", 1, 2, 1, 20) + bytes(20))
    (part,) = delegate_parts("NeuropilotBackend", network)
    assert part == DelegatePart("compiled network", 13, 20)


@pytest.mark.parametrize("magic", [b"TR01", b"TR02"])
def test_an_engine_of_tensorrt(magic: bytes) -> None:
    """In the shape of `serialize_engine` of torch_tensorrt/executorch/serialization.py."""
    binding = {"dtype": "", "shape": []}
    about = json.dumps(
        {
            "io_bindings": [
                {"name": "x", "is_input": True, **binding},
                {"name": "output0", "is_input": False, **binding},
            ],
            "aliased_io": [],
            "device_id": 0,
            "serialized_metadata": "gASV",
            "later": {"a": 1},
        }
    ).encode()
    engine = -(-(32 + len(about)) // 16) * 16
    head = struct.pack("<4sIIIQ8s", magic, 32, len(about), engine, 40, b"\1")
    data = memoryview((head + about).ljust(engine, b"\0") + bytes(40))
    assert delegate_parts("TensorRTBackend", data) == (
        DelegatePart("metadata", 32, len(about)),
        DelegatePart("engine", engine, 40),
    )
    assert delegate_words("TensorRTBackend", data) == {
        "inputs": "x",
        "outputs": "output0",
        "device_id": "0",
        "later": '{"a": 1}',
    }
    assert not delegate_parts("TensorRTBackend", data[:-1])


@pytest.mark.parametrize(
    ("backend", "data"),
    [
        ("VulkanBackend", vulkan_data()),
        ("QnnBackend", struct.pack("<IqQ", 0x5678ABCD, 7, 100) + bytes(100)),
        ("AnotherBackend", b"nobody knows"),
    ],
)
def test_delegates_data_is_never_dropped(backend: str, data: bytes, tmp_path: Path) -> None:
    """Whole, cut off, or with another magic number; more damage is among the attacks."""
    details = []
    for blob in (data, data[: len(data) // 2], b"x", bytes([data[0] ^ 1]) + data[1:]):
        made = pte_file(method([], delegates=[(backend, 1, 0)]), segments=[blob])
        found = checked(made, tmp_path)
        details.append({part.detail for part in found.parts if part.label == backend})
    assert details[2] == {"opaque"}
    assert ("opaque" in details[0]) == (backend == "AnotherBackend")


CORPUS = Path(__file__).parents[2] / "corpus" / "delegates"


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *(("vulkan", "float32"), ("vulkan_fp16", "float16"), ("coreml", "float16")),
        ("native", "float32"),
    ],
)
def test_weights_in_the_data_that_backends_wrote(name: str, dtype: str) -> None:
    """Each parameter of the model is found by name, and its bytes are those of the model."""
    found = sized(CORPUS / f"{name}.pte", CORPUS / f"{name}.etrecord")
    check_sums(found)
    parts = {part.name: part for part in found.parts if part.kind == WEIGHTS}
    expected = np.load(CORPUS / "weights.npz")
    # Core ML has tensors of a few bytes in its model, not among the weights.
    names = set(expected.files) - ({"first.bias"} if name == "coreml" else set())
    assert len(names) >= 5 and parts.keys() == names
    for parameter in names:
        part, values = parts[parameter], expected[parameter]
        assert (part.dtype, part.shape) == (dtype, values.shape)
        held = np.frombuffer(found.data[part.offset : part.offset + part.size], dtype)
        np.testing.assert_array_equal(held, values.astype(dtype).reshape(-1))
    rows = {row[0]: row[1:] for row in savings(found).table.rows()}
    assert rows[f"{dtype} to int8 by channel"][0] == 3  # the matrices, not the biases


@pytest.mark.parametrize("name", ["ethos_u55", "ethos_u85"])
def test_blocks_that_vela_wrote(name: str) -> None:
    found = sized(CORPUS / f"{name}.pte")
    check_sums(found)
    parts = {part.detail: part for part in found.parts if part.label == "EthosUBackend"}
    assert parts.keys() >= {"cmd_data", "weight_data", "inputs", "outputs", "scratch_size"}
    assert parts["weight_data"].kind == WEIGHTS
    commands = parts["cmd_data"]
    assert bytes(found.data[commands.offset : commands.offset + 4]) == b"COP1"  # of the driver
    assert parts["scratch_size"].size == 4


def test_blocks_of_vela_that_are_named_data() -> None:
    """Their keys are in the program, and their bytes in the .ptd (`external_block_placements`)."""
    program, data = size_files([CORPUS / f"ethos_u55_external.{end}" for end in ("pte", "ptd")])
    for found in (program, data):
        check_sums(found)
    keys = [part for part in program.parts if part.detail == "key of weight_data"]
    assert [part.size for part in keys] == [64, 64]
    weights = [part for part in data.parts if part.detail == "weight_data"]
    assert [(part.kind, part.label) for part in weights] == [(WEIGHTS, "EthosUBackend")] * 2
    assert sum(part.size for part in weights) > 0.8 * len(data.data)


def test_the_asset_of_core_ai_belongs_to_its_call() -> None:
    found = sized(CORPUS / "coreai.pte")
    check_sums(found)
    parts = {part.detail: part for part in found.parts if part.label == "CoreAIBackend"}
    code = parts["model.aimodel/main.mlirb"]
    assert bytes(found.data[code.offset : code.offset + 4]) == b"ML\xefR"  # MLIR bytecode
    assert parts.keys() >= {"model.aimodel/metadata.json", "model.aimodel/main.hash"}
    sidecar = b'{"packaging": "sidecar", "hash": "ab", "path": "ab/model.aimodel"}'
    assert len(delegate_parts("CoreAIBackend", memoryview(sidecar))) == 1
    assert delegate_words("CoreAIBackend", memoryview(sidecar)) == {
        "packaging": "sidecar",
        "path": "ab/model.aimodel",
    }


# -- what could be saved


BY_CHANNEL = (f"{dtype} to int8 by channel" for dtype in ("float32", "float16", "bfloat16"))
SAVED_BY = {
    "float32 to float16": "saved_by_float16",
    **dict.fromkeys(BY_CHANNEL, "saved_by_int8"),
    "one copy of equal weights": "saved_by_sharing",
}


def check_savings(found: SizedFile) -> dict[str, dict[str, Any]]:
    """Fail unless the savings of the weights sum to the totals; return the weights by owner."""
    (report,) = size_reports([found])
    table, parts = report.section("savings"), report.section("parts").table
    totals = Counter[str]()
    for row in () if table is None else table.table.rows():
        if row[0] in SAVED_BY:
            totals[SAVED_BY[row[0]]] += row[-1]
    rows = [dict(zip(parts.names, row, strict=True)) for row in parts.rows()]
    weights = [row for row in rows if row["kind"] == WEIGHTS]
    assert weights
    for name in set(SAVED_BY.values()):
        assert sum(row[name] for row in weights) == totals[name]
        assert all(0 <= row[name] <= row["size"] for row in weights)
        assert {row[name] for row in rows if row["kind"] != WEIGHTS} <= {None}
    return {row["owner"]: row for row in weights}


@pytest.mark.parametrize(
    "name", ["cnn_portable", "cnn_xnnpack_int8", "llama_xnnpack", "transformer"]
)
def test_savings_of_the_weights_sum_to_the_totals(name: str) -> None:
    found = sized(artifacts(name).pte)
    weights = check_savings(found)
    is_float = any(row["dtype"] != "int8" and row["saved_by_int8"] for row in weights.values())
    assert is_float == (name != "cnn_xnnpack_int8")


def test_savings_of_weights_in_a_ptd_sum_to_the_totals() -> None:
    made = artifacts("external_portable")
    program, data = size_files([made.pte, made.extra("weights.ptd")])
    weights = check_savings(data)
    weight, bias = weights["first.weight"], weights["first.bias"]
    assert (weight["saved_by_float16"], weight["saved_by_int8"]) == (128, 256 - 64 - 8 * 4)
    assert (bias["saved_by_float16"], bias["saved_by_int8"]) == (16, 0)
    assert not program.saved.float16


def test_what_quantizers_leave_saves_nothing_as_int8(tmp_path: Path) -> None:
    path = tmp_path / "weights.ptd"
    shapes = {"bias": (64,), "norm": (1, 64, 1, 1), "row": (1, 64), "one": (64, 1), "two": (64, 2)}
    tensors: dict[str, Any] = {
        name: np.random.default_rng(0).normal(size=shape).astype(np.float32)
        for name, shape in shapes.items()
    }
    tensors |= {"int8": np.ones((64, 64), np.int8), "matrix": np.eye(64, dtype=np.float32)}
    write_ptd(tensors, path)
    weights = check_savings(sized(path))
    # What a scale for each channel takes is counted.
    assert {name: row["saved_by_int8"] for name, row in weights.items()} == {
        **dict.fromkeys(("bias", "norm", "row", "one", "int8"), 0),
        "two": 64 * (2 * 4 - 2 - 4),
        "matrix": 64 * (64 * 4 - 64 - 4),
    }
    assert weights["int8"]["saved_by_float16"] == 0


def test_estimates_of_smaller_weights(tmp_path: Path) -> None:
    ones = np.ones((8, 16), np.float32)
    path = tmp_path / "weights.ptd"
    write_ptd({"a": ones, "b": ones, "c": np.zeros(8, np.float32), "d": np.int8(1)}, path)
    found = sized(path)
    table = savings(found).table
    rows = {row[0]: row[1:] for row in table.rows()}
    assert rows["float32 to float16"] == (3, 1056, 528, 528)
    assert rows["float32 to int8 by channel"] == (2, 1024, 320, 704)
    assert rows["one copy of equal weights"] == (2, 1024, 512, 512)
    assert any("2 weights of 512 bytes are equal: a, b" in note for note in table.notes)
    assert "Estimates" in table.notes[0]
    # The scales of quantized weights, which have no shape, do not become float16.
    weight = Claim(WEIGHTS, "float32", "float32[10]", shape=(10,)).part(0, 40)
    scales = Claim(WEIGHTS, "float32", "scales").part(40, 40)
    few = savings(replace(found, parts=(weight, scales))).table
    row = few.values["change"].index("float32 to float16")
    assert (few.values["weights"][row], few.values["now"][row]) == (1, 40)
    weights = check_savings(found)  # the first of equal weights stays
    assert [weights[name]["saved_by_sharing"] for name in "abcd"] == [0, 512, 0, 0]


def test_equal_content_is_looked_for_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = bytes(100_000), bytes(99_999) + b"x"
    third = bytes(30_000) + b"y" + bytes(69_999)  # equal at the samples
    blobs = [memoryview(one) for one in (first, second, bytes(first), third, b"short", b"")]
    assert equal_content(blobs) == ([[0, 2]], 0)
    monkeypatch.setattr("etscope.analysis.memory.file_parts._HASHED", 250_000)
    assert equal_content(blobs) == ([[0, 2, 3]], 300_000)  # that much is not certain
    changed = bytes(100_000 // 15) + b"y" + bytes(93_333)  # at a place that is looked at
    assert equal_content([blobs[0], blobs[2], memoryview(changed)]) == ([[0, 1]], 200_000)


# -- the command


def test_the_command(run: Run) -> None:
    made = artifacts("cnn_xnnpack")
    size = made.pte.stat().st_size
    code, out, _ = run("info", "--size", made.pte, made.etdump, "-f", "json")
    text = json.dumps(json.loads(out))
    assert code == 0 and "etscope.size/1" in text and '"total"' in text
    for by in ("kind", "module", "dtype", "owner"):
        code, out, _ = run("info", "--size", made.pte, "-r", made.etrecord, "--by", by)
        assert code == 0 and f"{size:,} bytes in all." in out
    assert run("info", "--size", "nowhere.pte")[0] == 2
    assert run("info", "--size", __file__)[0] == 3


@pytest.mark.parametrize("format", ["csv", "tsv"])
def test_a_table_for_programs_has_a_row_for_each_part(run: Run, format: str) -> None:
    made = artifacts("external_portable")
    files = made.pte, made.extra("weights.ptd")

    def read(*more: str) -> list[dict[str, str]]:
        code, out, _ = run("info", "--size", *files, "-r", made.etrecord, "-f", format, *more)
        assert code == 0
        return list(csv.DictReader(out.splitlines(), delimiter="," if format == "csv" else "\t"))

    rows = read()
    for path in files:
        of_file = [int(row["size"]) for row in rows if row["file"] == str(path)]
        assert sum(of_file) == path.stat().st_size
        assert of_file == sorted(of_file, reverse=True)
    (row,) = (row for row in rows if row["owner"] == "second.weight")
    assert (row["kind"], row["module"], row["saved_by_int8"]) == ("weights", "second", "160")
    groups = read("--by", "module", "-n", "1")
    assert [row["file"] for row in groups] == [str(path) for path in files]
    assert groups[0].keys() == {"file", "kind", "module", "dtype", "count", "size", "share"}


def test_a_folder_is_the_files_of_its_run(run: Run, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    code, _, err = run("info", "--size", tmp_path)
    assert code == 3 and "it holds none" in err
    shutil.copy(artifacts("cnn_portable").etdump, tmp_path / "run.etdp")
    code, out, _ = run("info", "--size", tmp_path)
    assert code == 0 and "bytes by kind" in out
