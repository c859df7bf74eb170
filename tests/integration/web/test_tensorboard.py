"""The tab of TensorBoard: its routes in TensorBoard's own application, and its files."""

from __future__ import annotations

import gzip
import json
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from etscope import Inspector
from etscope.errors import FormatError, MissingDataError, VersionError
from etscope.reporting import tensorboard_plugin as tab
from etscope.reporting.tensorboard_plugin import (
    FILE_NAME,
    find_documents,
    has_documents,
    load_document,
    save_document,
)
from tests.support.artifacts import artifacts

DOCUMENT = {"schema": "etscope.report/3", "title": "t", "generator": "g"}


def run(name: str) -> dict[str, Any]:
    return {"id": "run0", "name": name, "notes": []}


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    for folder, names in {"": ["top"], "a": ["one", "two"], "b/c": ["three"]}.items():
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        save_document(tmp_path / folder, {**DOCUMENT, "runs": [run(name) for name in names]})
    return tmp_path


def test_documents_are_found_by_their_folders(logdir: Path) -> None:
    assert list(find_documents(logdir)) == [".", "a", "b/c"]
    assert has_documents(logdir)
    assert not has_documents(logdir / "none")
    assert load_document(logdir / "a" / FILE_NAME)["runs"][1]["name"] == "two"
    before = (logdir / FILE_NAME).read_bytes()
    save_document(logdir, {**DOCUMENT, "runs": [run("top")]})
    assert (logdir / FILE_NAME).read_bytes() == before


@pytest.mark.parametrize(
    "content",
    [b"", b"no gzip", gzip.compress(b"[1]", mtime=0), gzip.compress(b'{"runs": [1]}', mtime=0)],
    ids=["empty", "text", "list", "number"],  # what gzip makes has the time in it
)
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    with pytest.raises(FormatError):
        load_document(tmp_path / FILE_NAME)


def test_a_report_of_an_earlier_format_is_refused(tmp_path: Path) -> None:
    """Its rows do not say which of them are added up."""
    save_document(tmp_path, {**DOCUMENT, "schema": "etscope.report/2", "runs": [run("old")]})
    with pytest.raises(VersionError, match=r"this etscope reads etscope\.report/3"):
        load_document(tmp_path / FILE_NAME)


def test_what_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etscope.reporting.tensorboard_plugin.MOST_BYTES", 1000)
    (tmp_path / FILE_NAME).write_bytes(gzip.compress(b" " * 100_000))
    with pytest.raises(FormatError, match="more than 1,000 bytes"):
        load_document(tmp_path / FILE_NAME)


def test_links_to_folders_are_not_followed(logdir: Path, tmp_path_factory: Any) -> None:
    outside = tmp_path_factory.mktemp("outside")
    save_document(outside, {**DOCUMENT, "runs": [run("secret")]})
    (logdir / "link").symlink_to(outside, target_is_directory=True)
    (logdir / "loop").symlink_to(logdir, target_is_directory=True)
    assert list(find_documents(logdir)) == [".", "a", "b/c"]


def test_all_runs_are_in_one_document(logdir: Path) -> None:
    library = tab.LogdirReports(str(logdir))
    assert [entry.id for entry in library.entries()] == [tab.ALL]

    runs = json.loads(library.data(tab.ALL))["runs"]

    assert [found["name"] for found in runs] == ["top", "a: one", "a: two", "b/c: three"]
    assert [found["id"] for found in runs] == ["run0", "run1", "run2", "run3"]


def test_a_damaged_document_is_left_out_and_told(logdir: Path) -> None:
    (logdir / "a" / FILE_NAME).write_bytes(b"no gzip")
    runs = json.loads(tab.LogdirReports(str(logdir)).data(tab.ALL))["runs"]
    assert [found["name"] for found in runs] == ["top", "b/c: three"]
    assert "left out" in runs[0]["notes"][0]


def test_many_folders_are_reports_of_their_own(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / str(number)).mkdir()
        save_document(tmp_path / str(number), {**DOCUMENT, "runs": [run(str(number))]})
    library = tab.LogdirReports(str(tmp_path))
    assert len(library.entries()) == 20
    assert json.loads(library.data("7"))["runs"][0]["name"] == "7"
    for name in ("../x", tab.ALL, "/etc/passwd"):
        with pytest.raises(MissingDataError):
            library.data(name)


def test_whether_it_is_there_is_looked_up_seldom(
    logdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []
    now = [1000.0]
    monkeypatch.setattr(tab, "has_documents", lambda path: calls.append(path) or True)
    monkeypatch.setattr(tab, "time", SimpleNamespace(monotonic=lambda: now[0]))
    library = tab.LogdirReports(str(logdir))
    assert all(library.is_there() for _ in range(100))
    assert len(calls) == 1
    now[0] += 6
    assert library.is_there() and len(calls) == 2
    assert not tab.LogdirReports(None).is_there()


# -- in TensorBoard itself


def test_tensorboard_finds_the_tab_by_its_entry_point() -> None:
    base_plugin = pytest.importorskip("tensorboard.plugins.base_plugin")
    (found,) = [e for e in entry_points(group="tensorboard_plugins") if e.name == "executorch"]
    assert issubclass(found.load(), base_plugin.TBLoader)


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """TensorBoard's application on a directory that `write_tensorboard_artifact` wrote."""
    pytest.importorskip("tensorboard")
    from tensorboard import default, program

    logdir = tmp_path_factory.mktemp("logdir")
    files = artifacts("cnn_xnnpack")
    Inspector(files.etdump_timing, etrecord=files.etrecord).write_tensorboard_artifact(logdir)
    board = program.TensorBoard(plugins=default.get_plugins())
    board.configure(argv=["", "--logdir", str(logdir), "--load_fast=false"])
    return _client(board)


def _client(board: Any) -> Any:
    from tensorboard.backend import application
    from werkzeug.test import Client

    data_provider = board._make_data_ingester()
    data_provider.start()
    return Client(
        application.TensorBoardWSGIApp(
            board.flags,
            board.plugin_loaders,
            data_provider.data_provider,
            board.assets_zip_provider,
            data_provider.deprecated_multiplexer,
        )
    )


def test_tensorboard_lists_the_tab(application: Any) -> None:
    listing = application.get("/data/plugins_listing").get_json()
    assert listing["executorch"]["enabled"] is True
    assert listing["executorch"]["tab_name"] == "ExecuTorch"
    module = listing["executorch"]["loading_mechanism"]["module_path"]
    assert b"export function render" in application.get(module).data


def test_the_tab_serves_the_same_page_and_data(application: Any) -> None:
    base = "/data/plugin/executorch"
    assert b'id="app"' in application.get(f"{base}/page.html").data
    (entry,) = application.get(f"{base}/reports.json").get_json()
    files = artifacts("cnn_xnnpack")
    expected = Inspector(files.etdump_timing, etrecord=files.etrecord).trace.profiles()[0]

    found = application.get(f"{base}/data.json?report={entry['id']}").get_json()

    assert found["runs"][0]["methods"][0]["totals"] == (expected.total / 1e6).tolist()
    assert found["runs"][0]["graphs"]
    for path in ("/../../etc/passwd", "/%2e%2e/x", "/" + FILE_NAME, "/events"):  # and nothing else
        assert application.get(f"{base}{path}").status_code == 404, path
