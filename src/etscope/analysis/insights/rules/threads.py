"""A thread pool that does not fit the cores of the machine, or the size of the work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from etscope.analysis.insights.facts import Facts
from etscope.analysis.insights.rule import Rule
from etscope.analysis.profile.profile import Leaf
from etscope.model.finding import Explanation, Finding, Remedy, Severity, Sureness
from etscope.units import count, format_share

# XNNPACK divides its operators among the threads of the pool; portable kernels use one.
_PARALLEL = "Xnnpack"
# XNNPACK divides a product however small it is, and no additions of a few elements. To wake a
# thread and to wait for it took half a microsecond on two cores: 40 linear layers took 1.6 times as
# long with two threads as with one at 2 kFLOP a layer, 1.4 times at 33, and 0.9 times at 262.
_DIVIDED = ("Fully Connected", "Dynamic Fully Connected", "Convolution", "Batch Matrix Multiply")
_SMALL_FLOPS = 1e5
_SMALL_SHARE = 0.3  # of the method's time in such operators
_LARGE_FLOPS = 5e6  # an operator this large gains from a thread for each part
_LARGE_SHARE = 0.5


def _find(facts: Facts) -> Iterator[Finding]:
    threads, cores = facts.threads, _cores(facts)
    members = [
        member
        for member in facts.time.members
        if _PARALLEL in member[0].head.name and member[1].kind in ("delegate", "delegated")
    ]
    if threads is None or not members:
        return
    if cores is not None and threads > cores:
        yield _too_many(facts, members, threads, cores)
    elif threads > 1:
        yield from _for_small_work(facts, threads)
    elif cores is not None and cores > 1:
        yield from _too_few(facts, members, threads, cores)


def _cores(facts: Facts) -> int | None:
    """Return the number of cores that the run could use; None if run.json does not say."""
    saved = facts.trace.saved_run
    conditions = None if saved is None else saved.conditions
    if conditions is None:
        return None
    return _count_of(conditions.cpus) or conditions.cores


def _count_of(cpus: str) -> int | None:
    """The number of CPUs in a list as "0-3,6"; None for another text."""
    cpus_found = 0
    for part in cpus.split(","):
        first, _, last = part.partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()):
            return None
        cpus_found += int(last or first) - int(first) + 1
    return cpus_found


def _too_many(facts: Facts, members: Sequence[Leaf], threads: int, cores: int) -> Finding:
    taken = facts.time.with_share(facts.time.ticks(members))
    return facts.finding(
        RULE.name,
        f"{threads:,} threads share {count(cores, 'core')} in the operators of XNNPACK, which "
        f"take {taken}: each waits for those that have none.",
        members,
        Explanation(
            Sureness.LIKELY,
            (f"The run had {threads:,} threads, and could use {count(cores, 'core')}.",),
            remedies=(_remedy(cores),),
        ),
    )


def _for_small_work(facts: Facts, threads: int) -> Iterator[Finding]:
    """Delegate calls of products so small that to divide them takes longer than it saves."""
    products: list[Leaf] = []
    members: list[Leaf] = []
    for group in facts.time.groups:
        events = [row for row in group.below if row.kind == "delegated"]
        divided = [(group, row) for row in events if row.name.startswith(_DIVIDED)]
        is_made_of = _PARALLEL in group.head.name and 2 * len(divided) >= max(1, len(events))
        if is_made_of and all(_is_small(facts, one) for one in divided):
            products += divided
            members += [(group, leaf) for leaf in group.leaves]  # events may round to nothing
    ticks = facts.time.ticks(members)
    if facts.time.share(ticks) < _SMALL_SHARE:
        return
    calls = sum(float(leaf.calls.mean()) for _, leaf in products)
    flops = sum(facts.work_of(member).flops for member in products)
    yield facts.finding(
        RULE.name,
        f"{threads:,} threads divide {calls:,.0f} products of XNNPACK of less than "
        f"{_SMALL_FLOPS / 1e3:g} kFLOP each, in delegate calls that take "
        f"{facts.time.with_share(ticks)}: one thread may be faster.",
        members,
        Explanation(
            Sureness.POSSIBLE,
            (
                f"On average a product computes {flops / max(1.0, calls) / 1e3:.3g} kFLOP.",
                "Waking threads and waiting for them takes a part of each; only runs with fewer "
                "threads show how much.",
            ),
            remedies=(_remedy(1),),
        ),
        severity=Severity.FACT,  # a part of that time; this run cannot show how large
    )


def _is_small(facts: Facts, member: Leaf) -> bool:
    work, calls = facts.work_of(member), max(1.0, float(member[1].calls.mean()))
    return not work.unknown and 0 < work.flops < _SMALL_FLOPS * calls


def _too_few(facts: Facts, members: Sequence[Leaf], threads: int, cores: int) -> Iterator[Finding]:
    """Find large operators on one thread while cores are idle."""
    large = [member for member in members if facts.work_of(member).flops >= _LARGE_FLOPS]
    ticks = facts.time.ticks(large)
    if facts.time.share(ticks) < _LARGE_SHARE:
        return
    flops = sum(facts.work_of(member).flops for member in large)
    ns = facts.ns(ticks)
    rate = "" if not ns else f", at {flops / ns:.3g} GFLOP/s"
    many = len(large) > 1
    yield facts.finding(
        RULE.name,
        f"One thread computes {'large operators' if many else 'a large operator'} of XNNPACK, "
        f"{facts.time.with_share(ticks)}, and {count(cores - 1, 'core')} could help.",
        large,
        Explanation(
            Sureness.POSSIBLE,
            (
                f"The run had {threads:,} thread, and could use {cores:,} cores.",
                f"{count(len(large), 'operator')} of {_LARGE_FLOPS / 1e6:g} MFLOP or more "
                f"take{'' if many else 's'} {format_share(facts.time.share(ticks))} of the "
                f"time{rate}.",
            ),
            remedies=(_remedy(cores),),
        ),
    )


def _remedy(threads: int) -> Remedy:
    return Remedy(
        f"Run with {count(threads, 'thread')}: `etscope run --threads {threads}`; in an app "
        f"`get_threadpool()->_unsafe_reset_threadpool({threads})` of extension/threadpool.",
        "threads",
        {"threads": threads},
    )


RULE = Rule("threads", "Too many or too few threads", _find)
