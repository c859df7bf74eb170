"""The report on the partition of a method, for `etscope graph --partition`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from etscope.analysis.graphs.delegate_io import INPUT, LAYOUT, OUTPUT, STATE, Borders, Crossing
from etscope.analysis.graphs.linked_graph import short_name
from etscope.analysis.graphs.node_table import PlacedNode, fields_of, short_outputs, short_tensor
from etscope.analysis.graphs.partition import DelegateCall, NodeRefusal, Partition
from etscope.analysis.program.source_location import module_path, short_lines, user_line
from etscope.formats.etrecord.own_members import NOT_ASKED, REFUSED, SILENT, UNKNOWN, UNPLACED
from etscope.model.report import Report, Section, facts, rows
from etscope.model.selector import Fields
from etscope.model.table import Column, Kind
from etscope.units import format_bytes

SCHEMA = "etscope.partition/1"
RUNTIME = "runtime"

_ANSWERS = {
    UNKNOWN: "unknown operator",
    REFUSED: "refused without a reason",
    UNPLACED: "supported, but in no partition",
    NOT_ASKED: "not asked: in a branch",
    SILENT: "answer unknown",
}
_NOT_TOLD = (
    "The record does not store who refused a node and why. Export with etscope export, "
    "or wrap your lowering in etscope.export.keeping_partition."
)


def refusal_text(refusal: NodeRefusal) -> str:
    """Say why a partitioner refused a node, in its words if it gave a reason."""
    answer = _ANSWERS.get(refusal.answer)
    if answer is None:
        return refusal.reason or ""
    return answer if refusal.reason is None else f"{answer} ({refusal.reason})"


def place_fields(partition: Partition, place: PlacedNode) -> Fields:
    """The node's fields for a selector; `delegate` and `id` come from its call."""
    call = partition.call_of.get(id(place.node))
    fields = dict(fields_of(partition.linked, place))
    if partition.partitionings is not None or call is not None:
        fields["delegate"] = [] if call is None else [call.backend]
    if call is not None and call.instruction is not None:
        fields["id"] = [str(call.instruction)]
    return fields


def partition_report(partition: Partition, keep: Callable[[Fields], bool] | None = None) -> Report:
    """Build a report with the sections "partition", "backends", "refused", "calls", "crossings",
    "border_nodes" and "nodes"; those without content are left out.

    keep: selects nodes of the sections "refused" and "nodes".
    """
    parts = _Parts(partition)
    places = [
        place for place in partition.places if keep is None or keep(place_fields(partition, place))
    ]
    found = (
        parts.facts(),
        parts.backends(),
        parts.refused(places),
        parts.calls(),
        parts.crossings(),
        parts.border_nodes(),
        parts.nodes(places),
    )
    return Report(
        {"graph": parts.name},
        tuple(section for section in found if len(section.table)),
        (*parts.sentences(), *parts.notes()),
    )


_SIDES = {INPUT: "model's input", STATE: "state"}


class _Parts:
    """The sections and sentences of the report."""

    def __init__(self, partition: Partition) -> None:
        self.partition, self.borders = partition, Borders(partition)
        self.name, self.count = short_name(partition.linked.name), len(partition.places)
        self.taken = sum(id(place.node) in partition.call_of for place in partition.places)
        self.added = sum(len(call.added) for call in partition.calls)
        self.asked = [one.backend or one.partitioner for one in partition.partitionings or ()]

    def sentences(self) -> Iterator[str]:
        partition, count = self.partition, self.count
        if not partition.calls:
            asked = [one.partitioner for one in partition.partitionings or ()]
            yield f"{self.name}: no delegate: the runtime computes all of the {count:,} nodes" + (
                f", though {' and '.join(asked)} was asked." if asked else "."
            )
            return
        parts = []
        for backend in dict.fromkeys(call.backend for call in partition.calls):
            calls = [call for call in partition.calls if call.backend == backend]
            taken = sum(len(call.nodes) for call in calls)
            parts.append(f"{backend} {taken:,} in {len(calls):,} call{'s' * (len(calls) > 1)}")
        yield (
            f"{self.name}: of {count:,} nodes {', '.join(parts)}, and the runtime "
            f"{count - self.taken:,}."
        )
        size = format_bytes(_bytes(self.borders.crossings))
        yield f"{size} cross the borders of delegates in each run."
        if border := len(self.borders.nodes):
            verb = "s lay out or convert" if border > 1 else " lays out or converts"
            yield f"{border:,} node{verb} values directly at a border."
        if self.added:
            yield f"XNNPACK added {self.added:,} transposes at the borders of its calls."

    def notes(self) -> Iterator[str]:
        partition = self.partition
        if partition.partitionings is None:
            yield _NOT_TOLD
        if partition.partitionings == ():
            yield "No partitioner was asked: the program was lowered without a backend."
        if partition.unsure:
            yield (
                f"The delegate calls of {partition.unsure:,} nodes are uncertain: these nodes "
                "share debug handles."
            )
        if partition.lost:
            yield (
                f"Partitioners named {partition.lost:,} nodes that the record's edge program "
                "lacks: passes changed it."
            )

    def facts(self) -> Section:
        partition, asked, crossings = (
            self.partition, self.partition.partitionings, self.borders.crossings
        )  # fmt: skip
        return facts(
            "partition",
            f"{self.name} · partition",
            (
                (Column("nodes", Kind.COUNT), self.count),
                (Column("delegated", Kind.COUNT, title="in delegates"), self.taken),
                (
                    Column("share", Kind.SHARE, title="share in delegates"),
                    self.taken / self.count if self.count else None,
                ),
                (Column("calls", Kind.COUNT, title="delegate calls"), len(partition.calls)),
                (
                    Column("partitioners", Kind.LIST, title="asked, in order"),
                    None if asked is None else [one.partitioner for one in asked],
                ),
                (Column("crossings", Kind.COUNT, title="border crossings"), len(crossings)),
                (Column("crossing_bytes", Kind.BYTES, title="their size"), _bytes(crossings)),
                (
                    Column("border_nodes", Kind.COUNT, title="layouts and conversions at borders"),
                    len(self.borders.nodes),
                ),
                (
                    Column("added_transposes", Kind.COUNT, title="transposes that XNNPACK added"),
                    self.added,
                ),
                (
                    Column("reasons_kept", Kind.BOOL, title="records who refused and why"),
                    asked is not None,
                ),
            ),
        )

    def backends(self) -> Section:
        """A row for each backend in the order of the partitioners, then the runtime."""
        partition, count = self.partition, self.count
        content: list[Sequence[Any]] = []
        for name in dict.fromkeys((*self.asked, *(call.backend for call in partition.calls))):
            calls = [call for call in partition.calls if call.backend == name]
            taken = sum(
                call.backend == name
                for place in partition.places
                if (call := partition.call_of.get(id(place.node))) is not None
            )
            refused = sum(
                any(one.by == name for one in partition.refusals.get(id(place.node), ()))
                for place in partition.places
            )
            given = sum(_bytes(self.borders.entering(call)) for call in calls)
            made = sum(_bytes(self.borders.leaving(call)) for call in calls)
            content.append((name, taken, taken / count, len(calls), refused, given, made))
        if count:
            left = count - self.taken
            content.append((RUNTIME, left, left / count, None, None, None, None))
        return rows(
            "backends",
            "Who computes the nodes",
            (
                Column("backend"),
                Column("nodes", Kind.COUNT),
                Column("share", Kind.SHARE),
                Column("calls", Kind.COUNT),
                Column("refused", Kind.COUNT, priority=1),
                Column("bytes_in", Kind.BYTES, title="in"),
                Column("bytes_out", Kind.BYTES, title="out"),
            ),
            content,
        )

    def refused(self, places: Sequence[PlacedNode]) -> Section:
        """A row for each backend, operator and reason: backends in order, most nodes first."""
        partition = self.partition
        computed: dict[tuple[str, str, str], list[str]] = {}
        for place in places:
            call = partition.call_of.get(id(place.node))
            for one in partition.refusals.get(id(place.node), ()):
                key = (one.by, place.node.op, refusal_text(one))
                computed.setdefault(key, []).append(RUNTIME if call is None else call.backend)
        ordered = sorted(
            computed.items(), key=lambda entry: (self.asked.index(entry[0][0]), -len(entry[1]))
        )
        return rows(
            "refused",
            "Refused",
            (
                Column("nodes", Kind.COUNT),
                Column("op"),
                Column("why", is_sentence=True),
                Column("backend", title="refused by"),
                Column("computed_by", Kind.LIST, title="computed by", priority=1),
            ),
            [
                (len(by), op, why, backend, list(dict.fromkeys(by)))
                for (backend, op, why), by in ordered
            ],
        )

    def calls(self) -> Section:
        content = []
        for call in self.partition.calls:
            given, made = self.borders.entering(call), self.borders.leaving(call)
            ops = list(dict.fromkeys(node.op for node in call.nodes))
            crossing = len(given), _bytes(given), len(made), _bytes(made)
            content.append(
                (call.instruction, call.backend, call.module, len(call.nodes), *crossing, ops)
            )
        return rows(
            "calls",
            "Delegate calls",
            (
                Column("instruction", Kind.INT, title="#"),
                Column("backend"),
                Column("lowered_module", title="lowered module", priority=4),
                Column("nodes", Kind.COUNT),
                Column("values_in", Kind.COUNT, title="values in", priority=1),
                Column("bytes_in", Kind.BYTES, title="in"),
                Column("values_out", Kind.COUNT, title="values out", priority=1),
                Column("bytes_out", Kind.BYTES, title="out"),
                Column("ops", Kind.LIST, title="operators", priority=3),
            ),
            content,
        )

    def crossings(self) -> Section:
        found = self.borders.crossings
        has_hints = any(one.tensor is not None and one.tensor.hints for one in found)
        return rows(
            "crossings",
            "What crosses the borders of delegates",
            (
                Column("value"),
                Column("tensor"),
                Column("bytes", Kind.BYTES),
                Column("source", title="from"),
                Column("target", title="to"),
                Column("kind", priority=2),
            ),
            [
                (
                    one.label,
                    None if one.tensor is None else short_tensor(one.tensor),
                    one.bytes,
                    _side(one.source, _SIDES.get(one.kind, RUNTIME)),
                    _side(one.target, "model's output" if one.kind == OUTPUT else RUNTIME),
                    one.kind,
                )
                for one in found
            ],
            notes=("Symbolic sizes count as at export.",) if has_hints else (),
        )

    def border_nodes(self) -> Section:
        """A row for each of `Borders.nodes`, then for each `DelegateCall.added`."""
        content: list[Sequence[Any]] = [
            (
                one.place.node.name,
                one.kind,
                short_outputs(one.place.node),
                _side(one.call),
                [call.label for call in one.givers],
                [call.label for call in one.readers],
                list(one.partners),
                module_path(one.place.node),
                _source(one.place),
                False,
            )
            for one in self.borders.nodes
        ]
        for call in self.partition.calls:
            for one in call.added:
                name = f"{one.kind} of its {'input' if one.is_input else 'output'}"
                content.append((name, LAYOUT, one.tensor, call.label, [], [], [], None, None, True))
        return rows(
            "border_nodes",
            "Layout changes and conversions directly at a border",
            (
                Column("node"),
                Column("kind"),
                Column("output", priority=1),
                Column("computed_by", title="computed by"),
                Column("givers", Kind.LIST, title="after", priority=2),
                Column("readers", Kind.LIST, title="before", priority=2),
                Column("pairs_with", Kind.LIST, title="pairs with", priority=4),
                Column("module", Kind.PATH, priority=5),
                Column("source", priority=3),
                Column("added", Kind.BOOL, title="added by the backend", priority=2),
            ),
            content,
        )

    def nodes(self, places: Sequence[PlacedNode]) -> Section:
        content = []
        for place in places:
            node = place.node
            call = self.partition.call_of.get(id(node))
            refusals = self.partition.refusals.get(id(node), ())
            line = user_line(node.stack_trace)
            content.append(
                (
                    node.name,
                    node.op,
                    short_outputs(node),
                    node.debug_handle,
                    RUNTIME if call is None else call.backend,
                    None if call is None else call.instruction,
                    [one.by for one in refusals],
                    [refusal_text(one) for one in refusals],
                    module_path(node),
                    _source(place),
                    None if line is None else str(line),
                )
            )
        return rows(
            "nodes",
            "Nodes",
            (
                Column("node"),
                Column("op", priority=8),
                Column("output", priority=5),
                Column("handle", Kind.INT, title="debug handle", priority=7),
                Column("backend", title="computed by"),
                Column("instruction", Kind.INT, title="#", priority=3),
                Column("refused_by", Kind.LIST, title="refused by", priority=2),
                Column("why", Kind.LIST, is_sentence=True),
                Column("module", Kind.PATH, priority=4),
                Column("source", priority=1),
                Column("source_path", Kind.PATH, title="source line", priority=9),
            ),
            content,
            depth=[place.depth for place in places],
        )


def _bytes(crossings: Iterable[Crossing]) -> int:
    return sum(one.bytes or 0 for one in crossings)


def _side(call: DelegateCall | None, otherwise: str = RUNTIME) -> str:
    return otherwise if call is None else call.label


def _source(place: PlacedNode) -> str | None:
    line = user_line(place.node.stack_trace)
    return None if line is None else short_lines([line])
