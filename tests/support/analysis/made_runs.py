"""Times of runs drawn from seeded distributions, as machines make them: noise, modes, drift, other
work, neighbours alike, and a clock that counts whole microseconds."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# Few runs of these do not show how much they vary.
UNSTEADY = ("alike", "wandering", "warming", "two states", "spells")
KINDS = ("normal", "bimodal", "drift", "outliers", "autocorrelated", "quantised")
MICROSECOND = 1000.0  # ns


def made_runs(
    kind: str, random: np.random.Generator, runs: int, centre_ns: float, factor: float = 1.0
) -> Floats:
    """Return times in ns, shape [runs], of a process whose runs take about `centre_ns * factor`."""
    noise = random.normal(0, 0.02, runs)
    if kind == "bimodal":
        noise += 0.12 * (random.random(runs) < 0.4)
    elif kind == "drift":
        noise += random.normal(0, 0.02) * np.linspace(0, 1, runs)
    elif kind == "outliers":
        noise += (random.random(runs) < 0.05) * random.exponential(2.0, runs)
    elif kind == "autocorrelated":
        steps = random.normal(0, 0.03, runs + 50)
        for run in range(1, len(steps)):
            steps[run] = 0.6 * steps[run - 1] + 0.8 * steps[run]
        noise = steps[50:]
    elif kind in UNSTEADY:
        noise = _unsteady(kind, random, runs)
    times = centre_ns * factor * np.exp(noise)
    if kind == "quantised":
        return on_a_clock(times, random)
    return np.rint(times)


def _unsteady(kind: str, random: np.random.Generator, runs: int) -> Floats:
    """Return the logarithms of times that hang together: those of neighbours correlate with 0.8;
    a random walk that starts anew in each process; a slow start; two states 30 % apart that last
    for five runs; and spells of other work, of a quarter of the runs."""
    noise = random.normal(0, 0.02, runs)
    if kind == "alike":
        noise *= 5
        for run in range(1, runs):
            noise[run] = 0.8 * noise[run - 1] + 0.6 * noise[run]
    elif kind == "wandering":
        noise = np.cumsum(2.5 * noise)
    elif kind == "warming":
        height, lasts = abs(random.normal(0, 0.5)), random.uniform(2, 15)
        noise += height * np.exp(-np.arange(runs) / lasts)
    else:
        ends, begins = (0.2, 0.2) if kind == "two states" else (0.15, 0.05)
        state = random.random() < begins / (begins + ends)
        for run in range(runs):
            noise[run] += state * (0.3 if kind == "two states" else random.exponential(0.7))
            state ^= random.random() < (ends if state else begins)
    return noise


def on_a_clock(times: Floats, random: np.random.Generator) -> Floats:
    """Return what a clock of whole microseconds reads: differences of two rounded readings, all of
    a process in one phase."""
    start = random.random() * MICROSECOND
    ends: Floats = np.floor((start + times) / MICROSECOND) * MICROSECOND
    return ends - np.floor(start / MICROSECOND) * MICROSECOND
