"""Read Arm's debug.json: which TOSA operation is of which node of the model.

`backends/arm/debug/schema.py` (`DebugHook.serialize`) makes it, `backends/arm/tosa/backend.py`
writes it beside the intermediate artifacts: a list with an event for each TOSA operation, each with
`aten_info` (node of the lowered graph), `tosa_info` (absent in the mode that puts it into the TOSA
file) and `torch_info` (stack trace as a list of lines, modules, chain of the nodes that it was made
of, innermost first). It has no numbers: it tells what is behind the rows of Vela's files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from etscope.backend_files.imported import BackendFile, Basis, ImportedRow
from etscope.errors import FormatError
from etscope.model.graph import source_lines
from etscope.model.table import Column, Kind

KIND = "Arm debug map"
BACKENDS = ("EthosUBackend", "ArmBackend", "VgfBackend", "TOSABackend")
COLUMNS = (
    Column("aten", title="operator", priority=3),
    Column("made_of", Kind.LIST, title="made of", priority=2),
)


def recognises(document: Any) -> bool:
    """True for a list of debug events."""
    first = document[0] if isinstance(document, list) and document else None
    return isinstance(first, dict) and "event_id" in first and "aten_info" in first


def read(path: str, document: Sequence[Any]) -> BackendFile:
    """Read a debug map, a row for each TOSA operation."""
    rows = []
    for number, event in enumerate(document):
        if not isinstance(event, dict) or not isinstance(event.get("aten_info"), dict):
            raise FormatError(
                "this debug event is not an object with aten_info", member=str(number)
            )
        rows.append(_row(event))
    return BackendFile(
        path,
        KIND,
        BACKENDS,
        tuple(rows),
        group_title="TOSA",
        columns=COLUMNS,
        notes=("It has no numbers: it tells what is behind the rows of other files of the call.",),
    )


def _row(event: Mapping[str, Any]) -> ImportedRow:
    aten, tosa, torch = (_object(event.get(f"{name}_info")) for name in ("aten", "tosa", "torch"))
    trace, stack = torch.get("node_trace"), torch.get("stack_trace")
    names = [
        one["name"]
        for one in (trace if isinstance(trace, list) else ())
        if isinstance(one, dict) and isinstance(one.get("name"), str)
    ]
    text = "\n".join(map(str, stack)) if isinstance(stack, list) else str(stack or "")
    return ImportedRow(
        str(aten.get("node_name", "")),
        None,
        None,
        str(tosa.get("operator_name", "")).removeprefix("Op."),
        basis=Basis.DERIVED,
        nodes=tuple(dict.fromkeys(names)),
        lines=source_lines(_indented(text)),
        module=_module(torch.get("nn_module_stack")),
        extra={
            "aten": str(aten.get("operator_name", "")),
            "made_of": list(dict.fromkeys(names)),
        },
    )


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _indented(stack: str) -> str:
    """The stack as Python writes it: upstream strips the first line's indentation."""
    return f"  {stack}" if stack.startswith("File ") else stack


def _module(stack: Any) -> str | None:
    """The innermost module's path; None where the file has none."""
    frames = list(stack.values()) if isinstance(stack, dict) else []
    last = frames[-1] if frames else None
    return str(last[0]) if isinstance(last, (list, tuple)) and last else None
