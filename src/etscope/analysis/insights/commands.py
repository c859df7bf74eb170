"""Commands to paste that make the changes of remedies."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from etscope.analysis.insights.facts import Facts
from etscope.model.finding import Finding, Remedy

# The option of `etscope export` for each change.
_OPTIONS = {
    "backend": ("--backend", "{backend}"),
    "quantize": ("--quantize", "{scheme}"),
    "pass": ("-X", "passes={name}"),
    "keep_float": ("-X", "keep_float={select}"),
    "dtype": ("-X", "passes=to_float32"),
    "channels_last": ("-X", "passes=channels_last"),
}


def with_commands(found: Finding, facts: Facts) -> Finding:
    """Return a finding with a command for each remedy that is an option, if the record has the
    words of its export."""
    explained = found.explanation
    if explained is None:
        return found
    remedies = (
        one if one.paste else replace(one, paste=_command(one, facts)) for one in explained.remedies
    )
    return replace(found, explanation=replace(explained, remedies=tuple(remedies)))


def _command(remedy: Remedy, facts: Facts) -> str:
    if remedy.change == "threads":
        return f"etscope run PROGRAM --threads {remedy.arguments['threads']}"
    if remedy.change not in _OPTIONS:
        return ""
    option, value = _OPTIONS[remedy.change]
    return export_command(facts, option, [value.format(**remedy.arguments)])


def export_command(facts: Facts, option: str, values: Sequence[str]) -> str:
    """The command that exports the same with an option; "" if the record has no words of its
    export. Of an option other than -X, other values are left out."""
    record = facts.trace.record
    given = [] if record is None else list(record.export_words)
    while option != "-X" and option in given:
        at = given.index(option)
        del given[at : at + 2]
    added = [word for value in values for word in (option, value)]
    return shlex.join(["etscope", "export", *given, *added]) if given else ""


def then_exported(facts: Facts, patch: str, name: str) -> str:
    """A patch, and the command that exports the changed model with a pass; "" without a patch."""
    command = export_command(facts, "-X", [f"passes={name}"])
    return "\n".join(filter(None, (patch, command))) if patch else ""
