"""Measure the waits of an editor that debugs a model over the Debug Adapter Protocol.

`python -m benchmarks.etdb_dap` prints the figures of all.
"""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.side import Cost

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

    from tests.support.etdb.dap_client import Client

    class Chain(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(INSTRUCTIONS // 2):
                x = torch.relu(torch.neg(x))
            return x

    with tempfile.TemporaryDirectory() as name, Client(checks=False) as client:
        _launch(client, Chain(), torch.randn(8, 8), Path(name), target)
        found = []
        for _ in range(STOPS):
            begin = time.perf_counter()
            client.shown("stepIn")
            found.append(time.perf_counter() - begin)
        return found


@functools.cache
def _expansions(target: str) -> dict[str, float]:
    import torch

    from tests.support.etdb.dap_client import Client

    class Large(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(torch.neg(x))

    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name, Client(checks=False) as client:
        _launch(client, Large(), torch.randn(LARGE), Path(name), target)

        def timed(what: str, ask: Callable[[], dict[str, dict[str, int]]]) -> dict[str, int]:
            begin = time.perf_counter()
            answer = ask()
            found[what] = time.perf_counter() - begin
            return answer.get("$") or answer["[3]"]

        tensor = timed("scope", lambda: client.variables("Output"))
        row = timed("tensor", lambda: client.children(tensor["variablesReference"]))
        line = timed("row", lambda: client.children(row["variablesReference"]))
        timed("numbers", lambda: client.children(line["variablesReference"]))
    return found


def _launch(client: object, model: object, example: object, folder: Path, target: str) -> None:
    from etscope.export import export
    from tests.support.etdb.dap_client import Client

    assert isinstance(client, Client)
    export(model.eval(), (example,)).save(folder, "model", bundle=False)  # type: ignore[attr-defined]
    client.launch(folder / "model.etrecord", folder / "model.pte", target=target, stopOnEntry=True)
    client.ask("configurationDone")
    client.event("stopped")


if __name__ == "__main__":
    for where in ("runtime", "live"):
        stops = np.array(_stops(where)) * 1e3
        print(f"{where}: a stop of {INSTRUCTIONS} instructions: p50 {np.median(stops):.1f} ms, "
              f"p95 {np.quantile(stops, 0.95):.1f} ms")  # fmt: skip
        for what, seconds in _expansions(where).items():
            print(f"{where}: 100 MiB, {what}: {seconds * 1e3:.1f} ms")
