"""Unions of old and new writers, and the long payloads of delegate calls."""

from __future__ import annotations

import base64
import json

import pytest

from etscope.errors import FormatError
from etscope.formats.exported_program import exported_json
from etscope.formats.exported_program.exported_json import (
    DTYPES,
    MIN_PAYLOAD,
    cut_payloads,
    enum_name,
    find_payloads,
    integer,
    parse_json,
    payload_size,
    union,
    with_marks,
    without_payloads,
)


def test_unions_of_new_and_old_writers() -> None:
    assert union({"as_int": 0}) == ("as_int", 0)
    assert union({"as_none": []}) == ("as_none", [])
    assert union({"as_none": None, "as_int": 3, "as_string": None}) == ("as_int", 3)
    assert union({"as_none": None, "as_int": None}) == ("as_none", None)
    for value in ({"as_int": 1, "as_bool": True}, [], None, "as_int"):
        with pytest.raises(FormatError):
            union(value)


def test_numbers_and_types() -> None:
    assert parse_json(b"[Infinity, -Infinity]") == [float("inf"), float("-inf")]
    with pytest.raises(FormatError, match="a size must be a whole number, found True"):
        integer(True, "a size")
    with pytest.raises(FormatError, match="a size must be a whole number, found 1000"):
        integer(10**400, "a size")
    for number in (-1, len(DTYPES), 1.0, "7"):
        with pytest.raises(FormatError):
            enum_name(DTYPES, number, "dtype")


def test_types_are_those_of_the_serializer() -> None:
    schema = pytest.importorskip("executorch.exir.serde.schema")
    serde = pytest.importorskip("executorch.exir.serde.export_serialize")
    for number, dtype in serde._SERIALIZE_TO_TORCH_DTYPE.items():
        assert f"torch.{DTYPES[number]}" == str(dtype)
    assert len(DTYPES) == len(schema.ScalarType)
    for number, layout in serde._SERIALIZE_TO_TORCH_LAYOUT.items():
        assert str(layout) == f"torch.{exported_json.LAYOUTS[number]}"
    for number, form in serde._SERIALIZE_TO_TORCH_MEMORY_FORMAT.items():
        assert str(form) == f"torch.{exported_json.MEMORY_FORMATS[number]}"


def test_json_of_too_many_values_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exported_json, "SMALL_TEXT", 100)
    monkeypatch.setattr(exported_json, "MAX_VALUES", 1000)
    assert len(parse_json("[" + "1," * 900 + "1]")) == 901
    with pytest.raises(FormatError, match="1,100 values is too large"):
        parse_json("[" + "[]," * 549 + "[]]")


def lowered(blob: bytes, weights: bytes, spec: bytes = b"spec", depth: int = 1) -> bytes:
    """JSON of a delegate call, as text within text, `depth` times."""

    def encoded(data: bytes) -> str:
        return base64.b64encode(data).decode()

    text = json.dumps(
        {
            "backend_id": "B",
            "processed_bytes": encoded(blob),
            "compile_specs": [{"key": "k", "value": encoded(spec)}],
            "original_state_dict": encoded(weights),
        }
    )
    for _ in range(depth):
        text = json.dumps({"as_string": text})
    return text.encode()


def inner(data: bytes | memoryview, depth: int = 1) -> dict[str, object]:
    content: dict[str, object] = json.loads(bytes(data))
    for _ in range(depth):
        content = json.loads(str(content["as_string"]))
    return content


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("size", [MIN_PAYLOAD, 10_000, 10_001, 10_002])
def test_payloads_become_marks_that_know_their_size(depth: int, size: int) -> None:
    data = memoryview(lowered(b"\xff" * size, b"\x00" * 50_000, depth=depth))
    short = without_payloads(data)
    assert len(short) < 400 * 2**depth
    content = inner(short, depth)
    assert payload_size(content["processed_bytes"]) == size
    assert payload_size(content["original_state_dict"]) == 50_000
    assert content["backend_id"] == "B"


def test_what_is_short_or_not_base64_stays() -> None:
    data = memoryview(lowered(b"blob", b"", spec=b"\x01" * 20_000))
    assert find_payloads(data) == []
    content = inner(without_payloads(data))
    assert payload_size(content["processed_bytes"]) == 4
    assert payload_size(content["original_state_dict"]) == 0

    data = memoryview(json.dumps({"processed_bytes": "", "stack": "a b" * 5000}).encode())
    assert bytes(without_payloads(data)) == bytes(data)


def test_payloads_are_found_across_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    data = memoryview(lowered(b"\xaa" * 30_000, b"\xbb" * 30_000))
    expected = find_payloads(data)
    assert len(expected) == 2
    monkeypatch.setattr(exported_json, "_CHUNK", 7001)
    assert find_payloads(data) == expected


def test_cut_payloads_can_be_marked_again() -> None:
    data = memoryview(lowered(b"\xaa" * 30_000, b"\xbb" * 6_000))
    cut, cuts = cut_payloads(data)
    assert inner(cut)["processed_bytes"] == ""
    assert [size for _, size in cuts] == [30_000, 6_000]
    assert bytes(with_marks(memoryview(cut), cuts)) == bytes(without_payloads(data))

    assert payload_size("@payload:12@") == 12
    assert payload_size("@payload:" + "9" * 40 + "@") < 100


@pytest.mark.parametrize("cuts", [[(0, 1)], [(10**9, 1)], [(5, 1)], [(21, -1)], [(21, 5), (21, 5)]])
def test_cuts_that_are_not_there(cuts: list[tuple[int, int]]) -> None:
    data = memoryview(b'{"processed_bytes": "", "a": 1}')
    assert with_marks(data, [(21, 5)]) != data
    with pytest.raises(FormatError, match="the record lists a cut payload"):
        with_marks(data, cuts)
