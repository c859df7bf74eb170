"""KV caches that are copied whole, where a call writes a few positions of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from etscope.analysis.insights.facts import Facts
from etscope.analysis.insights.rule import Rule
from etscope.analysis.memory.state import KV_CACHE, StateTensor, program_state
from etscope.analysis.profile.profile import Leaf
from etscope.errors import EtscopeError
from etscope.model.finding import Explanation, Finding, Remedy, Sureness
from etscope.units import format_bytes

_FEW = 0.5  # of the positions: a call that writes more has reason to write all


def _find(facts: Facts) -> Iterator[Finding]:
    caches, tokens = copied_caches(facts), _tokens(facts)
    if not caches:
        return
    members = copying(facts, caches)
    facts.claim(leaves=members)
    context = max(one.length or 0 for one in caches)
    size = sum(one.nbytes for one in caches)
    written = sum(_new(one, tokens) for one in caches)
    names = dict.fromkeys(leaf.name for _, leaf in members)
    many = len(caches) > 1
    yield facts.finding(
        RULE.name,
        f"{len(caches):,} KV cache{'s are' if many else ' is'} copied whole in each call: "
        f"{facts.time.with_share(facts.time.ticks(members))}.",
        members,
        Explanation(
            Sureness.MEASURED,
            (
                f"{', '.join(names)} write {format_bytes(size)} of caches into copies and back; "
                f"what a call adds to them is {format_bytes(written)}.",
                f"The copies grow with the context, which is {context:,} positions here, however "
                "many of them are used.",
            ),
            remedies=(
                Remedy(
                    "Write in place: `ExecutorchBackendConfig(run_reinplace_pass=True)` in "
                    "`to_executorch` makes index_put write into the cache itself.",
                    "pass",
                    {"name": "reinplace"},
                ),
                Remedy(
                    "Use an operator that updates the cache: torch.ops.llama.update_cache, as the "
                    "export of ExecuTorch's llama does with use_sdpa_with_kv_cache."
                ),
            ),
        ),
    )


def copied_caches(facts: Facts) -> list[StateTensor]:
    """The KV caches that are copied whole by calls that write less than half of them."""
    method = facts.profile.method
    if facts.program is None or method is None:
        return []
    try:
        state = program_state(facts.trace.export)
    except EtscopeError:  # a damaged plan: the memory views say where
        return []
    return [
        one
        for one in state.methods.get(method, ())
        if one.kind == KV_CACHE and one.copies and _tokens(facts) < _FEW * (one.length or 0)
    ]


def copying(facts: Facts, caches: Sequence[StateTensor]) -> list[Leaf]:
    """The kernels that write the copies of caches, and that write them back."""
    values = {one.value for one in caches} | {value for one in caches for value in one.copies}
    records = facts.trace.instructions(facts.profile.method or "")
    found = facts.members(
        record.instruction_id
        for record in records
        if record.kind == "kernel" and not values.isdisjoint(record.outputs)
    )
    return [member for member in found if member[1].kind == "kernel"]


def _tokens(facts: Facts) -> float:
    """The mean number of tokens of a call; 1 where nobody knows, as of a decoder's step."""
    calls = facts.profile.calls
    if calls is None or not (calls.tokens > 0).all():
        return 1.0
    return float(calls.tokens.mean())


def _new(cache: StateTensor, tokens: float) -> float:
    """Bytes of the positions that a call writes."""
    return cache.nbytes / (cache.length or 1) * tokens


RULE = Rule("whole-caches", "KV caches that are copied whole", _find)
