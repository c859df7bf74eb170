"""Check that a record is that of a program."""

from __future__ import annotations

from etscope.analysis.matching.run_nodes import program_nodes
from etscope.analysis.program.compatibility import Observed, differs_from_record, instruction_labels
from etscope.errors import MismatchError
from etscope.formats.etrecord.reader import RecordView
from etscope.formats.program.pte import Program


def check_record(program: Program, record: RecordView | None, name: str) -> None:
    """Raise `MismatchError` if a record is of another program: by the instructions that it lists,
    or else by its maps and graphs. name: of the program, for the sentence."""
    if record is None:
        return
    fingerprints = record.fingerprints
    for method in program.methods:
        if fingerprints is None:
            run = program_nodes(program, method.name, record)
            observed = Observed.foreseen(run.records)
            difference = differs_from_record(observed, run.symbols, record, method.name)
        else:
            recorded = fingerprints.methods.get(method.name)
            difference = None
            if recorded is None:
                difference = f"the record has no method {method.name!r}"
            elif recorded.instructions != instruction_labels(method):
                difference = f"its method {method.name!r} has other instructions"
        if difference is not None:
            raise MismatchError(
                f"{name} and the ETRecord {record.path or ''} do not belong together: {difference}",
                hint="give the record of each program's own export; --force goes on regardless",
            )
