"""Measure how often `etscope diff` is wrong, and what it finds: A/A trials and injected slow-downs.

    python benchmarks/diff_power.py            prints tables of docs/appendix/benchmarks.md

*Simulated*: log-normal noise, runs that hang together, a drift of each dump's own, outliers.
*Unsteady*: the kinds of `tests.support.analysis.made_runs` of which few runs do not show how much
they vary, with changes up to 500-fold.
*Real*: processes of `etscope run` of a real program on this machine. Blocks of runs of one process
are dealt out to two sides (nothing differs but the samples), and whole processes are compared, with
and without further ones that tell the noise between them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

# Run as a script, Python's path starts at this folder.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from etscope.analysis.profile.trace import Trace
from etscope.analysis.statistics.compare_samples import Verdict, compare_samples, noise_between
from etscope.formats.etdump.reader import read_etdump
from tests.support.analysis.made_runs import UNSTEADY, made_runs
from tests.support.artifacts import artifacts

Samples = npt.NDArray[np.float64]
Deal = Callable[[np.random.Generator], tuple[Samples, Samples, Sequence[Samples]]]

TRIALS = 400
NOISE_DUMPS = 5
BLOCK = 10  # runs that stay together when those of a process are dealt out
INJECTED = (0.0, 0.05, 0.10)
FACTORS = (1.3, 2.0, 10.0, 500.0)  # of unsteady runs


def simulated(
    random: np.random.Generator, runs: int, together: float, drift: float, sigma: float = 0.04
) -> Samples:
    """Times of one dump in ns: see the module. together: the correlation of neighbouring runs."""
    noise = random.normal(0, sigma, runs)
    for i in range(1, runs):
        noise[i] = together * noise[i - 1] + np.sqrt(1 - together**2) * noise[i]
    noise += random.normal(0, drift) * np.linspace(0, 1, runs)
    disturbed = (random.random(runs) < 0.02) * random.exponential(1.0, runs)
    times: Samples = np.rint(1e6 * np.exp(noise) * (1 + disturbed))
    return times


def measured(processes: int, iterations: int, name: str = "cnn_portable") -> list[Samples]:
    """Times in ns of the runs of separate processes, the first run of each left out."""
    program = artifacts(name).pte
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(processes):
            path = Path(folder) / str(number)
            command = [
                sys.executable, "-m", "etscope", "run", str(program), "-X", "separate=false",
                "--iterations", str(iterations), "--save", str(path),
            ]  # fmt: skip
            subprocess.run(command, check=True, capture_output=True)
            total = Trace(read_etdump(path / "run.etdp")).profiles()[0].total
            found.append(total[1:].astype(np.float64))
    return found


def dealt(times: Samples, random: np.random.Generator, runs: int) -> tuple[Samples, Samples]:
    """Two sides of `runs` runs: blocks of one process's runs in a random order."""
    blocks = times[: len(times) // BLOCK * BLOCK].reshape(-1, BLOCK)
    mixed = blocks[random.permutation(len(blocks))].ravel()
    return mixed[:runs], mixed[runs : 2 * runs]


def rates(deal: Deal, trials: int = TRIALS, seed: int = 0) -> dict[str, float]:
    """Shares of the trials: `false` (regressed or improved without a change), `same` (of these the
    ones told to be equal), and for each injected slow-down `regressed`."""
    random = np.random.default_rng(seed)
    counts = dict.fromkeys(("false", "same", "5 %", "10 %"), 0)
    for _ in range(trials):
        before, after, others = deal(random)
        noise = noise_between([before, *others]) if others else None
        for slower in INJECTED:
            verdict = compare_samples(before, after * (1 + slower), noise=noise, step=1.0).verdict
            if slower:
                counts[f"{slower:.0%}".replace("%", " %")] += verdict is Verdict.REGRESSED
            else:
                counts["false"] += verdict in (Verdict.REGRESSED, Verdict.IMPROVED)
                counts["same"] += verdict is Verdict.NO_DIFFERENCE
    return {name: count / trials for name, count in counts.items()}


def simulated_rows(trials: int = TRIALS) -> list[tuple[str, dict[str, float]]]:
    rows = []
    for together, drift in ((0.0, 0.01), (0.3, 0.01), (0.6, 0.01), (0.8, 0.01)):
        for runs in (20, 50, 100):

            def deal(
                random: np.random.Generator,
                kind: tuple[int, float, float] = (runs, together, drift),
            ) -> tuple[Samples, Samples, Sequence[Samples]]:
                return simulated(random, *kind), simulated(random, *kind), ()

            rows.append((f"{runs} | {together:g}", rates(deal, trials)))
    return rows


def unsteady_rows(trials: int = TRIALS) -> list[tuple[str, dict[str, float]]]:
    """Shares of the trials: `slower` (without a change), and for each factor `regressed`."""
    rows = []
    for kind in UNSTEADY:
        for runs in (10, 19, 60):
            random = np.random.default_rng(0)
            counts = dict.fromkeys(("slower", *(f"x{factor:g}" for factor in FACTORS)), 0)
            for _ in range(trials):
                before, after = (made_runs(kind, random, runs, 1e6) for _ in range(2))
                for name, factor in zip(counts, (1.0, *FACTORS), strict=True):
                    verdict = compare_samples(before, after * factor, step=1.0).verdict
                    counts[name] += verdict is Verdict.REGRESSED
            shares = {name: count / trials for name, count in counts.items()}
            rows.append((f"{kind} | {runs}", shares))
    return rows


def real_rows(times: Sequence[Samples], trials: int = TRIALS) -> list[tuple[str, dict[str, float]]]:
    runs = min(map(len, times)) // (2 * BLOCK) * BLOCK

    def within(random: np.random.Generator) -> tuple[Samples, Samples, Sequence[Samples]]:
        return *dealt(times[random.integers(len(times))], random, runs), ()

    def across(random: np.random.Generator) -> tuple[Samples, Samples, Sequence[Samples]]:
        one, other = random.choice(len(times), 2, replace=False)
        return times[one], times[other], ()

    def across_with_noise(
        random: np.random.Generator,
    ) -> tuple[Samples, Samples, Sequence[Samples]]:
        picked = random.choice(len(times), NOISE_DUMPS + 2, replace=False)
        return times[picked[0]], times[picked[1]], [times[i] for i in picked[2:]]

    return [
        (f"one process, its runs dealt out, {runs} a side", rates(within, trials)),
        ("two processes", rates(across, trials)),
        (f"two processes, {NOISE_DUMPS} noise dumps", rates(across_with_noise, trials)),
    ]


def table(head: str, rows: Sequence[tuple[str, dict[str, float]]]) -> str:
    """The rows as a table in Markdown."""
    names = list(rows[0][1])
    titles = {"false": "false alarms", "same": "told as no difference", "slower": "called slower"}
    heads = [titles.get(name, f"{'' if name[0] == 'x' else '+'}{name} found") for name in names]
    lines = [f"| {head} | {' | '.join(heads)} |"]
    lines.append("|" + "---|" * (head.count("|") + 1 + len(names)))
    for label, found in rows:
        lines.append(f"| {label} | " + " | ".join(f"{found[name]:.1%}" for name in names) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="How often etscope diff is wrong.")
    parser.add_argument("--processes", type=int, default=24, help="real processes")
    parser.add_argument("--iterations", type=int, default=201, help="runs of each")
    parser.add_argument("--trials", type=int, default=TRIALS)
    options = parser.parse_args()
    print(table("runs | correlation", simulated_rows(options.trials)), flush=True)
    print("\n" + table("unsteady runs | runs", unsteady_rows(5 * options.trials)), flush=True)
    times = measured(options.processes, options.iterations)
    medians = sorted(float(np.median(one)) / 1e6 for one in times)
    print(f"\n{len(times)} processes, medians {medians[0]:.3f} to {medians[-1]:.3f} ms\n")
    print(table("real runs", real_rows(times, options.trials)))


if __name__ == "__main__":
    main()
