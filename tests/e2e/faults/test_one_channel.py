"""A fault in a single channel: each view of the values names the channel and the element."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("executorch.exir")

from etscope import Inspector
from etscope.errors import MissingDataError
from etscope.etdb import Session
from etscope.model.report import Section
from etscope.run.native import native_missing
from tests.support.artifacts import artifacts
from tests.support.cli.fixtures import Run
from tests.support.etdb.sessions import refused, said
from tests.support.faults.one_channel import CHANNEL, CHANNELS, NODE
from tests.support.views.page_contract import DOCUMENT_TS, Contract
from tests.support.views.page_reports import document_of_files

WHERE = f"channel {CHANNEL} of {CHANNELS} has all of the error"


@pytest.fixture(scope="module")
def folder() -> Path:
    return artifacts("one_channel").folder


@pytest.fixture(scope="module")
def inspector(folder: Path) -> Inspector:
    return Inspector(
        folder / "run.etdp",
        etrecord=folder / "right.etrecord",
        debug_buffer_path=folder / "debug.bin",
    )


@pytest.fixture(scope="module")
def numerics(inspector: Inspector) -> Any:
    return inspector.diagnose_numerics()


def test_the_verdict_and_the_row_name_the_channel_and_the_element(numerics: Any) -> None:
    assert numerics.first.pair.node == NODE
    assert numerics.verdict.endswith(f"; {WHERE}")
    found = numerics.first.values.local
    assert [one.channel for one in found.channels.worst if one.beyond] == [CHANNEL]
    assert found.channels.worst[0].share > 0.999
    assert {one.index[1] for one in found.worst} == {CHANNEL}
    one = found.worst[0]
    assert one.error == pytest.approx(one.device - one.reference)
    assert abs(one.error) == found.max_abs
    # Later operators inherit the error: their own values are fine, those to the reference are not.
    later = next(row for row in numerics.rows if row.verdict == "inherited" and row.values)
    assert later.values.local.concentration is None
    assert later.values.total is not None
    assert later.values.total.beyond > 0


def test_rows_that_are_kept(inspector: Inspector, numerics: Any) -> None:
    kept = {row.pair.node for row in numerics.rows if row.values is not None}
    assert NODE in kept
    assert numerics.rows[-1].pair.node in kept  # the output
    found = inspector.diagnose_numerics(values="op:relu")
    picked = [row.op for row in found.rows if row.values is not None]
    assert picked == ["aten.relu.default"] * 2
    with pytest.raises(MissingDataError, match="'op:conv3d' picks no value") as caught:
        inspector.diagnose_numerics(values="op:conv3d")
    assert NODE in str(caught.value.hint)


@pytest.fixture
def values(run: Run, folder: Path) -> Run:
    """`etscope numerics --values`."""
    files = ("-r", folder / "right.etrecord", "-b", folder / "debug.bin")
    return partial(run, "numerics", folder / "run.etdp", *files, "--values")


def test_the_command_shows_the_channel(values: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    code, text, _ = values(NODE)
    assert code == 1
    assert WHERE in text
    assert "█" in text
    code, text, _ = values(NODE, "-f", "json")
    assert code == 1
    document = json.loads(text)
    assert document["schema"] == "etscope.values/1"
    local = document["reports"][0]
    assert (local["node"], local["against"]) == (NODE, "local")
    sections = local["sections"]
    assert sections["channels"][0]["channel"] == CHANNEL
    assert sections["elements"][0]["index"][1] == CHANNEL
    assert sections["value"]["concentration"] == WHERE
    assert sum(row["device"] for row in sections["histogram"]) == CHANNELS * 8 * 8
    # What does not go together is refused.
    assert values(NODE, "--columns", "op")[0] == 2
    code, _, err = values("nothing")
    assert code == 4 and "picks no value" in err


def test_the_document_has_the_channel(folder: Path) -> None:
    document = document_of_files(folder / "run.etdp", folder / "right.etrecord", numerics=True)
    assert Contract(DOCUMENT_TS.read_text()).faults(document, "ReportDocument") == []
    numerics = document["runs"][0]["numerics"]
    nodes = numerics["table"]["values"]["node"]
    (found,) = [one for one in numerics["values"] if nodes[one["row"]] == NODE]
    assert found["shown"] == "local"
    tables = {one["name"]: one["table"]["values"] for one in found["local"]["sections"]}
    assert tables["channels"]["channel"][0] == CHANNEL
    assert tables["elements"]["index"][0][1] == CHANNEL
    rms = found["local"]["channels"]["rms"]
    assert len(rms) == CHANNELS
    assert max(range(CHANNELS), key=rms.__getitem__) == CHANNEL
    counts = found["local"]["histogram"]
    assert sum(counts["device"]) == sum(counts["reference"]) == CHANNELS * 8 * 8


@pytest.fixture(params=["recorded", "runtime"])
def session(folder: Path, request: pytest.FixtureRequest) -> Iterator[Session]:
    """A session that stands at the end of a run of the faulty program."""
    if request.param == "runtime" and native_missing() is not None:
        pytest.skip(str(native_missing()))
    recorded = [folder / "run.etdp", folder / "debug.bin"]
    files = recorded if request.param == "recorded" else [folder / "wrong.pte"]
    with closing(Session(folder / "right.etrecord", *files)) as opened:
        if request.param == "runtime":
            said(opened, "target runtime")
        said(opened, "start", "until module:wide")
        yield opened


def test_the_debugger_shows_the_channel(session: Session) -> None:
    for line in ("gap $", "gap $ local", f"gap {NODE}", f"gap {NODE} local"):
        answer = session.execute(line)
        assert WHERE in answer.text
        against = "PyTorch's result from the run's inputs" if "local" in line else "the reference"
        assert f"{NODE}: the run against {against}" in answer.text
        sections = {one.name: one for one in answer.answer.items if isinstance(one, Section)}
        assert sections["channels"].table.values["channel"][0] == CHANNEL
        assert sections["elements"].table.values["index"][0][1] == CHANNEL
    # And what it cannot compare.
    assert "unknown metric" in refused(session, "gap nothing")
    assert "cannot read 'everything'" in refused(session, f"gap {NODE} everything")
    assert "no value" in refused(session, "gap aten_addmm_default")
    assert "no node has the debug handle" in refused(session, "gap %9999")


def test_a_changed_value_of_a_live_run(folder: Path) -> None:
    with closing(Session(folder / "right.etrecord")) as session:
        said(session, "target live", "start", "until module:wide")
        assert "Worst elements" not in said(session, "gap $")
        text = said(session, "set $ = $ * 1.5", "gap $")
    assert "the run against the reference" in text
    assert "Worst elements" in text
