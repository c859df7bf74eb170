"""JUnit XML of a comparison: one suite a method, one test case for its time and one an operator.

The form is that of Jenkins' ``junit-10.xsd`` (the xUnit plugin's), which GitLab and GitHub actions
read as well: the elements testsuites, testsuite, properties, testcase, failure, error, skipped and
system-out. What was skipped is counted in the suites; the schema has no such count of all of them.
What cannot be told is *skipped*; a failure is what makes the command's exit code 1. XML 1.0 has no
way to write control characters and lone surrogates, so those are written as visible escapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import IO
from xml.sax.saxutils import escape, quoteattr

from etscope.analysis.comparison.compare_samples import Comparison, Verdict
from etscope.analysis.comparison.diff_table import (
    Change,
    Diff,
    MethodDiff,
    interval,
    source_location,
)
from etscope.analysis.profile.scale import Scale
from etscope.units import TimeScale, format_duration, scale_factor
from etscope.views.tables.text_cells import visible


def write(
    diff: Diff, out: IO[str], scale: Scale, *, per_op: bool = False, strict: bool = False
) -> None:
    """The comparison as one document.

    per_op: an operator that regressed is a failure, as the method is; without, it is told in the
    case's output. strict: what cannot be told is an error.
    """
    cases = [list(_cases(method, scale, per_op, strict)) for method in diff.methods]
    out.write('<?xml version="1.0" encoding="UTF-8"?>\n')
    counts = _counts(chain(*cases))
    del counts["skipped"]
    out.write(f"<testsuites{_attributes(name='etscope diff', **counts)}>\n")
    for method, mine in zip(diff.methods, cases, strict=True):
        name = method.method or "method"
        out.write(f"  <testsuite{_attributes(name=name, **_counts(mine))}>\n")
        out.writelines(_properties(method))
        out.writelines(case for _, case in mine)
        out.write("  </testsuite>\n")
    out.write("</testsuites>\n")


_Case = tuple[str, str]  # what became of it, and its XML


def _cases(method: MethodDiff, scale: Scale, per_op: bool, strict: bool) -> Iterator[_Case]:
    suite = method.method or "method"
    seen: dict[str, int] = {}
    for change in (method.total, *method.operators):
        name = _name(change)
        seen[name] = seen.get(name, 0) + 1
        if seen[name] > 1:  # readers take cases of one name for repeats of one case
            name += f" ({seen[name]})"
        counts = change is method.total or per_op
        yield _case(suite, name, change, scale, counts, strict)


def _name(change: Change) -> str:
    if change.pair is None:
        return change.name
    module, _ = source_location(change.pair.shown)
    row = change.pair.shown
    parts = [f"#{row.instruction_id}"] if row.instruction_id is not None else []
    return " ".join([*parts, change.name, *([f"in {module}"] if module else [])])


def _case(suite: str, name: str, change: Change, scale: Scale, counts: bool, strict: bool) -> _Case:
    comparison = change.comparison
    verdict = Verdict.CANNOT_TELL if comparison is None else comparison.verdict
    text = _sentence(change, comparison, scale)
    kind = "passed"
    if counts and verdict is Verdict.REGRESSED:
        kind = "failure"
    elif verdict is Verdict.CANNOT_TELL:
        kind = "error" if strict and counts else "skipped"
    head = _attributes(classname=f"etscope.diff.{suite}", name=name, time=_seconds(change, scale))
    lines = [f"    <testcase{head}>\n"]
    if kind in ("failure", "error"):
        body = escape(_clean(text))
        lines.append(
            f"      <{kind}{_attributes(message=text, type=verdict.value)}>{body}</{kind}>\n"
        )
    elif kind == "skipped":
        lines.append(f"      <skipped{_attributes(message=text)}/>\n")
    lines.append(f"      <system-out>{escape(_clean(text))}</system-out>\n")
    lines.append("    </testcase>\n")
    return kind, "".join(lines)


def _sentence(change: Change, comparison: Comparison | None, scale: Scale) -> str:
    times = [
        format_duration(None if ticks is None else float(scale(ticks)), scale.unit) or "?"
        for ticks in (change.before, change.after)
    ]
    text = f"{times[0]} -> {times[1]} {scale.unit}"
    if comparison is None:
        return text
    text = f"{comparison.verdict.value}: {text}"
    if comparison.relative is not None:
        text += f" ({comparison.relative:+.1%}, {interval(comparison)})"
    if comparison.reason:
        text += f"; {comparison.reason}"
    row = None if change.pair is None else change.pair.shown
    source = None if row is None else source_location(row)[1]
    return f"{text}; {source}" if source else text


def _seconds(change: Change, scale: Scale) -> str:
    """The later time in seconds, as the form has it; cycles have no duration."""
    if scale.source is TimeScale.CYCLES or change.after is None:
        return "0"
    return f"{change.after / scale_factor(scale.source, TimeScale.S):.9f}"


def _properties(method: MethodDiff) -> Iterator[str]:
    values = {
        "verdict": method.verdict.value,
        "aligned by": method.alignment.method,
        "minimum effect": f"{method.policy.min_effect:g}",
        "confidence": f"{method.policy.confidence:g}",
        "runs before": str(method.runs[0]),
        "runs after": str(method.runs[1]),
    }
    yield "    <properties>\n"
    for name, value in values.items():
        yield f"      <property{_attributes(name=name, value=value)}/>\n"
    yield "    </properties>\n"


def _counts(cases: Iterable[_Case]) -> dict[str, str]:
    kinds = [kind for kind, _ in cases]
    return {
        "tests": str(len(kinds)),
        "failures": str(kinds.count("failure")),
        "errors": str(kinds.count("error")),
        "skipped": str(kinds.count("skipped")),
    }


def _attributes(**values: str) -> str:
    return "".join(f" {name}={quoteattr(_clean(value))}" for name, value in values.items())


def _clean(text: str) -> str:
    """Text that XML can hold: one line, with escapes for what cannot be seen or written."""
    return visible(text)
