"""What the events of a dump are, apart from their times: the same for every dump of a program.

A `Pattern` has a row for each event of each block. It is made once for all dumps that logged the
same sequences with the same record; a dump then only adds its times.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.profile.blocks import Block, EventKey
from etscope.analysis.profile.correlate import Attribution, handle_list
from etscope.analysis.profile.profile import EXECUTE, KERNEL_PREFIX, executes
from etscope.analysis.profile.source_location import common_module
from etscope.analysis.profile.trace import Trace
from etscope.fleet._records import opened
from etscope.fleet._schema import WANTED_BY, arrow_type
from etscope.formats.etdump.reader import ETDump
from etscope.optional import require

_KEPT = 64  # patterns in memory
_CALLS = {
    "OPERATOR_CALL": "call",
    "DELEGATE_CALL": "delegate",
    "JF_CALL": "control",
    "MOVE_CALL": "control",
    "FREE_CALL": "control",
}
TEXTS = ("method", "block", "kind", "name", "op", "delegate", "module", "source")


@dataclass(frozen=True, eq=False)
class Pattern:
    """K events: those of the first block, then of the next.

    fingerprint: of the sequences. methods: of each block, None where nothing tells. executes:
    whether each block runs a method. texts: [K] dictionary arrays by column. instruction: [K]
    int32 with nulls. handles: [K] lists of int32.
    """

    fingerprint: str
    methods: tuple[str | None, ...]
    executes: tuple[bool, ...]
    texts: dict[str, Any]
    instruction: Any
    handles: Any


_patterns: OrderedDict[tuple[str, str | None], Pattern] = OrderedDict()
_lock = Lock()


def pattern_of(dump: ETDump, fingerprint: str, record: str | None) -> Pattern:
    """The pattern of a dump of that fingerprint with the record at that path.

    Raises `MismatchError` when they do not belong together, and the errors of reading the record.
    """
    with _lock:
        if (found := _patterns.get((fingerprint, record))) is not None:
            _patterns.move_to_end((fingerprint, record))
            return found
    trace = Trace(dump, record=None if record is None else opened(record))
    trace.verify()
    made = _pattern(trace, fingerprint)
    with _lock:
        _patterns[fingerprint, record] = made
        while len(_patterns) > _KEPT:
            _patterns.popitem(last=False)
    return made


def fingerprint_of(blocks: Sequence[Block]) -> str:
    """SHA-256 of the sequences of events of the blocks that a dump has, in their order."""
    hashed = hashlib.sha256()
    for block in blocks:
        hashed.update(repr((block.name, block.bundled_input_index, block.keys)).encode())
    return hashed.hexdigest()


def _pattern(trace: Trace, fingerprint: str) -> Pattern:
    pa = require("pyarrow", wanted_by=WANTED_BY)
    rows: list[tuple[dict[str, str | None], int | None, list[int]]] = []
    for block in trace.blocks:
        attribution = trace.attribution(block)
        method = trace.method_of(block)
        for index in block.profiled:
            key = block.keys[index]
            found = attribution(key)
            texts = {"method": method, "block": block.name, **_texts(key, found)}
            rows.append((texts, key.instruction, handle_list(found.debug_handles)))
    return Pattern(
        fingerprint=fingerprint,
        methods=tuple(trace.method_of(block) for block in trace.blocks),
        executes=tuple(executes(block) for block in trace.blocks),
        texts={name: dictionary([_storable(row[0][name]) for row in rows]) for name in TEXTS},
        instruction=pa.array([row[1] for row in rows], pa.int32()),
        handles=pa.array([row[2] or None for row in rows], arrow_type("ints")),
    )


def dictionary(values: Sequence[str | None]) -> Any:
    """The values as a dictionary array."""
    pa = require("pyarrow", wanted_by=WANTED_BY)
    return pa.array(values, pa.string()).dictionary_encode()


def constant(value: str | None, length: int) -> Any:
    """One value, `length` times, as a dictionary array."""
    pa = require("pyarrow", wanted_by=WANTED_BY)
    if value is None:
        return pa.nulls(length, arrow_type("text"))
    index = pa.array(np.zeros(length, np.int32))
    return pa.DictionaryArray.from_arrays(index, pa.array([_storable(value)], pa.string()))


def iterations(blocks: Sequence[Block], pattern: Pattern, runs: int) -> npt.NDArray[np.int32]:
    """[runs]: which execution of its method a run of the dump is, -1 for one that is none."""
    found = np.full(runs, -1, np.int32)
    by_method: dict[str | None, list[npt.NDArray[np.int64]]] = {}
    for block, method, ran in zip(blocks, pattern.methods, pattern.executes, strict=True):
        if ran:
            by_method.setdefault(method, []).append(block.runs)
    for parts in by_method.values():
        mine = np.sort(np.concatenate(parts))
        found[mine] = np.arange(len(mine))
    return found


def _texts(key: EventKey, found: Attribution) -> dict[str, str | None]:
    kind = _kind(key)
    lines = [str(line) for line in found.lines]
    more = f" +{len(lines) - 1}" if len(lines) > 1 else ""
    return {
        "kind": kind,
        "name": key.name,
        "op": _op(kind, key, found),
        "delegate": found.backend_id if kind in ("delegate", "delegated") else None,
        "module": common_module(found.nodes),
        "source": lines[0] + more if lines else None,
    }


def _kind(key: EventKey) -> str:
    if key.is_framework:
        return "execute" if key.name == EXECUTE else "load"
    if key.delegate_id is not None:
        return "delegated"
    if key.name.startswith(KERNEL_PREFIX):
        return "kernel"
    return _CALLS.get(key.name, "other")


def _op(kind: str, key: EventKey, found: Attribution) -> str | None:
    """The name to add times up by. A fused operator is all of its own, "conv+relu"."""
    if kind == "delegate":
        return found.backend_id
    if kind == "control":
        return key.name
    if kind not in ("call", "kernel", "delegated"):
        return None
    known = "+".join(dict.fromkeys(found.op_types))
    if known or kind == "call":
        return known or None
    return key.name.removeprefix(KERNEL_PREFIX) if kind == "kernel" else key.name


def _storable(text: str | None) -> str | None:
    """`text` without lone surrogates, which Arrow's strings cannot hold."""
    return None if text is None else text.encode("utf-8", "backslashreplace").decode()
