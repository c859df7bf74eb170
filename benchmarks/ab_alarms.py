"""Measure how often an A/B job of the lab is wrong, and what it finds: A/A trials and injected
slow-downs.

    python benchmarks/ab_alarms.py                     prints tables of docs/appendix/benchmarks.md
    python benchmarks/ab_alarms.py --save FILE.npz     and keeps the real processes
    python benchmarks/ab_alarms.py --load FILE.npz     with those instead of new ones

*Real*: processes of etscope's native runner, one after the other, of a small network on this
machine. A trial takes the next `2 * rounds` of them in the order that `measure_ab` asks for, so its
two sides ran the same program. A slow-down is injected by lengthening the model's samples.
*Simulated*: processes with noise of several kinds, whose sizes are fitted to the real ones.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

# Run as a script, Python's path starts at this folder.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from etscope.analysis.statistics.compare_samples import Verdict, compare_samples
from etscope.run import run
from etscope_lab.comparison.ab import MODEL, AbResult, measure_ab
from etscope_lab.jobs.spec import JobSpec
from tests.support.artifacts import artifacts

Floats = npt.NDArray[np.float64]
Processes = Callable[[np.random.Generator, int], Floats]  # [processes, iterations], in ns

TRIALS = 400
NOISIER = 4  # times: the simulated devices' processes differ more than the real ones
ENOUGH = 300  # real trials a row
ITERATIONS = 30
INJECTED = (0.0, 0.05, 0.10)
ROUNDS = (10, 20, 40)
GRID = (8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100)  # rounds
MOST_ADVISED = 300  # rounds; more are not tried
FILE = "a" * 64


# -- one trial


def judged(processes: Floats, seed: int, slower: float, rounds: int | None = None) -> AbResult:
    """An A/B job over these processes, in their order, the model's times `slower`."""
    times = iter(processes)
    spec = JobSpec(
        kind="ab",
        model={"sha256": FILE},
        baseline={"sha256": FILE},
        rounds=rounds or len(processes) // 2,
        seed=seed,
    )

    def run_side(side: str, number: int) -> Sequence[int]:
        factor = 1 + slower if side == MODEL else 1.0
        return np.rint(next(times) * factor).astype(np.int64).tolist()

    return measure_ab(spec, run_side)


def rates(windows: Iterator[Floats]) -> dict[str, float]:
    """Shares of the trials, one a window: p of 0.01 at most and false alarms without a change,
    equal times told so, slow-downs found."""
    counts = dict.fromkeys(("p", "false", "same", "5 %", "10 %"), 0)
    trials = 0
    for seed, window in enumerate(windows):
        trials += 1
        results = [judged(window, seed, slower) for slower in INJECTED]
        nothing, five, ten = (result.verdict for result in results)
        counts["p"] += results[0].p <= 0.01
        counts["false"] += nothing in (Verdict.REGRESSED, Verdict.IMPROVED)
        counts["same"] += nothing is Verdict.NO_DIFFERENCE
        counts["5 %"] += five is Verdict.REGRESSED
        counts["10 %"] += ten is Verdict.REGRESSED
    return {"trials": trials, **{name: count / trials for name, count in counts.items()}}


# -- real processes


def measured(minutes: float, name: str = "cnn_portable") -> Floats:
    """The samples of as many processes as run in that time."""
    program = artifacts(name).pte
    end = time.monotonic() + minutes * 60
    found = []
    while time.monotonic() < end:
        with run(
            program, trace=False, iterations=ITERATIONS, warmup=3, runner="native", threads=1
        ) as done:
            found.append(done.latency.samples_ns)
    return np.array(found, dtype=np.float64)


def windows_of(real: Floats, rounds: int) -> Iterator[Floats]:
    """All windows that share no process, again (so in another order) until there are enough."""
    size = 2 * rounds
    starts = range(0, len(real) - size + 1, size)
    for _ in range(-(-ENOUGH // len(starts))):
        for start in starts:
            yield real[start : start + size]


def single_processes(real: Floats) -> dict[str, float]:
    """Two neighbouring processes, compared by their samples alone, as two dumps are."""
    verdicts = [
        compare_samples(a, b, step=1.0).verdict for a, b in zip(real[::2], real[1::2], strict=False)
    ]
    alarms = sum(one in (Verdict.REGRESSED, Verdict.IMPROVED) for one in verdicts)
    return {"trials": len(verdicts), "false": alarms / len(verdicts)}


# -- simulated ones


@dataclass(frozen=True)
class Fit:
    """Describe the noise of the real processes, of the logarithm of their lower quartiles.

    jitter: of neighbouring processes, from the median size of their differences. drift: the
    standard deviation of the moving median. together: the correlation of a process with the next
    one, both less that. far: the share beyond 4 jitters of it, and `excess` how far these are.
    within: the spread of the undisturbed runs of a process, from its lower quarter. disturbed: the
    share of runs beyond 1.2 times their process's quartile, and `longer` how far these are.
    """

    jitter: float
    drift: float
    together: float
    far: float
    excess: float
    within: float
    disturbed: float
    longer: float


def fitted(real: Floats) -> Fit:
    centres = np.log(np.percentile(real, 25, axis=1))
    jitter = float(np.median(np.abs(np.diff(centres))) / 0.6745 / np.sqrt(2))
    half = 20
    padded = np.pad(centres, half, mode="edge")
    slow = np.median(np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1), axis=1)
    rest = np.clip(centres - slow, -4 * jitter, 4 * jitter)
    together = float(np.corrcoef(rest[:-1], rest[1:])[0, 1])
    beyond = np.abs(centres - slow) > 4 * jitter
    excess = float(np.abs(centres - slow)[beyond].mean()) if beyond.any() else 0.0
    low, quarter = np.log(np.percentile(real, [5, 25], axis=1))
    longer = np.log(real) - quarter[:, None]
    disturbed = longer > np.log(1.2)
    return Fit(
        jitter=jitter,
        drift=float(slow.std()),
        together=together,
        far=float(beyond.mean()),
        excess=excess,
        within=float(np.median(quarter - low)) / (1.645 - 0.674),
        disturbed=float(disturbed.mean()),
        longer=float(longer[disturbed].mean()) if disturbed.any() else 0.0,
    )


def simulated(fit: Fit) -> dict[str, Processes]:
    """Kinds of noise, each of the fitted size; see `Fit`."""

    def of(offsets: Callable[[np.random.Generator, int], Floats]) -> Processes:
        def processes(random: np.random.Generator, count: int) -> Floats:
            runs = random.normal(0, fit.within, (count, ITERATIONS))
            runs += (random.random(runs.shape) < fit.disturbed) * random.exponential(
                fit.longer, runs.shape
            )
            times: Floats = np.rint(1.6e6 * np.exp(offsets(random, count)[:, None] + runs))
            return times

        return processes

    def jitter(random: np.random.Generator, count: int) -> Floats:
        return random.normal(0, fit.jitter, count)

    def drift(random: np.random.Generator, count: int) -> Floats:
        slope = np.sqrt(12) * random.normal(0, 3 * fit.drift) * np.linspace(-0.5, 0.5, count)
        return jitter(random, count) + slope

    def together(random: np.random.Generator, count: int, rho: float = 0.8) -> Floats:
        noise = jitter(random, count) * 2
        for i in range(1, count):
            noise[i] = rho * noise[i - 1] + np.sqrt(1 - rho**2) * noise[i]
        return noise

    def two_modes(random: np.random.Generator, count: int) -> Floats:
        return jitter(random, count) + (random.random(count) < 0.3) * max(fit.excess, 0.05)

    def far(random: np.random.Generator, count: int) -> Floats:
        share = max(fit.far, 0.05)
        excess = random.exponential(max(fit.excess, 0.05), count)
        return jitter(random, count) + (random.random(count) < share) * excess

    def spells(random: np.random.Generator, count: int) -> Floats:
        """Other work comes, stays for some ten processes, and goes."""
        starts = random.random(count) < 0.02
        busy = np.convolve(starts, np.ones(10), mode="full")[:count] > 0
        return jitter(random, count) + busy * random.exponential(3 * fit.excess + 0.05, count)

    kinds = {
        "process offsets": jitter,
        "and a drift": drift,
        "neighbours alike (0.8)": together,
        "two modes": two_modes,
        "heavy tail": far,
        "spells of other work": spells,
    }
    return {name: of(offsets) for name, offsets in kinds.items()}


def drawn(processes: Processes, rounds: int, trials: int, seed: int = 0) -> Iterator[Floats]:
    random = np.random.default_rng(seed)
    for _ in range(trials):
        yield processes(random, 2 * rounds)


def rounds_for(
    processes: Processes, slower: float, powers: Sequence[float], trials: int
) -> list[int | None]:
    """The fewest rounds, of a grid, with which the slow-down is found so often."""
    found: dict[float, int] = {}
    for rounds in GRID:
        share = (
            sum(
                judged(window, seed, slower).verdict is Verdict.REGRESSED
                for seed, window in enumerate(drawn(processes, rounds, trials, seed=1))
            )
            / trials
        )
        for power in powers:
            if share >= power:
                found.setdefault(power, rounds)
        if len(found) == len(powers):
            break
    return [found.get(power) for power in powers]


def advice(processes: Processes, slower: float, trials: int, rounds: int = 10) -> dict[str, float]:
    """For the trials that could not tell: how many could with the rounds that they asked for."""
    random = np.random.default_rng(2)
    asked, told, unheard = [], 0, 0
    for seed in range(trials):
        first = judged(processes(random, 2 * rounds), seed, slower)
        if first.verdict is not Verdict.CANNOT_TELL:
            continue
        if first.rounds_needed is None or first.rounds_needed > MOST_ADVISED:
            unheard += 1
            continue
        asked.append(first.rounds_needed)
        again = judged(processes(random, 2 * max(asked[-1], rounds)), seed, slower)
        told += again.verdict is not Verdict.CANNOT_TELL
    return {
        "could not tell": (len(asked) + unheard) / trials,
        "median asked": float(np.median(asked)) if asked else 0.0,
        "told then": told / max(len(asked), 1),
    }


# -- tables


def row(*cells: str | float | int | None) -> str:
    texts = [f"{cell:.1%}" if isinstance(cell, float) else str(cell or "-") for cell in cells]
    return f"| {' | '.join(texts)} |"


def head(*cells: str) -> str:
    return f"{row(*cells)}\n|{'---|' * len(cells)}"


def found_row(name: str, rounds: int, found: dict[str, float]) -> str:
    shares = (float(found[key]) for key in ("p", "false", "same", "5 %", "10 %"))
    return row(name, rounds, int(found["trials"]), *shares)


def main() -> None:
    parser = argparse.ArgumentParser(description="How often an A/B job is wrong.")
    parser.add_argument("--minutes", type=float, default=8, help="of real processes")
    parser.add_argument("--trials", type=int, default=TRIALS, help="of each simulated row")
    parser.add_argument("--save", type=Path, help="keep the real processes' samples (.npz)")
    parser.add_argument("--load", type=Path, help="take these instead of new ones")
    options = parser.parse_args()
    before = Path("/proc/loadavg").read_text().split()[0]
    real = np.load(options.load)["ns"] if options.load else measured(options.minutes)
    after = Path("/proc/loadavg").read_text().split()[0]
    if options.save:
        np.savez_compressed(options.save, ns=real)
    fit = fitted(real)
    print(f"{len(real)} real processes of {real.shape[1]} runs; load average {before} to {after}")
    print(f"{fit}\n")
    alone = single_processes(real)
    print(f"two single processes: {alone['false']:.1%} false alarms of {alone['trials']}\n")
    print(head("noise", "rounds", "trials", "p ≤ 1 %", "false alarms", "told as no difference",
               "+5 % found", "+10 % found"))  # fmt: skip
    for rounds in (one for one in ROUNDS if 2 * one <= len(real)):
        print(found_row("real", rounds, rates(windows_of(real, rounds))), flush=True)
    kinds = simulated(replace(fit, jitter=NOISIER * fit.jitter))
    for name, processes in kinds.items():
        for rounds in ROUNDS:
            found = rates(drawn(processes, rounds, options.trials))
            print(found_row(name, rounds, found), flush=True)
    print("\n" + head("noise", "+5 %, 80 %", "+5 %, 95 %", "+10 %, 80 %", "+10 %, 95 %"))
    few = max(options.trials // 4, 1)
    for name, processes in kinds.items():
        five, ten = (rounds_for(processes, slower, (0.8, 0.95), few) for slower in INJECTED[1:])
        print(row(name, *five, *ten), flush=True)
    print("\n" + head("noise", "change", "could not tell with 10", "median asked", "told then"))
    for name, processes in kinds.items():
        for slower in (0.0, 0.05):
            found = advice(processes, slower, few)
            asked = int(found["median asked"])
            print(row(name, f"{slower:+.0%}", found["could not tell"], asked, found["told then"]))


if __name__ == "__main__":
    main()
