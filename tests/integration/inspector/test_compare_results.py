from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from etscope import compare_results
from etscope.analysis.metrics import METRICS
from etscope.errors import MissingDataError, MissingDependencyError, UsageError
from tests.contract.source_tree import ROOT

NAN, INF = math.nan, math.inf
PNG = b"\x89PNG\r\n"


def test_the_default_metrics_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    results = compare_results([np.ones(3), np.zeros(2)], [np.ones(3), np.array([0.0, 2])])

    assert list(results) == ["snr", "mse", "cosine_similarity"]
    assert results == {"snr": [INF, -INF], "mse": [0.0, 2.0], "cosine_similarity": [1.0, 0.0]}
    assert capsys.readouterr().out == ""


def test_any_metric_in_the_order_asked_for() -> None:
    results = compare_results([np.ones(3)], [np.full(3, 1.5)], ["max_abs", "mse", "ulp"])

    assert list(results) == ["max_abs", "mse", "ulp"]
    assert results["max_abs"] == [0.5]


def test_pairs_that_are_not_of_numbers() -> None:
    reference = [np.ones(2), None, "text", [1.0], 2, True, np.ones(2, "f8")]
    run = [np.ones(2), np.ones(2), "text", [1.0], 2.5, False, np.ones(2, "f2")]

    results = compare_results(reference, run, ["mse"])
    assert results == {"mse": [0.0, None, None, None, 0.25, 1.0, 0.0]}


@pytest.mark.parametrize("value", [np.ones(1), np.ones((3, 1)), 1.0])
def test_a_shape_that_differs_is_an_error_that_names_the_output(value: Any) -> None:
    with pytest.raises(UsageError, match="output 1: Input tensors must have the same shape"):
        compare_results([1.0, np.ones(3)], [1.0, value], ["mse"])


def test_what_cannot_be_compared() -> None:
    with pytest.raises(UsageError, match="output 0: complex numbers"):
        compare_results([np.array([1j])], [np.array([1j])])
    with pytest.raises(UsageError, match="give a list of reference outputs, not a ndarray"):
        compare_results(np.ones(3), np.ones(3))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="1 outputs, the reference 2"):
        compare_results([1.0, 2.0], [1.0])
    for empty in ([], None):
        with pytest.raises(MissingDataError, match="no run outputs"):
            compare_results([1.0], empty)  # type: ignore[arg-type]


def test_names_of_metrics_are_checked_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="unknown metric 'l7'") as caught:
        compare_results([1.0], [1.0], ["mse", "l7"], plot=True)
    assert all(name in str(caught.value.hint) for name in METRICS)
    with pytest.raises(UsageError, match="give a list of metrics, not 'mse'"):
        compare_results([1.0], [1.0], "mse")
    with pytest.raises(UsageError, match="no metric is named"):
        compare_results([1.0], [1.0], [])
    assert list(tmp_path.iterdir()) == []


def test_a_plot_of_every_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    reference = [np.arange(4.0), np.arange(4.0), np.zeros(4), np.ones(4), "text"]
    run = [np.arange(4.0), np.arange(4.0) + 0.5, np.ones(4), np.full(4, NAN), "text"]

    results = compare_results(reference, run, plot=True)

    for name, numbers in compare_results(reference, run).items():
        assert results[name] == pytest.approx(numbers, nan_ok=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "cosine_similarity_output_plot.png",
        "mse_output_plot.png",
        "snr_output_plot.png",
    ]
    assert all(path.read_bytes().startswith(PNG) for path in tmp_path.iterdir())


def test_the_bars_and_their_numbers() -> None:
    pytest.importorskip("matplotlib")
    from etscope.inspector._display import metric_figure

    figure = metric_figure("snr", [12.3456, -3.0, INF, NAN, None], wanted_by="a test")

    (axes,) = figure.axes
    assert [bar.get_height() for bar in axes.patches] == [12.3456, -3.0, 0, 0, 0]
    assert [text.get_text() for text in axes.texts] == ["12.35", "-3", "inf", "nan", "no number"]
    assert axes.get_ylabel() == "snr (dB)"
    many = metric_figure("mse", [1.0] * 100, wanted_by="a test")
    assert not many.axes[0].texts


@pytest.mark.parametrize("count", [1, 2, 40])
def test_outputs_are_whole_numbers(count: int) -> None:
    pytest.importorskip("matplotlib")
    from etscope.inspector._display import metric_figure

    ticks = metric_figure("mse", [1e-3] * count, wanted_by="a test").axes[0].get_xticks()
    assert 0 in ticks
    assert all(tick == round(tick) for tick in ticks)


def test_no_window_is_opened_and_no_figure_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a backend that cannot open windows here, and without pyplot at all."""
    pytest.importorskip("matplotlib")
    program = (
        "import sys; from etscope import compare_results; import matplotlib\n"
        "print(compare_results([1.0], [1.5], ['mse'], plot=True))\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    environment = {**os.environ, "MPLBACKEND": "TkAgg", "PYTHONPATH": str(ROOT / "src")}
    environment.pop("DISPLAY", None)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "{'mse': [0.25]}\n"), done.stderr
    assert (tmp_path / "mse_output_plot.png").exists()


def test_in_a_notebook_the_plots_are_shown_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    shown: list[bytes] = []
    display = SimpleNamespace(Image=lambda data: data, display=shown.append)
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.chdir(tmp_path)

    compare_results([1.0], [1.5], ["mse", "snr"], plot=True)

    assert [data.startswith(PNG) for data in shown] == [True, True]
    assert len(list(tmp_path.iterdir())) == 2
    terminal = SimpleNamespace(get_ipython=lambda: SimpleNamespace())
    monkeypatch.setitem(sys.modules, "IPython", terminal)
    compare_results([1.0], [1.5], ["mse"], plot=True)
    assert len(shown) == 2


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mse_output_plot.png").mkdir()
    with pytest.raises(UsageError, match="cannot write"):
        compare_results([1.0], [1.5], ["mse"], plot=True)
    assert [path.name for path in tmp_path.iterdir()] == ["mse_output_plot.png"]


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert compare_results([1.0], [1.5], ["mse"]) == {"mse": [0.25]}
    with pytest.raises(MissingDependencyError, match=r"needed by compare_results\(plot=True\)"):
        compare_results([1.0], [1.5], ["mse"], plot=True)
