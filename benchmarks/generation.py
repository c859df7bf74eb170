"""4,096 recorded calls of a 30-layer language model: opening the dump, tables, the report's page.

    python -m benchmarks.generation [--calls 4096] [--layers 30] [--keep FOLDER]

The dump has the shape of a Llama that ExecuTorch's export_llm lowers to XNNPACK with its custom
operators: in each layer two delegate calls with 20 operators, two updates of the cache and the
attention. Each time is measured in a process of its own; "command" is `etscope inspect` as a user
runs it, with the start of Python. A run.json lies beside the dump, as `etscope generate` writes it.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.side import measured
from etscope.formats.etdump.writer import ETDumpWriter
from etscope.formats.generation import DECODE, PREFILL, Generation, GenerationCalls, GenerationPass
from etscope.formats.run_json import RUN_ETDP, RUN_JSON, encode_run_json
from etscope.units import format_bytes, format_count

CALLS, LAYERS, PROMPT = 4096, 30, 64
# Times of a decode call, in ns: the whole grows by that of the attention's growth.
_OPERATOR, _GEMM, _ATTENTION, _GROWTH, _AROUND = 4_000, 30_000, 20_000, 12, 600

Ints = npt.NDArray[np.int64]
# name, identifier inside a delegate, instruction, ns, ns for each token before
Event = tuple[str | None, str | None, int, int, int]

_SETUP = """
from etscope.analysis.tables.profile_table import grouped_table, profile_table
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.trace import Trace
from etscope.formats.etdump.reader import read_etdump
from etscope.units import TimeScale
"""
_TABULATE = """
trace = Trace(read_etdump({path!r}))
scale = Scale(TimeScale.NS, TimeScale.MS)
profiles = trace.profiles()
assert sum(len(one.runs) for one in profiles) == {calls}
result = [profile_table(one, scale) for one in profiles]
"""
_PAGE = """
from pathlib import Path
from etscope.capture.files import runs_of_files
from etscope.reporting.report import ReportOptions, report_inputs
from etscope.views.page import document_of
"""
_DOCUMENT = """
runs = runs_of_files([{path!r}])
result = document_of(list(report_inputs(runs, ReportOptions(numerics=False))))
"""


def write_run(folder: Path, calls: int = CALLS, layers: int = LAYERS) -> Path:
    """Write run.etdp and run.json of a prompt and `calls` - 1 decode calls; return the dump."""
    events = _events(layers)
    position = np.array([0, *range(PROMPT, PROMPT + calls - 1)], np.int64)
    random = np.random.default_rng(0)
    writer = ETDumpWriter(clock=lambda: 0)
    writer.create_event_block("Execute")
    for name, identifier, instruction, *_ in events:
        place = {"chain_index": -1 if instruction < 0 else 0, "instruction_id": max(instruction, 0)}
        if identifier is not None:
            writer.log_profiling_delegate(identifier, 0, 0, **place)
        else:
            writer.log_profiling(str(name), 0, 0, **place)
    starts, ends = _times(events, position, random)
    writer.repeat_block(starts, ends)
    writer._blocks.pop(0)  # the pattern itself
    writer.save(folder / RUN_ETDP)
    total = (ends[:, -1] - starts[:, -1]).astype(np.int64)
    (folder / RUN_JSON).write_bytes(encode_run_json({"generation": _noted(position, total)}))
    return folder / RUN_ETDP


def _events(layers: int) -> list[Event]:
    """The events of a call in the order in which they end."""
    events: list[Event] = []
    instruction = 0

    def operator(name: str, ns: int, growth: int = 0) -> None:
        nonlocal instruction
        events.append((f"native_call_{name}", None, instruction, ns, growth))
        events.append(("OPERATOR_CALL", None, instruction, ns + _AROUND, growth))
        instruction += 1

    def delegate(parts: list[tuple[str, int]]) -> None:
        nonlocal instruction
        events.extend(
            (None, f"{name} #{n + 1}", instruction, ns, 0) for n, (name, ns) in enumerate(parts)
        )
        whole = sum(ns for _, ns in parts)
        events.append(("DELEGATE_CALL", None, instruction, whole + _AROUND, 0))
        instruction += 1

    gemm, small = ("Fully Connected (NC, F32) GEMM", _GEMM), ("Multiply (ND)", _OPERATOR)
    operator("embedding.out", _OPERATOR)
    for _ in range(layers):
        delegate([small] * 4 + [gemm] * 3 + [small] * 3)
        operator("llama::update_cache.out", _OPERATOR)
        operator("llama::update_cache.out", _OPERATOR)
        operator("llama::custom_sdpa.out", _ATTENTION, _GROWTH)
        delegate([gemm] + [small] * 4 + [gemm] * 3 + [small] * 2)
    delegate([small, gemm])
    events.append(("Method::execute", None, -1, 0, 0))
    return events


def _times(
    events: list[Event], position: Ints, random: np.random.Generator
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Starts and ends, [calls, events]."""
    ns = np.array([event[3] for event in events], np.float64)
    growth = np.array([event[4] for event in events], np.float64)
    length = ns + growth * position[:, None]
    length *= random.lognormal(0, 0.02, length.shape)
    length[position == 0] *= 20  # the prompt
    # A call begins where the last one ended, what is inside of it at its beginning.
    is_call = np.array([event[0] in ("OPERATOR_CALL", "DELEGATE_CALL") for event in events])
    group = np.cumsum(np.concatenate(([0], is_call[:-1])))
    starts = np.zeros_like(length)
    clock = np.zeros(len(position))
    for number in range(int(group[-1])):
        mine = np.flatnonzero(group == number)
        inner, call = mine[:-1], mine[-1]
        inside = np.cumsum(length[:, inner], axis=1)
        length[:, call] = inside[:, -1] + _AROUND
        starts[:, call] = clock
        starts[:, inner] = clock[:, None] + inside - length[:, inner] + _AROUND / 2
        clock = clock + length[:, call]
    length[:, -1] = clock + _AROUND
    begins = np.cumsum(length[:, -1] + 50_000) - length[:, -1]
    starts = (starts + begins[:, None]).astype(np.uint64)
    return starts, starts + length.astype(np.uint64)


def _noted(position: Ints, total: Ints) -> dict[str, object]:
    calls = len(position)
    zeros, ones = np.zeros(calls, np.int64), np.ones(calls, np.int64)
    start = np.cumsum(total + 50_000) - total
    noted = GenerationCalls(
        methods=("forward",),
        phases=(PREFILL, DECODE),
        run=zeros,
        method=zeros,
        phase=np.minimum(np.arange(calls), 1),
        position=position,
        tokens=np.where(position == 0, PROMPT, 1),
        start_ns=start,
        execute_ns=total,
        sampling_ns=ones * 9_000,
    )
    passes = (GenerationPass(None, 1_000_000, noted), GenerationPass("times", 1_000_000, noted))
    tokens = np.arange(PROMPT, dtype=np.int64), np.arange(calls, dtype=np.int64) % 512
    return Generation(*tokens, passes, context_length=PROMPT + calls).to_json()


def main() -> None:
    """Print seconds and peak memory of each step."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--layers", type=int, default=LAYERS)
    parser.add_argument("--keep", type=Path, help="write the run to this folder, and leave it")
    parser.add_argument("--cpu", action="store_true", help="CPU seconds, on a busy machine")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        dump = write_run(folder, options.calls, options.layers)
        events = options.calls * len(_events(options.layers))
        size = format_bytes(dump.stat().st_size)
        print(f"{options.calls:,} calls, {format_count(events)} events, {size}")
        names = {"path": str(dump), "calls": options.calls}
        for what, setup, code in (
            ("open and tabulate", _SETUP, _TABULATE.format(**names)),
            ("the report's document", _PAGE, _DOCUMENT.format(**names)),
        ):
            cold = measured(setup, code, repeats=1, cpu=options.cpu)
            again = measured(setup, code, repeats=3, cpu=options.cpu)
            print(
                f"{what:24} {cold.seconds:6.2f} s, again {again.seconds:.2f} s"
                f"  {format_bytes(cold.peak)}",
                flush=True,
            )
        start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "etscope", "inspect", str(dump), "-n", "20"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        wall = time.perf_counter() - start
        print(f"{'etscope inspect':24} {wall:6.2f} s, of the CPU {cpu:.2f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
