"""Owners of measured memory, and what is said of them, on phases made by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from etscope.analysis.memory.measured import UNEXPLAINED, measured_report, memory_owners
from etscope.errors import FormatError, MismatchError, MissingDataError
from etscope.formats.etrecord.reader import read_etrecord
from etscope.formats.json_values import JsonValue
from etscope.formats.program.pte import read_pte
from etscope.formats.run_json import (
    RUN_JSON,
    DelegateMemory,
    InstructionMemory,
    MeasuredMemory,
    MemoryPhase,
    SavedRun,
    measured_memory,
)
from tests.support.artifacts import artifacts
from tests.support.cli.fixtures import Run

MB = 1_000_000
START = MemoryPhase(
    phase="start",
    method=None,
    counted={"constants": 0, "planned": 0},
    malloc_used=1 * MB,
    malloc_held=2 * MB,
    mapped_anonymous=3 * MB,
    rss=10 * MB,
    rss_of_files=7 * MB,
    rss_of_stacks=1 * MB,
    rss_anonymous=2 * MB,
    peak_rss=10 * MB,
)
PROGRAM = replace(START, phase="program", counted={"constants": 20 * MB, "planned": 0})
LOAD = replace(
    PROGRAM,
    phase="load",
    method="forward",
    counted={"constants": 20 * MB, "planned": 5 * MB},
    malloc_used=80 * MB,
    peak_rss=130 * MB,
)
INPUTS = replace(LOAD, phase="inputs", malloc_used=81 * MB, peak_rss=100 * MB)
# 1 MB was mapped by somebody who did not ask malloc.
END = replace(
    INPUTS,
    phase="first execution",
    malloc_used=90 * MB,
    malloc_held=98 * MB,
    rss=110 * MB,
    rss_of_files=10 * MB,
    rss_anonymous=99 * MB,
    mapped_anonymous=100 * MB,
    peak_rss=112 * MB,
)
DELEGATES = (
    DelegateMemory("forward", 1, "XnnpackBackend", 30 * MB, 90 * MB),
    DelegateMemory("forward", 2, "XnnpackBackend", 23 * MB, 130 * MB),
)
INSTRUCTIONS = (
    InstructionMemory("forward", 0, 0, 1, 0, None, 0, 108 * MB),
    InstructionMemory("forward", 0, 1, 1, 9 * MB, None, 0, 112 * MB),
    InstructionMemory("forward", 0, 2, 1, 0, None, 4096, 112 * MB),
    InstructionMemory("forward", 0, 3, 1, 0, None, 0, 112 * MB),
)
MEMORY = MeasuredMemory((START, PROGRAM, LOAD, INPUTS, END), DELEGATES, INSTRUCTIONS)


def saved(memory: MeasuredMemory) -> SavedRun:
    return SavedRun({"memory": {"peak_rss_bytes": 1, "measured": memory.to_json()}})


def test_the_record_of_another_program_is_an_error() -> None:
    program = read_pte(artifacts("cnn_portable").pte)
    record = read_etrecord(artifacts("cnn_xnnpack").etrecord)
    with pytest.raises(MismatchError, match="do not belong together"):
        measured_report(saved(MEMORY), {"file": "run"}, [program], record)
    report = measured_report(saved(MEMORY), {"file": "run"}, [program], record, force=True)
    assert report.section("memory_owners") is not None


def test_reuse_is_shown_once_beside_the_program(run: Run, tmp_path: Path) -> None:
    program = artifacts("cnn_portable").pte
    folder = tmp_path / "run"
    folder.mkdir()
    content = {
        "schema": "etscope.run/1",
        "memory": {"peak_rss_bytes": 1, "measured": MEMORY.to_json()},
    }
    (folder / RUN_JSON).write_text(json.dumps(content))
    code, out, _ = run("info", "--memory", folder, program)
    assert code == 0 and out.count("Reuse of planned memory") == 1


def said(memory: MeasuredMemory) -> str:
    return "\n".join(measured_report(saved(memory), {"file": "run"}).summary)


def test_every_owner_has_its_bytes() -> None:
    owners = memory_owners(MEMORY)
    assert {one.owner: one.size for one in owners} == {
        "constants of kernels, copied": 20 * MB,
        "planned buffers": 5 * MB,
        "delegates' own copies": 53 * MB,
        "taken while executing": 9 * MB,
        "inputs": 1 * MB,
        "other objects of runtime and runner": 1 * MB,
        "freed, kept by malloc": 7 * MB,
        "pages of libraries": 3 * MB,
        UNEXPLAINED: 1 * MB,
    }
    assert sum(one.size or 0 for one in owners) == 100 * MB


def test_what_is_resident_at_the_end() -> None:
    late = saved(with_end(replace(END, rss=113 * MB)))  # the peak is never below it
    phases = measured_report(late, {"file": "run"}).section("memory_phases").table
    assert phases.values["peak_rss"][-1] == 113 * MB
    untouched = replace(END, rss=100 * MB, rss_anonymous=89 * MB)
    owners = {one.owner: one.size for one in memory_owners(with_end(untouched))}
    assert owners["never touched"] == -10 * MB
    assert owners[UNEXPLAINED] == 1 * MB and sum(owners.values()) == 90 * MB


def with_end(end: MemoryPhase) -> MeasuredMemory:
    return replace(MEMORY, phases=(*MEMORY.phases[:-1], end))


def test_what_malloc_does_not_tell_is_unexplained_not_zero() -> None:
    phases = [replace(one, malloc_used=None, malloc_held=None) for one in MEMORY.phases]
    growths = [replace(one, growth=None) for one in DELEGATES]
    memory = MeasuredMemory(tuple(phases), tuple(growths), ())
    owners = {one.owner: one.size for one in memory_owners(memory)}
    assert "delegates' own copies" not in owners and "freed, kept by malloc" not in owners
    assert owners[UNEXPLAINED] == (100 - 20 - 5 - 3) * MB
    assert "Memory handed out by malloc is unknown" in said(memory)


def test_a_system_that_tells_nothing_is_an_error() -> None:
    phases = tuple(replace(one, rss=None) for one in MEMORY.phases)
    with pytest.raises(MissingDataError, match="the memory of this run's process is unknown"):
        memory_owners(replace(MEMORY, phases=phases))
    with pytest.raises(MissingDataError):
        memory_owners(replace(MEMORY, phases=()))


def test_the_peak_has_the_delegate_or_the_instruction_that_makes_it() -> None:
    assert "The peak is 124 MiB, 19.1 MiB more than at the end: while delegate 1 " in said(MEMORY)
    lower = replace(LOAD, peak_rss=90 * MB)
    executed = replace(MEMORY, phases=(START, PROGRAM, lower, INPUTS, END))
    assert "in the first execution at instruction 1." in said(executed)
    again = replace(END, phase="later executions", peak_rss=140 * MB)
    assert "in phase 'later executions'" in said(replace(MEMORY, phases=(*MEMORY.phases, again)))
    unknown = [replace(one, peak_rss=None) for one in MEMORY.phases]
    assert "The peak of each phase is unknown" in said(replace(MEMORY, phases=tuple(unknown)))


def test_words_name_what_is_large() -> None:
    text = said(MEMORY)
    assert "Planned buffers are 4.77 MiB (5.0%) of it." in text
    assert "Delegates (XnnpackBackend) made their own copies: 50.5 MiB (53.0%)." in text
    assert "malloc keeps 6.68 MiB (7.0%) of freed memory" in text
    assert "Unexplained: 977 KiB (1.0%)." in text


def test_a_run_json_has_it_all_but_instructions_that_took_nothing() -> None:
    read = measured_memory(JsonValue(MEMORY.to_json()))
    assert (read.phases, read.delegates) == (MEMORY.phases, MEMORY.delegates)
    assert read.instructions == INSTRUCTIONS[1:3]


@pytest.mark.parametrize(
    "damaged",
    [
        {"phases": 3},
        {"phases": [{"phase": "start"}]},
        {"phases": [{**MEMORY.to_json()["phases"][0], "rss_bytes": "many"}]},
        {"phases": [{**MEMORY.to_json()["phases"][0], "counted_bytes": {"planned": 10**400}}]},
        {"delegates": [{"method": "forward", "segment": None}]},
        {"instructions": [{"method": "forward"}]},
        [],
    ],
)
def test_damaged_memory_is_a_typed_error(damaged: object) -> None:
    with pytest.raises(FormatError):
        measured_memory(JsonValue(damaged))
