"""State that a program keeps between runs: its KV caches, and other mutable buffers.

A mutable buffer is a KV cache if instructions write positions of a dimension as long as the
context, or if its name says so. All others are other state.

- The context length comes from the program's constant method `get_max_context_len`, else
  `get_max_seq_len` (ExecuTorch's `extension/llm/runner/constants.h`). It is read without running
  the method.
- Names come from the program (`ExecutorchBackendConfig(emit_mutable_buffer_names=True)`), else from
  the record, which lists the buffers in the program's order.
- A shorter cache of the same form belongs to a sliding window: its length stays when the context
  grows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from etscope.analysis.matching.export import Export
from etscope.analysis.memory.plan import (
    MemoryPlan,
    PlannedValue,
    groups_sharing_state,
    memory_plans,
)
from etscope.errors import reading
from etscope.formats.etrecord.reader import EDGE, RecordView
from etscope.formats.exported_program.exported_json import mapping, sequence, text, union
from etscope.formats.program.pte import Program
from etscope.formats.program.pte_schema import (
    Allocation,
    KernelCall,
    ListValue,
    Method,
    ScalarValue,
    TensorValue,
    ValueKind,
)
from etscope.model.exported_graph import graph_from_record
from etscope.model.report import Section, rows
from etscope.model.table import Column, Kind

KV_CACHE, OTHER_STATE = "KV cache", "other state"
_CONTEXT_METHODS = ("get_max_context_len", "get_max_seq_len")
# The last part of a qualified name: "key_cache_0", "v_cache", "k_cache_scales".
_CACHE_NAME = re.compile(
    r"(k|v|kv|keys?|values?)_?caches?(_scales?|_zero_points?)?(_\d+)?$", re.IGNORECASE
)
# How the kind of a buffer and its dimension of positions are known.
_NAME = "name"
_WRITES_FIT = "writes"  # along a dimension that is as long as the context
_FORM = "writes, form"  # the form of such a buffer, but another length
_WRITES_DIFFER = "writes of another length"
_LEAST_RANK = 2  # of a cache: positions, and values for each position


_Form = tuple[int, tuple[int, ...], int | None]


@dataclass(frozen=True, slots=True)
class StateTensor:
    """A mutable buffer of a method, in planned memory.

    kind: "KV cache" or "other state". name: qualified, from the program or the record; None if
    unknown. dim: the dimension of positions, None if unknown. grows: True if it grows with the
    context, None if unknown. fact: how kind and dim were found. copies: the values that hold a
    changed copy of the whole buffer until it is copied back.
    """

    method: str
    value: int
    tensor: TensorValue
    place: Allocation
    kind: str
    name: str | None
    dim: int | None
    grows: bool | None
    fact: str
    copies: tuple[int, ...] = ()

    @property
    def nbytes(self) -> int:
        return self.tensor.nbytes or 0

    @property
    def length(self) -> int | None:
        """The number of positions that it holds."""
        return None if self.dim is None else self.tensor.sizes[self.dim]

    @property
    def form(self) -> _Form:
        """The element type, and the sizes without the dimension of positions."""
        sizes = (size for dim, size in enumerate(self.tensor.sizes) if dim != self.dim)
        return int(self.tensor.scalar_type), tuple(sizes), self.dim

    def judged(self, context: int, forms: Set[_Form]) -> StateTensor:
        """Decide the kind, and whether the buffer grows, by the context length. forms: of the
        buffers that are as long as the context.
        """
        is_named, has_rank = self.kind == KV_CACHE, len(self.tensor.sizes) >= _LEAST_RANK
        by_name = [_NAME] if is_named else []
        if self.dim is None:
            fitting = [dim for dim, size in enumerate(self.tensor.sizes) if size == context]
            if not is_named or len(fitting) != 1:
                return self
            return replace(self, dim=fitting[0], grows=True, fact=f"{_NAME}, length")
        if self.length == context:
            kind = KV_CACHE if is_named or has_rank else OTHER_STATE
            return replace(self, kind=kind, grows=True, fact=", ".join((*by_name, _WRITES_FIT)))
        if self.form in forms:
            return replace(self, kind=KV_CACHE, grows=False, fact=", ".join((*by_name, _FORM)))
        grows = False if is_named else None
        return replace(self, grows=grows, fact=", ".join((*by_name, _WRITES_DIFFER)))

    def nbytes_at(self, positions: int, context: int) -> int:
        """Bytes in a program with a context of `positions` tokens. context: this program's."""
        if self.grows is None or not self.length or self.length > context:
            return self.nbytes
        held = positions if self.grows else min(positions, self.length)
        return self.nbytes // self.length * held


@dataclass(frozen=True, slots=True)
class ProgramState:
    """The mutable state of each method that has any.

    context: the context length of the export, None if unknown. context_from: the constant method,
    or "the longest cache". groups: methods that share their state; a group may be a single method.
    """

    context: int | None
    context_from: str | None
    methods: Mapping[str, tuple[StateTensor, ...]]
    groups: tuple[tuple[str, ...], ...]

    def group(self, methods: Sequence[str]) -> tuple[StateTensor, ...]:
        """The buffers of methods that share state: shared ones once, and each method's own."""
        found: dict[tuple[str | None, Allocation], StateTensor] = {}
        for method in methods:
            for one in self.methods[method]:
                is_shared = len(methods) > 1 and one.place.memory_id == _SHARED_MEMORY
                found.setdefault((None if is_shared else method, one.place), one)
        return tuple(found.values())


_SHARED_MEMORY = 2  # the memory id of `MemoryPlanningPass(share_mutable_buffers=True)`


def program_state(export: Export) -> ProgramState:
    """Find the mutable buffers of each method, and the KV caches among them. A record names
    them."""
    program = export.needed_program
    found: dict[str, tuple[StateTensor, ...]] = {}
    for name, plan in memory_plans(export).items():
        tensors = _state_of(program.method(name), plan, export.record)
        if tensors:
            found[name] = tensors
    known = constant_methods(program)
    context, source = None, None
    for name in _CONTEXT_METHODS:
        value = known.get(name)
        if context is None and isinstance(value, int) and value > 0:
            context, source = value, name
    everything = [one for tensors in found.values() for one in tensors]
    if context is None:
        lengths = [one.length or 0 for one in everything if one.kind == KV_CACHE]
        if max(lengths, default=0):
            context, source = max(lengths), "the longest cache"
    if context is not None:
        as_long = [one for one in everything if one.length == context]
        forms = {one.form for one in as_long if len(one.tensor.sizes) >= _LEAST_RANK}
        found = {
            name: tuple(one.judged(context, forms) for one in tensors)
            for name, tensors in found.items()
        }
    groups = (tuple(sorted(found.keys() & set(group))) for group in groups_sharing_state(program))
    return ProgramState(context, source, found, tuple(group for group in groups if group))


def constant_methods(program: Program) -> dict[str, int | bool | float | str]:
    """The values of methods that only return a constant: metadata such as `get_max_seq_len`."""
    found: dict[str, int | bool | float | str] = {}
    for method in program.methods:
        if method.inputs or method.instructions or len(method.outputs) != 1:
            continue
        value = method.values[method.outputs[0]]
        if isinstance(value, ScalarValue) and value.value is not None:
            found[method.name] = value.value
    return found


# -- the facts


def _state_of(
    method: Method, plan: MemoryPlan, record: RecordView | None
) -> tuple[StateTensor, ...]:
    """The state of a method by names and written positions, before the context length decides. Only
    the first value at each place counts."""
    state: dict[Allocation, PlannedValue] = {}
    for value in plan.values:
        if value.role == "state" and value.nbytes:
            state.setdefault(value.place, value)
    if not state:
        return ()
    dims, copies = _written(method, state.keys())
    ordered = sorted(state.values(), key=lambda value: value.value)
    names = _recorded_names(record, method.name, [value.tensor for value in ordered])
    found = []
    for value, recorded in zip(ordered, names, strict=True):
        name = value.tensor.name or recorded
        is_named = name is not None and _CACHE_NAME.match(name.rpartition(".")[2]) is not None
        found.append(
            StateTensor(
                method=method.name,
                value=value.value,
                tensor=value.tensor,
                place=value.place,
                kind=KV_CACHE if is_named else OTHER_STATE,
                name=name,
                dim=dims.get(value.place),
                grows=None,
                fact=_NAME if is_named else "",
                copies=tuple(copies.get(value.place, ())),
            )
        )
    return tuple(found)


# An operator's arguments -> the base that it writes into and the dimension of the positions.
_Write = Callable[[Method, Sequence[int]], Iterator[tuple[int, int]]]


def _by_indices(method: Method, args: Sequence[int]) -> Iterator[tuple[int, int]]:
    """`index_put(self, indices, values)` with one index."""
    indices = method.values[args[1]]
    if isinstance(indices, ListValue) and indices.kind is ValueKind.OPTIONAL_TENSOR_LIST:
        dims = [dim for dim, item in enumerate(indices.items) if item >= 0]
        if len(dims) == 1:
            yield args[0], dims[0]


def _by_argument(position: int) -> _Write:
    """Return the rule for an operator with the dimension as its argument at `position`."""

    def write(method: Method, args: Sequence[int]) -> Iterator[tuple[int, int]]:
        base, dim = method.values[args[0]], method.values[args[position]]
        number = dim.value if isinstance(dim, ScalarValue) else None
        if isinstance(base, TensorValue) and base.sizes and isinstance(number, int):
            yield args[0], number % len(base.sizes)

    return write


def _of_caches(*positions: int) -> _Write:
    """Return the rule for ExecuTorch's custom operators: their caches have positions in dimension
    1."""
    return lambda method, args: iter([(args[position], 1) for position in positions])


# Operator -> the least number of its arguments, and its rule.
_WRITES: Mapping[str, tuple[int, _Write]] = {
    "aten::index_put": (4, _by_indices),
    "aten::index_put_": (4, _by_indices),
    "aten::index_copy": (5, _by_argument(1)),
    "aten::index_copy_": (5, _by_argument(1)),
    "aten::slice_scatter": (6, _by_argument(2)),
    "aten::select_scatter": (5, _by_argument(2)),
    "llama::update_cache": (4, _of_caches(1)),
    "llama::update_cache_with_indices": (5, _of_caches(1)),
    "llama::sdpa_with_kv_cache": (6, _of_caches(3, 4)),
}


def _written(
    method: Method, places: Collection[Allocation]
) -> tuple[dict[Allocation, int], dict[Allocation, list[int]]]:
    """Return the dimension of positions of each place of state, and the values copied back to it.
    An operator writes positions in place, or into a result that is copied there. State written
    along several dimensions has no entry."""
    holds: dict[int, Allocation] = {}  # value -> the state that it is, changed or not
    dims: dict[int, int] = {}  # changed value -> where
    found: dict[Allocation, set[int]] = {}
    copies: dict[Allocation, list[int]] = {}
    for index, value in enumerate(method.values):
        own = value.allocation if isinstance(value, TensorValue) else None
        if own is not None and own in places:
            holds[index] = own
    for instruction in method.instructions:
        if not isinstance(instruction, KernelCall):
            continue
        name, args = method.operators[instruction.operator].name, instruction.args
        least, write = _WRITES.get(name, (0, None))
        if write is not None and len(args) >= least:
            for base, dim in write(method, args):
                held, value = holds.get(base), method.values[base]
                if held is None or not isinstance(value, TensorValue) or dim >= len(value.sizes):
                    continue
                result = method.values[args[-1]]
                if name.startswith("llama::") or getattr(result, "allocation", None) == held:
                    found.setdefault(held, set()).add(dim)
                else:
                    holds[args[-1]], dims[args[-1]] = held, dim
        elif name == "aten::copy_" and len(args) >= 3 and args[1] in dims:
            place = holds[args[1]]
            if holds.get(args[-1]) == place:
                found.setdefault(place, set()).add(dims[args[1]])
                copies.setdefault(place, []).append(args[1])
    return {place: dim for place, (dim, *more) in found.items() if not more}, copies


def _recorded_names(
    record: RecordView | None, method: str, state: Sequence[TensorValue]
) -> Sequence[str | None]:
    """The qualified names of state, in the order of a method's values. The record's buffers must
    have the same types in the same order; else all names are None."""
    unknown: Sequence[str | None] = [None] * len(state)
    name = f"{EDGE}/{method}"
    if record is None or name not in record.graph_names:
        return unknown
    with reading("ETRecord", record.path, member=name):
        module = mapping(record.program_json(name)["graph_module"], "graph_module")
        signature = mapping(module["signature"], "signature")
        specs = map(union, sequence(signature.get("input_specs") or [], "input_specs"))
        buffers = {
            text(content["buffer_name"], "a buffer's name")
            for tag, content in specs
            if tag == "buffer"
        }
    wanted = [(one.scalar_type.torch_name, one.sizes) for one in state]
    graph = graph_from_record(record, name)
    mutated = {graph.parameters[name] for name in graph.state}
    recorded = []
    for node in map(graph.by_name.get, graph.inputs):
        spec = node.outputs[0].tensor if node is not None and node.outputs else None
        buffer = None if node is None else graph.parameters.get(node.name)
        if spec is not None and buffer in buffers:
            recorded.append((buffer, (spec.dtype, tuple(spec.shape))))
    # Some operators write a buffer that the signature does not list as mutated: match by types
    # alone.
    for chosen in (
        [one for one in recorded if one[0] in mutated],
        [one for one in recorded if one[1] in wanted],
    ):
        if [kind for _, kind in chosen] == wanted:
            return [buffer for buffer, _ in chosen]
    return unknown


# -- as tables


def state_section(state: ProgramState) -> Section:
    """A section with one row for each mutable buffer."""
    notes = []
    if state.context is not None:
        notes.append(f"The context length is {state.context:,}, by {state.context_from}.")
    elif state.methods:
        notes.append(
            "The context length is unknown: the program has neither get_max_context_len nor "
            "get_max_seq_len, nor a buffer named like a cache."
        )
    if any(one.fact for tensors in state.methods.values() for one in tensors):
        notes.append(
            "A cache is known by its name, by writes along a dimension as long as the "
            "context, or by writes and the form of such a cache (a sliding window)."
        )
    notes += [
        f"{' and '.join(group)} share these buffers." for group in state.groups if len(group) > 1
    ]
    return rows(
        "memory_state",
        "Buffers that keep their content between runs",
        (
            Column("method"),
            Column("value", Kind.INT, priority=3),
            Column("name", Kind.PATH, priority=1),
            Column("tensor"),
            Column("size", Kind.BYTES),
            Column("kind"),
            Column("dim", Kind.INT, title="dimension of positions", priority=3),
            Column("positions", Kind.COUNT),
            Column("grows", Kind.BOOL, title="grows with the context", priority=1),
            Column("fact", title="known by", priority=2),
        ),
        [
            (
                method,
                one.value,
                one.name,
                str(one.tensor),
                one.nbytes,
                one.kind,
                one.dim,
                one.length,
                one.grows,
                one.fact or None,
            )
            for method, tensors in state.methods.items()
            for one in tensors
        ],
        tuple(notes),
    )
