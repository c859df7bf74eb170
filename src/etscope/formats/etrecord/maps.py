"""The maps of an ETRecord, from its JSON (text keys, lists) or from memory (int keys, tuples).

They join instructions of the runtime with debug handles of the graph. ExecuTorch makes them when
it emits the program; 0.1 to 0.7 wrote no `instruction_id_to_num_outs_map`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from etscope.errors import FormatError
from etscope.formats.exported_program.exported_json import integer, mapping, text

Handles = dict[str, dict[int, tuple[int, ...]]]
DelegateMap = dict[str, dict[int, "DelegateEntry"]]
NumOutputs = dict[str, dict[int, int]]

_DECIMAL = re.compile(r"-?\d{1,18}")


@dataclass(frozen=True, slots=True)
class DelegateEntry:
    """What the backend of a delegate instruction said of its own operations.

    `identifiers` maps the backend's identifier of an operation to debug handles. It is text, also
    where the backend used integers: the file has no others.
    """

    name: str
    identifiers: Mapping[str, tuple[int, ...]]


def debug_handles(content: object) -> Handles:
    """method -> instruction -> debug handles, one or several."""
    return {
        method: {instruction: _handles(value) for instruction, value in entries.items()}
        for method, entries in _by_method(content).items()
    }


def handle_lists(content: object) -> dict[str, frozenset[int]]:
    """method -> the instructions whose debug handles stand in a list: delegate calls."""
    return {
        method: frozenset(
            instruction
            for instruction, value in entries.items()
            if isinstance(value, (list, tuple))
        )
        for method, entries in _by_method(content).items()
    }


def delegates(content: object) -> DelegateMap:
    """method -> delegate instruction -> its `DelegateEntry`."""
    return {
        method: {instruction: _delegate(value) for instruction, value in entries.items()}
        for method, entries in _by_method(content).items()
    }


def num_outputs(content: object) -> NumOutputs:
    """method -> delegate instruction -> number of its outputs."""
    return {
        method: {
            instruction: integer(value, "a number of outputs")
            for instruction, value in entries.items()
        }
        for method, entries in _by_method(content).items()
    }


def _by_method(content: object) -> dict[str, dict[int, Any]]:
    return {
        text(method, "a method's name"): {
            _instruction(key): value
            for key, value in mapping(entries, f"the map of {method!r}").items()
        }
        for method, entries in mapping(content, "the map").items()
    }


def _instruction(key: object) -> int:
    if isinstance(key, str) and _DECIMAL.fullmatch(key):
        return int(key)
    return integer(key, "an instruction's index")


def _handles(value: object) -> tuple[int, ...]:
    if isinstance(value, (list, tuple)):
        return tuple(integer(handle, "a debug handle") for handle in value)
    return (integer(value, "a debug handle"),)


def _delegate(value: object) -> DelegateEntry:
    entry = mapping(value, "a delegate's entry")
    identifiers = entry.get("delegate_map")
    if identifiers is None:
        identifiers = {}
    named: dict[str, tuple[int, ...]] = {}
    for key, handles in mapping(identifiers, "a delegate's map").items():
        if not isinstance(key, (str, int)):
            raise FormatError(f"a delegate's identifier must be text or a number, found {key!r}")
        named[str(key)] = _handles(handles)
    return DelegateEntry(text(entry.get("name"), "a backend's name"), named)
