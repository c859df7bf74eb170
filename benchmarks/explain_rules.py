"""Measure how many seeded inefficiencies `etscope explain` finds, and how often it is wrong.

    python -m benchmarks.explain_rules                    prints the table for docs
    python -m benchmarks.explain_rules --seed 3 --only attention --verify
    python -m benchmarks.explain_rules --keep runs        explains the runs kept there again

The models are those of `tests.support.explain.cases`, of widths, depths and places that each seed
draws. An inefficiency is *found* when one of the first three findings is of a rule that is right
about it, and names its operators. A finding of a clean model that has more than a tenth of the time
is *false*, unless `ALLOWED` says why it is true. Rules were written without these models; the last
of the seeds was held out until the end. --verify measures that what is seeded costs time.
"""

from __future__ import annotations

import argparse
import logging
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from etscope.model.finding import Finding
from tests.support.explain.cases import CLEAN, SEEDED, Made
from tests.support.explain.recording import exported, is_recorded, recorded
from tests.support.explain.scoring import (
    FIRST,
    LEAST,
    facts_of,
    false_findings,
    findings_of,
    large,
    planted_share,
    rank,
    slowdown,
)

SEEDS = (1, 2)


@dataclass(frozen=True)
class Outcome:
    """The findings of one model: of a seeded one its kind and the place of the right finding."""

    name: str
    seed: int
    findings: Sequence[Finding]
    kind: str | None = None
    rank: int | None = None
    share: float | None = None
    slowdown: float | None = None
    false: Sequence[Finding] = ()

    @property
    def is_found(self) -> bool:
        return self.rank is not None and self.rank <= FIRST


def seeded(name: str, seed: int, keep: Path, verify: bool) -> Outcome:
    """Explain a model with an inefficiency."""
    case = SEEDED[name]
    made = case.made(f"{name}/{seed}")
    folder = _recorded(made, keep / f"{name}.{seed}")
    facts = facts_of(folder)
    share = None if made.places is None else planted_share(facts, made.places)
    times = None
    if verify:
        clean = case.without(f"{name}/{seed}")
        times = slowdown(exported(made), made, exported(clean), clean)
    found = findings_of(folder)
    return Outcome(name, seed, found, case.kind, rank(case, made.places, found), share, times)


def clean(name: str, seed: int, keep: Path) -> Outcome:
    """Explain a model without one."""
    made = CLEAN[name].made(f"{name}/{seed}")
    found = findings_of(_recorded(made, keep / f"clean {name}.{seed}"))
    return Outcome(name, seed, found, false=false_findings(name, found))


def _recorded(made: Made, folder: Path) -> Path:
    if not is_recorded(folder):
        recorded(made, folder)
    return folder


def outcomes(seeds: Sequence[int], only: str, keep: Path, verify: bool) -> Iterator[Outcome]:
    """Explain all models whose names or kinds contain `only`."""
    for seed in seeds:
        for name, case in SEEDED.items():
            if only in f"{name} {case.kind}":
                yield seeded(name, seed, keep, verify)
        for name in CLEAN:
            if only in f"{name} clean":
                yield clean(name, seed, keep)


def row(one: Outcome) -> str:
    """The outcome as a row of a table."""
    said = ", ".join(f"{each.kind} {_percent(each)}" for each in one.findings[: FIRST + 1])
    if one.kind is None:
        judged = f"{len(one.false)} false" if one.false else "-"
        return f"| {one.name} | {one.seed} | clean | | | {judged} | {said} |"
    place = "missed" if one.rank is None else str(one.rank)
    share = "all" if one.share is None else f"{one.share:.0%}"
    times = "" if one.slowdown is None else f"{one.slowdown:.2f}"
    if one.slowdown is not None and one.slowdown < LEAST:
        times += " (too little)"
    return f"| {one.name} | {one.seed} | {one.kind} | {share} | {times} | {place} | {said} |"


def _percent(finding: Finding) -> str:
    quantity = finding.quantity
    return "" if quantity is None or quantity.share is None else f"{quantity.share:.0%}"


def summary(found: Sequence[Outcome]) -> Iterator[str]:
    """The rates by seed and by kind."""
    for seed in sorted({one.seed for one in found}):
        of_seed = [one for one in found if one.seed == seed]
        planted = [one for one in of_seed if one.kind is not None]
        sound = [one for one in of_seed if one.kind is None]
        hits, wrong = sum(one.is_found for one in planted), sum(len(one.false) for one in sound)
        told = sum(1 for one in sound for _ in large(one.findings))
        yield (
            f"seed {seed}: {hits} of {len(planted)} found in the first {FIRST}; {wrong} false of "
            f"{told} large findings in {len(sound)} clean models"
        )
    every = Counter(one.kind for one in found if one.kind is not None)
    hit = Counter(one.kind for one in found if one.kind is not None and one.is_found)
    for kind, count in every.items():
        yield f"{kind}: {hit[kind]} of {count}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, action="append", help="instead of 1 and 2")
    parser.add_argument("--only", default="", help="models whose name or kind contains this")
    parser.add_argument("--keep", type=Path, help="a folder for the runs, which are taken again")
    parser.add_argument("--verify", action="store_true", help="compare with the clean model")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    print("| model | seed | kind | its share | times slower | place | findings |")
    print("|---|---|---|---|---|---|---|")
    found = []
    with TemporaryDirectory() as temporary:
        keep = options.keep or Path(temporary)
        for one in outcomes(options.seed or SEEDS, options.only, keep, options.verify):
            found.append(one)
            print(row(one), flush=True)
    print(*summary(found), sep="\n")


if __name__ == "__main__":
    main()
