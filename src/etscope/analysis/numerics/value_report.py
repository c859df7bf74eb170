"""Reports of compared values: facts, distribution, error by channel and worst elements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from etscope.analysis.numerics.rows import NumericsRow, described
from etscope.analysis.numerics.values import Histogram, QuantizedRange, ValueComparison
from etscope.model.report import Report, Section, facts, rows
from etscope.model.table import Column, Kind
from etscope.units import format_float

LOCAL, TOTAL = "local", "total"
_AGAINST = {LOCAL: "PyTorch's result from the device's inputs", TOTAL: "the reference"}
_BAR = 32  # characters
_TEXT_BINS = 16  # lines of a histogram in a terminal
_BARS = "█ both, ▓ more on the device, ░ more in the reference"


def row_reports(row: NumericsRow, *, text: bool = False) -> Iterator[Report]:
    """Yield a report of the row's values against each of "local" and "total"; in a text, only the
    comparison that the verdict is based on, with bars. A row without values yields nothing.
    """
    if row.values is None:
        return
    found = {LOCAL: row.values.local, TOTAL: row.values.total}
    chosen = row.values.behind(row.verdict)
    for against, compared in found.items():
        if compared is None or (text and compared is not chosen):
            continue
        explanation = (
            [(Column("explanation", title="what it is"), str(row.explanation))]
            if row.explanation is not None and against == LOCAL
            else []
        )
        head = (
            (Column("instruction", Kind.INT), row.pair.instruction),
            (Column("loop_pass", Kind.INT, title="pass"), row.loop_pass or None),
            (Column("op"), row.label or row.op),
            (Column("module", Kind.PATH), row.module),
            (Column("source", Kind.PATH), str(row.lines[0]) if row.lines else None),
            (Column("verdict"), row.verdict),
            *explanation,
            (Column("against", title="compared with"), _AGAINST[against]),
        )
        about = {"node": row.node, "instruction": str(row.pair.instruction), "against": against}
        title = described(row) if text else row.node
        yield Report(about, tuple(value_sections(compared, title, head, bars=text)))


def value_sections(
    compared: ValueComparison,
    title: str,
    head: Iterable[tuple[Column, Any]] = (),
    *,
    bars: bool = False,
) -> Iterator[Section]:
    """Yield the sections "value" (facts, after `head`'s), "spread", "histogram", "channels"
    and "elements"; the last three only if there is something in them.

    bars: draw the histogram with characters, in fewer bins.
    """
    yield _facts(compared, title, head)
    yield rows(
        "spread",
        "Values",
        (
            Column("side", title=""),
            Column("dtype"),
            *(Column(name, Kind.FLOAT) for name in ("min", "max", "mean", "std")),
            Column("nan", Kind.COUNT, title="NaN"),
            Column("infinite", Kind.COUNT, title="Inf"),
        ),
        [
            (name, one.dtype, one.min, one.max, one.mean, one.std, one.nan, one.infinite)
            for name, one in (("reference", compared.reference), ("device", compared.device))
        ],
    )
    if compared.histogram is not None:
        yield _histogram(compared.histogram, bars=bars)
    channels = compared.channels
    if channels is not None and channels.worst:
        left = channels.count - len(channels.worst)
        yield rows(
            "channels",
            f"Error by channel: the worst of {channels.count:,} (dimension {channels.axis})",
            (
                Column("channel", Kind.INT),
                Column("share", Kind.SHARE, title="of the error"),
                Column("rms", Kind.FLOAT),
                Column("max_abs", Kind.FLOAT, title="largest"),
                Column("sqnr", Kind.FLOAT, unit="dB", title="SQNR"),
                Column("beyond", Kind.COUNT, title="beyond tolerance"),
            ),
            [
                (one.channel, one.share, one.rms, one.max_abs, one.sqnr, one.beyond)
                for one in channels.worst
            ],
            notes=(f"{left:,} more channels, none with more error.",) if left else (),
        )
    if compared.worst:
        yield rows(
            "elements",
            "Worst elements",
            (
                Column("index", Kind.LIST),
                *(Column(name, Kind.FLOAT) for name in ("reference", "device", "error")),
            ),
            [(list(one.index), one.reference, one.device, one.error) for one in compared.worst],
        )


def _facts(compared: ValueComparison, title: str, head: Iterable[tuple[Column, Any]]) -> Section:
    quantiles = dict(zip(("p50", "p90", "p99"), compared.error_quantiles, strict=False))
    part = compared.concentration
    entries: list[tuple[Column, Any]] = [
        *head,
        (Column("shape", Kind.LIST), list(compared.shape)),
        (Column("elements", Kind.COUNT), compared.size),
        (Column("max_abs", Kind.FLOAT, title="largest error"), compared.max_abs),
        *(
            (Column(f"error_{name}", Kind.FLOAT, title=f"{name} of the errors"), number)
            for name, number in quantiles.items()
        ),
        (Column("tolerance", Kind.FLOAT), compared.tolerance),
        (Column("beyond", Kind.COUNT, title="elements beyond it"), compared.beyond),
        (Column("concentration", title="where"), None if part is None else str(part)),
    ]
    quantized = compared.quantized
    if quantized is not None:
        entries += [
            (Column("quantized_by", title="quantized by"), quantized.node),
            (Column("scale", Kind.FLOAT), quantized.scale),
            (Column("zero_point", Kind.INT), quantized.zero_point),
            (Column("quant_min", Kind.INT, title="smallest code"), quantized.quant_min),
            (Column("quant_max", Kind.INT, title="largest code"), quantized.quant_max),
            (Column("range"), range_text(quantized)),
        ]
        for name, one in (
            ("reference", compared.reference_saturated),
            ("device", compared.device_saturated),
        ):
            if one is not None:
                entries += [
                    (Column(f"{name}_{end}", Kind.COUNT, title=f"{name}: at the {words}"), number)
                    for end, words, number in (
                        ("low", "low end", one.low),
                        ("high", "high end", one.high),
                    )
                ]
    return facts("value", title, entries)


def range_text(quantized: QuantizedRange) -> str:
    """The numbers that a quantized value can have, in words."""
    if quantized.low is None or quantized.high is None:
        by = "differs by channel" if quantized.axis is not None else "is computed at run time"
        return f"not known: the scale {by}"
    ends = f"{format_float(quantized.low)} to {format_float(quantized.high)}"
    return f"{ends}, from the next operator on" if quantized.is_next else ends


def _histogram(histogram: Histogram, *, bars: bool) -> Section:
    counts = np.array([histogram.reference, histogram.device])
    while bars and counts.shape[1] > _TEXT_BINS and counts.shape[1] % 2 == 0:
        counts = counts[:, ::2] + counts[:, 1::2]
    pairs = list(zip(*counts.tolist(), strict=True))
    edges = np.linspace(histogram.low, histogram.high, len(pairs) + 1).tolist()
    columns = [
        Column("from", Kind.FLOAT),
        Column("to", Kind.FLOAT, priority=1),
        Column("reference", Kind.COUNT),
        Column("device", Kind.COUNT),
    ]
    content: list[list[Any]] = [
        [start, end, *pair] for start, end, pair in zip(edges, edges[1:], pairs, strict=False)
    ]
    notes = []
    outside = [*histogram.reference_clipped, *histogram.device_clipped]
    if any(outside):
        notes.append(
            f"Outside of these bins: {outside[0]:,} elements below and {outside[1]:,} above in the "
            f"reference, {outside[2]:,} and {outside[3]:,} on the device."
        )
    if bars:
        columns.append(Column("bar", title=""))
        most = max(max(pair) for pair in pairs) or 1
        for row, (reference, device) in zip(content, pairs, strict=True):
            ends = [round(_BAR * count / most) for count in (reference, device)]
            more = "▓" if device > reference else "░"
            row.append("█" * min(ends) + more * (max(ends) - min(ends)))
        notes.append(_BARS)
    return rows("histogram", "Distribution", columns, content, notes=tuple(notes))
