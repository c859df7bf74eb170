"""Dumps of a language model in datasets: the phase, position and tokens of each row, and the pace
of the untraced run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")


from etscope.analysis.profile.timeline import event_rows
from etscope.analysis.profile.trace import Trace
from etscope.formats.etdump.reader import read_etdump
from etscope.run import GenerationRun, generate
from etscope.views.page.run import NANOSECONDS
from etscope_lab.fleet import collect, query
from lab_support.dumps import saved_run
from tests.support.artifacts import artifacts

PROMPT, NEW = 9, 12
NEW_COLUMNS = ["phase", "position", "tokens"]
PACE = ["prompt_tokens", "generated_tokens", "first_token_ns"]
PACE += ["prefill_tokens_per_s", "decode_tokens_per_s"]


def rows(dataset: Path, sql: str, **options: Any) -> list[tuple[Any, ...]]:
    return list(query(str(dataset), sql, **options).rows())


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, GenerationRun]:
    """A saved generation, traced twice."""
    folder = tmp_path_factory.mktemp("generation") / "run"
    done = generate(
        artifacts("llama_generate").pte,
        prompt_length=PROMPT,
        max_new_tokens=NEW,
        end_tokens=(),
        iterations=3,
        profiled_iterations=2,
        runner="python",
    )
    done.save(folder)
    return folder, done


@pytest.fixture(scope="module")
def dataset(saved: tuple[Path, GenerationRun], tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("dataset") / "ds"
    record = artifacts("llama_generate").etrecord
    assert collect([saved[0]], target, etrecord=record).bad == ()
    return target


def test_each_row_has_the_call_of_its_run(dataset: Path) -> None:
    found = rows(
        dataset,
        "select phase, position, tokens from events where kind = 'execute' order by run",
    )
    decodes = [("decode", PROMPT + n, 1) for n in range(NEW - 1)]
    assert found == 2 * [("prefill", 0, PROMPT), *decodes]
    # All events of a run are of its call.
    calls = "count(distinct (phase, position, tokens))"
    assert rows(dataset, f"select max(n) from (select {calls} as n from events group by run)") == [
        (1,)
    ]
    loading = rows(dataset, "select distinct phase, position, tokens from events where run = 0")
    assert loading == [("load", None, None)]
    leaves = rows(dataset, "select distinct phase from leaves order by 1")
    assert leaves == [("decode",), ("prefill",)]


def test_the_pace_is_that_of_the_untraced_run(
    saved: tuple[Path, GenerationRun], dataset: Path
) -> None:
    pace = saved[1].pace
    rates = {phase.phase: phase.mean_rate for phase in pace.phases}
    [found] = rows(dataset, f"select {', '.join(PACE)} from dumps")
    first = float(np.median(pace.first_token_ns))
    assert found == pytest.approx((PROMPT, NEW, first, rates["prefill"], rates["decode"]))
    table = query(str(dataset), f"select {', '.join(PACE)} from dumps")
    assert [column.unit for column in table.columns] == [None, None, "ns", None, None]


def test_phases_are_told_where_nobody_noted_them(
    saved: tuple[Path, GenerationRun], dataset: Path, tmp_path: Path
) -> None:
    """A dump alone, with the record: by the lengths of its calls. And the events of two dumps of
    one program, of which one has other phases, are not mixed up."""
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(saved[0] / "run.etdp", alone / "run.etdp")
    longer = tmp_path / "longer"
    with generate(
        artifacts("llama_generate").pte, prompt_length=4, max_new_tokens=3, end_tokens=(),
        iterations=1, runner="python",
    ) as done:  # fmt: skip
        done.save(longer)
    record = artifacts("llama_generate").etrecord
    target = tmp_path / "ds"
    assert collect([longer, alone], target, etrecord=record).taken == 2
    ran = "select phase, position, tokens from events join dumps using (dump_id) "
    ran += "where kind = 'execute' and prompt_tokens is {} null order by run"
    noted = [("prefill", 0, 4), ("decode", 4, 1), ("decode", 5, 1)]
    assert rows(target, ran.format("not")) == noted
    told = Trace(read_etdump(alone / "run.etdp"), record=_record()).calls_of_runs
    assert [row[0] for row in rows(target, ran.format(""))] == [
        one or "execute" for one in told.phase
    ]


def _record() -> Any:
    from etscope.formats.etrecord.reader import read_etrecord

    path = artifacts("llama_generate").etrecord
    assert path is not None
    return read_etrecord(path)


def test_saved_queries_do_not_mix_phases(dataset: Path) -> None:
    from etscope_lab.fleet.sql import saved_query

    for name in ("drift", "slowest-ops", "op-share", "cold-vs-warm", "delegates"):
        asked = saved_query(name)
        table = query(str(dataset), asked.sql, asked.values({}))
        assert {"prefill", "decode"} == set(table.values["phase"]), name
    own = rows(
        dataset,
        "select median(duration_ns) / 1e6 from events "
        "where kind = 'execute' and counted and phase = 'decode'",
    )
    drift = saved_query("drift")
    table = query(str(dataset), drift.sql, drift.values({}))
    assert table.values["p50_ms"][table.values["phase"].index("decode")] == pytest.approx(own[0][0])


def test_a_generation_that_run_json_has_wrong_is_a_bad_dump(
    saved: tuple[Path, GenerationRun], tmp_path: Path
) -> None:
    shutil.copytree(saved[0], tmp_path / "run")
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    about["generation"]["passes"][0]["calls"]["position"].pop()
    (tmp_path / "run" / "run.json").write_text(json.dumps(about))
    done = collect([tmp_path / "run"], tmp_path / "ds")
    assert done.taken == 0
    assert "calls have a run" in done.bad[0].error


def test_events_for_other_tools_have_the_columns(
    saved: tuple[Path, GenerationRun], tmp_path: Path
) -> None:
    trace = Trace(read_etdump(saved[0] / "run.etdp"))
    table = event_rows(trace, NANOSECONDS)
    events = np.array(table.values["event"], object)
    executes = np.flatnonzero(events == "Method::execute")
    columns = [np.array(table.values[name], object)[executes].tolist() for name in NEW_COLUMNS]
    assert columns[0] == 2 * ["prefill", *["decode"] * (NEW - 1)]
    assert columns[1] == 2 * [0, *range(PROMPT, PROMPT + NEW - 1)]
    assert columns[2] == 2 * [PROMPT, *[1] * (NEW - 1)]
    assert table.values["phase"][0] is None  # of loading
    other = Trace(read_etdump(saved_run(tmp_path / "cnn")))
    assert not set(NEW_COLUMNS) & {column.name for column in event_rows(other, NANOSECONDS).columns}
