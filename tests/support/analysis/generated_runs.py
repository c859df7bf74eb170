"""Runs of language models with times as a test wants them: a dump and its run.json, written as the
runtime and `etscope generate` do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from etscope.formats.etdump.writer import ETDumpWriter
from etscope.formats.generation import (
    DECODE,
    PREFILL,
    Generation,
    GenerationCalls,
    GenerationPass,
    Sampler,
)
from etscope.formats.run_json import RUN_ETDP, RUN_JSON, encode_run_json

PROMPT, HOST, SAMPLING, AROUND = 6, 3_000, 2_000, 100
ONE, SEEING = ("forward",), ("vision_encoder", "token_embedding", "text_decoder")
# Of each method: kernel, and ns for one token.
KERNELS: dict[str, tuple[tuple[str, int], ...]] = {
    "forward": tuple((f"op{n}.out", 5_000 + 400 * n) for n in range(9)),
    "vision_encoder": (("convolution.out", 70_000),),
    "token_embedding": (("embedding.out", 1_000),),
    "text_decoder": tuple((f"op{n}.out", 5_000 + 400 * n) for n in range(9)),
}
GROWING = 3  # the instruction that grows


def generated_run(
    folder: Path,
    *,
    methods: Sequence[str] = ONE,
    decodes: int = 40,
    generations: int = 2,
    growth: float = 0.0,
    sigma: float = 0.01,
    noted: bool = True,
    temperature: float = 0.0,
) -> Path:
    """Write a run of the prompt and `decodes` decode calls, and return its dump.

    growth: ns that instruction `GROWING` takes longer for each token before it. sigma: of the
    log-normal noise. noted: write run.json.
    """
    random = np.random.default_rng(7)
    writer = ETDumpWriter(clock=lambda: 0)
    rows: list[tuple[int, int, int, int, int, int, int, int]] = []
    clock = 1_000_000
    for generation in range(generations):
        origin = clock
        calls = [(PREFILL, 0, PROMPT), *((DECODE, PROMPT + n, 1) for n in range(decodes))]
        for number, (phase, position, tokens) in enumerate(calls):
            ran = [name for name in methods if name != "vision_encoder" or number == 0]
            for name in ran:
                seen = name == "vision_encoder"
                begin = clock
                clock = _log(writer, name, clock, tokens, position, growth, sigma, random)
                place = (-1, 0) if seen else (position, tokens)
                which = 0 if seen else (PREFILL, DECODE).index(phase) + 1
                chosen = SAMPLING if name == ran[-1] else 0
                rows.append(
                    (generation, methods.index(name), which, *place, begin - origin,
                     clock - begin, chosen)
                )  # fmt: skip
                clock += chosen + HOST
    path = folder / RUN_ETDP
    writer.save(path)
    if noted:
        columns = np.array(rows, np.int64).T
        made = GenerationCalls(tuple(methods), ("vision_encoder", PREFILL, DECODE), *columns)
        # Without tracing all takes half as long but the choice of tokens.
        faster = GenerationCalls(
            made.methods, made.phases, *columns[:5], columns[5], columns[6] // 2, columns[7]
        )
        found = Generation(
            np.arange(PROMPT, dtype=np.int64),
            100 + np.arange(decodes + 1, dtype=np.int64),
            (GenerationPass(None, 5_000_000, faster), GenerationPass("times", 5_000_000, made)),
            runs=generations,
            stopped_by="length",
            sampler=Sampler(temperature),
            text="a text",
        )
        content = {"program": "model.pte", "generation": found.to_json()}
        (folder / RUN_JSON).write_bytes(encode_run_json(content))
    return path


def _log(
    writer: ETDumpWriter,
    method: str,
    clock: int,
    tokens: int,
    position: int,
    growth: float,
    sigma: float,
    random: np.random.Generator,
) -> int:
    """Write a call in a block of its own; return its end."""
    writer.create_event_block("Execute")
    begin = clock
    clock += AROUND
    for number, (kernel, ns) in enumerate(KERNELS[method]):
        grown = growth * position if number == GROWING else 0.0
        length = int((ns * max(tokens, 1) + grown) * random.lognormal(0, sigma))
        place = {"chain_index": 0, "instruction_id": number}
        writer.log_profiling(f"native_call_{kernel}", clock + 50, clock + 50 + length, **place)
        writer.log_profiling("OPERATOR_CALL", clock, clock + 100 + length, **place)
        clock += 100 + length
    writer.log_profiling("Method::execute", begin, clock + AROUND, chain_index=-1, instruction_id=0)
    return clock + AROUND
