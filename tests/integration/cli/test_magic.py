"""`%etscope` in a notebook: tables as HTML, errors that stop, and the report as a widget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.artifacts import artifacts

pytest.importorskip("IPython")


class Kernel:
    """Stands for the kernel of a notebook, which a shell in a terminal does not have."""


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    from IPython.core.interactiveshell import InteractiveShell

    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    shell = InteractiveShell()
    shell.kernel = Kernel()
    shell.run_line_magic("load_ext", "etscope")
    yield shell
    shell.history_manager.enabled = False


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found: list[Any] = []
    monkeypatch.setattr("IPython.display.display", lambda one, **_: found.append(one))
    return found


def test_tables_of_commands_are_html_and_text(shell: Any, shown: list[Any]) -> None:
    dump = artifacts("cnn_xnnpack").etdump_timing
    shell.run_cell_magic("etscope", f"inspect {dump} -n 3", f"# another\ninfo '{dump}'\n")
    inspected, info = shown
    assert set(inspected) == {"text/html", "text/plain"}
    assert "<table>" in inspected["text/html"] and "<" not in inspected["text/plain"]
    assert "DELEGATE_CALL" in inspected["text/plain"] or "Convolution" in inspected["text/plain"]
    assert "ETDump" in info["text/plain"] or "etdump" in info["text/plain"]


def test_an_error_stops_and_says_why(
    shell: Any, shown: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    from IPython.core.error import UsageError

    with pytest.raises(UsageError, match="exit code 2"):
        shell.run_line_magic("etscope", "inspect missing.etdp")
    assert "missing.etdp" in capsys.readouterr().err
    assert shown == []


def test_a_report_is_a_widget_with_static_tables(shell: Any, shown: list[Any]) -> None:
    pytest.importorskip("anywidget")
    files = artifacts("cnn_xnnpack")
    shell.run_line_magic("etscope", f"report {files.etdump_timing} -r {files.etrecord}")
    (widget,) = shown
    data, *_ = widget._repr_mimebundle_()
    assert {"application/vnd.jupyter.widget-view+json", "text/html", "text/plain"} == set(data)
    assert "<table>" in data["text/html"] and "<script" not in data["text/html"]
    assert "what matters" in data["text/html"] and "Convolution" in data["text/html"]
    widget._rows, widget.selection = [[0, 1], [0, 2]], "run0/row-0-1"
    assert len(widget.selected) == 2 and "avg" in widget.selected.names
    widget.selection = ""
    assert len(widget.selected) == 0
