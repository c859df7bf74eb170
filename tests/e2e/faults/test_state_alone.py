"""What a program alone shows of its state, in `info`, `run` and `explain`."""

from __future__ import annotations

import random
from collections.abc import Callable

from etscope.analysis.faults.faults import told
from etscope.analysis.faults.state import STATE_NOTE, state_notes
from etscope.analysis.matching.export import Export
from etscope.cli.options.run import first_of
from etscope.explain import explain
from etscope.run import run
from tests.support.faults.planted_programs import (
    Planted,
    shared,
    start,
)


def test_without_a_record_the_notes_say_what_the_program_does_not_store() -> None:
    def notes(family: Callable[..., Planted], *, sound: bool) -> str:
        made = family(random.Random(1), sound=sound).export
        assert not [*state_notes(made)]  # the record tells
        assert made.program is not None
        # A run of the first method, and what `run` and `explain` say of it.
        ran = run(bytes(made.program.source.buffer), iterations=1)
        (found,) = explain(ran.trace)
        said = [one for one in first_of(found.findings) if one.kind == STATE_NOTE]
        assert said == [one for one in found.findings if one.kind == STATE_NOTE]
        assert said == [*state_notes(Export(made.program))]
        return " ".join(map(told, said))

    lost = "The program stores no start value for the state of forward ("
    assert lost in notes(start, sound=False)
    assert notes(start, sound=True) == ""
    own = "No method reads what set_state writes to its state"
    assert own in notes(shared, sound=False)
