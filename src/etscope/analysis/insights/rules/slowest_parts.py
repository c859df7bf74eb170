"""The layer, the operator and the line of Python that take most of the time."""

from __future__ import annotations

from collections.abc import Iterator

from etscope.analysis.insights.facts import Facts
from etscope.analysis.insights.leaf_times import LeafTimes, quoted
from etscope.analysis.insights.rule import Rule
from etscope.analysis.insights.thresholds import NAMED_SHARE
from etscope.analysis.profile.rollup import NO_MODULE, ROOT, rollup
from etscope.analysis.program.source_location import block_family, module_type, short_lines
from etscope.formats.generation import DECODE
from etscope.model.finding import Finding, Place, Severity

_LONGEST_CODE = 60  # characters of a line that are shown in a sentence


def _find(facts: Facts) -> Iterator[Finding]:
    # `generation` reports decode's line, or without lines its operator, and whether it grows.
    is_decode = facts.profile.phase == DECODE
    has_lines = any(leaf.attribution.lines for _, leaf in facts.time.members)
    found = [slowest_module(facts.time)]
    if not is_decode or has_lines:
        found.append(slowest_operator(facts.time))
    if not is_decode:
        found.append(slowest_line(facts.time))
    yield from filter(None, found)


def slowest_module(time: LeafTimes) -> Finding | None:
    """The layer that takes most of the time itself: repeated blocks count as one."""
    modules = rollup(time.profile, "module").groups
    own = {one.name: one.members for one in modules if one.name not in (ROOT, NO_MODULE)}
    types: dict[str, str] = {}
    for path, leaves in own.items():
        for _, leaf in leaves:
            kinds = {kind for node in leaf.attribution.located if (kind := module_type(node))}
            if len(kinds) == 1:
                types[path] = kinds.pop()
    families: dict[tuple[str, str | None], list[str]] = {}
    for path in own:
        families.setdefault((block_family(path), types.get(path)), []).append(path)
    if not families:
        return None
    (pattern, kind), paths = max(
        families.items(), key=lambda item: time.ticks(m for path in item[1] for m in own[path])
    )
    members = [member for path in paths for member in own[path]]
    ticks = time.ticks(members)
    if time.share(ticks) < NAMED_SHARE:
        return None
    longest = max(paths, key=lambda path: time.ticks(own[path]))
    name = paths[0] if len(paths) == 1 else pattern
    select = time.selector(members, f"module:{name}", f"module:{name} and not module:{name}.*")
    if select is None:  # its leaves belong to other modules too: use the row of the roll-up
        return module_of_roll_up(time, longest, types.get(longest))
    what = ", ".join(filter(None, (f"{len(paths)} modules" * (len(paths) > 1), kind)))
    sentence = f"The layer that takes most time is {name}{f' ({what})' if what else ''}: "
    sentence += time.with_share(ticks)
    if " not " in select:
        sentence += ", without the modules inside it"
    if len(paths) > 1:
        sentence += f"; most of it in {longest}, {time.text(time.ticks(own[longest]))}"
    sentence += time.lines(members)
    return time.finding("slowest-module", Severity.FACT, sentence + ".", members, select)


def module_of_roll_up(time: LeafTimes, path: str, kind: str | None) -> Finding:
    """A module with all inside it, as the roll-up by module has it."""
    tree = rollup(time.profile, "module").tree()
    ticks = next(float(one.ticks.mean()) for one in tree if one.name == path)
    sentence = (
        f"The layer that takes most time is {path}{f' ({kind})' if kind else ''}: "
        f"{time.with_share(ticks)}, with the modules inside it."
    )
    return Finding(
        "slowest-module",
        Severity.FACT,
        sentence,
        time.profile.method,
        time.quantity(ticks),
        Place("modules", by="module", name=path),
        ("inspect", "--by", "module"),
    )


def slowest_operator(time: LeafTimes) -> Finding | None:
    """The operator type that takes most of the time."""
    groups = time.operators("kernel", "delegated", "other")
    if not groups:
        return None
    longest = max(groups, key=lambda one: float(one.ticks.mean()))
    name, members, ticks = longest.name, longest.members, float(longest.ticks.mean())
    if time.share(ticks) < NAMED_SHARE:
        return None
    places = f" in {len(members):,} places" if len(members) > 1 else ""
    where = " inside delegates" if members[0][1].kind == "delegated" else ""
    sentence = (
        f"The operator that takes most time is {name}{where}: {time.with_share(ticks)}{places}"
        f"{time.lines(members)}."
    )
    exact, numbered = quoted(name), quoted(f"{name} #*")
    return time.finding(
        "slowest-operator",
        Severity.FACT,
        sentence,
        members,
        f"name:{exact}",
        f"name:{numbered}",
        f"name:{exact} or name:{numbered}",
        by=("op", name),
    )


def slowest_line(time: LeafTimes) -> Finding | None:
    """The line of Python behind most of the time."""
    found = [
        one
        for one in rollup(time.profile, "source").groups
        if len(one.rows[0].attribution.lines) == 1
    ]
    if not found:
        return None
    longest = max(found, key=lambda one: float(one.ticks.mean()))
    members, ticks = longest.members, float(longest.ticks.mean())
    (line,) = longest.rows[0].attribution.lines
    if time.share(ticks) < NAMED_SHARE:
        return None
    text = line.text.strip()
    is_whole = 0 < len(text) <= _LONGEST_CODE and text.count("(") == text.count(")")
    code = f" ({text})" if is_whole else ""
    short = short_lines((line,))
    return time.finding(
        "slowest-line",
        Severity.FACT,
        f"The line behind most time is {short}{code}: {time.with_share(ticks)}.",
        members,
        f"file:{quoted(short)}",
        f"file:{quoted(str(line))}",
        by=("source", str(line)),
    )


RULE = Rule("slowest-parts", "Where most of the time is", _find)
