"""Packages that are optional, and where they are."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from etscope.errors import MissingDependencyError
from etscope.run import python
from etscope.run.execute import chosen_runner
from etscope.run.process import read_log, run_process
from etscope.support.optional import installed_libraries


def test_openvino_is_found_where_pip_puts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENVINO_LIB_PATH", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    libraries = tmp_path / "openvino" / "libs"
    libraries.mkdir(parents=True)
    (tmp_path / "openvino" / "__init__.py").write_text("raise RuntimeError('imported')")
    assert installed_libraries() == {}
    for version in ("2620", "2540"):
        (libraries / f"libopenvino_c.so.{version}").touch()
    expected = str(libraries / "libopenvino_c.so.2540")
    assert installed_libraries() == {"OPENVINO_LIB_PATH": expected}
    show = [sys.executable, "-c", "import os; print(os.environ['OPENVINO_LIB_PATH'])"]
    assert run_process(show, tmp_path, 60) == 0
    assert read_log(tmp_path).strip() == expected
    monkeypatch.setenv("OPENVINO_LIB_PATH", "/mine.so")
    assert run_process(show, tmp_path, 60) == 0
    assert read_log(tmp_path).strip() == "/mine.so"


def test_what_the_python_runner_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python, "find_spec", lambda name: None)
    assert python.python_missing() == "torch and executorch are not installed"
    monkeypatch.setattr(python, "find_spec", lambda name: name == "torch" or None)
    assert python.python_missing() == "executorch is not installed"

    class Nowhere:
        def missing(self, runner: str) -> str:
            return f"no {runner}"

    with pytest.raises(MissingDependencyError, match="no runner is available: no python") as caught:
        chosen_runner("auto", [], None, place=Nowhere())  # type: ignore[arg-type]
    assert "pip install 'etscope[torch]'" in str(caught.value.hint)
    assert "set $ETSCOPE_RUNNER" in str(caught.value.hint)
