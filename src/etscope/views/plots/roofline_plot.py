"""Plot rooflines: operators by FLOP/byte and GFLOP/s, below the ceilings of the machine."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from etscope.analysis.work.limits import BOUNDS, COMPUTE, MEMORY, OVERHEAD
from etscope.analysis.work.roofline import COMPUTES, MOVES, PLACES, Roofline, RooflinePoint
from etscope.errors import MissingDataError
from etscope.views.plots.figures import checked_suffix, new_figure, save_figure
from etscope.views.tables.cells import visible

_COLOURS: Mapping[str | None, str] = {
    COMPUTE: "tab:orange",
    MEMORY: "tab:blue",
    OVERHEAD: "tab:purple",
    None: "0.45",
}
_LARGEST_DOT = 420.0  # square points
_SMALLEST_DOT = 12.0
_NAMED = 6  # operators of a panel, by name
_LONGEST = 40  # characters of a name
_PANELS = 6
_MOST_HEIGHT = 1e7  # of the axis; what is lower stands at its lower end


def save_roofline_plot(rooflines: Sequence[Roofline], path: str | os.PathLike[str]) -> None:
    """Write the plot of `roofline_figure` to a .png or .svg file.

    Raises `UsageError` for another suffix, and what `roofline_figure` raises.
    """
    checked_suffix(path)
    save_figure(roofline_figure(rooflines), path)


def roofline_figure(rooflines: Sequence[Roofline]) -> Any:
    """Plot rooflines with matplotlib, a panel for each; of more than six, those of most time.

    Dots are as large as their time, and numbered if they are the largest. What only moves data
    stands at the left border: there the height of a bandwidth is that of the ceilings.

    Raises `MissingDataError` if nothing has a place in the picture, `MissingDependencyError`
    without matplotlib.
    """
    drawn = [one for one in rooflines if one.of_place(COMPUTES) or one.of_place(MOVES)]
    if not drawn:
        raise MissingDataError(
            "no operator has a place on a roofline", hint=" ".join(rooflines[0].notes) or None
        )
    drawn.sort(key=lambda one: -int(one.profile.total.sum()))
    drawn = drawn[:_PANELS]
    columns = min(len(drawn), 2)
    rows = -(-len(drawn) // columns)
    figure = new_figure(9.0 if columns == 1 else 15.0, 6.5 * rows, wanted_by="the roofline")
    for panel, axes in zip(drawn, figure.subplots(rows, columns, squeeze=False).flat, strict=False):
        _draw(axes, panel)
    for axes in figure.axes[len(drawn) :]:
        axes.set_visible(False)
    return figure


def _draw(axes: Any, found: Roofline) -> None:
    computing, moving = found.of_place(COMPUTES), found.of_place(MOVES)
    low, high, floor, top = _ranges(found)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(floor, top)
    _draw_ceilings(axes, found, (low, high), floor)
    border = low * (high / low) ** 0.012
    largest = max(point.share for point in (*computing, *moving)) or 1.0
    for marker, points in (("o", computing), ("<", moving)):
        places = [
            (point, point.intensity, point.gflops)
            if marker == "o"
            else (point, border, (point.gbps or 0) * border)
            for point in points
        ]
        _dots(axes, [(one, x, max(y, floor)) for one, x, y in places if x and y], marker, largest)
    lines = []
    for number, members in enumerate(_by_name(computing)[:_NAMED], start=1):
        first = members[0]
        axes.annotate(
            str(number),
            (first.intensity, first.gflops),
            ha="center",
            va="center",
            fontsize=8,
            fontweight="bold",
        )
        lines.append(f"{number}  {_about(members)}")
    axes.set_title(visible(f"{found.profile.title()}: roofline"), parse_math=False)
    axes.set_ylabel("achieved GFLOP/s")
    axes.set_xlabel("arithmetic intensity (FLOP/byte)")
    axes.text(
        0,
        -0.13,
        "\n".join([*lines, _counts(found)]),
        transform=axes.transAxes,
        va="top",
        fontsize=9,
        parse_math=False,
    )
    axes.grid(which="major", alpha=0.3)
    _legend(axes, found)


def _by_name(points: Sequence[RooflinePoint]) -> list[list[RooflinePoint]]:
    """Return points of one name together, those with most time first."""
    groups: dict[str, list[RooflinePoint]] = {}
    for point in points:
        groups.setdefault(_name(point), []).append(point)
    for members in groups.values():
        members.sort(key=lambda point: -point.share)
    return sorted(groups.values(), key=lambda members: -sum(point.share for point in members))


def _name(point: RooflinePoint) -> str:
    is_row = bool(point.rows) and point.name == point.rows[0].name
    return point.rows[0].kernel_name if is_row else point.name


def _ranges(found: Roofline) -> tuple[float, float, float, float]:
    """The ends of both axes: whole decades around the dots, the knees and the ceilings."""
    ceilings = found.ceilings
    compute = [] if ceilings is None else [rate for _, rate in ceilings.compute]
    memory = [] if ceilings is None else [one.bytes_per_s / 1e9 for one in ceilings.memory]
    across = [x for point in found.of_place(COMPUTES) if (x := point.intensity)]
    across += [max(compute) / rate for rate in memory if compute]
    low, high = _decades(across or [1.0])
    heights = [y for point in found.of_place(COMPUTES) if (y := point.gflops)] + compute
    heights += [point.gbps * low for point in found.of_place(MOVES) if point.gbps]
    floor, top = _decades(heights)
    return low, high, max(floor, top / _MOST_HEIGHT), top


def _decades(values: Sequence[float]) -> tuple[float, float]:
    low, high = math.floor(math.log10(min(values) * 0.8)), math.ceil(math.log10(max(values) * 1.5))
    return 10.0**low, 10.0 ** max(high, low + 2)


def _draw_ceilings(axes: Any, found: Roofline, across: tuple[float, float], floor: float) -> None:
    if found.ceilings is None:
        return
    low, high = across
    compute = found.ceilings.compute
    memory = [(level.name, level.bytes_per_s / 1e9) for level in found.ceilings.memory]
    roof = max((rate for _, rate in compute), default=math.inf)
    for number, (name, rate) in enumerate(memory):
        knee = min(high, roof / rate)
        axes.plot([low, knee], [low * rate, knee * rate], color="0.55", linewidth=1, zorder=1)
        start = max(low, floor / rate)
        at = start * (knee / start) ** (0.85 - 0.2 * (number % 4))  # each at another place
        _write_ceiling(axes, f"{name} {rate:.3g} GB/s", at, at * rate)
    used = {point.limits.dtype for point in found.points if point.limits is not None}
    widest = max((rate for _, rate in memory), default=math.inf)
    for number, (dtype, rate) in enumerate(compute):
        axes.plot(
            [max(low, rate / widest), high],
            [rate, rate],
            color="0.3" if dtype in used else "0.65",
            linewidth=1.4 if dtype in used else 1,
            linestyle="-" if dtype in used else "--",
            zorder=1,
        )
        at = high * (low / high) ** min(0.09 + 0.19 * number, 0.6)  # rates may be close
        _write_ceiling(axes, f"{dtype} {rate:.3g} GFLOP/s", at, rate)


def _write_ceiling(axes: Any, text: str, x: float, y: float) -> None:
    """Write the name of a ceiling on its line."""
    axes.text(
        x,
        y,
        visible(text),
        ha="center",
        va="center",
        fontsize=8,
        color="0.35",
        parse_math=False,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
        zorder=2,
    )


def _dots(
    axes: Any, dots: Sequence[tuple[RooflinePoint, float, float]], marker: str, largest: float
) -> None:
    """Draw points at their places, those of most time first, so that they hide no other.

    largest: the share of the largest dot.
    """
    dots = sorted(dots, key=lambda one: -one[0].share)
    axes.scatter(
        [x for _, x, _ in dots],
        [y for _, _, y in dots],
        s=[max(_SMALLEST_DOT, _LARGEST_DOT * point.share / largest) for point, _, _ in dots],
        c=[_COLOURS[_bound(point)] for point, _, _ in dots],
        marker=marker,
        alpha=0.7,
        edgecolors="white",
        linewidths=0.6,
        zorder=3,
    )


def _bound(point: RooflinePoint) -> str | None:
    return None if point.limits is None else point.limits.bound


def _about(members: Sequence[RooflinePoint]) -> str:
    """Return "native_layer_norm.out, 25 operators: 12.3% of the time, 4.5% of the peak"."""
    count = f", {len(members):,} operators" if len(members) > 1 else ""
    known = [one for one in members if one.limits is not None and one.limits.share is not None]
    time = sum(one.ns for one in known)
    peak = ""
    if time > 0:
        share = sum(one.ns * (one.limits.share or 0) for one in known if one.limits) / time
        peak = f", {share:.1%} of the peak"
    return (
        f"{_cut(_name(members[0]))}{count}: {sum(o.share for o in members):.1%} of the time{peak}"
    )


def _cut(text: str) -> str:
    shown = visible(text)
    return shown if len(shown) <= _LONGEST else "..." + shown[3 - _LONGEST :]


def _counts(found: Roofline) -> str:
    """Return the number and share of the points of each place."""
    listed = []
    for place in PLACES:
        if points := found.of_place(place):
            share = sum(point.share for point in points)
            listed.append(f"{place} {len(points):,} ({share:.1%})")
    return "\n".join("  ·  ".join(part) for part in (listed[:3], listed[3:]) if part)


def _legend(axes: Any, found: Roofline) -> None:
    from matplotlib.lines import Line2D

    known = {_bound(point) for point in found.points if point.limits is not None}
    entries = [
        Line2D([], [], marker="o", linestyle="", color=_COLOURS[bound], label=f"bound by {bound}")
        for bound in BOUNDS
        if bound in known
    ]
    if None in known and (found.ceilings is not None or entries):
        entries.append(
            Line2D([], [], marker="o", linestyle="", color=_COLOURS[None], label="bound not known")
        )
    if found.of_place(MOVES):
        entries.append(
            Line2D([], [], marker="<", linestyle="", color="0.45", label="only moves data (GB/s)")
        )
    if entries:
        axes.legend(handles=entries, loc="lower right", fontsize=8)
