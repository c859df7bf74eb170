"""The work of the rows of a profile: FLOPs and bytes of one run, the mean over its runs.

A kernel has the work of its instruction in the program, a delegate's call the work of its
operators, and an event inside of it its operator's work. FLOPs add up: what a call's events do not
explain is the work of its rest. Bytes do not: a call has the bytes that cross its border, its
events the bytes that they read and write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from etscope.analysis.matching.run_nodes import Nodes, RunNodes
from etscope.analysis.profile.profile import InstructionRows, MethodProfile, Row
from etscope.analysis.profile.trace import Trace
from etscope.analysis.program.xnnpack_events import InnerEvents, Pairing, may_compute
from etscope.analysis.work.graph_work import GraphWork
from etscope.analysis.work.operation import NO_WORK, Work, sum_of, unknown_work
from etscope.analysis.work.program_work import ProgramWork, clamp_work, operator_work
from etscope.analysis.work.sizes import run_sizes
from etscope.formats.program.xnnpack import XnnNode
from etscope.model.graph import Node
from etscope.support.shown import Shown

__all__ = ["ProfileWork", "profile_work"]


@dataclass(frozen=True)
class ProfileWork(Shown):
    """The work of a profile's rows in one run, the mean over its runs, by `id` of the row.

    together: for a row that has the work of several rows, these rows. It is unknown how the work
    divides among them.
    """

    profile: MethodProfile
    works: Mapping[int, Work]
    together: Mapping[int, Sequence[Row]]

    def of(self, rows: Iterable[Row]) -> Work | None:
        """Return the work of rows together; None if no row has any, as time outside of
        instructions."""
        known = [work for row in rows for work in self._of(row)]
        return sum_of(known) if known else None

    def _of(self, row: Row) -> list[Work]:
        if row.kind == "total":
            return [self.total]
        if row.parts:
            return [work for part in row.parts for work in self._of(part)]
        work = self.works.get(id(row))
        return [] if work is None else [work]

    def ticks_of(self, rows: Iterable[Row]) -> float:
        """Return the time that the work of rows took, in ticks."""
        parts = (part for row in rows for part in row.parts or (row,))
        every = {id(one): one for part in parts for one in self.together.get(id(part), (part,))}
        return sum(float(one.ticks.mean()) for one in every.values())

    @cached_property
    def total(self) -> Work:
        """Return the work of a run: the sum over all instructions."""
        return sum_of(
            self.works[id(row)]
            for row in self.profile.rows
            if row.depth == 0 and id(row) in self.works
        )

    @property
    def unknown_share(self) -> float:
        """The share of the method's time in rows with some unknown work."""
        leaves = (leaf for group in self.profile.instructions for leaf in group.leaves)
        ticks = sum(
            float(leaf.ticks.mean())
            for leaf in leaves
            if id(leaf) in self.works and self.works[id(leaf)].unknown
        )
        return ticks / max(1.0, float(self.profile.total.mean()))


def profile_work(trace: Trace, profile: MethodProfile) -> ProfileWork | None:
    """Return the work of a profile's rows, counted once; None if neither a record nor a program has
    it."""
    method = profile.method
    if method is None:
        return None

    def counted() -> tuple[MethodProfile, ProfileWork | None]:
        run_nodes, program = trace.run_nodes(method), trace.recorded_program
        graph, listing = run_nodes.symbols.graph, trace.instructions(method)
        of_program = None
        if program is not None and listing:
            of_program = ProgramWork(program, method, listing)
        if graph is None and of_program is None:
            return profile, None
        inner = trace.inner_events(method, by_order=True)
        most = None if graph is None else GraphWork(graph)
        found: dict[int, list[Work]] = {}
        together: dict[int, Sequence[Row]] = {}
        for variant in run_sizes(trace, profile, graph):
            of_graph = None if graph is None else GraphWork(graph, variant.sizes)
            at = variant.sizes.position
            rows = InstructionWork(run_nodes, of_program, of_graph, most, inner, at)
            for row, work in rows.of(profile.instructions):
                calls = float(row.calls[variant.runs].sum()) / len(profile.runs)
                found.setdefault(id(row), []).append(work.times(calls))
            together.update(rows.together)
        works = {key: sum_of(works) for key, works in found.items()}
        for group in profile.instructions:
            # The rest of a call has the work that the call's other events do not explain.
            whole = works.get(id(group.head))
            rests = (row for row in group.below if row.kind == "unaccounted" and row.depth == 1)
            rest = next(rests, None)
            if not group.is_split or whole is None or rest is None:
                continue
            explained = sum_of(works[id(leaf)] for leaf in group.leaves if id(leaf) in works)
            left = whole.flops - explained.flops
            if left > 1e-9 * whole.flops:  # less is what rounding leaves
                parts = dict(explained.dtypes)
                types = ((name, max(0.0, part - parts.get(name, 0))) for name, part in whole.dtypes)
                works[id(rest)] = Work(left, unknown=whole.unknown, dtypes=tuple(types))
        return profile, ProfileWork(profile, works, together)

    # Kept with its profile, so that no other gets the same id.
    return trace.once(("work of a profile", id(profile)), counted)[1]


# -- the instructions


@dataclass(frozen=True, slots=True)
class _Scale:
    """The work of an operator at a run's sizes by that at the largest."""

    flops: float
    activations: float

    @classmethod
    def of(cls, run: Work, largest: Work) -> _Scale:
        activations = run.traffic.activations + run.traffic.state
        most = largest.traffic.activations + largest.traffic.state
        return cls(
            round(run.flops / largest.flops, 12) if largest.flops else 1.0,
            round(activations / most, 12) if most else 1.0,
        )


class InstructionWork:
    """The work of one call of each instruction of a method, for given sizes: of kernels, of
    delegate calls and of the events inside them.

    With fixed shapes, the program's values and XNNPACK's data give all sizes. With dynamic shapes
    they give only the largest sizes; the run's sizes come from the graph's nodes. If it is unknown
    which of several nodes an instruction runs, its work is still known if they all have the same.

    of_program: work by the program's sizes, None without a program. of_graph: work by the edge
    graph at the sizes of the run; `largest`: the same at the largest sizes; both are None without a
    record. inner: the operators of events. position: the position of a language model's calls, None
    if unknown. together: the rows that a combined row replaces, by the `id` of the combined row.
    """

    def __init__(
        self,
        run_nodes: RunNodes,
        of_program: ProgramWork | None,
        of_graph: GraphWork | None,
        largest: GraphWork | None,
        inner: InnerEvents,
        position: float | None = None,
    ) -> None:
        self._run_nodes, self._inner, self._position = run_nodes, inner, position
        self._program, self._graph, self._largest = of_program, of_graph, largest
        self.together: dict[int, tuple[Row, ...]] = {}

    def of(self, instructions: Sequence[InstructionRows]) -> list[tuple[Row, Work]]:
        """Return the work of one call of each row that has any."""
        found: list[tuple[Row, Work]] = []
        by_nodes: dict[int, Row] = {}
        for group in instructions:
            head, number = group.head, group.head.instruction_id
            if number is None:
                continue
            if head.kind in ("kernel", "control"):
                found.append((head, self._kernel(head, number)))
            elif head.kind == "delegate":
                if (work := self._of_data(number)) is not None:
                    found.append((head, work))
                else:
                    by_nodes[number] = head
                found += self._events(group, number)
        # It may not be known which of several calls runs a node: it counts once.
        nodes = {id(row): self._nodes(number) for number, row in by_nodes.items()}
        for row, members in self._shared(list(by_nodes.values()), nodes):
            found.append((row, self._call(row.instruction_id or 0, members)))
        return found

    def _of_program(self, number: int) -> Work | None:
        """Return the work of an instruction from the program, for the largest sizes."""
        program = self._program_with(number)
        return None if program is None else program.of(number, self._position)

    def _program_with(self, number: int) -> ProgramWork | None:
        """The program, if it has the instruction: a dump may hold any number."""
        program = self._program
        return program if program is not None and 0 <= number < len(program.records) else None

    def _operators(self, number: int) -> Sequence[XnnNode]:
        """XNNPACK's operators of a call, where they are known."""
        program = self._program_with(number)
        return () if program is None else program.operators(number)

    # -- kernels

    def _kernel(self, row: Row, number: int) -> Work:
        """The work of a kernel: of the program's instruction, if its shapes are fixed; else of the
        node that it runs, if all that it may be have the same."""
        of_program = self._of_program(number)
        if of_program is not None and not of_program.is_bound:
            return of_program
        if self._graph is not None:
            # A view logs the call alone: memory planning left no kernel to run.
            is_view = "et_view" in (row.attribution.operator or row.name) or (
                row.name == "OPERATOR_CALL"
            )
            nodes = self._run_nodes.nodes.get(number, ())
            found = {self._graph.of(node, is_view=is_view) for node in nodes}
            if len(found) == 1 and (of_program is None or not next(iter(found)).unknown):
                return found.pop()
        if of_program is not None:
            return of_program
        return NO_WORK if row.kind == "control" else unknown_work(row.name)

    # -- delegates' calls

    def _of_data(self, number: int) -> Work | None:
        """The work of a delegate's call by the operators in its data; None if these are not known,
        or the sizes of the run are not."""
        found = self._of_program(number)
        if found is None or (found.unknown and not self._operators(number)):
            return None
        if not found.is_bound:
            return found
        if self._graph is None:
            return found
        operators = [self._operator(node, number) for node in self._operators(number)]
        if not operators:
            return None
        added = sum_of(operators)
        nodes = self._nodes(number)
        border = self._graph.together(nodes).traffic if nodes else found.traffic
        return replace(
            added,
            traffic=replace(border, weights=found.traffic.weights),
            inner=max(0, added.traffic.activations - border.activations - border.state),
            is_bound=added.is_bound or not nodes,
        )

    def _call(self, number: int, nodes: Sequence[Node]) -> Work:
        """Return the work of a delegate's call by its nodes, with bytes from the program."""
        program, of_program = self._program, self._of_program(number)
        if self._graph is None or not nodes:
            return of_program or unknown_work("delegate")
        found = self._graph.together(nodes)
        if program is None or of_program is None:
            return found
        border = found.traffic if of_program.is_bound else of_program.traffic
        of_data = program.weights(number)
        weights = found.traffic.weights if of_data is None else of_data
        return replace(found, traffic=replace(border, weights=weights))

    def _nodes(self, number: int) -> Nodes:
        """The nodes that a delegate's call may run: without those that a kernel is known to run, or
        that no operator in the call's data computes."""
        nodes = self._run_nodes.nodes.get(number, ())
        nodes = tuple(node for node in nodes if id(node) not in self._run_by_kernels) or nodes
        operators = self._operators(number)
        if not operators:
            return nodes
        by_handle: dict[int | None, list[XnnNode]] = {}
        for operator in operators:
            by_handle.setdefault(operator.debug_handle, []).append(operator)
        return (
            tuple(
                node
                for node in nodes
                if any(may_compute(one, node) for one in by_handle.get(node.debug_handle, ()))
            )
            or nodes
        )

    @cached_property
    def _run_by_kernels(self) -> set[int]:
        """The nodes, by `id`, that a kernel is known to run."""
        handles = self._run_nodes.symbols.handles
        return {
            id(nodes[0])
            for number, nodes in self._run_nodes.nodes.items()
            if len(nodes) == 1 and isinstance(handles.get(number), int)
        }

    def _operator(self, operator: XnnNode, number: int, *, clamps: bool = True) -> Work:
        """The work of an operator of XNNPACK in a call."""
        found = operator_work(operator, clamps=clamps)
        return self._at_run_sizes(found, operator, number)

    def _at_run_sizes(self, found: Work, operator: XnnNode, number: int) -> Work:
        """Scale the work of the largest sizes to the run's sizes, by the ratio for the operator's
        nodes."""
        program = self._program_with(number)
        if program is not None and program.is_static(number):
            return found
        scale = self._scale(operator, number)
        if scale is not None:
            traffic = found.traffic.times(scale.activations)
            traffic = replace(traffic, weights=found.traffic.weights)
            return replace(found.with_flops(found.flops * scale.flops), traffic=traffic)
        # The backend's own transposes have no node, and no FLOPs.
        return NO_WORK if not found.flops and not found.unknown else replace(found, is_bound=True)

    def _scale(self, operator: XnnNode, number: int) -> _Scale | None:
        """The scale of an operator's nodes; None if those that it may be have different ones."""
        if self._graph is None or self._largest is None or operator.debug_handle is None:
            return None
        nodes = self._run_nodes.symbols.nodes_of([operator.debug_handle])
        those = [node for node in nodes if may_compute(operator, node)] or list(nodes)
        inside = set(map(id, self._run_nodes.nodes.get(number, ())))
        for candidates in (those, [node for node in those if id(node) in inside]):
            works = [(self._graph.of(node), self._largest.of(node)) for node in candidates]
            scales = {_Scale.of(run, largest) for run, largest in works}
            if len(scales) == 1 and not any(run.is_bound for run, _ in works):
                return scales.pop()
        return None

    # -- events inside of a call

    def _events(self, group: InstructionRows, number: int) -> list[tuple[Row, Work]]:
        """The work of the events of a call: by XNNPACK's operators, or else by their nodes."""
        rows = [row for row in group.below if row.kind == "delegated"]
        paired = {
            id(row): pairing
            for row in rows
            if row.delegate_id is not None
            and (pairing := self._inner.get((number, row.delegate_id))) is not None
        }
        if paired or self._graph is None:
            apart = {id(one.node) for one in paired.values() if one.activation}
            return [
                (row, self._event(paired[id(row)], apart, number))
                if id(row) in paired
                else (row, unknown_work(row.kernel_name))
                for row in rows
            ]
        inside = set(map(id, self._nodes(number)))
        nodes = {
            id(row): [node for node in row.attribution.nodes if id(node) in inside] for row in rows
        }
        return [
            (row, self._graph.together(own) if own else unknown_work(row.kernel_name))
            for row, own in self._shared(rows, nodes)
        ]

    def _event(self, pairing: Pairing, apart: set[int], number: int) -> Work:
        """Return the work of an event. apart: `id`s of the operators with a separate event for
        their clamp."""
        operator = pairing.node
        if pairing.activation:
            return self._at_run_sizes(clamp_work(operator), operator, number)
        return self._operator(operator, number, clamps=id(operator) not in apart)

    def _shared(
        self, rows: Sequence[Row], nodes: Mapping[int, Sequence[Node]]
    ) -> Iterator[tuple[Row, Sequence[Node]]]:
        """Yield rows with their nodes. Rows that share nodes have them together, and how they
        divide is not known: the longest stands for them, over the time of all."""
        groups: list[tuple[set[int], list[Row]]] = []
        for row in rows:
            ids, members = set(map(id, nodes[id(row)])), [row]
            apart = []
            for known, others in groups:
                if ids.isdisjoint(known):
                    apart.append((known, others))
                else:
                    ids, members = ids | known, [*others, *members]
            groups = [*apart, (ids, members)]
        for _, members in groups:
            longest = max(members, key=lambda row: float(row.ticks.mean()))
            if len(members) > 1:
                self.together[id(longest)] = tuple(members)
            yield longest, tuple({id(n): n for row in members for n in nodes[id(row)]}.values())
