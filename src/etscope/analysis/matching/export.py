"""`Export`: a program with its record and its .ptd files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from etscope.errors import MismatchError, MissingDataError
from etscope.formats.program.pte import Program, read_pte
from etscope.support.lazy import MadeOnce
from etscope.support.shown import Shown

if TYPE_CHECKING:
    from etscope.analysis.matching.run_nodes import RunNodes
    from etscope.analysis.program.correlate import Attribution
    from etscope.formats.etrecord.reader import RecordView
    from etscope.formats.program.ptd import ExternalData

__all__ = ["Export"]


@dataclass(frozen=True)
class Export(MadeOnce, Shown):
    """The program of an export, its record and its .ptd files; each may be missing.

    program: by default the record's.
    """

    program: Program | None = None
    record: RecordView | None = None
    data: tuple[ExternalData, ...] = ()

    @property
    def export(self) -> Export:
        """The export itself. `Trace` has the same property."""
        return self

    @property
    def trace(self) -> None:
        """None: an export has no run."""
        return

    @cached_property
    def recorded_program(self) -> Program | None:
        """The given program, else the program in the record."""
        if self.program is not None or self.record is None:
            return self.program
        view = self.record.program_view()
        return None if view is None else read_pte(view)

    @property
    def needed_program(self) -> Program:
        """The program. Raises `MissingDataError` without one."""
        if self.recorded_program is None:
            raise MissingDataError("this needs a program", hint="pass the .pte of the export")
        return self.recorded_program

    @property
    def needed_record(self) -> RecordView:
        """The record. Raises `MissingDataError` without one."""
        if self.record is None:
            raise MissingDataError("this needs an ETRecord", hint="pass the record of the export")
        return self.record

    def edge_nodes(self, method: str) -> RunNodes:
        """Return the nodes of the edge program that a method's instructions run, as far as they are
        known without a run. Without a record, lines come from the program's stack traces."""
        return self.once(("edge nodes", method), lambda: self._edge_nodes(method))

    def _edge_nodes(self, method: str) -> RunNodes:
        from etscope.analysis.matching.run_nodes import RunNodes
        from etscope.analysis.program.compatibility import instruction_labels
        from etscope.analysis.program.correlate import (
            MethodSymbols,
            method_symbols,
            record_methods,
        )

        record, program = self.record, self.recorded_program
        fingerprints = None if record is None else record.fingerprints
        symbols = MethodSymbols(method, None)
        if record is not None and method in record_methods(record):
            symbols = method_symbols(record, method)
        labels: Sequence[str] = ()
        if program is not None and method in (found.name for found in program.methods):
            labels = instruction_labels(program.method(method))
        elif fingerprints is not None and method in fingerprints.methods:
            labels = fingerprints.methods[method].instructions
        return RunNodes(symbols, labels, program)

    @cached_property
    def attributions(self) -> Mapping[str, Sequence[Attribution]]:
        return {
            method.name: self.edge_nodes(method.name).attributions()
            for method in self.needed_program.methods
        }

    def check_record(self, name: str | None = None) -> None:
        """Raise `MismatchError` if the record belongs to another program. It compares the record's
        list of instructions; without a list, its delegate maps and graphs. name: the program's name
        in the message.
        """
        record, program = self.record, self.needed_program
        if record is None:
            return
        from etscope.analysis.program.compatibility import (
            Observed,
            differs_from_record,
            instruction_labels,
        )

        fingerprints = record.fingerprints
        for method in program.methods:
            if fingerprints is None:
                run = self.edge_nodes(method.name)
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
                own = name or program.source.path or "this program"
                other = "this ETRecord" if record.path is None else f"the ETRecord {record.path}"
                raise MismatchError(
                    f"{own} and {other} do not belong together: {difference}",
                    hint="pass the record of the same export, or --force",
                )
