"""The reference next to a recorded run: what PyTorch makes of the same inputs, computed as far as
it is asked for and kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from etscope.analysis.graphs.linked_graph import LinkedGraph
from etscope.errors import MissingDataError
from etscope.etdb._files import NO_RECORD, NO_RECORD_HINT, Files
from etscope.quiet import quiet

if TYPE_CHECKING:
    from etscope.bridge.reference.live import LiveRun

NO_INPUTS = "there are no inputs to run the reference on"
NO_INPUTS_HINT = (
    "the record has none of this method: give them with --inputs FILE, or target live FILE"
)


def live_run(files: Files, linked: LinkedGraph, method: str, inputs: Any) -> LiveRun:
    """A run of the edge program in PyTorch. inputs: None for the record's.

    Raises `MissingDataError` without a record or inputs, `MissingDependencyError` without torch.
    """
    if files.record is None:
        raise MissingDataError(NO_RECORD, hint=NO_RECORD_HINT)
    given = inputs_of(files, method) if inputs is None else inputs
    if given is None:
        raise MissingDataError(NO_INPUTS, hint=NO_INPUTS_HINT)
    with quiet():
        from etscope.diagnosis.reference import named_program

        program, names = named_program(files.record, linked.graph)
        from etscope.bridge.reference.live import LiveRun

        return LiveRun(program, given, names)


def inputs_of(files: Files, method: str) -> Any:
    """The record's inputs of a method, or those of the bundled program's first case."""
    if files.record is not None and method == files.main_method:
        found = files.record.representative_inputs()
        if found is not None:
            return found
    for suite in files.bundle.suites if files.bundle is not None else ():
        if suite.method == method and suite.cases:
            return list(suite.cases[0].inputs)
    return None


class ReferenceValues:
    """Values of the reference by node and pass of its loop."""

    def __init__(self, run: LiveRun) -> None:
        self._run = run
        self._at: dict[str, list[int]] = {}

    def value(self, node: str, loop_pass: int = 0) -> Any:
        """The value of a node. Raises `MissingDataError` where the reference has none."""
        while len(self._at.get(node, ())) <= loop_pass:
            name = self._run.advance()
            if name is None:
                break
            self._at.setdefault(name, []).append(self._run.computed - 1)
        places = self._at.get(node, ())
        if loop_pass < len(places):
            return self._run.value(places[loop_pass])
        if not places:
            given = self._run.input(node)
            if given is not None:
                return given
        raise MissingDataError(
            f"the reference has no value of {node}" + (f" in pass {loop_pass}" if places else ""),
            hint="it took another branch, or the name is not of the edge graph: info ops",
        )

    def call(self, node: str, value: Callable[[str], Any]) -> Any:
        """What the operator of a node makes of its inputs, each of which `value` gives."""
        return self._run.call(node, value)


__all__ = ["ReferenceValues", "inputs_of", "live_run"]
