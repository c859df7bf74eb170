"""Arguments and tensor descriptions of a serialized graph: as text, and as `TensorSpec`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from etscope.errors import FormatError
from etscope.formats.exported_program.exported_json import (
    DTYPES,
    LAYOUTS,
    MEMORY_FORMATS,
    enum_name,
    integer,
    mapping,
    sequence,
    text,
    union,
)
from etscope.model.graph import TensorSpec


def tensor_spec(content: object) -> TensorSpec:
    """The description of a tensor value: an entry of `tensor_values`."""
    meta = mapping(content, "a tensor's description")
    sizes = [_size(size) for size in sequence(meta["sizes"], "sizes")]
    strides = [_size(size)[0] for size in sequence(meta["strides"], "strides")]
    symbolic = any(isinstance(size, str) for size, _ in sizes)
    return TensorSpec(
        dtype=enum_name(DTYPES, meta["dtype"], "dtype"),
        shape=tuple(size for size, _ in sizes),
        strides=tuple(strides),
        device=_device(meta["device"]),
        hints=tuple(hint for _, hint in sizes) if symbolic else (),
    )


def _size(value: object) -> tuple[int | str, int | None]:
    """A size or stride with its hint: of a number itself, of an expression where recorded."""
    tag, content = union(value)
    if tag == "as_int":
        number = integer(content, "a size")
        return number, number
    expression = mapping(content, "a symbolic size")
    hint = expression.get("hint")
    known = None if hint is None else union(hint)[1]
    shown = text(expression["expr_str"], "a symbolic size")
    return shown, known if known is None else integer(known, "the hint of a symbolic size")


def _device(value: object) -> str:
    device = mapping(value, "a device")
    kind = text(device["type"], "a device's type")
    index = device.get("index")
    return kind if index is None else f"{kind}:{integer(index, 'the index of a device')}"


class Arguments:
    """Arguments of nodes as text, with the names that values have in the graph.

    `names` maps a value's name in the file to its name in the graph; it is read as it grows.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def text(self, argument: object, used: list[str]) -> str:
        """An argument as a person would write it; names of the values in it are put in `used`."""
        tag, content = union(argument)
        return self._text(tag, content, used)

    def _text(self, tag: str, content: Any, used: list[str]) -> str:
        if tag in ("as_tensor", "as_custom_obj", "as_graph"):
            return self._use(content["name"], used)
        if tag in ("as_sym_int", "as_sym_bool", "as_sym_float"):
            inner, value = union(content)
            return self._use(value, used) if inner == "as_name" else repr(value)
        if tag == "as_none":
            return "None"
        if tag == "as_scalar_type":
            return "torch." + enum_name(DTYPES, content, "dtype")
        if tag == "as_memory_format":
            return "torch." + enum_name(MEMORY_FORMATS, content, "memory format")
        if tag == "as_layout":
            return "torch." + enum_name(LAYOUTS, content, "layout")
        if tag == "as_device":
            return repr(_device(content))
        if tag in ("as_int", "as_float", "as_bool", "as_string"):
            return repr(content)
        if tag == "as_operator":
            return text(content, "an operator")
        if tag == "as_tensors":
            return self._list((("as_tensor", item) for item in content), used)
        if tag == "as_optional_tensors":
            return self._list(map(union, content), used)
        if tag in ("as_sym_ints", "as_sym_bools", "as_sym_floats"):
            return self._list(((tag[:-1], item) for item in content), used)
        if tag in ("as_ints", "as_floats", "as_bools", "as_strings"):
            return repr(sequence(content, "a list"))
        raise FormatError(f"unknown kind of argument: {tag[:60]}")

    def _list(self, items: Any, used: list[str]) -> str:
        return "[" + ", ".join(self._text(tag, item, used) for tag, item in items) + "]"

    def _use(self, written: object, used: list[str]) -> str:
        name = self._names.get(text(written, "a value's name"))
        if name is None:
            raise FormatError(f"a node uses the value {written!r} before any node gives it")
        used.append(name)
        return name
