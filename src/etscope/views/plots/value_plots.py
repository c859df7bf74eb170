"""Plot a device's value beside its reference: distribution, error by channel, worst elements."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np

from etscope.analysis.numerics.value_report import range_text
from etscope.analysis.numerics.values import Channels, Histogram, QuantizedRange, ValueComparison
from etscope.units import format_float, format_share
from etscope.views.plots.figures import checked_suffix, new_figure, save_figure
from etscope.views.tables.cells import visible

_LISTED = 4  # worst elements
_LINE = 110  # characters below the plot


def save_value_plot(
    compared: ValueComparison,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    size: tuple[float, float] = (10.0, 5.5),
) -> None:
    """Write the plot of `value_figure` to a .png or .svg file.

    Raises `UsageError` for another suffix, `MissingDependencyError` without matplotlib.
    """
    checked_suffix(path)
    save_figure(value_figure(compared, title=title, size=size), path)


def value_figure(
    compared: ValueComparison,
    *,
    title: str | None = None,
    size: tuple[float, float] = (10.0, 5.5),
) -> Any:
    """Plot both distributions in the same bins, the root mean square error of each channel with the
    worst ones marked, and below them the worst elements and the quantised range in words.

    size: width and height in inches. Raises `MissingDependencyError` without matplotlib.
    """
    figure = new_figure(*size, wanted_by="the plot of values")
    left, right = figure.subplots(1, 2)
    if compared.histogram is None:
        left.text(0.5, 0.5, "no finite numbers", ha="center", transform=left.transAxes)
    else:
        _draw_histogram(left, compared.histogram, compared.quantized)
    left.set_title("Distribution", fontsize="medium")
    right.set_title("Error by channel", fontsize="medium")
    if compared.channels is None or not compared.channels.worst:
        words = "no channels" if compared.channels is None else "no errors"
        right.text(0.5, 0.5, words, ha="center", transform=right.transAxes)
    else:
        _draw_channels(right, compared.channels)
    if title is not None:
        figure.suptitle(visible(title)[:_LINE], fontsize="medium", parse_math=False)
    lines = [
        f"{list(compared.shape)}  {compared.reference.dtype} · largest error "
        f"{format_float(compared.max_abs)} · {compared.beyond:,} of {compared.size:,} elements "
        f"beyond {format_float(compared.tolerance)}"
    ]
    if compared.concentration is not None:
        lines.append(str(compared.concentration))
    if compared.quantized is not None:
        quantized = compared.quantized
        scale = "" if quantized.scale is None else f"scale {format_float(quantized.scale)}, "
        zero = "" if quantized.zero_point is None else f"zero point {quantized.zero_point}, "
        lines.append(f"quantised: {scale}{zero}range {range_text(quantized)}")
    lines += [
        f"{list(one.index)}  reference {format_float(one.reference)}  device "
        f"{format_float(one.device)}  error {format_float(one.error)}"
        for one in compared.worst[:_LISTED]
    ]
    figure.supxlabel(
        "\n".join(line[:_LINE] for line in lines),
        x=0.01,
        ha="left",
        fontsize="small",
        fontfamily="monospace",
        parse_math=False,
    )
    return figure


def _draw_histogram(axes: Any, histogram: Histogram, quantized: QuantizedRange | None) -> None:
    edges = histogram.edges
    axes.stairs(histogram.reference, edges, fill=True, color="0.75", label="reference")
    axes.stairs(histogram.device, edges, color="tab:blue", linewidth=1.4, label="device")
    if quantized is not None and quantized.low is not None and quantized.high is not None:
        for number, end in enumerate((quantized.low, quantized.high)):
            if histogram.low <= end <= histogram.high:
                label = "quantised range" if number == 0 else None
                axes.axvline(end, color="tab:orange", linestyle="--", linewidth=1, label=label)
    if max(histogram.reference + histogram.device) > 100 * min(
        (count for count in histogram.reference + histogram.device if count), default=1
    ):
        axes.set_yscale("symlog", linthresh=1)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("value")
    axes.set_ylabel("elements")
    axes.legend(fontsize="small")


def _draw_channels(axes: Any, channels: Channels) -> None:
    heights = np.asarray(channels.profile)
    finite = heights[np.isfinite(heights)]
    top = float(finite.max(initial=0.0)) or 1.0
    places = np.arange(len(heights)) * channels.per_entry
    shown = np.where(np.isfinite(heights), heights, 1.1 * top)
    colors = ["tab:blue" if math.isfinite(height) else "tab:red" for height in heights]
    axes.bar(places, shown, width=0.9 * channels.per_entry, align="edge", color=colors)
    worst = channels.worst[0]
    height = worst.rms if math.isfinite(worst.rms) else 1.1 * top
    axes.annotate(
        f"channel {worst.channel}: {format_share(worst.share)}",
        (worst.channel + 0.45, height),
        xytext=(0, 4),
        textcoords="offset points",
        ha="center",
        fontsize="small",
        color="tab:red",
    )
    axes.margins(y=0.15)
    axes.set_xlabel(f"channel (dimension {channels.axis}, {channels.count:,} in all)")
    axes.set_ylabel("root mean square error")
