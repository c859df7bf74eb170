"""Write a comparison as JUnit XML: one suite for each method, with a case for its time and for
each of its operators.

The form follows Jenkins' ``junit-10.xsd`` (the xUnit plugin's), which GitLab and GitHub actions
read as well: the elements testsuites, testsuite, properties, testcase, failure, error, skipped and
system-out. Skipped cases are counted for each suite; the schema has no such count for all suites.
Inconclusive cases are *skipped*; failures are the cases that make the command's exit code 1. XML
1.0 cannot hold control characters and lone surrogates, so those are written as visible escapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import IO
from xml.sax.saxutils import escape, quoteattr

from etscope.analysis.comparison.changes import Diff, MethodDiff
from etscope.analysis.profile.scale import Scale
from etscope.analysis.program.correlate import UNATTRIBUTED
from etscope.analysis.statistics.compare_samples import Verdict
from etscope.units import TimeScale, scale_factor
from etscope.views.tables.cells import visible


def write(
    diff: Diff, out: IO[str], scale: Scale, *, per_op: bool = False, strict: bool = False
) -> None:
    """Write the comparison as one document.

    per_op: a regressed operator is a failure, like a regressed method; otherwise only the case's
    output says so. strict: an inconclusive case is an error.
    """
    cases = [list(_cases(method, scale, per_op, strict)) for method in diff.methods]
    out.write('<?xml version="1.0" encoding="UTF-8"?>\n')
    found = counts(chain(*cases))
    del found["skipped"]
    out.write(f"<testsuites{attributes(name='etscope diff', **found)}>\n")
    for method, mine in zip(diff.methods, cases, strict=True):
        name = method.title()
        out.write(f"  <testsuite{attributes(name=name, **counts(mine))}>\n")
        properties = {
            "verdict": method.verdict.value,
            "aligned by": method.alignment.method,
            "minimum effect": f"{method.policy.min_effect:g}",
            "confidence": f"{method.policy.confidence:g}",
            "runs before": str(len(method.sides.before.runs)),
            "runs after": str(len(method.sides.after.runs)),
        }
        out.write("    <properties>\n")
        for key, value in properties.items():
            out.write(f"      <property{attributes(name=key, value=value)}/>\n")
        out.write("    </properties>\n")
        out.writelines(case for _, case in mine)
        out.write("  </testsuite>\n")
    out.write("</testsuites>\n")


_Case = tuple[str, str]  # the outcome of the case, and its XML


def _cases(method: MethodDiff, scale: Scale, per_op: bool, strict: bool) -> Iterator[_Case]:
    suite = method.title()
    seen: dict[str, int] = {}
    for change in (method.total, *method.operators):
        name = change.name
        row = None if change.pair is None else change.pair.shown
        origin = UNATTRIBUTED if row is None else row.attribution
        if row is not None and row.instruction_id is not None:
            name = f"#{row.instruction_id} {name}"
        if origin.module:
            name = f"{name} in {origin.module}"
        seen[name] = seen.get(name, 0) + 1
        if seen[name] > 1:  # readers take cases of one name for repeats of one case
            name += f" ({seen[name]})"

        text = change.in_words(scale)
        if origin.source:
            text = f"{text}; {origin.source}"
        verdict = Verdict.CANNOT_TELL if change.comparison is None else change.comparison.verdict
        counts = change is method.total or per_op
        kind = "passed"
        if counts and verdict is Verdict.REGRESSED:
            kind = "failure"
        elif verdict is Verdict.CANNOT_TELL:
            kind = "error" if strict and counts else "skipped"

        seconds = "0"  # cycles have no duration
        if scale.source is not TimeScale.CYCLES and change.after is not None:
            seconds = f"{change.after / scale_factor(scale.source, TimeScale.S):.9f}"
        head = attributes(classname=f"etscope.diff.{suite}", name=name, time=seconds)
        body = escape(visible(text))
        lines = [f"    <testcase{head}>\n"]
        if kind in ("failure", "error"):
            about = attributes(message=text, type=verdict.value)
            lines.append(f"      <{kind}{about}>{body}</{kind}>\n")
        elif kind == "skipped":
            lines.append(f"      <skipped{attributes(message=text)}/>\n")
        lines.append(f"      <system-out>{body}</system-out>\n")
        lines.append("    </testcase>\n")
        yield kind, "".join(lines)


def counts(cases: Iterable[_Case]) -> dict[str, str]:
    """Return the numbers of cases by outcome, as attributes of a suite."""
    kinds = [kind for kind, _ in cases]
    return {
        "tests": str(len(kinds)),
        "failures": str(kinds.count("failure")),
        "errors": str(kinds.count("error")),
        "skipped": str(kinds.count("skipped")),
    }


def attributes(**values: str) -> str:
    """Return the attributes of an element."""
    return "".join(f" {name}={quoteattr(visible(value))}" for name, value in values.items())
