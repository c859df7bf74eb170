"""`Finding`: a sentence about a run, the number at stake, where it is seen and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

__all__ = ["Finding"]

# The methods that a next command takes files by, and the word for a file that is not known.
_DUMP, _RECORD, _PROGRAM, _BUFFER = "DUMP", "ETRECORD", "PROGRAM", "BIN"


class Severity(Enum):
    """The weight of a finding, the heaviest first."""

    PROBLEM = "problem"  # results are wrong, or the times are not to be relied on
    COST = "cost"  # takes a large part of the time for something other than the model's work
    FACT = "fact"  # where the time and the memory are, and that values are right
    UNKNOWN = "unknown"  # could not be measured or said


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number at stake, in `unit` ("ms", "bytes", "dB"). share: of the method's time, or of all
    its memory; None where it is a part of neither."""

    value: float
    unit: str
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """The place where a finding is seen.

    view: the tab of a report ("events", "modules", "timeline", "generation", "numerics", "memory",
    "compare").
    select: a selector that picks what it is about, for `--select` and for the filter of that tab.
    by, name: else a row of a roll-up (`--by`). instruction: of one row.
    """

    view: str
    select: str | None = None
    by: str | None = None
    name: str | None = None
    instruction: int | None = None


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a run, as a command is given them; None where there is none.

    found: those of "record", "program" and "debug_buffer" that commands find by the dump, or by the
    folder of a saved run, which stands for it.
    """

    dump: str | None = None
    record: str | None = None
    program: str | None = None
    debug_buffer: str | None = None
    found: frozenset[str] = frozenset()

    def words(self, verb: str) -> list[str]:
        """The arguments of `etscope VERB` for these files. A file that it cannot do without, and
        that is not known, is named as its help does ("PROGRAM")."""
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
    """The sureness of an explanation, the surest first."""

    MEASURED = "measured"  # this run shows it: what is named takes this time
    LIKELY = "likely"  # the time is measured, its reason is told from the program
    POSSIBLE = "possible"  # other reasons would look the same


@dataclass(frozen=True, slots=True)
class Site:
    """An operator that a finding is about: of `instruction`, None for several together.

    time: of one run, in the unit of the finding's quantity. line: "model.py:12".
    """

    name: str
    instruction: int | None = None
    time: float | None = None
    module: str | None = None
    line: str | None = None


@dataclass(frozen=True)
class Remedy:
    """Something to do about a finding, in words: code to change, or an option.

    change: the name of the change of an export or a run that `etscope explain --try` makes, with
    its arguments; None where only the author of the model can.
    """

    text: str
    change: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Explanation:
    """The reason of a finding, and what could be done.

    low, high: the 95 % interval of the time at stake over the runs, in the unit of the finding's
    quantity; None of a single run. evidence: the facts it was told from, as sentences. sites: the
    operators, those with most time first.
    """

    sureness: Sureness
    evidence: tuple[str, ...]
    sites: tuple[Site, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    low: float | None = None
    high: float | None = None

    def plain(self) -> dict[str, Any]:
        """The explanation as plain values for JSON."""
        found = {
            name: list(one) if isinstance(one, tuple) else one for name, one in asdict(self).items()
        }
        return {**found, "sureness": self.sureness.value}


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence that a reader of a run should see first.

    kind: its name for programs ("slowest-module"). quantity: None where nothing can be counted.
    place: where it is seen. command: the next one without its files, ("inspect", "--by", "op").
    explanation: of findings of `etscope explain`.
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
        """The next command as a line for a shell; None if there is none."""
        if not self.command:
            return None
        verb, *options = self.command
        return shlex.join(["etscope", verb, *files.words(verb), *options])

    def plain(self, files: Files) -> dict[str, Any]:
        """The finding as plain values for JSON; members that are not known are None."""
        found = asdict(self)
        del found["command"], found["explanation"]
        if self.explanation is not None:
            found["explanation"] = self.explanation.plain()
        place = found.pop("place")
        next_command = self.next_command(files)
        return {**found, "severity": self.severity.value, "where": place, "next": next_command}


SEVERITIES = tuple(Severity)


def ranked(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Sort findings: by severity, then by the share at stake, largest first. Shares of memory
    come after those of the time, with which they cannot be compared. Equal shares keep their
    order, whatever the last digits of their sums are."""

    def key(finding: Finding) -> tuple[int, bool, float]:
        quantity = finding.quantity
        share = 0.0 if quantity is None or quantity.share is None else quantity.share
        is_memory = quantity is not None and quantity.unit == "bytes"
        return SEVERITIES.index(finding.severity), is_memory, -round(share, 9)

    return tuple(sorted(findings, key=key))
