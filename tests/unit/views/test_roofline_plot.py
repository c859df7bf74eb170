"""The picture of a roofline: what is drawn where, and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etscope.analysis.work.roofline import COMPUTES, MOVES, Roofline, roofline
from etscope.errors import MissingDataError, UsageError
from etscope.units import TimeScale
from etscope.views.plots.roofline_plot import roofline_figure, save_roofline_plot
from tests.support.calibrations import calibration
from tests.unit.analysis.test_roofline import opened

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def found() -> Roofline:
    _, profile, limits = opened("cnn_portable", calibration())
    return roofline(profile, limits, TimeScale.NS)


def places(axes: Any, number: int) -> list[tuple[float, float]]:
    return sorted(map(tuple, np.asarray(axes.collections[number].get_offsets()).tolist()))


def test_dots_are_where_their_numbers_say(found: Roofline) -> None:
    (axes,) = roofline_figure([found]).axes
    computing, moving = found.of_place(COMPUTES), found.of_place(MOVES)
    wanted = sorted((point.intensity or 0, point.gflops or 0) for point in computing)
    assert np.asarray(places(axes, 0)) == pytest.approx(np.asarray(wanted))
    # What only moves data stands at one place across, as high as its bandwidth there.
    assert moving
    across = {x for x, _ in places(axes, 1)}
    assert len(across) == 1
    heights = sorted((point.gbps or 0) * across.copy().pop() for point in moving)
    assert [y for _, y in places(axes, 1)] == pytest.approx(heights)
    (low, high), (floor, top) = axes.get_xlim(), axes.get_ylim()
    assert all(low < x < high and floor <= y < top for x, y in [*places(axes, 0), *places(axes, 1)])
    sizes = axes.collections[0].get_sizes()
    assert sizes[0] == max(sizes)  # the longest is drawn first, below the others


def test_ceilings_meet_at_their_knees(found: Roofline) -> None:
    (axes,) = roofline_figure([found]).axes
    lines = [np.asarray(line.get_data()).T.tolist() for line in axes.lines]
    _, high = axes.get_xlim()
    assert len(lines) == 5
    for (start, end), rate in zip(lines[:2], (50, 10), strict=True):
        assert start[1] / start[0] == pytest.approx(rate) == pytest.approx(end[1] / end[0])
        assert end[1] == pytest.approx(min(400, rate * high))
    assert [line[0][1] for line in lines[2:]] == [100, 200, 400]
    texts = [text.get_text() for text in axes.texts]
    assert "float32 100 GFLOP/s" in texts and "memory 10 GB/s" in texts


def test_files_of_equal_rooflines_are_equal(tmp_path: Path, found: Roofline) -> None:
    for name, head in (("a.svg", b"<?xml"), ("b.svg", b"<?xml"), ("c.png", b"\x89PNG")):
        save_roofline_plot([found], tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(head)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    with pytest.raises(UsageError, match="no picture format"):
        save_roofline_plot([found], tmp_path / "a.pdf")


def test_each_method_with_a_place_has_a_panel(found: Roofline) -> None:
    figure = roofline_figure([found, found, found])
    assert [one.get_visible() for one in figure.axes] == [True, True, True, False]
    _, profile, _ = opened("cnn_portable", None)
    with pytest.raises(MissingDataError, match="no operator has a place"):
        roofline_figure([roofline(profile, None, TimeScale.NS)])
