"""The nodes of the edge program that each instruction of a method runs.

Debug handles lead from instructions to nodes. The parts of a decomposed operator share its handle,
and each is an instruction, or is in one of several delegates. The operator's name distinguishes
kernels; for several parts of one name, shapes and the flow of values decide. The flow of values
also finds the delegate of a part: an instruction that computes a node must read the node's inputs,
or have computed them. If no delegate is there, or the program does not decide, equal kernels run in
the order of their nodes; lowering to a backend may sort the nodes anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from etscope.analysis.matching.matching import Matching, program_matching, with_flow
from etscope.analysis.matching.run import LoggedSpec, type_mismatch
from etscope.analysis.program.correlate import (
    Attribution,
    MethodSymbols,
    branch_nodes,
    handle_list,
)
from etscope.analysis.program.program import InstructionRecord, instructions
from etscope.analysis.program.source_location import lines_of, module_path
from etscope.formats.program.pte import Program
from etscope.model.graph import SAME_VALUE, Graph, Node, TensorSpec, stem

Nodes = tuple[Node, ...]


@dataclass(frozen=True)
class RunNodes:
    """The nodes that each instruction of a method runs.

    symbols: the method's edge program. labels: the labels of the method's instructions, if known:
    "aten::add.out" or "add.out". program: the program that ran, if known.
    """

    symbols: MethodSymbols
    labels: Sequence[str] = ()
    program: Program | None = None

    @cached_property
    def nodes(self) -> Mapping[int, Nodes]:
        """The nodes of each instruction: several if it runs them together, or if the right one is
        unknown. In a method with delegates, an instruction has no node that another one may have
        run, unless it would be left without nodes."""
        symbols = self.symbols
        table: dict[int, Nodes] = {}
        alike: dict[tuple[int, ...], list[int]] = {}  # by `id` of the nodes
        for instruction, handles in sorted(symbols.handles.items()):
            nodes = symbols.nodes_of(handles)
            label = self.labels[instruction] if 0 <= instruction < len(self.labels) else ""
            wanted = stem(label)
            named = tuple(node for node in nodes if wanted and stem(node.op) == wanted)
            table[instruction] = named or nodes
            if len(named) > 1:
                alike.setdefault(tuple(map(id, named)), []).append(instruction)
        for numbers in alike.values():
            table.update(self._distinguished(numbers, table[numbers[0]]))
        for instruction, node in branch_nodes(self.labels, symbols).items():
            table[instruction] = (node,)
        table.update(self._placed(table))
        return table

    def ran(self, found: Attribution, instruction: int | None) -> Attribution:
        """Return the attribution of an instruction's event without nodes that ran elsewhere: the
        parts of a decomposed operator share its debug handle."""
        inside = self._ids.get(-1 if instruction is None else instruction, ())
        kept = tuple(node for node in found.nodes if id(node) in inside)
        return replace(found, nodes=kept) if kept else found

    def shown_at(self, found: Attribution, instruction: int | None) -> Attribution:
        """Return `ran`, with the tensors of its nodes if the program gives none. If its nodes have
        neither module nor line, it inherits the nodes that the instruction reads values of."""
        found = self.ran(found, instruction)
        if not found.outputs and found.nodes:
            found = self._with_tensors(found)
        if instruction is None or _are_located(found.nodes):
            return found
        return replace(found, inherited=self._inherited.get(instruction, ()))

    def _with_tensors(self, found: Attribution) -> Attribution:
        """Return the attribution with the tensors that its nodes read from other nodes, and give to
        them; without a delegate's weights.

        Without tensors if several nodes are possible outside a delegate.
        """
        nodes, graph = found.nodes, self.symbols.graph
        if graph is None or (len(nodes) > 1 and found.backend_id is None):
            return found
        inside = set(map(id, nodes))
        read: dict[str, TensorSpec] = {}
        written: list[TensorSpec] = []
        for node in nodes:
            around = graph.graph_of(node)
            for name in node.inputs:
                source = around.by_name.get(name)
                own = found.backend_id is not None and name in around.parameters
                if source is not None and id(source) not in inside and not own:
                    values = {value.name: value.tensor for value in source.outputs}
                    tensor = values.get(name, source.outputs[0].tensor if source.outputs else None)
                    if tensor is not None:
                        read[name] = tensor
            users = self.symbols.users_of(node)
            if not users or not inside.issuperset(map(id, users)):
                written += (value.tensor for value in node.outputs if value.tensor is not None)
        inputs, outputs = tuple(map(str, read.values())), tuple(map(str, written))
        return replace(found, inputs=inputs, outputs=outputs)

    @cached_property
    def _ids(self) -> Mapping[int, set[int]]:
        return {number: set(map(id, nodes)) for number, nodes in self.nodes.items()}

    @cached_property
    def _inherited(self) -> Mapping[int, Nodes]:
        """The nodes that each instruction reads values of, if its nodes have neither module nor
        line. Views of views have the nodes of the first value."""
        writer: dict[int, Nodes] = {}  # by index of the value
        found: dict[int, Nodes] = {}
        for record in self._flow:
            number = record.instruction_id
            nodes = self.nodes.get(number, ())
            if not _are_located(nodes):
                sources = (node for index in record.inputs for node in writer.get(index, ()))
                found[number] = nodes = tuple({id(node): node for node in sources}.values())
            for position, index in enumerate(record.outputs):
                writer[index] = self._computed(number, position, nodes)
        return found

    def _computed(self, instruction: int, output: int, nodes: Nodes) -> Nodes:
        """Return the nodes of an instruction that an output is known to belong to."""
        if len(nodes) < 2 or self.matching is None or self.symbols.graph is None:
            return nodes
        calls = self.symbols.graph.calls
        pairs = self.matching.by_instruction.get(instruction, ())
        own = tuple(calls[p.node] for p in pairs if p.output == output and not p.is_view)
        return own or nodes

    def _distinguished(self, numbers: Sequence[int], nodes: Nodes) -> Mapping[int, Nodes]:
        """Return the node that each of these kernels runs, if known."""
        known: dict[int, Node] = {}
        if self.symbols.delegates or len(numbers) != len(nodes):
            candidates = set(map(id, nodes))
            of_program = {i: self._of_program[i] for i in numbers if i in self._of_program}
            known = {i: node for i, node in of_program.items() if id(node) in candidates}
        left = [i for i in numbers if i not in known]
        taken = {id(node) for node in known.values()}
        free = [node for node in nodes if id(node) not in taken]
        if len(left) == len(free):
            for number in left:
                node = next((node for node in free if self._can_run(number, node)), None)
                if node is not None:
                    known[number] = node
                    free.remove(node)
        return {i: (node,) for i, node in known.items()}

    @cached_property
    def _of_program(self) -> Mapping[int, Node]:
        """The nodes of kernels, as far as the program decides."""
        if self.matching is None or self.symbols.graph is None:
            return {}
        nodes = self.symbols.graph.calls
        return {
            pair.instruction: nodes[pair.node]
            for pair in self.matching.pairs
            if self.records[pair.instruction].kind == "kernel" and not pair.is_view
        }

    def _can_run(self, instruction: int, node: Node) -> bool:
        """False if the instruction is known to write other tensors than the node."""
        if not 0 <= instruction < len(self.records):
            return True
        written = self.records[instruction].written
        logged = [LoggedSpec(value.scalar_type.torch_name, value.sizes) for value in written]
        wanted = [value.tensor for value in node.outputs if value.tensor is not None]
        return len(logged) != len(wanted) or not any(map(type_mismatch, logged, wanted))

    @cached_property
    def matching(self) -> Matching | None:
        """The matching of the program's values with the edge program's, as far as known without a
        run; None without a program of the method."""
        graph = self.symbols.graph
        if self.program is None or graph is None or not self.records:
            return None
        method = self.program.method(self.symbols.method)
        return program_matching(graph, self.symbols, method, self.records)

    @cached_property
    def records(self) -> Sequence[InstructionRecord]:
        """The program's instructions; empty without a program of the method."""
        if self.program is None:
            return ()
        name, counts = self.symbols.method, self.symbols.num_outputs
        if name not in (method.name for method in self.program.methods):
            return ()
        return instructions(self.program, name, delegate_outputs=counts).records

    @cached_property
    def _flow(self) -> Sequence[InstructionRecord]:
        """`records` with views replaced by their bases."""
        if self.program is None or not self.records:
            return ()
        return with_flow(self.program.method(self.symbols.method).values, self.records)

    def attributions(self) -> list[Attribution]:
        """The attribution of each of the program's instructions, with their modules and lines."""
        return [
            self.shown_at(
                Attribution(
                    nodes=self.nodes.get(record.instruction_id, ()),
                    backend_id=record.backend_id,
                    outputs=tuple(map(str, record.written)),
                    stack=record.stack,
                ),
                record.instruction_id,
            )
            for record in self.records
        ]

    # -- The parts of a decomposed operator: several instructions have their handle.

    def _placed(self, table: Mapping[int, Nodes]) -> Mapping[int, Nodes]:
        """Return the nodes of each instruction, without nodes that may have run elsewhere."""
        graph = self.symbols.graph
        delegates = {i for i, h in self.symbols.handles.items() if not isinstance(h, int)}
        if graph is None or not delegates:
            return {}
        places: dict[int, set[int]] = {}  # by `id` of the node: the instructions that may run it
        for instruction, nodes in table.items():
            for node in nodes:
                places.setdefault(id(node), set()).add(instruction)
        for nodes in (table[i] for i in table.keys() - delegates):
            if len(nodes) == 1:  # a kernel known to run it
                places[id(nodes[0])] -= delegates
        calls = [node for node in graph.own_operators.values() if node.delegate is not None]
        if calls:  # a graph after lowering: its calls are the instructions, in order
            numbers = sorted(delegates) if len(calls) == len(delegates) else ()
            for number, call in zip(numbers, calls, strict=False):
                inner = None if call.delegate is None else call.delegate.graph
                for node in () if inner is None else inner.walk():
                    places[id(node)] = {number}
        elif self.records:
            _Narrowing(graph, self.symbols, table, places, delegates, self._reads).run()
        found = {}
        for instruction, nodes in table.items():
            inside = tuple(node for node in nodes if instruction in places[id(node)])
            sure = tuple(node for node in inside if places[id(node)] == {instruction})
            found[instruction] = sure or inside or nodes
        return found

    @cached_property
    def _reads(self) -> Mapping[int, set[int]]:
        """Return the instructions that each instruction reads results of."""
        writer: dict[int, int] = {}
        reads: dict[int, set[int]] = {}
        for record in self._flow:
            number = record.instruction_id
            reads[number] = {writer[index] for index in record.inputs if index in writer}
            writer.update((index, number) for index in record.outputs)
        return reads


def _are_located(nodes: Nodes) -> bool:
    """Return whether the nodes have a module or a line."""
    return any(module_path(node) is not None for node in nodes) or bool(lines_of(nodes))


class _Narrowing:
    """Removes instructions that cannot run a node from its places, until nothing changes.

    A node is computed by the delegate that computed its inputs, or by an instruction that reads
    these. A view without an instruction counts with its input. A delegate has one node of a debug
    handle for each time that its list repeats the handle. If all places of a node contradict these
    rules, passes changed the graph, and the places stay.
    """

    def __init__(
        self,
        graph: Graph,
        symbols: MethodSymbols,
        table: Mapping[int, Nodes],
        places: dict[int, set[int]],
        delegates: set[int],
        reads: Mapping[int, set[int]],
    ) -> None:
        self._places, self._delegates, self._reads = places, delegates, reads
        self._table = table
        self._counts = {
            number: Counter(handle_list(symbols.handles[number])) for number in delegates
        }
        self._edges: list[tuple[Node, Node]] = []
        own = {path: node for path, node in graph.own_operators.items() if not node.subgraphs}
        for node in own.values():
            sources = [own[value.path] for value in graph.read_by(node) if value.path in own]
            if stem(node.op) in SAME_VALUE:
                around = (places.get(id(source), set()) for source in sources)
                places[id(node)] = places.get(id(node), set()).union(*around)
            if places.get(id(node)):
                self._edges += [(source, node) for source in sources if places.get(id(source))]

    def run(self) -> None:
        changed = True
        while changed:
            changed = sum(self._follow(source, node) for source, node in self._edges) > 0
            changed = sum(map(self._count, self._delegates)) > 0 or changed

    def _follow(self, source: Node, node: Node) -> bool:
        """Keep the places of a node and of its reader that fit together."""
        before, after = self._places[id(source)], self._places[id(node)]
        together = before & after
        if stem(node.op) not in SAME_VALUE:
            together &= self._delegates
        read = set[int]().union(*(self._reads.get(j, ()) for j in after))
        changed = self._keep(source, before & (read | together))
        reading = {j for j in after if not before.isdisjoint(self._reads.get(j, ()))}
        return self._keep(node, reading | together) or changed

    def _count(self, delegate: int) -> bool:
        """Give a delegate the nodes of a handle if they are as many as in its list. If its sure
        nodes alone are as many, it has none of the others; a list without repeated handles does not
        say that."""
        counts = self._counts[delegate]
        is_repeated = max(counts.values(), default=0) > 1
        changed = False
        for handle, count in counts.items():
            nodes = [
                node
                for node in self._table.get(delegate, ())
                if node.debug_handle == handle and delegate in self._places[id(node)]
            ]
            unsure = [node for node in nodes if len(self._places[id(node)]) > 1]
            if len(nodes) == count:
                changed = sum(self._keep(node, {delegate}) for node in unsure) > 0 or changed
            elif len(nodes) - len(unsure) == count and is_repeated:
                for node in unsure:
                    changed = self._keep(node, self._places[id(node)] - {delegate}) or changed
        return changed

    def _keep(self, node: Node, kept: set[int]) -> bool:
        if not kept or kept == self._places[id(node)]:
            return False
        self._places[id(node)] = kept
        return True
