"""KV caches that are copied whole, where a call writes a few positions of them."""

from __future__ import annotations

from collections.abc import Iterator

from etscope.analysis.explain.facts import Facts
from etscope.analysis.explain.rule import Rule
from etscope.analysis.state import KV_CACHE, StateTensor, program_state
from etscope.errors import EtscopeError
from etscope.model.finding import Explanation, Finding, Remedy, Sureness
from etscope.units import format_bytes

_FEW = 0.5  # of the positions: a call that writes more has reason to write all


def _find(facts: Facts) -> Iterator[Finding]:
    method = facts.profile.method
    if facts.program is None or method is None:
        return
    try:
        state = program_state(facts.program, record=facts.trace.record)
    except EtscopeError:  # a damaged plan: the memory views say where
        return
    caches = [one for one in state.methods.get(method, ()) if one.kind == KV_CACHE and one.copies]
    tokens = _tokens(facts)
    caches = [one for one in caches if tokens < _FEW * (one.length or 0)]
    if not caches:
        return
    values = {one.value for one in caches} | {value for one in caches for value in one.copies}
    members = facts.members(
        record.instruction_id
        for record in facts.trace.instructions(method)
        if record.kind == "kernel" and not values.isdisjoint(record.outputs)
    )
    members = [member for member in members if member[1].kind == "kernel"]
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
                f"The copies grow with the context, which is {state.context:,} positions here, "
                "however many of them are used."
                if state.context
                else "The copies are as long as the caches, however much of them is used.",
            ),
            remedies=(
                Remedy(
                    "Write in place: `ExecutorchBackendConfig(run_reinplace_pass=True)` in "
                    "`to_executorch` makes index_put write into the cache itself."
                ),
                Remedy(
                    "Use an operator that updates the cache: torch.ops.llama.update_cache, as the "
                    "export of ExecuTorch's llama does with use_sdpa_with_kv_cache."
                ),
            ),
        ),
    )


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
