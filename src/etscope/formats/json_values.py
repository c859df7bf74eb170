"""The reader of etscope's own JSON files: run.json, calibrations, the states of searches, caps.

A value knows its place in the file, so that an error names it: "peaks[0].gemm[2].m".
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, asdict, dataclass, fields
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from etscope.errors import FormatError, reading
from etscope.formats.bytes.files import BytesLike, PathLike, open_source
from etscope.formats.exported_program.exported_json import is_integer, parse_json
from etscope.support.shown import Shown

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["JsonValue", "read_json"]

_MOST_BYTES = 256 << 20  # far above any real file: do not read a wrong file into memory

_Read = TypeVar("_Read")
_Record = TypeVar("_Record", bound="DataclassInstance")


def read_json(
    data_or_path: BytesLike | PathLike, kind: str, *, most_bytes: int = _MOST_BYTES
) -> JsonValue:
    """Read a JSON file of etscope's; `kind` names the format in messages ("calibration").

    Raises `MissingFileError`, and `FormatError` for broken JSON and for a file that is too large.
    """
    source = open_source(data_or_path, kind)
    with reading(kind, source.path):
        if source.size > most_bytes:
            raise FormatError(f"not a valid {kind}: {source.size:,} bytes is too large")
        return JsonValue(parse_json(source.buffer))


@dataclass(frozen=True, slots=True)
class JsonValue(Shown):
    """A value of a JSON file, and its place in it: "peaks[0].gemm[2].m", "" for the whole.

    Methods raise `FormatError` for a value of another kind. A null member counts as missing.
    """

    value: Any
    where: str = ""

    def wrong(self, expected: str) -> FormatError:
        """Return the error for another value than the expected one."""
        return FormatError(f"expected {expected}, found {self.value!r:.60}", member=self.where)

    # -- members of an object or array

    def get(self, name: str) -> JsonValue:
        """Return the member of an object."""
        found = self.find(name)
        if found is None:
            raise FormatError(f"{name!r} is missing", member=self.where or None)
        return found

    def find(self, name: str) -> JsonValue | None:
        """Return the member of an object, None if it is missing."""
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        value = self.value.get(name)
        where = f"{self.where}.{name}" if self.where else name
        return None if value is None else JsonValue(value, where)

    def optional(self, name: str, read: Callable[[JsonValue], _Read]) -> _Read | None:
        """Return a member of an object, converted by `read`; None if it is missing."""
        found = self.find(name)
        return None if found is None else read(found)

    def members(self) -> dict[str, JsonValue]:
        """Return the members of an object by name."""
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        found = ((str(name), self.find(name)) for name in self.value)
        return {name: member for name, member in found if member is not None}

    def array(self) -> list[JsonValue]:
        """Return the entries of an array."""
        if not isinstance(self.value, (list, tuple)):  # a tuple: content that was not saved yet
            raise self.wrong("an array")
        return [JsonValue(one, f"{self.where}[{index}]") for index, one in enumerate(self.value)]

    def entries(self, name: str) -> list[JsonValue]:
        """Return the entries of an array in an object; none if it is missing."""
        return self.optional(name, JsonValue.array) or []

    def texts(self, name: str) -> tuple[str, ...]:
        """Return the texts of an array in an object; none if it is missing."""
        return tuple(one.text() for one in self.entries(name))

    def integers(self, name: str) -> npt.NDArray[np.int64]:
        """Return the whole numbers of an array in an object, int64 [n]; none if it is missing."""
        given = self.find(name)
        values = [] if given is None else given.value
        # All at once: a call for each of 100,000 numbers is slow.
        if isinstance(values, (list, tuple)) and set(map(type, values)) <= {int}:
            with suppress(OverflowError):
                return np.array(values, np.int64)
        return np.array([one.whole() for one in self.entries(name)], np.int64)

    def record(self, name: str, kind: type[_Record]) -> _Record | None:
        """Return the dataclass of a member of an object, see `read_as`; None if it is missing."""
        return self.optional(name, lambda found: found.read_as(kind))

    def read_as(self, kind: type[_Record], json_name: Callable[[str], str] = str) -> _Record:
        """Return a dataclass of plain values. Each field comes from the member of its name.

        A missing one has its default, or is None if its type allows that.
        """
        values: dict[str, Any] = {}
        for one in fields(kind):
            name, declared = json_name(one.name), str(one.type)
            found = self.find(name)
            if found is not None:
                values[one.name] = _READERS[declared.removesuffix(" | None")](found)
            elif declared.endswith(" | None"):
                values[one.name] = None
            elif one.default is MISSING and one.default_factory is MISSING:
                self.get(name)  # raises
        return kind(**values)

    # -- plain values

    def text(self, allowed: Sequence[str] = ()) -> str:
        """Return a text, one of those allowed if there are any."""
        if not isinstance(self.value, str) or (allowed and self.value not in allowed):
            raise self.wrong(f"one of {', '.join(allowed)}" if allowed else "text")
        return self.value

    def label(self) -> str | None:
        """Return a text, or a number as text; None for an empty text."""
        is_number = isinstance(self.value, (int, float))
        return str(self.value) if is_number else self.text() or None

    def whole(self) -> int:
        """Return a whole number that fits into 64 bits with its sign."""
        if not is_integer(self.value):
            raise self.wrong("a whole number")
        return self.value

    def count(self) -> int:
        """Return a whole number above 0."""
        if not is_integer(self.value) or self.value < 1:
            raise self.wrong("a whole number above 0")
        return self.value

    def number(self) -> float:
        """Return a finite number."""
        is_number = isinstance(self.value, float) or is_integer(self.value)
        if not is_number or not math.isfinite(self.value):
            raise self.wrong("a number")
        return float(self.value)

    def any_number(self) -> float:
        """Return a number; NaN and infinities, which JSON does not have, are texts."""
        is_text = self.value in ("nan", "inf", "-inf")
        return float(self.value) if is_text else self.number()

    def flag(self) -> bool:
        """Return true or false."""
        if not isinstance(self.value, bool):
            raise self.wrong("true or false")
        return self.value

    def time(self) -> datetime:
        """Return an ISO 8601 time, in UTC if it does not have a zone."""
        try:  # Python before 3.11 does not understand a "Z".
            found = datetime.fromisoformat(re.sub("Z$", "+00:00", self.text()))
        except ValueError as error:
            raise self.wrong("an ISO 8601 time") from error
        return found if found.tzinfo else found.replace(tzinfo=timezone.utc)


def _tuple_of(read: Callable[[JsonValue], Any]) -> Callable[[JsonValue], tuple[Any, ...]]:
    return lambda given: tuple(map(read, given.array()))


_READERS: Mapping[str, Callable[[JsonValue], Any]] = {
    "str": JsonValue.text,
    "int": JsonValue.whole,
    "float": JsonValue.any_number,
    "bool": JsonValue.flag,
    "tuple[str, ...]": _tuple_of(JsonValue.text),
    "tuple[float, ...]": _tuple_of(JsonValue.any_number),
    "tuple[tuple[float, ...], ...]": _tuple_of(_tuple_of(JsonValue.any_number)),
    "Mapping[str, int]": lambda given: {k: one.whole() for k, one in given.members().items()},
}


def to_json(record: DataclassInstance) -> dict[str, Any]:
    """Return the values of a dataclass as plain JSON; the reverse of `JsonValue.read_as`."""
    found: dict[str, Any] = _plain(asdict(record))
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
