"""`plot_errors` of a numeric gap and of a diagnosis: files, notebooks, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("executorch.exir")
pytest.importorskip("matplotlib")

from etscope.errors import MissingDependencyError, UsageError
from etscope.views.plots import figures
from etscope.views.plots import metric_plots as error_plot
from tests.support.numeric_runs import inputs_of, inspector

NAME = "cnn_portable"


@pytest.fixture(scope="module")
def gap() -> Any:
    return inspector(NAME).numeric_gap(["mse", "snr"], inputs=inputs_of(NAME))


@pytest.fixture(scope="module")
def numerics() -> Any:
    return inspector(NAME).diagnose_numerics(inputs=inputs_of(NAME))


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that are made."""
    found: list[Any] = []
    draw = error_plot.error_figure

    def kept(*arguments: Any, **options: Any) -> Any:
        found.append(draw(*arguments, **options))
        return found[-1]

    monkeypatch.setattr(error_plot, "error_figure", kept)
    return found


def points(figure: Any) -> int:
    """How many instructions the figure has a mark for."""
    return len({float(x) for line in figure.axes[0].lines for x in line.get_xdata()})


def test_a_gap_in_files(gap: Any, tmp_path: Path, drawn: list[Any]) -> None:
    gap.plot_errors(tmp_path / "gap.png", tolerance=1e-9)
    assert (tmp_path / "gap.png").read_bytes()[:4] == b"\x89PNG"
    gap.plot_errors([tmp_path / "a.svg", tmp_path / "b.png"], "snr", title="Mine")
    assert "<svg" in (tmp_path / "a.svg").read_text() and (tmp_path / "b.png").stat().st_size
    titles = [figure.axes[0].get_title() for figure in drawn]
    assert titles == ["Numeric gap of forward to exported_program", "Mine"]
    assert ["MSE" in drawn[0].axes[0].get_ylabel(), "SNR" in drawn[1].axes[0].get_ylabel()] == [
        True,
        True,
    ]
    assert points(drawn[1]) >= len({row.pair.instruction for row in gap.rows}) > 3


@pytest.mark.parametrize("error", ["local", "total", "inherited"])
def test_a_diagnosis_in_files(numerics: Any, error: str, tmp_path: Path, drawn: list[Any]) -> None:
    numerics.plot_errors(tmp_path / "errors.png", error)
    assert (tmp_path / "errors.png").stat().st_size > 1000
    assert drawn[0].axes[0].get_title() == f"{error.capitalize()} error of forward"
    legend = drawn[0].axes[0].get_legend()
    named = [] if legend is None else [text.get_text() for text in legend.get_texts()]
    assert ("noise floor" in named) == (error == "local")


def test_in_a_notebook(gap: Any, numerics: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(figures, "show_figure", lambda figure: shown.append(figure) or True)
    gap.plot_errors()
    numerics.plot_errors()
    assert [len(figure.axes) >= 1 for figure in shown] == [True, True]


def test_what_is_refused(gap: Any, numerics: Any, tmp_path: Path) -> None:
    for result in (gap, numerics):
        with pytest.raises(UsageError, match="no notebook") as caught:
            result.plot_errors()
        assert "name a file" in str(caught.value.hint)
        with pytest.raises(UsageError, match="no picture format"):
            result.plot_errors([tmp_path / "good.png", tmp_path / "errors.gif"])
    with pytest.raises(UsageError, match="'l1' was not measured: this gap has mse, snr"):
        gap.plot_errors(tmp_path / "x.png", "l1")
    with pytest.raises(UsageError, match="unknown metric"):
        gap.plot_errors(tmp_path / "x.png", "nothing")
    with pytest.raises(UsageError, match="not 'noise'"):
        numerics.plot_errors(tmp_path / "x.png", "noise")
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib(gap: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(MissingDependencyError):
        gap.plot_errors(tmp_path / "x.png")
