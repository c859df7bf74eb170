"""Remedies of `etscope explain`, applied as they are written: a command is run, a patch is made."""

from __future__ import annotations

import shlex
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
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
from tests.support.explain import edits, edits_of_others, edits_of_sequences

_FILES = (edits, edits_of_sequences, edits_of_others)
FILES = {name: Path(str(one.__file__)) for one in _FILES for name in one.PAIRS}
PAIRS = {name: pair for one in _FILES for name, pair in one.PAIRS.items()}
# One thread, as two of them wait for each other under load.
THREADS, ROUNDS, ITERATIONS = 1, 6, 15
FIRST = 3
HELPS = 1.02  # times faster: less is noise


@dataclass(frozen=True)
class Planted:
    """An inefficiency of a pair of models.

    rules: those that are right about it. export, run: options. fast: options of the fast export.
    """

    rules: str
    export: Mapping[str, Any] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)
    fast: Mapping[str, Any] = field(default_factory=dict)


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
    ),
    "excitation_flat_mean": Planted(_OUTSIDE),
    "excitation_hand_swish": Planted("lost-fusion"),
    "excitation_where": Planted(_OUTSIDE),
    "excitation_dropout": Planted(_OUTSIDE),
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
    "segmentation_bicubic": Planted(_OUTSIDE),
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
    "wide_step": Planted("memory-bound", fast={"quantize": "8da4w"}),
    "padded_tokens": Planted("padded-inputs"),
    # Written without a look at the rules.
    "keywords_gates": Planted("unrolled-loops small-operators needless-copies"),
    "style_norm": Planted(f"lost-fusion {_OUTSIDE}"),
    "recommender_one_hot": Planted(_OUTSIDE),
    "captions_of_all": Planted("unused-results"),
    "temporal_weight_norm": Planted(f"runtime-constants {_OUTSIDE}"),
    "capsules_length": Planted(_OUTSIDE),
    "depth_slices": Planted(f"unused-results {_OUTSIDE}"),
    "series_masked_fill": Planted(_OUTSIDE),
    "resnext_paths": Planted(f"unrolled-loops small-operators {_OUTSIDE}"),
    "samples_softplus": Planted(_OUTSIDE),
}


@dataclass(frozen=True)
class Tried:
    """What came of a case. rank: of the finding, from 1. remedy: the first that was applied; None
    if none can be. gain: how many times faster it is. fast: how many times faster the fast model
    is, measured if the remedy does not help. numbers: SQNR of the new outputs, dB."""

    rank: int | None
    findings: Sequence[Finding]
    remedy: Remedy | None = None
    gain: float | None = None
    fast: float | None = None
    numbers: float | None = None

    @property
    def is_right(self) -> bool:
        """True if the finding is among the first, and its remedy helps."""
        return (self.rank or FIRST + 1) <= FIRST and (self.gain or 0.0) >= HELPS


def tried(name: str, folder: Path) -> Tried:
    """Export and run a case, explain it, and apply the first remedy that can be pasted."""
    case = CASES[name]
    spec = model_file(folder / "slow", FILES[name].read_text(), name)
    slow = record_of(load_model(spec), **{**_XNNPACK, **case.export})
    with run(
        slow, warmup=3, iterations=40, isolate=False, **{"threads": THREADS, **case.run}
    ) as ran:
        (method,) = explain(ran.trace)
    found = [one for one in method.findings if one.severity is not Severity.PROBLEM]
    rank = next((at for at, one in enumerate(found, 1) if one.kind in case.rules.split()), None)
    explanation = None if rank is None else found[rank - 1].explanation
    remedies = () if explanation is None else explanation.remedies
    remedy = next((one for one in remedies if one.paste), None)
    model, inputs = PAIRS[name].made(is_slow=False)
    has_same = [one.shape for one in inputs] == [one.shape for one in PAIRS[name].made()[1]]
    one = Tried(rank, found, remedy)
    if remedy is not None:
        new, options = applied(remedy.paste, slow, case.run, folder)
        given = None if has_same else inputs
        gain = _ratio((slow, case.run), (new, {**options, "inputs": given}))
        one = replace(one, gain=gain, numbers=sqnr(slow, new, given))
    if one.is_right:
        return one
    fast = record_of(Source(name, name, model, inputs), **{**_XNNPACK, **case.export, **case.fast})
    return replace(one, fast=_ratio((slow, case.run), (fast, {})))


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
    """How many times longer the first takes: the least times of runs that take turns."""
    least = [float("inf")] * 2
    for _ in range(ROUNDS):
        for at, (record, options) in enumerate(sides):
            with _timed(record, ITERATIONS, **options) as ran:
                least[at] = min(least[at], float(ran.latency.samples_ns.min()))
    return least[0] / least[1]


def _timed(record: ETRecord, iterations: int, **options: Any) -> Any:
    given = {"threads": THREADS, "trace": False, "isolate": False, "warmup": 2, **options}
    return run(record, iterations=iterations, **given)


def sqnr(slow: ETRecord, new: ETRecord, inputs: Any = None) -> float | None:
    """The SQNR of the first output against the slow model's; None if they differ in shape.

    inputs: of the new program, by default those of its record."""
    outputs = []
    for record, given in ((slow, None), (new, inputs)):
        with _timed(record, 1, inputs=given) as ran:
            outputs.append(np.asarray(ran.arrays[0][-1], np.float64))
    before, after = outputs
    if before.shape != after.shape:
        return None
    noise = float(((before - after) ** 2).sum())
    return float("inf") if not noise else 10 * float(np.log10((before**2).sum() / noise))


def report(names: Sequence[str], folder: Path) -> Iterator[str]:
    """Try cases, and tell what came of each."""
    right = named = 0
    for name in names:
        try:
            one = tried(name, folder / name)
        except Exception as error:
            yield f"{name}: {type(error).__name__}: {error}"
            continue
        named += (one.rank or FIRST + 1) <= FIRST
        right += one.is_right
        gain = "no remedy to paste" if one.gain is None else f"remedy {one.gain:.2f} x"
        numbers = "" if one.numbers is None else f", {one.numbers:.0f} dB"
        fast = "" if one.fast is None else f", fast {one.fast:.2f} x"
        yield f"{'' if one.is_right else 'NOT '}{name}: rank {one.rank}, {gain}{numbers}{fast}"
        lines = [] if one.remedy is None else one.remedy.paste.splitlines()
        yield from (f"    {line}" for line in lines)
        for number, found in enumerate(() if one.is_right else one.findings, 1):
            yield f"    {number} {found.sentence}"
            for remedy in () if found.explanation is None else found.explanation.remedies:
                yield f"      - {remedy.text}"
    yield f"{named} of {len(names)} named in the first {FIRST}, {right} of {len(names)} right"


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as made:
        for line in report(sys.argv[1:] or list(CASES), Path(made)):
            print(line, flush=True)
