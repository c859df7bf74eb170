"""Remedies of `etscope explain`, applied as they are written: a command is run, a patch is made."""

from __future__ import annotations

import shlex
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from etscope.cli._app import main
from etscope.etrecord import ETRecord, parse_etrecord
from etscope.explain import explain
from etscope.export import Source, load_model
from etscope.model.finding import Finding, Remedy, Severity
from etscope.run import run
from tests.support.explain import edits, edits_of_sequences

FILES = {name: Path(str(one.__file__)) for one in (edits, edits_of_sequences) for name in one.PAIRS}
PAIRS = {**edits.PAIRS, **edits_of_sequences.PAIRS}
THREADS, ROUNDS, ITERATIONS = 2, 5, 25
FIRST = 3


@dataclass(frozen=True)
class Planted:
    """An inefficiency of a pair of models.

    rules: those that are right about it. export, run: options. fast: options of the fast export.
    has_other_numbers: the remedy changes them.
    """

    rules: str
    export: Mapping[str, Any] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)
    fast: Mapping[str, Any] = field(default_factory=dict)
    has_other_numbers: bool = False


_PORTABLE, _XNNPACK = {"backend": "portable"}, {"backend": "xnnpack"}
_OUTSIDE = "outside-delegates"
CASES: dict[str, Planted] = {
    "convnext_gelu": Planted("lost-fusion"),
    "convnext_tanh_gelu": Planted("lost-fusion"),
    "convnext_gamma": Planted("layout-conversions"),
    "convnext_mirror": Planted(
        "cancelling-quantization",
        {"quantize": "int8"},
        fast={"quantize": "int8", "passes": ["cancel_qdq"]},
        has_other_numbers=True,
    ),
    "excitation_flat_mean": Planted(_OUTSIDE),
    "excitation_hand_swish": Planted("lost-fusion"),
    "excitation_where": Planted(_OUTSIDE),
    "excitation_dropout": Planted(_OUTSIDE, has_other_numbers=True),
    "excitation_pool": Planted(_OUTSIDE),
    "excitation_portable": Planted("not-delegated", _PORTABLE, fast=_XNNPACK),
    "swin_roll": Planted(_OUTSIDE),
    "swin_bias": Planted("runtime-constants"),
    "mixer_hand_norm": Planted("lost-fusion"),
    "mixer_double": Planted("untaken-types"),
    "mixer_cube": Planted(_OUTSIDE),
    "mixer_transposed": Planted("layout-conversions needless-copies"),
    "mixer_alpha": Planted(_OUTSIDE),
    "mixer_threads": Planted("threads", run={"threads": 8}),
    "mixer_portable": Planted("not-delegated", _PORTABLE, fast=_XNNPACK),
    "shufflenet_chunk": Planted(_OUTSIDE),
    "shufflenet_index": Planted(_OUTSIDE),
    "shufflenet_parts": Planted("unrolled-loops"),
    "wavenet_1d": Planted("layout-conversions"),
    "wavenet_split": Planted(_OUTSIDE),
    "segmentation_bicubic": Planted(_OUTSIDE, has_other_numbers=True),
    "narrow_channels_first": Planted("layout-conversions", fast={"passes": ["channels_last"]}),
    "pointnet_norm_first": Planted("lost-fusion"),
    "nerf_frequencies": Planted("runtime-constants"),
    "nerf_portable": Planted("not-delegated", _PORTABLE, fast=_XNNPACK),
    "perceiver_attention": Planted("lost-fusion"),
    "perceiver_products": Planted("needless-copies"),
    "perceiver_softmax": Planted("lost-fusion"),
    "perceiver_heads": Planted("unrolled-loops small-operators outside-delegates"),
    "graph_weights": Planted("runtime-constants"),
    "tower_softmax": Planted(_OUTSIDE),
    "tower_scan": Planted(_OUTSIDE),
    "rotary_copied": Planted("rewritten-buffers", fast={"passes": ["reinplace"]}),
    "rotary_assigned": Planted("rewritten-buffers", fast={"passes": ["reinplace"]}),
    "rotary_chosen": Planted("rewritten-buffers", fast={"passes": ["reinplace"]}),
    "rotary_moved": Planted("rewritten-buffers", fast={"passes": ["reinplace"]}),
    "wide_step": Planted("memory-bound", fast={"quantize": "8da4w"}, has_other_numbers=True),
    "padded_tokens": Planted("padded-inputs", has_other_numbers=True),
}


@dataclass(frozen=True)
class Tried:
    """What came of a case. rank: of the finding, from 1. ratio: of the slow model's time to the
    fast one's; gain: to that with the remedy. remedy: the first that was applied; None if none can
    be. numbers: SQNR of its outputs, dB."""

    rank: int | None
    ratio: float
    gain: float | None
    remedy: Remedy | None
    numbers: float | None
    findings: Sequence[Finding]


def tried(name: str, folder: Path) -> Tried:
    """Export and run a case, explain it, and apply the first remedy that can be pasted."""
    case = CASES[name]
    source = FILES[name].read_text()
    spec = model_file(folder / "slow", source, name)
    slow = record_of(load_model(spec), **{**_XNNPACK, **case.export})
    source = Source(name, name, *PAIRS[name].made(is_slow=False))
    fast = record_of(source, **{**_XNNPACK, **case.export, **case.fast})
    with run(
        slow, warmup=3, iterations=40, isolate=False, **{"threads": THREADS, **case.run}
    ) as ran:
        (method,) = explain(ran.trace)
    found = [one for one in method.findings if one.severity is not Severity.PROBLEM]
    rank = next((at for at, one in enumerate(found, 1) if one.kind in case.rules.split()), None)
    remedies = () if rank is None else (found[rank - 1].explanation or _NONE).remedies
    remedy = next((one for one in remedies if one.paste), None)
    ratio = _ratio((slow, case.run), (fast, {}))
    if remedy is None:
        return Tried(rank, ratio, None, None, None, found)
    new, options = applied(remedy.paste, slow, case.run, folder)
    gain = _ratio((slow, case.run), (new, options))
    return Tried(rank, ratio, gain, remedy, sqnr(slow, new), found)


class _NONE:
    remedies: tuple[Remedy, ...] = ()


def applied(
    paste: str, slow: ETRecord, options: Mapping[str, Any], folder: Path
) -> tuple[ETRecord, Mapping[str, Any]]:
    """Do what a remedy says; return the new program, and the options of its runs."""
    made = folder / "new"
    *lines, last = paste.splitlines()
    words = shlex.split(last) if last.startswith("etscope") else []
    patch = lines if words else [*lines, last]
    if words[:2] == ["etscope", "run"]:
        return slow, {"threads": int(words[-1])}
    if patch:
        path = Path(slow.export_words[0].rpartition(":")[0])
        spec = model_file(folder / "patched", _patched(path.read_text(), patch), None)
        words = ["etscope", "export", spec, *(words[3:] or slow.export_words[1:])]
    with redirect_stdout(StringIO()) as output, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert main([*words[1:], "-o", str(made)]) == 0, output.getvalue()
    return parse_etrecord(str(made / "model.etrecord")), options


def _patched(source: str, patch: Sequence[str]) -> str:
    lines, changes = source.splitlines(), iter(patch)
    for where, old, new in zip(changes, changes, changes, strict=True):
        at = int(where.rpartition(":")[2]) - 1
        assert lines[at].strip() == old[2:], (lines[at], old)
        indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
        lines[at] = indent + new[2:]
    return "\n".join(lines) + "\n"


def model_file(folder: Path, source: str, name: str | None) -> str:
    """Write a file with the models, and `make` for one of them; return what names it."""
    folder.mkdir(parents=True)
    more = "" if name is None else f"\n\ndef make():\n    return PAIRS[{name!r}].made()\n"
    path = folder / "model.py"
    path.write_text(source + more)
    return f"{path}:make"


def record_of(source: Source, **options: Any) -> ETRecord:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is not delegated, and of buffers that are written
        return source.export(**options).record


def _ratio(*sides: tuple[ETRecord, Mapping[str, Any]]) -> float:
    """How many times longer the first takes: the least of the medians of runs that take turns."""
    least = [float("inf")] * 2
    for _ in range(ROUNDS):
        for at, (record, options) in enumerate(sides):
            with _timed(record, options) as ran:
                least[at] = min(least[at], float(ran.latency.p50_ns))
    return least[0] / least[1]


def _timed(record: ETRecord, options: Mapping[str, Any], iterations: int = ITERATIONS) -> Any:
    given = {"threads": THREADS, **options}
    return run(record, warmup=3, iterations=iterations, isolate=False, trace=False, **given)


def sqnr(slow: ETRecord, new: ETRecord) -> float | None:
    """The SQNR of the first output against the slow model's; None if they differ in shape."""
    outputs = []
    for record in (slow, new):
        with run(record, warmup=0, iterations=1, isolate=False, trace=False) as ran:
            outputs.append(np.asarray(ran.arrays[0][-1], np.float64))
    before, after = outputs
    if before.shape != after.shape:
        return None
    noise = float(((before - after) ** 2).sum())
    return float("inf") if not noise else 10 * float(np.log10((before**2).sum() / noise))


def report(names: Sequence[str], folder: Path) -> Iterator[str]:
    """Try cases, and tell what came of each."""
    for name in names:
        try:
            one = tried(name, folder / name)
        except Exception as error:
            yield f"{name}: {type(error).__name__}: {error}"
            continue
        gain = "no remedy to paste" if one.gain is None else f"remedy {one.gain:.2f} x"
        numbers = "" if one.numbers is None else f", {one.numbers:.0f} dB"
        yield f"{name}: rank {one.rank}, fast {one.ratio:.2f} x, {gain}{numbers}"
        if one.remedy is not None:
            yield from (f"    {line}" for line in one.remedy.paste.splitlines())
        else:
            yield from (
                f"    {number} {found.sentence}" for number, found in enumerate(one.findings, 1)
            )


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as made:
        for line in report(sys.argv[1:] or list(CASES), Path(made)):
            print(line, flush=True)
