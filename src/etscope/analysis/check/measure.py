"""Measure what a check compares: of a program, of its record, and of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from etscope.analysis.check.measured import Amount, Measured, Part
from etscope.analysis.comparison.programs import Side
from etscope.analysis.faults.faults import program_faults
from etscope.analysis.graphs.partition import partition
from etscope.analysis.matching.export import Export
from etscope.analysis.profile.profile import MethodProfile
from etscope.analysis.profile.rollup import group_name, rollup
from etscope.analysis.profile.trace import Capture, Trace
from etscope.analysis.program.source_location import (
    common_module,
    lines_of,
    module_path,
    short_lines,
)
from etscope.analysis.program.xnnpack_events import may_compute
from etscope.analysis.work.graph_work import GraphWork
from etscope.analysis.work.program_work import ProgramWork, operator_work
from etscope.errors import MissingDataError
from etscope.formats.program.pte import Program, program_fingerprint
from etscope.formats.program.pte_schema import DelegateCall, KernelCall
from etscope.formats.run_json import RUN_ETDP
from etscope.model.finding import Site
from etscope.model.graph import Node, SourceLine, stem

# How well outputs agree with the expected ones: the amounts of "sqnr" and "worst_sample", by
# method; or why they are missing.
Outputs = Sequence[Amount] | str

_OF_PROGRAM = ("size", "kernels", "interface", "faults", "memory", "flops", "bytes", "delegated")
_SEPARATOR = "\0"


def measure(
    capture: Capture,
    outputs: Outputs = "outputs were not compared",
    *,
    method: str | None = None,
    source_unit: str = "ns",
) -> Measured:
    """Measure a run, or a program without one. method: only this one. source_unit: of the clock.

    Raises `MissingDataError` without a program and without times, or if the method is not there.
    """
    export, trace = capture.export, capture.trace
    program = export.recorded_program
    amounts: list[Amount] = []
    missing: dict[str, str] = {}
    if program is None:
        missing |= dict.fromkeys(_OF_PROGRAM, "the program is not known: name it, or its ETRecord")
    else:
        of_program = _OfProgram(export, program, method)
        amounts += of_program.amounts()
        missing |= of_program.missing
    if isinstance(outputs, str):
        missing |= dict.fromkeys(("sqnr", "worst_sample"), outputs)
    else:
        amounts += [one for one in outputs if method in (None, one.method)]
    profiles = [] if trace is None else trace.profiles()
    profiles = [one for one in profiles if method in (None, one.method)]
    amounts += (_time(trace, one, source_unit) for one in profiles if trace is not None)
    if not profiles:
        missing["time"] = "there is no run: name a run folder, or an ETDump"
    saved = None if trace is None else trace.saved_run
    paths = _paths(capture)
    name = next(iter(paths.values()), "the program")
    known = [] if program is None else [one.name for one in program.methods]
    if not profiles and (program is None or method not in (None, *known)):
        what = "program nor a run" if method is None else f"program nor a run of {method!r}"
        hint = f"its methods are: {', '.join(known)}" if known else "name its .pte, too"
        raise MissingDataError(f"{name} has neither a {what}", hint=hint)
    return Measured(
        name=name,
        paths=paths,
        program_sha256=None if program is None else program_fingerprint(program.source.buffer),
        executorch=None if saved is None else saved.text("executorch"),
        operators={} if program is None else _operators(Side("", program)),
        missing=missing,
        amounts=tuple(amounts),
    )


def _paths(capture: Capture) -> dict[str, str]:
    """Return the paths of the files: see `Measured`."""
    export, trace, program = capture.export, capture.trace, capture.export.recorded_program
    given = {
        "dump": None if trace is None else trace.dump.path,
        "record": None if export.record is None else export.record.path,
        "program": None if export.program is None else export.program.source.path,
    }
    found = {name: Path(path) for name, path in given.items() if path is not None}
    beside = found["record"].with_suffix(".pte") if "record" in found else Path()
    if (
        program is not None
        and "program" not in found
        and beside.is_file()
        and program_fingerprint(beside) == program_fingerprint(program.source.buffer)
    ):
        found["program"] = beside
    folders = {path.parent for path in found.values()}
    if found and found.get("dump", Path()).name == RUN_ETDP and len(folders) == 1:
        found = {"run": folders.pop(), **found}
    return {name: str(path) for name, path in found.items()}


def _operators(side: Side) -> dict[str, int]:
    """Count the operators. The data of a delegate without known operators is one: its hash."""
    found: Counter[str] = Counter()
    for (method, operator, backend), count in side.calls():
        found[f"{method}: {backend or 'runtime'}: {operator}"] += count
    for method, delegates in side.delegates.items():
        for one in delegates:
            if not one.operators:
                found[f"{method}: {one.backend_id}: data {one.digest.hex()}"] += 1
    return dict(found)


class _OfProgram:
    """The amounts of a program. missing: why a quantity is not among them."""

    def __init__(self, export: Export, program: Program, method: str | None) -> None:
        self.export, self.side = export, Side("", program, export.record, export.data)
        self.program = program
        self.methods = [one for one in program.methods if method in (None, one.name)]
        self.missing: dict[str, str] = {}
        self._full: dict[str, str] = {}  # "net.py:12" -> with its folder
        for one in program.methods:
            graph = export.edge_nodes(one.name).symbols.graph
            stacks = (a.lines for a in export.attributions[one.name])
            lines = [*lines_of(() if graph is None else graph.walk())]
            self._add_lines([*lines, *(line for stack in stacks for line in stack)])

    def _add_lines(self, lines: Iterable[SourceLine]) -> None:
        for line in lines:
            self._full[short_lines([line])] = str(line)

    def _source(self, short: str | None) -> str | None:
        """Return a line with its folder, from a text as "net.py:12 +1"."""
        text = (short or "").partition(" ")[0]
        return self._full.get(text, text) or None

    def _part(
        self, name: str, value: float, nodes: Sequence[Node], instruction: tuple[str, int]
    ) -> Part:
        """Return a part at the place of its nodes; without, of its instruction."""
        place = self.export.attributions[instruction[0]][instruction[1]]
        module = common_module(nodes) if nodes else place.module
        short = short_lines(lines_of(nodes) or place.lines)
        return Part(name, value, module, self._source(short))

    def amounts(self) -> Iterator[Amount]:
        """Yield the quantities of the program, then of its methods."""
        sizes = (
            Part(
                one.kind
                if one.module is not None
                else f"{one.kind} {one.dtype or one.label or ''}",
                one.size,
                one.module,
                self._source(one.line),
            )
            for one in self.side.parts
        )
        yield Amount("size", None, self.side.size, _summed(sizes))
        yield _counted("kernels", list(self._kernels()))
        yield _counted("interface", list(self._interface()))
        yield _counted("faults", list(self._faults()))
        for method in self.methods:
            yield self._memory(method.name)
            yield from self._work(method.name)
            yield from self._delegated(method.name)

    def _faults(self) -> Iterator[Part]:
        names = {None, *(one.name for one in self.methods)}
        for fault in program_faults(self.export):
            if fault.method in names:
                sites = () if fault.explanation is None else fault.explanation.sites
                site = next(iter(sites), Site(""))
                source = self._source(site.line)
                yield Part(fault.kind, 1, site.module, source, fault.sentence)

    def _kernels(self) -> Iterator[Part]:
        """Yield the kernels to register and the backends to link, at their first call."""
        seen: set[str] = set()
        for method in self.methods:
            for number, instruction in enumerate(method.instructions):
                if isinstance(instruction, KernelCall):
                    name = method.operators[instruction.operator].full_name
                    if name not in self.side.kernels:  # the runtime has it
                        continue
                elif isinstance(instruction, DelegateCall):
                    name = method.delegates[instruction.delegate].backend_id
                else:
                    continue
                if name not in seen:
                    seen.add(name)
                    found = self._part(name, 1, (), (method.name, number))
                    yield Part(name, 1, None, found.source)

    def _interface(self) -> Iterator[Part]:
        for method in self.methods:
            for what in ("input", "output"):
                for position, text in enumerate(self.side.signature(method.name, what)):
                    yield Part(f"{method.name} {what} {position}: {text}")

    def _memory(self, method: str) -> Amount:
        """The planned memory; its parts are alive at the peak."""
        plan = self.side.plans[method]
        places = plan.places(self.export.attributions[method])
        parts = [
            Part(
                stem(value.op) if value.op else value.role,
                value.nbytes,
                places[value.value][0],
                self._source(places[value.value][1]),
            )
            for instruction in plan.peak_instructions[:1]
            for value in plan.live_at(instruction)
        ]
        return Amount("memory", method, plan.planned_bytes, _summed(parts))

    def _work(self, method: str) -> Iterator[Amount]:
        """The FLOPs and the bytes moved, for the largest sizes that the program allows."""
        nodes, work = self.export.edge_nodes(method), ProgramWork(self.program, method)
        graph = nodes.symbols.graph
        of_graph = None if graph is None else GraphWork(graph)
        flops: list[Part] = []
        moved: list[Part] = []
        unknown: list[str] = []
        for number, record in enumerate(work.records):
            found, ran = work.of(number), nodes.nodes.get(number, ())
            operators = work.operators(number)
            if found.unknown and not operators and ran and of_graph is not None:
                found = of_graph.together(ran)
            at = method, number
            name = record.backend_id or stem(ran[0].op if ran else record.label)
            unknown += found.unknown
            moved.append(self._part(name, found.traffic.total, ran, at))
            if not operators:
                flops.append(self._part(name, found.flops, ran, at))
            for operator in operators:
                those = nodes.symbols.nodes_of(operator.debug_handle)
                those = tuple(one for one in those if may_compute(operator, one)) or those
                name = stem(those[0].op) if those else operator.kind or "operator"
                flops.append(self._part(name, operator_work(operator).flops, those, at))
        for quantity, parts in (("flops", flops), ("bytes", moved)):
            total = sum(part.value for part in parts)
            yield Amount(quantity, method, total, _summed(parts), tuple(sorted(unknown)))

    def _delegated(self, method: str) -> Iterator[Amount]:
        """The share of the nodes in delegates; its parts are the other nodes."""
        try:
            found = partition(self.export, method)
        except MissingDataError as error:
            self.missing["delegated"] = error.message
            return
        left = [one.node for one in found.places if id(one.node) not in found.call_of]
        parts = (
            Part(stem(n.op), 1, module_path(n), self._source(short_lines(lines_of([n]))))
            for n in left
        )
        if count := len(found.places):
            yield Amount("delegated", method, 1 - len(left) / count, _summed(parts))


def _counted(quantity: str, parts: Sequence[Part]) -> Amount:
    return Amount(quantity, None, len(parts), tuple(parts))


def _summed(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Add up the parts of one name and module, the largest first; without zeros."""
    sums: dict[tuple[str, str | None], float] = {}
    sources: dict[tuple[str, str | None], str | None] = {}
    for part in parts:
        key = part.name, part.module
        sums[key] = sums.get(key, 0) + part.value
        sources[key] = sources.get(key) or part.source
    ordered = sorted(sums, key=lambda key: -sums[key])
    return tuple(Part(key[0], sums[key], key[1], sources[key]) for key in ordered if sums[key])


def _time(trace: Trace, profile: MethodProfile, source_unit: str) -> Amount:
    """The times of the counted runs of a method; its parts are averages of operators, in ticks."""

    def place(part: str) -> Part:
        name, module, source = part.split(_SEPARATOR)
        return Part(name, 0, module or None, source or None)

    groups = rollup(
        profile,
        lambda call, leaf: _SEPARATOR.join(
            (
                group_name(call, leaf, "operator"),
                leaf.attribution.module or "",
                str(leaf.attribution.lines[0]) if leaf.attribution.lines else "",
            )
        ),
    ).groups
    found = [(place(group.name), group.average) for group in groups]
    parts = (Part(one.name, ticks, one.module, one.source) for one, ticks in found)
    return Amount(
        "time",
        profile.title(),
        float(profile.total.mean()),
        _summed(parts),
        basis=_conditions(trace, profile, source_unit),
        samples=tuple(map(float, profile.total)),
    )


def _conditions(trace: Trace, profile: MethodProfile, source_unit: str) -> Mapping[str, str]:
    """Return what times depend on, other than the program; without what is not known."""
    saved = trace.saved_run
    known: dict[str, str | None] = {
        "clock": source_unit,
        "logged values": "yes" if profile.traced else "no",
    }
    if saved is not None:
        known |= {
            "processor": None if saved.conditions is None else saved.conditions.cpu,
            "device": saved.text("device"),
            "threads": saved.text("threads"),
            "runner": saved.text("runner"),
        }
    return {name: value for name, value in known.items() if value}
