"""Measure how well `etscope explain --peaks` estimates what remedies gain.

    python -m benchmarks.explain_estimates --peaks calibration.json
    python -m benchmarks.explain_estimates --peaks calibration.json --keep runs --only quantize

Each case is a model and a change of its export or run. The model is exported, run and explained,
and the gain of the change estimated from that run and the calibration alone. Then the change is
made, and both programs are timed as `--try` does it: in rounds in which both run, in random order;
a run is the lower quartile of its executions, the gain that of the median ratio. A case is *within
30 %* if the estimated gain differs from the measured one by no more than 30 % of it, or both are
less than 2 % of the time.

The estimates were written and their factors chosen with the cases of `TUNED`. Those of `HELD_OUT`
were estimated when they were done; after them only the intervals were changed.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from etscope.analysis.comparison.rounds import drawn_orders
from etscope.analysis.explain.estimates import Estimates
from etscope.analysis.explain.facts import Facts
from etscope.export import Exported, Source
from etscope.formats.calibration import Calibration, read_calibration
from etscope.model.finding import Estimate, Remedy
from etscope.remedies._changes import Change, Setting
from etscope.run import run
from tests.support.explain.cases import CLEAN, SEEDED, Made
from tests.support.explain.recording import exported, is_recorded, record_run
from tests.support.explain.scoring import facts_of

WITHIN = 0.3  # of the measured gain
NOTHING = 0.02  # of the time: a smaller gain is none
ROUNDS = 15
_ROUND_NS = 50e6
PORTABLE = {"backend": "portable"}


@dataclass(frozen=True)
class Case:
    """A model of `tests.support.explain.cases`, and the change that is made.

    export: options of the baseline, beside those of the model. threads: of the baseline.
    """

    model: str
    change: str
    arguments: Mapping[str, Any]
    export: Mapping[str, Any] = field(default_factory=dict)
    threads: int = 1

    @property
    def name(self) -> str:
        words = " ".join([self.change, *map(str, self.arguments.values())])
        given = ", portable" if self.export and self.change != "backend" else ""
        return f"{self.model}{given}: {words}"

    def made(self, seed: int) -> Made:
        made = (SEEDED.get(self.model) or CLEAN[self.model]).made(f"{self.model}/{seed}")
        run = {**made.run, "threads": self.threads}
        return replace(made, export={"backend": "xnnpack", **made.export, **self.export}, run=run)


def _backend(*models: str) -> list[Case]:
    return [Case(one, "backend", {"backend": "xnnpack"}, PORTABLE) for one in models]


def _pass(name: str, *models: str, **export: Any) -> list[Case]:
    return [Case(one, "pass", {"name": name}, export) for one in models]


def _quantize(scheme: str, *models: str) -> list[Case]:
    return [Case(one, "quantize", {"scheme": scheme}) for one in models]


def _threads(*models: str) -> list[Case]:
    return [Case(one, "threads", {"threads": 2}) for one in models]


TUNED = [
    *_quantize("int8", "MLP", "CNN"),
    *_quantize("8da4w", "MLP", "float weights of a step"),
    *_backend("MLP", "CNN", "transformer with GELU"),
    *_pass("fuse_sdpa", "fused attention"),
    *_pass("fuse_sdpa", "fused attention", **PORTABLE),
    *_pass("fold_constants", "cosines in each call", "mask in each call"),
    *_threads("MLP"),
    Case("bfloat16 MLP", "dtype", {"dtype": "float32"}),
]
HELD_OUT = [
    *_quantize("int8", "residual CNN", "transformer"),
    *_quantize("8da4w", "mixture", "recurrent step"),
    *_backend("vision transformer", "U-Net", "recurrent step", "audio encoder"),
    *_pass("fuse_sdpa", "fused attention of patches", "fused causal attention"),
    *_pass("fold_constants", "distances in each call", "positions in each call"),
    *_threads("residual CNN", "transformer"),
    Case("bfloat16 step", "dtype", {"dtype": "float32"}),
    Case("double CNN", "dtype", {"dtype": "float32"}),
]


@dataclass(frozen=True)
class Outcome:
    """The estimate and the measurement of a case. gain: the share of the time that was saved."""

    case: Case
    is_held_out: bool
    estimate: Estimate | None
    why_not: str | None
    gain: float

    @property
    def is_within(self) -> bool:
        if self.estimate is None:
            return False
        if max(abs(self.gain), abs(self.estimate.share)) < NOTHING:
            return True
        return abs(self.estimate.share - self.gain) <= WITHIN * abs(self.gain)

    @property
    def is_in_interval(self) -> bool:
        found = self.estimate
        return found is not None and found.low <= self.gain <= found.high

    def row(self) -> str:
        found = self.estimate
        if found is None:
            return f"| {self.case.name} | | | {self.gain:.1%} | | none: {self.why_not} |"
        ratio = found.share / self.gain if abs(self.gain) >= NOTHING else float("nan")
        after = (1 - found.share) / (1 - self.gain)
        return (
            f"| {self.case.name} | {found.share:.1%} | {found.low:.0%} to {found.high:.0%} "
            f"| {self.gain:.1%} | {ratio:.2f} | {after:.2f} "
            f"| {'yes' if self.is_within else 'no'} |"
        )


def outcome(case: Case, seed: int, calibration: Calibration, keep: Path, held: bool) -> Outcome:
    """Estimate the gain of a change, make it, and measure it; what was measured is kept."""
    folder = keep / f"{case.name} {case.threads} {case.export.get('backend', '')} {seed}"
    kept = folder / "gain.json"
    if not is_recorded(folder) or not kept.is_file():
        made = case.made(seed)
        changed = _changed(case, made)
        before, after = exported(made), exported(changed)
        record_run(before, made, folder)
        gain = measured(before, made, after, changed)
        kept.write_text(json.dumps({"gain": gain}))
    facts = replace(facts_of(folder), calibration=calibration)
    estimate, why_not = _estimated(facts, case)
    gain = float(json.loads(kept.read_text())["gain"])
    return Outcome(case, held, estimate, why_not, gain)


def _estimated(facts: Facts, case: Case) -> tuple[Estimate | None, str | None]:
    found = Estimates(facts).of(Remedy("", case.change, case.arguments))
    return found.estimate, found.no_estimate


def _changed(case: Case, made: Made) -> Made:
    """The model with the change, as `--try` makes it."""
    setting = Change(case.change, case.arguments).applied(Setting(made.export, made.run["threads"]))
    model, inputs = setting.prepared(Source(case.model, case.model, made.model, made.inputs))
    return replace(
        made,
        model=model,
        inputs=inputs,
        export=setting.export,
        run={**made.run, "threads": setting.threads},
    )


def measured(before: Exported, one: Made, after: Exported, other: Made) -> float:
    """Time two programs in rounds; return the share of the time that the second saves."""
    sides = ((before, one), (after, other))
    executions = [int(np.clip(_ROUND_NS / max(_time(*side, 3), 1), 3, 200)) for side in sides]
    ratios = []
    for order in drawn_orders(ROUNDS, 0):
        times = [0.0, 0.0]
        for side in order:
            times[side] = _time(*sides[side], executions[side])
        ratios.append(times[1] / times[0])
    return 1 - float(np.median(ratios))


def _time(program: Exported, made: Made, iterations: int) -> float:
    options = {"warmup": 2, "isolate": False, "runner": "python", "verify": False, "trace": False}
    with run(
        program.program, made.inputs, iterations=iterations, **{**options, **made.run}
    ) as done:
        return float(np.percentile(done.latency.samples_ns, 25))


def summary(name: str, found: Sequence[Outcome]) -> Iterator[str]:
    """The shares within 30 % and within the interval, of all and by kind of change."""
    estimated = [one for one in found if one.estimate is not None]
    if not estimated:
        return
    within = sum(one.is_within for one in estimated)
    inside = sum(one.is_in_interval for one in estimated)
    yield (
        f"{name}: {within} of {len(estimated)} estimates within {WITHIN:.0%} of the measured gain "
        f"({within / len(estimated):.0%}), {inside} measured gains in the interval; "
        f"{len(found) - len(estimated)} without an estimate"
    )
    for kind in dict.fromkeys(one.case.change for one in estimated):
        those = [one for one in estimated if one.case.change == kind]
        yield f"  {kind}: {sum(one.is_within for one in those)} of {len(those)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peaks", type=Path, required=True, help="a calibration of this machine")
    parser.add_argument("--seed", type=int, default=5, help="of the models' sizes")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--held-out", action="store_true", help="run these as well")
    parser.add_argument("--keep", type=Path, help="a folder for the runs, which are taken again")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    calibration = read_calibration(options.peaks)
    print("| case | estimated | interval | measured | ratio | time after, ratio | within 30 % |")
    print("|---|---|---|---|---|---|---|")
    found = []
    with tempfile.TemporaryDirectory() as temporary:
        keep = options.keep or Path(temporary)
        cases = [(one, False) for one in TUNED]
        cases += [(one, True) for one in HELD_OUT] if options.held_out else []
        for case, held in cases:
            if options.only in case.name:
                found.append(outcome(case, options.seed, calibration, keep, held))
                print(found[-1].row(), flush=True)
    print(*summary("tuned", [one for one in found if not one.is_held_out]), sep="\n")
    print(*summary("held out", [one for one in found if one.is_held_out]), sep="\n")


if __name__ == "__main__":
    main()
