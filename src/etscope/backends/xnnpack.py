"""XNNPACK's events, and the microkernels that it logs.

The delegate logs the time of each operator, one after the other. Since pytorch/executorch#18991 an
event has metadata "<symbol>\\0<us>": the microkernel that computed it, and its time in that run
(examples/riscv/etdump_summary.py reads it so). XNNPACK built with XNN_LOG_LEVEL of 4 or more prints
a line "Note (XNNPACK): … microkernel '<symbol>'" for each microkernel that it registers, used or
not. Neither is in the Python package of ExecuTorch 1.5.

A symbol is "xnn_<type>_<operation>_ukernel_<tile>__<instruction set>…" (XNNPACK's
doc/microkernel-naming-conventions.md), or KleidiAI's "kai_…_neon_dotprod".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from etscope.backends.common.imported import BackendFile, ImportedRow
from etscope.backends.common.logged import LoggedCall, in_a_row
from etscope.errors import FormatError
from etscope.model.event_table import Meaning, Quantity

KIND = "XNNPACK log"
BACKENDS = ("XnnpackBackend",)
_LINE = re.compile(r"Note \(XNNPACK\):[^\n']{0,200}microkernel '(\w{1,200})'")
_SYMBOL = re.compile(rb"(?:xnn|kai)_\w{1,200}")
_INSTRUCTIONS = re.compile(
    r"(?:^|_)((?:avx|fma3|sse|ssse|f16c|sve|sme|rvv|hvx|wasm|armsimd32|fp16arith|scalar)[a-z0-9]*"
    r"|neon(?:_dotprod|_i8mm|[a-z0-9]*))(?=_|$)"
)


def instruction_set(symbol: str) -> str | None:
    """Return the instruction set of a microkernel: "avx512skx", "neonfma", "rvv"."""
    last = symbol if symbol.startswith("kai_") else symbol.rpartition("__")[2]
    found = _INSTRUCTIONS.search(last)
    return None if found is None else found[1]


def decode(call: LoggedCall) -> list[Meaning]:
    """Return times one after the other, with the microkernel if the delegate logged it."""
    found = in_a_row(call)
    for number, meaning in enumerate(found):
        symbol, _, us = call.metadata_of(number).partition(b"\0")
        if _SYMBOL.fullmatch(symbol):
            columns: dict[str, str | float] = {"microkernel": symbol.decode()}
            if (known := instruction_set(symbol.decode())) is not None:
                columns["instruction_set"] = known
            if (time := us.rstrip(b"\0")).isdigit() and int(time):
                columns["microkernel_us"] = int(time)
            found[number] = replace(meaning, columns=columns)
    return found


def recognises_log(text: str) -> bool:
    """True for a log with a line of a microkernel."""
    return _LINE.search(text) is not None


def read_log(path: str, text: str) -> BackendFile:
    """Read the microkernels that XNNPACK registered, each once. Raises `FormatError` for a log
    without one."""
    symbols: Sequence[str] = list(dict.fromkeys(_LINE.findall(text)))
    if not symbols:
        raise FormatError("this log does not have a line of a microkernel")
    sets = {symbol: instruction_set(symbol) or "" for symbol in symbols}
    return BackendFile(
        path,
        KIND,
        BACKENDS,
        tuple(
            ImportedRow(symbol, None, None, known, quantity=Quantity.INSTANT)
            for symbol, known in sets.items()
        ),
        group_title="instruction set",
        notes=(
            f"XNNPACK registered {len(symbols):,} microkernels for "
            f"{', '.join(sorted(set(filter(None, sets.values()))))}. The log does not say which of "
            "them ran.",
        ),
    )
