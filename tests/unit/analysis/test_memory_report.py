"""What the memory report says, against the plan that it is of."""

from __future__ import annotations

import pytest

from etscope.analysis.memory import memory_plan, memory_report
from etscope.analysis.profile.source_location import common_module, short_lines
from etscope.analysis.profile.trace import Trace
from etscope.cli import main
from etscope.errors import MismatchError, MissingDataError
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.etrecord.reader import read_etrecord
from etscope.formats.program.pte import read_pte
from etscope.model.table import Table
from tests.support.artifacts import artifacts
from tests.support.formats.handmade import method, pte_file


def section(name: str, artifact: str) -> Table:
    program = read_pte(artifacts(artifact).pte)
    found = memory_report(program, {}).section(name)
    return found.table


def test_the_peak_names_the_instructions_that_made_it() -> None:
    plan = memory_plan(read_pte(artifacts("cnn_portable").pte), "forward")
    peak = section("memory_peak", "cnn_portable")
    assert plan.peak_bytes == 24_576
    assert sum(peak.values["size"]) == plan.peak_bytes
    assert sum(peak.values["share"]) == pytest.approx(1.0)
    at = plan.peak_instructions[0]
    for op, made, last in zip(
        peak.values["made_by"], peak.values["instruction"], peak.values["last"], strict=True
    ):
        assert made <= at <= last
        assert plan.labels[made] == op
    assert f"instruction {at} ({plan.labels[at]})" in peak.notes[0]


def test_live_bytes_are_the_plans_at_each_instruction() -> None:
    plan = memory_plan(read_pte(artifacts("cnn_portable").pte), "forward")
    live = section("memory_live", "cnn_portable")
    assert tuple(live.values["alive"]) == plan.live_bytes
    assert max(live.values["of_peak"]) == 1.0
    assert sum(live.values["begin"]) == sum(live.values["end"])
    assert sum(live.values["begin"]) == sum(v.last >= v.first for v in plan.values)


@pytest.mark.parametrize("name", ["transformer", "cnn_portable"])
def test_a_value_is_at_the_module_and_line_of_what_writes_it(name: str) -> None:
    files = artifacts(name)
    program, record = read_pte(files.pte), read_etrecord(files.etrecord)
    trace = Trace(read_etdump(files.etdump_timing or files.etdump), record, program)
    (profile,) = trace.profiles()
    places = {
        row.instruction_id: (
            common_module(row.attribution.located),
            short_lines(row.attribution.lines) or None,
        )
        for row in profile.rows
        if row.depth == 0
    }
    report = memory_report(program, {}, record)
    for section_name, first in (("memory_values", "first"), ("memory_peak", "instruction")):
        found = report.section(section_name)
        columns = ("role", first, "module", "source")
        written = [
            (instruction, (module, source))
            for role, instruction, module, source in zip(
                *(found.table.values[column] for column in columns), strict=True
            )
            if role == "activation" and instruction in places
        ]
        assert written and all(place == places[number] for number, place in written)
        assert any(module for _, (module, _) in written)


def test_the_record_of_another_program_is_an_error() -> None:
    file, other = artifacts("cnn_portable").pte, artifacts("cnn_xnnpack").etrecord
    program, record = read_pte(file), read_etrecord(other)
    with pytest.raises(MismatchError, match="do not belong together"):
        memory_report(program, {}, record)
    assert memory_report(program, {}, record, force=True).section("memory_values") is not None
    assert main(["info", "--memory", str(file), "-r", str(other)]) == 3
    assert main(["info", "--memory", str(file), "-r", str(other), "--force"]) == 0


def test_without_a_record_no_module_is_known() -> None:
    assert set(section("memory_values", "cnn_portable").values["module"]) == {None}


def test_values_of_all_methods_are_listed() -> None:
    values = section("memory_values", "two_methods")
    assert set(values.values["method"]) == {"encode", "decode"}
    program = read_pte(artifacts("two_methods").pte)
    planned = sum(len(memory_plan(program, m.name).values) for m in program.methods)
    assert len(values) == planned


def test_a_program_that_plans_nothing_is_no_empty_answer() -> None:
    with pytest.raises(MissingDataError, match="plans no memory"):
        memory_report(read_pte(pte_file(method([]))), {})
