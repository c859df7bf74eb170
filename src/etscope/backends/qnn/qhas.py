"""Read QNN's HTP analysis summary (QHAS), which qnn-profile-viewer writes next to an optrace.

`backends/qualcomm/debugger/utils.py` asks for it with the feature "qhas_json"; the file is
`optrace_N_qnn_htp_analysis_summary.json`. Its header has the artifact type "QHAS"; `data` has
tables, each a list of objects below `data`: `htp_overall_summary` (of the graph, with the resources
of the HTP), `qnn_op_instances_nodes` (a row for each node of QNN), `qnn_op_types`, `htp_op_types`
and others. Cycles are of the HTP, traffic is in bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from etscope.backends.common.chrome_trace import is_number
from etscope.backends.common.imported import BackendFile, Basis, ImportedRow
from etscope.errors import FormatError
from etscope.model.table import Column, Kind

KIND = "QNN HTP analysis summary"
BACKENDS = ("QnnBackend",)
_TRAFFIC = ("dram_read", "dram_write", "vtcm_read", "vtcm_write")
COLUMNS = (
    Column("cycles_share", Kind.SHARE, title="of active cycles", priority=2),
    Column("dominant_path", Kind.FLOAT, "cycles", title="dominant path", priority=2),
    Column("utilization", Kind.SHARE, priority=2),
    *(Column(name, Kind.BYTES, title=name.replace("_", " "), priority=3) for name in _TRAFFIC),
)
# Members of the overall summary: name, unit, and whether QNN derives it from others.
_SUMMARY: Mapping[str, tuple[str, Basis]] = {
    "time_us": ("us", Basis.MEASURED),
    "graph_execute_us": ("us", Basis.MEASURED),
    "timeline_cycles": ("cycles", Basis.MEASURED),
    "inf_per_s": ("inferences/s", Basis.DERIVED),
    "percent_utilization": ("%", Basis.DERIVED),
    "percent_idle": ("%", Basis.DERIVED),
    "peak_vtcm_alloc": ("bytes", Basis.MEASURED),
    "total_dram_read": ("bytes", Basis.MEASURED),
    "total_dram_write": ("bytes", Basis.MEASURED),
    "total_vtcm_read": ("bytes", Basis.MEASURED),
    "total_vtcm_write": ("bytes", Basis.MEASURED),
    "qnn_nodes": ("count", Basis.MEASURED),
    "htp_nodes": ("count", Basis.MEASURED),
}


def recognises(document: Mapping[str, Any]) -> bool:
    """True for a document with QHAS's header, or its first table."""
    header, data = document.get("header"), document.get("data")
    named = isinstance(header, dict) and header.get("artifact_type") == "QHAS"
    return named or (isinstance(data, dict) and "htp_overall_summary" in data)


def read(path: str, document: Mapping[str, Any]) -> BackendFile:
    """Read a summary: the graph, the HTP's resources, nodes of QNN, types of the HTP's operations.

    Raises `FormatError` for a summary without the overall table.
    """
    data = document.get("data")
    tables = data if isinstance(data, dict) else {}
    overall = _rows(tables, "htp_overall_summary")
    if not overall:
        raise FormatError(
            "this QHAS file does not have the table htp_overall_summary", member="data"
        )
    rows: list[ImportedRow] = []
    for one in overall:
        for name, (unit, basis) in _SUMMARY.items():
            if is_number(one.get(name)):
                rows.append(ImportedRow(name, one[name], unit, "graph", basis=basis))
        for row in _rows(one, "htp_resources"):
            name = f"{row.get('type', 'unit')} {row.get('tid', '')}".strip()
            rows.append(_in_cycles(name, "HTP unit", row, "cycles_used"))
    for row in _rows(tables, "qnn_op_instances_nodes"):
        name, kind = str(row.get("qnn_op") or "(no name)"), row.get("qnn_op_type", "")
        rows.append(_in_cycles(name, f"QNN node ({kind})", row, nodes=(name,)))
    rows += (
        _in_cycles(str(row.get("op") or "(no name)"), "HTP operation", row)
        for row in _rows(tables, "htp_op_types")
    )
    return BackendFile(path, KIND, BACKENDS, tuple(rows), group_title="of", columns=COLUMNS)


def _rows(tables: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    table = tables.get(name)
    rows = table.get("data") if isinstance(table, dict) else None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _in_cycles(
    name: str,
    group: str,
    row: Mapping[str, Any],
    cycles: str = "cycles",
    nodes: tuple[str, ...] = (),
) -> ImportedRow:
    dominant = next((key for key in row if key.startswith("num_dominant_path_cycles")), "")
    extra = {
        "cycles_share": _share(row.get("percent_active_cycles")),
        "dominant_path": _number(row.get(dominant)),
        "utilization": _share(row.get("utilization")),
        **{key: _number(row.get(key)) for key in _TRAFFIC},
    }
    events = row.get("num_htp_ops", row.get("instances"))
    count = int(events) if is_number(events) else None
    return ImportedRow(
        name, _number(row.get(cycles)), "cycles", group, count, nodes=nodes, extra=extra
    )


def _number(value: Any) -> Any:
    """Return a number of at least 0; None for anything else."""
    return value if is_number(value) and value >= 0 else None


def _share(percent: Any) -> float | None:
    return percent / 100 if is_number(percent) else None
