"""The generations of a job as plain numbers: a row for each prompt, and the times that histories,
A/B jobs and comparisons judge.

A row is plain JSON, times in ms:

    prompt              its name: "128 tokens of seed 0", "prompts.txt, line 2"
    prompt_sha256       of its ids, as `tokens_sha256`
    prompt_tokens, generated_tokens, context_length, stopped_by
    load_ms             reading the program and loading its methods, median of all processes
    cold, warm          processes of one generation; timed generations in one process
    cold_first_token_p50_ms, cold_first_token_p90_ms   of a new process, with the load
    first_token_p50_ms, first_token_p90_ms             warm
    prefill_tokens_per_s, decode_tokens_per_s          mean rates; of the phases
    token_p50_ms, token_p90_ms, token_p95_ms           from one token to the next
    growth_ns, growth_low_ns, growth_high_ns, grows    of that time, for each position
    sampling_share, host_share, peak_rss_bytes
    tokens_sha256       of the generated ids, as text, separated by commas
    phases              [{phase, calls, tokens, time_ms, tokens_per_s, p50_tokens_per_s,
                        p95_tokens_per_s, share}]

What is not known is None.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.generation.pace import Pace, phase_table
from etscope.errors import FormatError
from etscope.formats.generation import DECODE, PREFILL, Generation, GenerationPass
from etscope.formats.run_json import SavedRun
from etscope.model.statistics import statistic
from etscope.model.table import Column, Kind

EXECUTION, SUSTAINED, TOKEN, FIRST_TOKEN, COLD_FIRST_TOKEN, ENERGY = (
    "execution", "sustained execution", "token", "first token", "cold first token", "energy",
)  # fmt: skip
"""Names of the times of a job: of a method's executions, of a sustained load's, of generations; and
of the energy of an execution."""

COLD_STARTS = "cold_starts"  # key of a prompt's run.json: [{"load_ns", "first_token_ns"}]
PROMPT = "prompt"  # key of a prompt's run.json: the name of the prompt
_MS = 1e6  # ns
_IN_HISTORY = {
    TOKEN: ("token_p50_ms", "token_p90_ms"),
    FIRST_TOKEN: ("first_token_p50_ms", "first_token_p90_ms"),
    COLD_FIRST_TOKEN: ("cold_first_token_p50_ms", "cold_first_token_p90_ms"),
}

Ints = npt.NDArray[np.int64]


def prompt_file(number: int, name: str) -> str:
    """Return the name of a job's file for a prompt: "run.json" of the first one, and of the next
    one "prompt-1.run.json"."""
    return name if number == 0 else f"prompt-{number}.{name}"


def _ms(name: str, title: str, **more: Any) -> Column:
    return Column(name, Kind.DURATION, "ms", title, **more)


COLUMNS = (  # of a table of the rows, in order
    Column("prompt"),
    Column("prompt_tokens", Kind.COUNT, title="in", priority=1),
    Column("generated_tokens", Kind.COUNT, title="out", priority=1),
    _ms("load_ms", "load", priority=2),
    _ms("cold_first_token_p50_ms", "cold first token", priority=1),
    _ms("first_token_p50_ms", "first token"),
    Column("prefill_tokens_per_s", Kind.FLOAT, "tokens/s", "prefill"),
    Column("decode_tokens_per_s", Kind.FLOAT, "tokens/s", "decode"),
    _ms("token_p50_ms", "token p50"),
    _ms("token_p95_ms", "token p95", priority=1),
    Column("growth_ns", Kind.FLOAT, "ns/token", "growth", priority=2),
    Column("grows", Kind.BOOL, priority=3),
    Column("sampling_share", Kind.SHARE, title="sampling", priority=4),
    Column("host_share", Kind.SHARE, title="host", priority=4),
    Column("peak_rss_bytes", Kind.BYTES, title="peak memory", priority=3),
    Column("stopped_by", priority=4),
    Column("tokens_sha256", title="tokens", priority=5),
)


PHASES = (  # of a table of the phases of a row
    Column("phase"),
    Column("calls", Kind.COUNT),
    Column("tokens", Kind.COUNT),
    _ms("time_ms", "time"),
    Column("tokens_per_s", Kind.FLOAT, "tokens/s", "mean"),
    Column("p50_tokens_per_s", Kind.FLOAT, "tokens/s", "p50", priority=1),
    Column("p95_tokens_per_s", Kind.FLOAT, "tokens/s", "p95", priority=1),
    Column("share", Kind.SHARE, priority=2),
)


def generation_row(
    prompt: str, generation: Generation, cold: Sequence[GenerationPass], peak_rss: int | None
) -> dict[str, Any]:
    """Return the row of a prompt.

    generation: the result of the process that generated several times. cold: the results of the
    processes that generated once.
    """
    warm = generation.passes[0]
    pace = Pace.of(warm)
    rates = {phase.phase: phase.mean_rate for phase in pace.phases}
    return {
        PROMPT: prompt,
        "prompt_sha256": _digest(generation.prompt_tokens),
        "prompt_tokens": len(generation.prompt_tokens),
        "generated_tokens": len(generation.generated_tokens),
        "context_length": generation.context_length,
        "stopped_by": generation.stopped_by,
        "load_ms": float(np.median([one.load_ns for one in (*cold, warm)])) / _MS,
        "cold": len(cold),
        "warm": generation.runs,
        **_percentiles("cold_first_token", _cold_ns(cold), ("p50", "p90")),
        **_percentiles("first_token", pace.first_token_ns, ("p50", "p90")),
        "prefill_tokens_per_s": rates.get(PREFILL),
        "decode_tokens_per_s": rates.get(DECODE),
        **_percentiles("token", pace.inter_token_ns, ("p50", "p90", "p95")),
        **_growth(pace),
        "sampling_share": pace.sampling_share,
        "host_share": pace.host_share,
        "peak_rss_bytes": peak_rss,
        "tokens_sha256": _digest(generation.generated_tokens),
        "phases": _phases(pace),
    }


def _digest(ids: Ints) -> str:
    return hashlib.sha256(",".join(map(str, ids.tolist())).encode()).hexdigest()


def drawn_prompt(length: int, seed: int) -> str:
    """Return the name of a prompt that is drawn from a seed."""
    return f"{length} tokens of seed {seed}"


def _cold_ns(cold: Sequence[GenerationPass]) -> Ints:
    first = [(one.load_ns, one.cold_first_token_ns) for one in cold]
    return np.array([load + ns for load, ns in first if ns is not None], np.int64)


def _percentiles(name: str, times: Ints, wanted: Sequence[str]) -> dict[str, float | None]:
    return {
        f"{name}_{one}_ms": statistic(times, one) / _MS if len(times) else None for one in wanted
    }


def _growth(pace: Pace) -> dict[str, Any]:
    fit = pace.growth
    names = ("growth_ns", "growth_low_ns", "growth_high_ns", "grows")
    if fit is None:
        return dict.fromkeys(names)
    found = (float(fit.slope[0]), float(fit.low[0]), float(fit.high[0]), bool(fit.grows[0]))
    return dict(zip(names, found, strict=True))


def _phases(pace: Pace) -> list[dict[str, Any]]:
    table = phase_table(pace)
    names = {
        "time": "time_ms",
        "rate_mean": "tokens_per_s",
        "rate_p50": "p50_tokens_per_s",
        "rate_p95": "p95_tokens_per_s",
    }
    heads = [names.get(name, name) for name in table.names]
    return [dict(zip(heads, row, strict=True)) for row in table.rows()]


def rows_of(summary: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the rows of a job's summary; [] for a job without generations."""
    found = summary.get("generation") or []
    return [row for row in found if isinstance(row, Mapping)]


def times_of(row: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return the times of a row that a history has, by name: `p50_ms` and `p90_ms`."""
    found = {}
    for name, keys in _IN_HISTORY.items():
        p50, p90 = (row.get(key) for key in keys)
        if isinstance(p50, (int, float)) and isinstance(p90, (int, float)):
            found[name] = {"p50_ms": float(p50), "p90_ms": float(p90)}
    return found


def samples_of(run: SavedRun) -> dict[str, Ints]:
    """Return the samples of an untraced generation, ns, by the name of the time: the most important
    one first. {} for a run of another kind. Raises `FormatError` for a damaged run.json."""
    generation = run.generation
    untraced = None if generation is None else generation.of_pass(None)
    if untraced is None:
        return {}
    pace = Pace.of(untraced)
    starts = run.top.entries(COLD_STARTS)
    cold = [sum(one.get(name).whole() for name in _COLD_KEYS) for one in starts]
    samples = {
        TOKEN: pace.inter_token_ns,
        FIRST_TOKEN: pace.first_token_ns,
        COLD_FIRST_TOKEN: np.array(cold, np.int64),
    }
    return {name: found for name, found in samples.items() if len(found)}


_COLD_KEYS = ("load_ns", "first_token_ns")


def cold_starts(cold: Sequence[GenerationPass]) -> list[dict[str, int]]:
    """Return the cold processes for a prompt's run.json."""
    return [
        {"load_ns": one.load_ns, "first_token_ns": one.cold_first_token_ns}
        for one in cold
        if one.cold_first_token_ns is not None
    ]


def prompt_of(run: SavedRun) -> str:
    """Return the name of the prompt of a job's run.json."""
    found = run.text(PROMPT)
    if found is None:
        raise FormatError("a generation of a job has no prompt")
    return found
