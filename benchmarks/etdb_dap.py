"""Measure the waits of an editor that debugs a model over the Debug Adapter Protocol.

`python -m benchmarks.etdb_dap` prints the figures of all.
"""

from __future__ import annotations

import functools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.side import Cost
from tests.support.etdb.dap_client import Client

STOPS = 200
INSTRUCTIONS = 1000
LARGE = (25, 1024, 1024)  # float32: 100 MiB


def shown(target: str) -> Cost:
    """The 95th of 100 stops of a program of 1,000 instructions: from the request for a step to the
    last answer about stack and variables."""
    return Cost(float(np.quantile(_stops(target), 0.95)))


def expanded(target: str) -> Cost:
    """The slowest of the requests that expand a tensor of 100 MiB, and one of its rows."""
    return Cost(max(_expansions(target).values()))


@functools.cache
def _stops(target: str) -> list[float]:
    import torch

    class Chain(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(INSTRUCTIONS // 2):
                x = torch.relu(torch.neg(x))
            return x

    with _client(Chain(), (8, 8), target) as client:
        found = []
        for _ in range(STOPS):
            begin = time.perf_counter()
            client.shown("stepIn")
            found.append(time.perf_counter() - begin)
        return found


@functools.cache
def _expansions(target: str) -> dict[str, float]:
    import torch

    class Large(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(torch.neg(x))

    found: dict[str, float] = {}
    with _client(Large(), LARGE, target) as client:

        def timed(what: str, ask: Callable[[], dict[str, dict[str, Any]]]) -> dict[str, Any]:
            begin = time.perf_counter()
            answer = ask()
            found[what] = time.perf_counter() - begin
            return answer.get("$") or answer["[3]"]

        tensor = timed("scope", lambda: client.variables("Output"))
        row = timed("tensor", lambda: client.children(tensor["variablesReference"]))
        line = timed("row", lambda: client.children(row["variablesReference"]))
        timed("numbers", lambda: client.children(line["variablesReference"]))
    return found


@contextmanager
def _client(model: Any, shape: tuple[int, ...], target: str) -> Iterator[Client]:
    """A client at the first operator of a model."""
    import torch

    from etscope.export import export

    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        export(model.eval(), (torch.randn(shape),)).save(folder, "model", bundle=False)
        client = stack.enter_context(Client(sys.executable, checks=False))
        files = folder / "model.etrecord", folder / "model.pte"
        client.launch(*files, target=target, stopOnEntry=True)
        client.ask("configurationDone")
        client.event("stopped")
        yield client


if __name__ == "__main__":
    for where in ("runtime", "live"):
        stops = np.array(_stops(where)) * 1e3
        print(f"{where}: a stop of {INSTRUCTIONS} instructions: p50 {np.median(stops):.1f} ms, "
              f"p95 {np.quantile(stops, 0.95):.1f} ms")  # fmt: skip
        for what, seconds in _expansions(where).items():
            print(f"{where}: 100 MiB, {what}: {seconds * 1e3:.1f} ms")
