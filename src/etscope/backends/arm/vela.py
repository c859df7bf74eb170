"""Read the CSV files of estimates that Vela writes when it compiles for Ethos-U.

`<name>_per-layer.csv` has a row for each operation of the NPU (ethosu/vela/stats_writer.py,
`write_regor_perlayer_performance_csv`). Vela writes it with --verbose-performance, which ExecuTorch
passes if the backend's logger is at INFO. `Name` is the TOSA tensor that the operation computes;
Arm's debug.json links it to PyTorch. `<name>_summary_<system>.csv`
(`write_summary_metrics_csv_common`) has one row: memory in KiB, traffic in bytes, cycles,
`inference_time` in seconds, bandwidths in GiB/s.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence

from etscope.backends.common.imported import BackendFile, Basis, ImportedRow
from etscope.errors import FormatError
from etscope.model.event_table import Quantity
from etscope.model.table import Column, Kind

LAYERS, SUMMARY = "Vela per-layer estimate", "Vela summary estimate"
BACKENDS = ("EthosUBackend", "ArmBackend")
_NOTE = "All numbers are estimates that Vela made when it compiled the model, not measurements."
# Our column -> column of the file, title. The older compiler has other names for some columns:
# "SRAM Usage", "Network%" and "Peak%".
_CYCLES = {
    "npu_cycles": ("NPU", "NPU"),
    "sram_cycles": ("SRAM AC", "SRAM access"),
    "dram_cycles": ("DRAM AC", "DRAM access"),
    "on_chip_flash_cycles": ("OnFlash AC", "on-chip flash access"),
    "off_chip_flash_cycles": ("OffFlash AC", "off-chip flash access"),
}
_LAYER_COLUMNS = (
    Column("cycles_share", Kind.SHARE, title="of network", priority=1),
    *(
        Column(name, Kind.FLOAT, "cycles", title=title, priority=2 if name == "npu_cycles" else 4)
        for name, (_, title) in _CYCLES.items()
    ),
    Column("staging_usage", Kind.BYTES, title="staging", priority=3),
    Column("macs", Kind.COUNT, title="MACs", priority=3),
    Column("mac_utilization", Kind.SHARE, title="MAC use", priority=2),
    Column("placed_on", title="runs on", priority=5),
)
_TIMES = {"inference_time": ("s", 1.0), "inferences_per_second": ("inferences/s", 1.0)}
_COUNTS = ("nn_macs", "total_original_weights", "total_npu_encoded_weights")


def is_layers(text: str) -> bool:
    """True for text that begins with the header of a per-layer file."""
    names = _header(text).split(",")
    return "NNG Operator" in names and "Op Cycles" in names


def is_summary(text: str) -> bool:
    """True for text that begins with the header of a summary."""
    header = _header(text)
    return header.startswith("experiment,network,") and "cycles_total" in header.split(",")


def _header(text: str) -> str:
    return text.partition("\n")[0].strip()


def read_layers(path: str, text: str) -> BackendFile:
    """Read a per-layer file; the NPU runs its rows in order."""
    rows = [_layer(row) for row in _table(text)]
    if not rows:
        raise FormatError("this Vela file has a header, but no layer")
    return BackendFile(
        path,
        LAYERS,
        BACKENDS,
        tuple(rows),
        group_title="NPU operation",
        value_title="operation",
        columns=_LAYER_COLUMNS,
        notes=(_NOTE,),
    )


def _layer(row: Mapping[str, str]) -> ImportedRow:
    name, operator = row.get("Name", ""), row["NNG Operator"]
    staging = row.get("Staging Usage", row.get("SRAM Usage", ""))
    utilization = row.get("Util% (MAC)", row.get("Util%", ""))
    return ImportedRow(
        name or operator,
        _number(row["Op Cycles"]),
        "cycles",
        operator,
        quantity=Quantity.ESTIMATE,
        basis=Basis.ESTIMATED,
        nodes=(name,) if name else (),
        extra={
            "cycles_share": _share(row.get("Network% (cycles)", "")),
            **{ours: _number(row.get(theirs, "")) for ours, (theirs, _) in _CYCLES.items()},
            "staging_usage": _number(staging),
            "macs": _number(row.get("MAC Count", "")),
            "mac_utilization": _share(utilization),
            "placed_on": row.get("Target"),
        },
    )


def read_summary(path: str, text: str) -> BackendFile:
    """Read a summary, with a row for each of its numbers."""
    table = _table(text)
    if not table:
        raise FormatError("this Vela summary has a header, but no row")
    row = table[-1]  # Vela writes one row, but a user may have joined several files
    about = ("accelerator_configuration", "system_config", "memory_mode")
    notes = (_NOTE, " · ".join(f"{name.replace('_', ' ')} {row.get(name, '?')}" for name in about))
    found = [
        ImportedRow(
            name,
            value * factor,
            unit,
            group,
            quantity=Quantity.ESTIMATE,
            basis=Basis.ESTIMATED,
        )
        for name, text_value in row.items()
        for value in [_number(text_value)]
        for meaning in [_meaning(name)]
        if value is not None and meaning is not None
        for group, unit, factor in [meaning]
    ]
    return BackendFile(
        path,
        SUMMARY,
        BACKENDS,
        tuple(found),
        group_title="of",
        notes=notes,
    )


def _meaning(name: str) -> tuple[str, str, float] | None:
    """Return the group, unit and factor of a summary's column; None if it is not a result."""
    if name in _TIMES:
        return ("time", *_TIMES[name])
    if name == "core_clock":
        return "clock", "Hz", 1.0
    if name.startswith("cycles_"):
        return "cycles", "cycles", 1.0
    if name.endswith("_memory_used"):
        return "memory", "bytes", 1024.0
    if name.endswith("_bytes"):
        return "traffic", "bytes", 1.0
    if name in _COUNTS:
        return "network", "bytes" if name.endswith("weights") else "count", 1.0
    return None


def _table(text: str) -> Sequence[Mapping[str, str]]:
    try:
        rows = list(csv.reader(io.StringIO(text)))
    except csv.Error as error:
        raise FormatError(f"this Vela file is not valid CSV: {error}") from error
    header = rows[0]
    for number, row in enumerate(rows[1:], 2):
        if row and len(row) != len(header):
            raise FormatError(
                f"line {number} of this file has {len(row)} columns, but the header has "
                f"{len(header)}"
            )
    return [dict(zip(header, row, strict=True)) for row in rows[1:] if row]


def _number(text: str) -> float | None:
    """Return the finite number in a cell; None for anything else, such as "NaN" or ""."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _share(text: str) -> float | None:
    value = _number(text)
    return None if value is None else value / 100
