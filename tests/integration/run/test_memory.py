"""Who takes the memory of a run: measured by the native runner, and shown beside the plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etscope.analysis.memory.measured import (
    UNEXPLAINED,
    measured_report,
    memory_owners,
)
from etscope.analysis.memory.plan import memory_plan
from etscope.analysis.memory.stored import MEASURED, OwnedBytes
from etscope.cli import main
from etscope.errors import MismatchError, UsageError
from etscope.formats.etrecord.reader import read_etrecord
from etscope.formats.program.pte import read_pte
from etscope.formats.run_json import MeasuredMemory, read_run_json, run_at
from etscope.model.report import Report
from etscope.run import run
from tests.support.artifacts import artifacts
from tests.support.native.runner import runner

pytest.importorskip("executorch")

SMALL = ("cnn_portable", "transformer")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a saved run of each small model, in folders of their names."""
    runner()
    folder = tmp_path_factory.mktemp("runs")
    for name in SMALL:
        with run(artifacts(name).pte, iterations=1, warmup=0, trace=False, memory=True) as done:
            done.save(folder / name)
    return folder


def measured(folder: Path) -> MeasuredMemory:
    memory = read_run_json(folder / "run.json").memory
    assert memory is not None and memory.measured is not None
    return memory.measured


def report_on(folder: Path, name: str) -> Report:
    saved, files = run_at(folder / name), artifacts(name)
    assert saved is not None
    record = read_etrecord(files.etrecord)
    return measured_report(saved, {"file": name}, [read_pte(files.pte)], record)


def owners(report: Report) -> dict[str, OwnedBytes]:
    section = report.section("memory_owners")
    assert section is not None
    return {
        name: OwnedBytes(name, size, MEASURED, planned)
        for name, planned, size, _ in section.table.rows()
    }


def check_sums(found: dict[str, OwnedBytes], memory: MeasuredMemory) -> None:
    """The owners sum to the growth, and next to nothing is unexplained."""
    start, end = memory.phases[0].rss, memory.phases[-1].rss
    assert start and end and end > start
    growth = found.pop("growth of the process").size
    assert growth == end - start
    assert sum(one.size or 0 for one in found.values()) == growth
    assert abs(found[UNEXPLAINED].size) < 0.05 * growth
    # What malloc gave to nobody who is named is no explanation either.
    assert abs(found["other objects of runtime and runner"].size) < 0.05 * growth


@pytest.mark.parametrize("name", SMALL)
def test_the_owners_sum_to_the_growth_of_the_process(folder: Path, name: str) -> None:
    found = owners(report_on(folder, name))
    plan = memory_plan(read_pte(artifacts(name).pte), "forward")
    check_sums(found, measured(folder / name))
    for owner in ("planned buffers", "the program's tables"):
        assert found[owner].planned == found[owner].size > 0
    assert found["planned buffers"].size == plan.planned_bytes
    assert found["method allocator"].size > 0


def test_constants_are_copied_by_kernels_and_packed_by_delegates(folder: Path) -> None:
    portable = owners(report_on(folder, "cnn_portable"))
    constants = portable["constants of kernels, copied"]
    assert constants.planned and constants.size >= constants.planned
    assert "delegates' own copies" not in portable
    report = report_on(folder, "transformer")
    delegated = owners(report)["delegates' own copies"]
    assert delegated.planned and delegated.size >= delegated.planned
    # Each delegate has what it took beside its weights.
    section = report.section("memory_delegates")
    assert section is not None
    table, method = section.table, read_pte(artifacts("transformer").pte).method("forward")
    assert sorted(table.values["delegate"]) == list(range(len(method.delegates)))
    assert set(table.values["backend"]) == {one.backend_id for one in method.delegates}
    assert all(size > 0 for size in table.values["growth"])
    assert sum(table.values["growth"]) == delegated.size
    assert sum(table.values["planned"]) == delegated.planned
    assert any(module for module in table.values["module"])


def test_every_phase_has_its_peak(folder: Path) -> None:
    memory = measured(folder / "cnn_portable")
    assert [phase.phase for phase in memory.phases] == [
        *("start", "program", "load", "inputs", "first execution", "later executions")
    ]
    # The system counts resident pages by CPU, and sums them up to a few dozen for each.
    slack = 1 << 20
    assert all((one.peak_rss or 0) > (one.rss or 0) - slack for one in memory.phases)
    top = memory.peak_instruction("forward")
    assert top is not None and top.peak_rss is not None
    first = memory.phases[4]
    assert first.peak_rss is not None and top.peak_rss <= first.peak_rss
    # XNNPACK makes its workspace when it is executed for the first time, and keeps it.
    found = measured(folder / "transformer").instructions
    took = {one.instruction: one for one in found if (one.first_growth or 0) > 4096}
    method = read_pte(artifacts("transformer").pte).method("forward")
    assert took and all(number < len(method.instructions) for number in took)
    assert all(one.executions == 2 for one in took.values())


def test_reuse_is_between_the_lower_bound_and_no_reuse(folder: Path) -> None:
    section = report_on(folder, "cnn_portable").section("memory_reuse")
    assert section is not None
    plan = memory_plan(read_pte(artifacts("cnn_portable").pte), "forward")
    ((_, number, size, without, bound, lost),) = section.table.rows()
    (arena,) = plan.arenas
    assert (number, size, bound) == (arena.memory_id, plan.planned_bytes, plan.peak_bytes)
    assert bound <= size < without and lost == size - bound
    # No place has two values at one time, and views count once.
    assert without <= sum(value.nbytes for value in plan.values)


@pytest.mark.parametrize(
    ("name", "packed"),
    [
        pytest.param("bert_base_xnnpack", 0.5, marks=pytest.mark.nightly),
        ("llama_xnnpack", 0.15),
    ],
)
def test_a_transformer_is_explained(tmp_path: Path, name: str, packed: float) -> None:
    with run(artifacts(name).pte, iterations=1, warmup=0, trace=False, memory=True) as done:
        done.save(tmp_path / name)
    report = report_on(tmp_path, name)
    found = owners(report)
    growth = found["growth of the process"].size
    check_sums(found, measured(tmp_path / name))
    assert found["planned buffers"].size < 0.1 * growth
    assert found["delegates' own copies"].size > packed * growth
    assert any("XnnpackBackend" in sentence for sentence in report.summary)


# -- on the command line


def test_a_saved_run_is_shown_beside_its_program(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = artifacts("transformer")
    line = ["info", "--memory", str(folder / "transformer"), str(files.pte), "-f", "json"]
    assert main(line) == 0
    (shown, plan) = json.loads(capsys.readouterr().out)["reports"]
    assert shown["kind"] == "run" and plan["kind"] == "pte"
    assert plan["sections"]["memory_reuse"] and "memory_reuse" not in shown["sections"]
    rows = shown["sections"]["memory_owners"]
    assert rows[-1]["owner"] == "growth of the process"
    assert sum(row["measured"] for row in rows[:-1]) == rows[-1]["measured"]


def test_a_run_without_measured_memory_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with run(artifacts("cnn_portable").pte, iterations=1, trace=False) as done:
        done.save(tmp_path / "run")
    assert main(["info", "--memory", str(tmp_path / "run")]) == 4
    error = capsys.readouterr().err
    assert "was not measured" in error and "etscope run PROGRAM --memory --save DIR" in error


def test_another_program_is_refused(folder: Path) -> None:
    saved = run_at(folder / "transformer" / "run.json")
    assert saved is not None
    with pytest.raises(MismatchError, match="is not the program of"):
        measured_report(saved, {"file": "run"}, [read_pte(artifacts("cnn_portable").pte)])


@pytest.mark.parametrize(
    ("options", "say"),
    [
        (("--memory",), "add --save DIR"),
        (("--memory", "--save", "DIR", "-X", "runner=python"), "memory by owner"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    say: str,
) -> None:
    given = [str(tmp_path / "x") if one == "DIR" else one for one in options]
    pte = artifacts("cnn_portable").pte
    assert main(["run", str(pte), *given]) == 2
    assert say in capsys.readouterr().err
    with pytest.raises(UsageError, match="memory by owner"):  # nor of this process
        run(pte, isolate=False, memory=True)


def test_a_call_of_each_method_is_measured() -> None:
    files = artifacts("two_methods")
    program = read_pte(files.pte)
    names = [method.name for method in program.methods]
    assert len(names) == 2
    from etscope.run import Call

    calls = [Call(name) for name in (*names, names[0])]
    with run(files.pte, calls, iterations=1, trace=False, memory=True) as done:
        assert done.measured is not None
        assert done.measured.methods == tuple(names)
        assert len(done.call_outputs) == 3
        loads = [phase.method for phase in done.measured.phases if phase.phase == "load"]
        assert loads == names
        total = {one.owner: one.size for one in memory_owners(done.measured)}
    plans = [memory_plan(program, name).planned_bytes for name in names]
    assert total["planned buffers"] == sum(plans)
