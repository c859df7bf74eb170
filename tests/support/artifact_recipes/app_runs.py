"""An app that runs a small language model as ExecuTorch's `TextLLMRunner` does, and says so.

It evaluates the prompt in one call or token by token, then takes one token a call, on the runtime's
Python bindings with an ETDump over all calls. Its log has the lines of
`extension/llm/runner/stats.h`, with the times of the wall clock in whole milliseconds.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from executorch.exir import to_edge
from executorch.extension.pybindings.portable_lib import _load_for_executorch
from torch import nn

from tests.support.artifact_recipes.workbench import Workbench

VOCABULARY, WIDTH, CONTEXT = 2048, 96, 96


class Decoder(nn.Module):
    """Attention over a cache, with logits of the last token. All weights are 0, so that the program
    is small when it is packed: what is computed takes as long."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)
        self.register_buffer("keys", torch.zeros(1, CONTEXT, WIDTH))
        self.register_buffer("values", torch.zeros(1, CONTEXT, WIDTH))
        for weight in self.parameters():
            nn.init.zeros_(weight)

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        query, key, value = self.qkv(self.embedding(tokens)).split(WIDTH, -1)
        self.keys.index_copy_(1, positions, key)
        self.values.index_copy_(1, positions, value)
        seen = torch.arange(CONTEXT)[None, :] <= positions[:, None]
        weights = (query @ self.keys.transpose(1, 2)).masked_fill(~seen, -1e4).softmax(-1)
        logits: torch.Tensor = self.head((weights @ self.values)[:, -1])
        return logits


def decoder_program() -> bytes:
    """The program, with the methods of constants that runners execute before they begin."""
    length = torch.export.Dim("length", min=1, max=CONTEXT - 1)
    example = (torch.zeros(1, 4, dtype=torch.int64), torch.arange(4))
    shapes = {"tokens": {1: length}, "positions": {0: length}}
    model = Decoder().eval().requires_grad_(requires_grad=False)
    exported = torch.export.export(model, example, dynamic_shapes=shapes)
    constants = {"get_max_seq_len": CONTEXT, "use_kv_cache": True}
    return bytes(to_edge(exported, constant_methods=constants).to_executorch().buffer)


@dataclass
class App:
    """The app with its program loaded; `log` is its standard output."""

    program: Path
    by_token: bool = False
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._load_start = _ms()
        self._module: Any = _load_for_executorch(str(self.program), enable_etdump=True)
        self._module.run_method("get_max_seq_len", ())
        self._module.run_method("use_kv_cache", ())
        self._load_end = _ms()
        self._sampling = self._execution = 0

    def generate(self, prompt: int, further: int, *, warm_up: bool = False) -> None:
        """Evaluate a prompt and take `further` tokens after the first. A warm-up is not told."""
        stats: dict[str, int] = {"inference_start_ms": _ms()}
        tokens = [(7 * number + 3) % VOCABULARY for number in range(prompt)]
        if self.by_token:
            for position, token in enumerate(tokens):
                logits = self._execute([token], position)
        else:
            logits = self._execute(tokens, 0)
        following = int(logits.argmax())
        stats["first_token_ms"] = stats["prompt_eval_end_ms"] = _ms()
        for number in range(further):
            logits = self._execute([following], prompt + number)
            began = _ms()
            following = int(torch.softmax(logits / 0.8, -1).sort(descending=True)[1][0, 0])
            self._sampling += _ms() - began
        stats["inference_end_ms"] = _ms()
        if not warm_up:
            self.log.append("PyTorchObserver " + self._json(stats, prompt, further))
        self._sampling = self._execution = 0  # runners are reset after a warm-up

    def save(self, bench: Workbench, name: str) -> None:
        """Write the dump over all calls, and the log among lines of others."""
        self._module.write_etdump_result_to_file(str(bench.folder / f"{name}.etdump"))
        lines = ["I 00:00:00.000009 executorch:main.cpp:81] …", *self.log]
        (bench.folder / f"{name}.log").write_text("\n".join(lines) + "\n")

    def _execute(self, tokens: list[int], position: int) -> torch.Tensor:
        positions = torch.arange(position, position + len(tokens))
        began = _ms()
        (logits,) = self._module.run_method("forward", (torch.tensor([tokens]), positions))
        self._execution += _ms() - began
        made: torch.Tensor = logits
        return made

    def _json(self, stats: dict[str, int], prompt: int, further: int) -> str:
        """`stats_to_json_string` of stats.h; numbers as a C++ stream writes them."""
        prefill = stats["prompt_eval_end_ms"] - stats["inference_start_ms"]
        decode = stats["inference_end_ms"] - stats["prompt_eval_end_ms"]
        parts = []
        if prefill > 0:
            parts.append(f'"prefill_token_per_sec":{prompt / prefill * 1000:g}')
        if decode > 0:
            parts.append(f'"decode_token_per_sec":{further / decode * 1000:g}')
        parts += [f'"prompt_tokens":{prompt}', f'"generated_tokens":{further}']
        stamps = {
            "model_load_start_ms": self._load_start,
            "model_load_end_ms": self._load_end,
            "inference_start_ms": stats["inference_start_ms"],
            "inference_end_ms": stats["inference_end_ms"],
            "model_execution_start_ms": 0,
            "model_execution_end_ms": 0,
            "prompt_eval_end_ms": stats["prompt_eval_end_ms"],
            "first_token_ms": stats["first_token_ms"],
            "aggregate_sampling_time_ms": self._sampling,
            "aggregate_model_execution_time_ms": self._execution,
            "SCALING_FACTOR_UNITS_PER_SECOND": 1000,
        }
        return "{" + ",".join([*parts, *(f'"{k}":{v}' for k, v in stamps.items())]) + "}"


def _ms() -> int:
    return time.time_ns() // 1_000_000


# Two generations with the prompt in one call are as many calls as one of it token by token.
PROMPT, FURTHER = 14, 12


def app_runs(bench: Workbench) -> None:
    """The dump and the log of four runs: with the prompt in one call, token by token, after a
    warm-up that is not told, and of two generations."""
    path = bench.folder / "decoder.pte"
    path.write_bytes(decoder_program())
    for name in ("at_once", "by_token", "warm", "twice"):
        app = App(path, by_token=name == "by_token")
        if name == "warm":
            app.generate(PROMPT, FURTHER, warm_up=True)
        app.generate(PROMPT, FURTHER)
        if name == "twice":
            app.generate(PROMPT // 2, FURTHER // 2)
        app.save(bench, name)
