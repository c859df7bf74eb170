"""Measure what `profiling()` adds to an export.

    python -m benchmarks.export_profile --rounds 10

Each round exports a model with and without it, in one process and in alternating order, after one
of each that does not count. Seconds are those of the processor in all threads of the process, so
that other programs disturb less. Printed are the ratio of the fastest export of each side, which is
disturbed least; the median of the rounds' ratios, with the range of 95 of 100 medians of resampled
rounds; and the share of an export that the profile's own code takes, by its clock.
"""

from __future__ import annotations

import argparse
import gc
import logging
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from time import process_time
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn

from etscope.export import LanguageModel, export, profiling
from etscope.support.resident import Resident
from etscope.support.stages import Stages


class Convolutions(nn.Module):
    """Convolutions with norms, and a linear layer."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.blocks = nn.Sequential(
            *(
                nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
                for _ in range(depth)
            )
        )
        self.head = nn.Linear(16, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(self.blocks(self.stem(image)).mean((2, 3)))
        return scores


def _llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"vocab_size": 512, "hidden_size": 64, "intermediate_size": 128}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2}
    return LanguageModel(LlamaForCausalLM(LlamaConfig(**sizes, **heads)).eval(), context=64)


def models(depth: int) -> dict[str, Callable[[], Any]]:
    """Return exports by name."""
    image = (torch.ones(1, 3, 32, 32),)
    convolutions, llama = Convolutions(depth).eval(), _llama()
    return {
        "convolutions, portable": lambda: export(convolutions, image, backend="portable"),
        "convolutions, XNNPACK": lambda: export(convolutions, image, backend="xnnpack"),
        "convolutions, XNNPACK int8": lambda: export(
            convolutions, image, backend="xnnpack", quantize=True
        ),
        "Llama of two layers, XNNPACK": lambda: export(llama, backend="xnnpack"),
    }


def seconds(run: Callable[[], Any], *, profiled: bool) -> tuple[float, int]:
    """Return the seconds of an export, and the number of calls that were profiled."""
    gc.collect()
    begin = process_time()
    with profiling() if profiled else nullcontext() as found:
        run()
    taken = process_time() - begin
    return taken, sum(one.calls for _, one in found.stages.whole.walk()) - 1 if found else 0


def own_share(run: Callable[[], Any]) -> float:
    """Return the share of an export that the profile takes to read memory and to count nodes."""
    spent = 0.0

    def clocked(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal spent
            begin = process_time()
            result = function(*args, **kwargs)
            spent += process_time() - begin
            return result

        return call

    count = Stages.run

    def counting(self: Stages, name: str, function: Any, sizes: Any, **more: Any) -> Any:
        return count(self, name, function, clocked(sizes), **more)

    with (
        mock.patch.object(Resident, "take", clocked(Resident.take)),
        mock.patch.object(Stages, "run", counting),
    ):
        taken, _ = seconds(run, profiled=True)
    return spent / taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--depth", type=int, default=12, help="convolutions of a model")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    draws = np.random.default_rng(0)
    print("| export | seconds | stages and passes | fastest | median (95 %) | own share |")
    print("|---|---|---|---|---|---|")
    for name, run in models(given.depth).items():
        plain: list[float] = []
        profiled: list[float] = []
        calls = 0
        for number in range(given.rounds + 1):
            sides = (False, True) if number % 2 else (True, False)
            found = {side: seconds(run, profiled=side) for side in sides}
            if number:  # the first of each fills caches of torch
                plain.append(found[False][0])
                profiled.append(found[True][0])
                calls = found[True][1]
        ratios = np.array(profiled) / np.array(plain)
        medians = np.median(draws.choice(ratios, (2000, len(ratios))), axis=1)
        low, high = np.percentile(medians, (2.5, 97.5))
        print(
            f"| {name} | {min(plain):.2f} | {calls} | {min(profiled) / min(plain):.3f} "
            f"| {np.median(ratios):.3f} ({low:.3f} to {high:.3f}) | {own_share(run):.2%} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
