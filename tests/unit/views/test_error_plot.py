from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import pytest

from etscope.errors import MissingDataError, MissingDependencyError, UsageError
from etscope.model.table import Column, Kind, Table
from etscope.views.plots import metric_plots as error_plot
from etscope.views.plots.metric_plots import error_figure, save_error_plot, show_error_plot

pytest.importorskip("matplotlib")

NAN, INF = math.nan, math.inf


def table(values: list[Any], metric: str = "mse", **columns: list[Any]) -> Table:
    cells: dict[str, list[Any]] = {
        "instruction": list(range(len(values))),
        "op": [f"aten.op_{at}.default" for at in range(len(values))],
        "source": [f"model.py:{at + 10}" for at in range(len(values))],
        metric: values,
        **columns,
    }
    kinds = {"instruction": Kind.INT, metric: Kind.FLOAT, "source": Kind.PATH}
    return Table(tuple(Column(name, kinds.get(name, Kind.TEXT)) for name in cells), cells)


def below(figure: Any) -> list[str]:
    """The lines of text under the plot."""
    return str(figure.get_supxlabel()).splitlines()


def legend(figure: Any) -> list[str]:
    return list(figure.axes[0].get_legend_handles_labels()[1])


def numbered(figure: Any) -> dict[str, tuple[float, float]]:
    return {text.get_text(): text.xy for text in figure.axes[0].texts}


def test_the_worst_are_numbered_and_named() -> None:
    figure = error_figure(table([1e-9, 3e-3, 2e-3, 0.0, 1e-4]), "mse", worst=3)
    assert numbered(figure) == {"1": (1, 3e-3), "2": (2, 2e-3), "3": (4, 1e-4)}
    assert below(figure) == [
        "1  0.003   #1  aten.op_1.default  model.py:11",
        "2  0.002   #2  aten.op_2.default  model.py:12",
        "3  0.0001  #4  aten.op_4.default  model.py:14",
    ]
    (axes,) = figure.axes
    assert axes.get_yscale() == "log"
    assert axes.get_ylabel() == "MSE, lower is better"
    assert axes.lines[0].get_ydata().tolist() == [1e-9, 3e-3, 2e-3, 1e-10, 1e-4]


def test_errors_of_one_size_are_on_a_linear_scale_from_0(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(error_plot, "show_figure", lambda figure: shown.append(figure) or True)
    rows = table([0.5, 0.7, 0.7, 0.6], "local_error")
    assert show_error_plot(rows, "local_error", worst=2, tolerance=0.65)  # in a notebook
    (axes,) = shown[0].axes
    assert legend(shown[0]) == ["tolerance"]
    assert axes.get_yscale() == "linear"
    assert axes.get_ylim()[0] <= 0
    assert axes.get_ylabel() == "local_error"  # it is no metric
    # Of equal errors the first comes first, and none is the worst.
    assert [line.split()[1:3] for line in below(shown[0])] == [["0.7", "#1"], ["0.7", "#2"]]
    assert below(error_figure(table([0.0, 0.0]), "mse")) == []


@pytest.mark.parametrize("count", [1, 2, 40])
def test_instructions_and_outputs_are_whole_numbers(count: int) -> None:
    of_instructions = error_figure(table([1e-3] * count), "mse")
    of_outputs = error_plot.metric_figure("mse", [1e-3] * count, wanted_by="a test")
    for figure in (of_instructions, of_outputs):
        ticks = figure.axes[0].get_xticks()
        assert 0 in ticks
        assert all(tick == round(tick) for tick in ticks)


def test_of_a_snr_the_lowest_is_the_worst() -> None:
    figure = error_figure(table([INF, 60.0, 12.0, 30.0, -INF], "snr"), "snr", worst=3)
    assert [line.split()[1] for line in below(figure)] == ["-inf", "12", "30"]
    (axes,) = figure.axes
    assert axes.get_ylabel() == "SNR (dB), higher is better"
    assert legend(figure) == ["infinite", "-infinite"]
    low, high = axes.get_ylim()
    assert low < numbered(figure)["1"][1] < 12
    assert high > 60


def test_nan_is_the_worst_and_stands_out() -> None:
    figure = error_figure(table([1e-9, NAN, 1e-3, INF]), "mse", worst=2)
    assert [line.split()[1] for line in below(figure)] == ["nan", "inf"]
    assert legend(figure) == ["NaN", "infinite"]
    marks = numbered(figure)
    assert marks["1"][1] == marks["2"][1] > 1e-3  # above all numbers, within the picture
    assert marks["1"][1] < figure.axes[0].get_ylim()[1]
    drawn = figure.axes[0].lines[0].get_ydata()
    assert [math.isnan(y) for y in drawn] == [False, True, False, True]  # no line leads there
    only = error_figure(table([NAN, NAN]), "mse")
    assert len(numbered(only)) == 2


def test_lines_of_tolerance_and_noise() -> None:
    rows = table([1e-9, 3e-3, None, 1e-4])
    figure = error_figure(rows, "mse", tolerance=1e-5, noise_floor=[1e-8, 2e-8, None, None])
    assert legend(figure) == ["tolerance", "noise floor"]
    _, tolerance, floor = figure.axes[0].lines
    assert tolerance.get_ydata() == [1e-5, 1e-5]
    assert floor.get_xdata().tolist() == [0, 1, 3]
    assert floor.get_ydata().tolist() == pytest.approx([1e-8, 2e-8, NAN], nan_ok=True)
    flat = error_figure(rows, "mse", noise_floor=1e-8).axes[0].lines[1]
    assert flat.get_ydata().tolist() == [1e-8] * 3
    with pytest.raises(UsageError, match="has 1 values for 4 rows"):
        error_figure(rows, "mse", noise_floor=[1.0])


def test_rows_are_put_in_order_and_those_without_a_value_counted() -> None:
    rows = table([3.0, None, 1.0, 2.0], instruction=[9, 4, 2, None])
    figure = error_figure(rows, "mse")
    assert figure.axes[0].lines[0].get_xdata().tolist() == [2, 9]
    assert below(figure)[-1] == "without a value: 2 rows"


def test_names_from_files_are_only_text() -> None:
    """No mathematics, no line breaks, no control characters."""
    rows = table(
        [1.0, 2.0], op=["$\\frac{$", ["a", "b\n"]], source=["\x1b[31m$x", None], odd=[1, 2]
    )
    figure = error_figure(rows, "mse", title="$\\oops{$")
    assert below(figure) == ["1  2  #1  a, b\\n", "2  1  #0  $\\frac{$  \\x1b[31m$x"]
    figure.canvas.draw()


@pytest.mark.parametrize("width", [4.0, 6.0, 12.0])
def test_the_text_below_is_within_the_picture(width: float) -> None:
    long = table(
        [1.0, 2.0, 3.0],
        op=["aten.native_layer_norm.default, aten.permute_copy.default"] * 2 + ["aten.mm.default"],
        source=["/home/someone/projects/a/rather/long/path/to/model.py:123"] * 3,
    )
    figure = error_figure(long, "mse", size=(width, 4))
    figure.canvas.draw()
    text = figure._supxlabel.get_window_extent()
    assert text.x1 <= figure.bbox.x1
    assert all(line.endswith("model.py:123") for line in below(figure))
    assert "aten.mm.default" in below(figure)[0]


@pytest.mark.parametrize(("suffix", "begin"), [(".png", b"\x89PNG"), (".SVG", b"<?xml")])
def test_files_by_suffix(tmp_path: Path, suffix: str, begin: bytes) -> None:
    path = tmp_path / f"errors{suffix}"
    written = []
    for last in (2.0, 2.0, 3.0):
        save_error_plot(table([1.0, last]), path, "mse", tolerance=1.5, size=(5, 3))
        written.append(path.read_bytes())
    assert written[0].startswith(begin)
    assert written[0] == written[1] != written[2]
    if suffix == ".png":
        assert [int.from_bytes(written[0][at : at + 4], "big") for at in (16, 20)] == [500, 300]


def test_what_cannot_be_plotted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "errors.png"
    for values in ([], [None, None]):
        with pytest.raises(MissingDataError, match="no instruction has a value of 'mse'"):
            save_error_plot(table(values), path, "mse")
    with pytest.raises(UsageError, match="unknown column 'snr'"):
        save_error_plot(table([1.0]), path, "snr")
    with pytest.raises(UsageError, match="row 1 has no numbers to plot"):
        save_error_plot(table([1.0, "much"]), path, "mse")
    with pytest.raises(UsageError, match="must be 0 or more"):
        save_error_plot(table([1.0]), path, "mse", worst=-1)
    for name in ("errors.gif", "errors", ".png.txt"):
        with pytest.raises(UsageError, match="no picture format has the suffix") as caught:
            save_error_plot(table([1.0]), tmp_path / name, "mse")
        assert ".png, .svg" in str(caught.value.hint)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingDependencyError, match="needed by the plot of errors") as missing:
        save_error_plot(table([1.0]), path, "mse")
    assert "etscope[plot]" in str(missing.value.hint)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("metric", ["mse", "snr"])
def test_extreme_errors(metric: str, tmp_path: Path) -> None:
    tiny, huge = 5e-324, 1.7e308
    for values in ([tiny, huge], [tiny, 1e-300], [0.0] * 2, [1.0], [huge] * 2, [INF], [-1.0, 1.0]):
        path = tmp_path / "errors.png"
        save_error_plot(table(values, metric), path, metric, noise_floor=NAN)
