"""Read Arm's debug.json, the map from TOSA operations to nodes of the model.

`backends/arm/debug/schema.py` (`DebugHook.serialize`) makes it, and `backends/arm/tosa/backend.py`
writes it next to the intermediate artifacts. It is a list with an event for each TOSA operation.
An event has `aten_info` (node of the lowered graph), `tosa_info` (not in the mode that puts it into
the TOSA file) and `torch_info` (stack trace as a list of lines, modules, chain of source nodes,
innermost first). It does not have numbers: it links the rows of Vela's files to the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from etscope.backends.common.imported import BackendFile, Basis, ImportedRow
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
        notes=(
            "This map does not have numbers: it links rows of the call's other files to nodes.",
        ),
    )


def _row(event: Mapping[str, Any]) -> ImportedRow:
    parts = (event.get(f"{name}_info") for name in ("aten", "tosa", "torch"))
    aten, tosa, torch = (part if isinstance(part, dict) else {} for part in parts)
    trace, stack = torch.get("node_trace"), torch.get("stack_trace")
    names = [
        one["name"]
        for one in (trace if isinstance(trace, list) else ())
        if isinstance(one, dict) and isinstance(one.get("name"), str)
    ]
    text = "\n".join(map(str, stack)) if isinstance(stack, list) else str(stack or "")
    if text.startswith("File "):  # Arm strips the first line's indentation: restore it
        text = f"  {text}"
    modules = torch.get("nn_module_stack")
    innermost = [*modules.values()][-1] if isinstance(modules, dict) and modules else None
    path = innermost[0] if isinstance(innermost, (list, tuple)) and innermost else None
    return ImportedRow(
        str(aten.get("node_name", "")),
        None,
        None,
        str(tosa.get("operator_name", "")).removeprefix("Op."),
        basis=Basis.DERIVED,
        nodes=tuple(dict.fromkeys(names)),
        lines=source_lines(text),
        module=None if path is None else str(path),
        extra={
            "aten": str(aten.get("operator_name", "")),
            "made_of": list(dict.fromkeys(names)),
        },
    )
