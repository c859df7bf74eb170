"""Parse the JSON of a serialized `ExportedProgram`: unions, types, long payloads.

The schema is ExecuTorch's fork of torch.export's (`exir/serde/schema.py`, version 5.4 and before).
Old writers put every key of a union into it, all but one null; new ones write only the used key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np

from etscope.errors import FormatError

__all__ = ["mapping"]

SUPPORTED_MAJOR = 5  # of the schema, in ExecuTorch 1.5

# ScalarType of exir/serde/schema.py: its numbers differ from the ones in ETDump and .pte files.
DTYPES = (
    "unknown",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "complex32",
    "complex64",
    "complex128",
    "bool",
    "bfloat16",
    "uint16",
    "float8_e5m2",
    "float8_e4m3fn",
)
LAYOUTS = (
    "unknown",
    "sparse_coo",
    "sparse_csr",
    "sparse_csc",
    "sparse_bsr",
    "sparse_bsc",
    "_mkldnn",
    "strided",
)
MEMORY_FORMATS = (
    "unknown",
    "contiguous_format",
    "channels_last",
    "channels_last_3d",
    "preserve_format",
)

Json = Mapping[str, Any]


def union(value: object) -> tuple[str, Any]:
    """Return the tag and the content of a union: the only key that is not null, or "as_none"."""
    if not isinstance(value, dict):
        raise FormatError(f"expected a tagged value, found {_shown(value)}")
    if len(value) == 1:
        return next(iter(value.items()))
    filled = [(tag, content) for tag, content in value.items() if content is not None]
    if not filled:
        return "as_none", None
    if len(filled) > 1:
        raise FormatError(f"a tagged value has two contents: {filled[0][0]} and {filled[1][0]}")
    return filled[0]


def text(value: object, what: str) -> str:
    """Return `value`, which must be a string; `what` names it in the error."""
    if not isinstance(value, str):
        raise FormatError(f"{what} must be text, found {_shown(value)}")
    return value


def integer(value: object, what: str) -> int:
    """Return `value`, which must be a whole number of 64 bits; `what` names it in the error."""
    if not is_integer(value):
        raise FormatError(f"{what} must be a whole number, found {_shown(value)}")
    return value


def is_integer(value: object) -> TypeGuard[int]:
    """Return True for a whole number of 64 bits. JSON allows larger ones, which a float loses."""
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63


def mapping(value: object, what: str) -> dict[str, Any]:
    """Return `value`, which must be an object; `what` names it in the error."""
    if not isinstance(value, dict):
        raise FormatError(f"{what} must be an object, found {_shown(value)}")
    return value


def sequence(value: object, what: str) -> list[Any]:
    """Return `value`, which must be an array; `what` names it in the error."""
    if not isinstance(value, list):
        raise FormatError(f"{what} must be an array, found {_shown(value)}")
    return value


def enum_name(names: tuple[str, ...], value: object, what: str) -> str:
    """The name of a number in one of this module's enumerations."""
    number = integer(value, what)
    if not 0 <= number < len(names):
        raise FormatError(f"unknown {what} {number}")
    return names[number]


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."


# Python needs about 64 bytes for a JSON value of three characters: without a limit, a small file
# takes all memory. Graphs have a value for every 20 to 30 characters, and fewer than a hundred for
# each node.
MAX_TEXT = 1 << 30
SMALL_TEXT = 8 << 20  # not worth counting
MAX_VALUES = 10_000_000


def parse_json(data: str | bytes | memoryview) -> Any:
    """Parse JSON, given as text or UTF-8.

    Raises `FormatError` for more than `MAX_TEXT` characters or `MAX_VALUES` values, and the errors
    of `json` (`RecursionError` for deep nesting).
    """
    content = data if isinstance(data, str) else bytes(data).decode("utf-8")
    if len(content) > SMALL_TEXT:
        values = sum(map(content.count, ",[{"))
        if len(content) > MAX_TEXT or values > MAX_VALUES:
            raise FormatError(
                f"JSON of {len(content):,} characters and about {values:,} values is too large"
            )
    return json.loads(content)


# --------------------------------------------------------------------------------------------
# Long payloads. A delegate call has its blob and its weights as base64 inside JSON text: gigabytes
# in one string. Cut them out before parsing the text, and keep their size in a mark.

MIN_PAYLOAD = 4096  # bytes: shorter base64 costs little, and could be a text
_CHUNK = 32 << 20  # bytes: bounds the memory for a search in gigabytes
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
_DELEGATE = re.compile(rb"processed_bytes")
_KEPT_KEY = re.compile(rb'value[\\": ]*$')  # a compile spec: small, and needed
_MARK = re.compile(r"@payload:(\d{1,18})@")


# The byte of a program's JSON where a payload was cut out, and its decoded size.
Cut = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Payload:
    """Base64 text in a program's JSON: bytes `start` to `end` of the member."""

    start: int
    end: int

    def size(self, data: memoryview) -> int:
        """Number of decoded bytes."""
        return (self.end - self.start) // 4 * 3 - bytes(data[self.end - 2 : self.end]).count(b"=")


def find_payloads(data: memoryview) -> list[Payload]:
    """Find the long runs of base64 between quotes in a program's JSON, except compile specs."""
    runs: list[Payload] = []
    if _DELEGATE.search(data) is None:
        return runs
    previous = 0  # one past the last quote seen
    for start in range(0, len(data), _CHUNK):
        chunk = np.frombuffer(data[start : start + _CHUNK], dtype=np.uint8)
        quotes = np.flatnonzero(chunk == ord('"')) + start
        if len(quotes) == 0:
            continue
        begins = np.concatenate([[previous], quotes[:-1] + 1])
        for index in np.flatnonzero(quotes - begins >= MIN_PAYLOAD):
            begin, end = int(begins[index]), int(quotes[index])
            while end > begin and data[end - 1] == ord("\\"):  # the quote is an escaped one
                end -= 1
            is_base64 = not any(
                bytes(data[at : min(at + _CHUNK, end)]).translate(None, _BASE64)
                for at in range(begin, end, _CHUNK)
            )
            if is_base64 and not _KEPT_KEY.search(bytes(data[max(0, begin - 64) : begin])):
                runs.append(Payload(begin, end))
        previous = int(quotes[-1]) + 1
    return runs


def _mark(size: int) -> bytes:
    return b"@payload:%d@" % size


def without_payloads(data: memoryview) -> memoryview:
    """Replace each long payload in the JSON by a mark: see `payload_size`."""
    pieces: list[bytes | memoryview] = []
    position = 0
    for run in find_payloads(data):
        pieces += [data[position : run.start], _mark(run.size(data))]
        position = run.end
    return memoryview(b"".join([*pieces, data[position:]])) if pieces else data


def cut_payloads(data: memoryview) -> tuple[bytes, tuple[Cut, ...]]:
    """Remove each long payload from the JSON, and return where: see `with_marks`."""
    pieces: list[memoryview] = []
    cuts: list[Cut] = []
    position = length = 0
    for run in find_payloads(data):
        pieces.append(data[position : run.start])
        length += run.start - position
        cuts.append((length, run.size(data)))
        position = run.end
    return b"".join([*pieces, data[position:]]), tuple(cuts)


def with_marks(data: memoryview, cuts: Iterable[Cut]) -> memoryview:
    """Insert marks into the JSON where `cut_payloads` removed payloads."""
    pieces: list[bytes | memoryview] = []
    position = 0
    for place, size in cuts:
        if not position < place < len(data) or data[place - 1] != ord('"') or size < 0:
            raise FormatError(
                f"the record lists a cut payload at byte {place:,}, where the JSON has none"
            )
        pieces += [data[position:place], _mark(size)]
        position = place
    return memoryview(b"".join([*pieces, data[position:]])) if pieces else data


def payload_size(value: object) -> int:
    """Return the number of decoded bytes of a base64 text or of a mark; 0 for None."""
    if value is None:
        return 0
    content = text(value, "a payload")
    mark = _MARK.fullmatch(content)
    if mark:
        return int(mark.group(1))
    return max(0, len(content) // 4 * 3 - content[-2:].count("="))
