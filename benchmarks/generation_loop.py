"""Measure what the loop of `generate` adds to a token, against a bare loop over the runtime in C++:
python -m benchmarks.generation_loop

The model is small, so that the loop's own work shows: a token takes some 0.2 ms, where those of
real models take milliseconds. Both sides run in turns, and the least of their medians is compared.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np

from etscope.run import generate
from tests.support.artifacts import artifacts
from tests.support.native.compiling import compiled

NEW, ROUNDS, REPEATS = 60, 200, 9
TARGET = 1.02


def bare_ns(program: Path) -> float:
    """Median ns of a token in the bare loop."""
    binary = compiled(Path(__file__).with_name("bare_loop.cpp"))
    line = [binary, program, str(NEW), str(ROUNDS)]
    return float(subprocess.run(line, check=True, capture_output=True, text=True).stdout)


def our_ns(program: Path) -> float:
    """Median ns of a token in the native runner's loop."""
    with generate(
        program,
        tokens=[1],
        max_new_tokens=NEW,
        end_tokens=(),
        iterations=ROUNDS,
        warmup=0,
        trace=False,
        runner="native",
    ) as run:
        return float(np.median(run.pace.inter_token_ns))


def main() -> None:
    program = artifacts("decoders").extra("one.pte")
    pairs = [(bare_ns(program), our_ns(program)) for _ in range(REPEATS)]
    bare, ours = np.array(pairs).min(axis=0)
    verdict = "within" if ours / bare <= TARGET else "MISSED"
    print(f"a token in the bare loop: {bare / 1e3:.2f} µs; with generate: {ours / 1e3:.2f} µs")
    print(f"ratio: {ours / bare:.4f} (target: at most {TARGET}: {verdict})")


if __name__ == "__main__":
    main()
