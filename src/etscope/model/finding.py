"""`Finding`: a sentence about a run, with its number, its place and the next command."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from etscope.support.shown import Shown

__all__ = ["Finding"]

# How a command takes each file, and the word for an unknown file.
_DUMP, _RECORD, _PROGRAM, _BUFFER = "DUMP", "ETRECORD", "PROGRAM", "BIN"


class Severity(Enum):
    """The severity of a finding, the highest first."""

    PROBLEM = "problem"  # results are wrong, or times are unreliable
    COST = "cost"  # a large part of the time goes to something other than the model's work
    FACT = "fact"  # where time and memory go; values are right
    UNKNOWN = "unknown"  # something is unknown or unmeasured


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number in a finding, with its `unit` ("ms", "bytes", "dB"). share: the share of the
    method's time, or of all its memory; None if the number is not a part of these.
    """

    value: float
    unit: str
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a finding.

    view: the tab of a report ("events", "modules", "timeline", "generation", "numerics", "memory",
    "compare"). select: a selector of the affected rows, for `--select` and for the filter of that
    tab. by, name: if there is no selector, a row of a roll-up (`--by`). instruction: the
    instruction of one row.
    """

    view: str
    select: str | None = None
    by: str | None = None
    name: str | None = None
    instruction: int | None = None


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a run, in the form that a command takes; None for a missing one.

    found: names among "record", "program" and "debug_buffer" that commands find by themselves, from
    the dump or from the folder of a saved run.
    """

    dump: str | None = None
    record: str | None = None
    program: str | None = None
    debug_buffer: str | None = None
    found: frozenset[str] = frozenset()

    def words(self, verb: str) -> list[str]:
        """Return the arguments of `etscope VERB` for these files. A required, unknown file becomes
        its name in the help ("PROGRAM")."""
        if verb in ("run", "generate", "info", "size"):
            record = [] if self.record is None else ["-r", self.record]
            return [self.program or _PROGRAM, *record]
        needed = verb == "numerics"
        options = (
            ("-r", "record", self.record or (_RECORD if needed else None)),
            ("-b", "debug_buffer", (self.debug_buffer or _BUFFER) if needed else None),
            ("-p", "program", self.program),
        )
        words = [self.dump or _DUMP]
        for option, role, path in options:
            if path is not None and role not in self.found:
                words += [option, path]
        return words


class Sureness(Enum):
    """The certainty of an explanation, the highest first."""

    MEASURED = "measured"  # this run shows that the named thing takes this time
    LIKELY = "likely"  # the time is measured, its reason comes from the program
    POSSIBLE = "possible"  # other reasons look the same


@dataclass(frozen=True, slots=True)
class Site:
    """An operator that a finding is about.

    instruction: None for several instructions together. time: its time in one run, in the unit of
    the finding's quantity. line: "model.py:12".
    """

    name: str
    instruction: int | None = None
    time: float | None = None
    module: str | None = None
    line: str | None = None


@dataclass(frozen=True)
class Remedy:
    """A fix for a finding, in words: code to change, or an option.

    change: the change of an export or a run that `etscope explain --try` makes, with its arguments;
    None if only the author of the model can make it. paste: a command, or lines of the model with
    the new ones ("# model.py:12", "- old", "+ new"), to paste; "" without.
    """

    text: str
    change: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    paste: str = ""


@dataclass(frozen=True)
class Explanation:
    """The reason of a finding, and its fixes.

    low, high: the 95 % interval of the time at stake over the runs, in the unit of the finding's
    quantity; None for a single run. evidence: the facts behind it, as sentences. sites: the
    operators, the longest first.
    """

    sureness: Sureness
    evidence: tuple[str, ...]
    sites: tuple[Site, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    low: float | None = None
    high: float | None = None

    def plain(self) -> dict[str, Any]:
        found = {
            name: list(one) if isinstance(one, tuple) else one for name, one in asdict(self).items()
        }
        return {**found, "sureness": self.sureness.value}


@dataclass(frozen=True, slots=True)
class Finding(Shown):
    """A sentence about a run that a reader should see first.

    kind: its name for programs ("slowest-module"). quantity: None without a number. place: where to
    look. command: the next one without its files, ("inspect", "--by", "op"). explanation: for
    findings of `etscope explain`.
    """

    kind: str
    severity: Severity
    sentence: str
    method: str | None = None
    quantity: Quantity | None = None
    place: Place | None = None
    command: tuple[str, ...] = ()
    explanation: Explanation | None = None

    def next_command(self, files: Files) -> str | None:
        """Return the next command as a line for a shell; None without one."""
        if not self.command:
            return None
        verb, *options = self.command
        return shlex.join(["etscope", verb, *files.words(verb), *options])

    def plain(self, files: Files) -> dict[str, Any]:
        found = asdict(self)
        del found["command"], found["explanation"]
        if self.explanation is not None:
            found["explanation"] = self.explanation.plain()
            for one in found["explanation"]["remedies"]:
                program = shlex.join(files.words("run"))
                one["paste"] = one["paste"].replace(f"run {_PROGRAM} ", f"run {program} ")
        place = found.pop("place")
        next_command = self.next_command(files)
        return {**found, "severity": self.severity.value, "where": place, "next": next_command}


SEVERITIES = tuple(Severity)


def ranked(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Sort findings by severity, then by the share at stake, largest first. Shares of memory come
    after shares of time, as the two are not comparable. Shares equal but for rounding keep their
    order."""

    def key(finding: Finding) -> tuple[int, bool, float]:
        quantity = finding.quantity
        share = 0.0 if quantity is None or quantity.share is None else quantity.share
        is_memory = quantity is not None and quantity.unit == "bytes"
        return SEVERITIES.index(finding.severity), is_memory, -round(share, 9)

    return tuple(sorted(findings, key=key))


def remedies_of(faults: Iterable[Finding]) -> Iterator[str]:
    """Yield the texts of the remedies of findings, each once."""
    found = (fault.explanation.remedies for fault in faults if fault.explanation is not None)
    yield from dict.fromkeys(remedy.text for remedies in found for remedy in remedies)
