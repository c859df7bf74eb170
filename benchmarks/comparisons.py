"""The measured comparisons: claims of the documentation, and the targets they must meet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks import etdb_dap, etdb_runtime
from benchmarks.datasets import evaluated
from benchmarks.debugger import completed, started, stepped
from benchmarks.delegate_events import decoded
from benchmarks.numerics import (
    OURS,
    UPSTREAM,
    command,
    diagnosis,
    eager,
    gap,
    gap_above,
    gap_process,
)
from benchmarks.report import painted, written
from benchmarks.running import large_debug_buffer, overhead
from benchmarks.side import Cost, measured, process
from benchmarks.size import sized, sized_cold
from tests.support.artifacts import Artifact, artifacts


@dataclass(frozen=True, slots=True)
class Comparison:
    """One row: `upstream` and `ours` measure the two sides. `target`: least ratio of the times."""

    title: str
    target: float
    upstream: Callable[[], Cost]
    ours: Callable[[], Cost]
    memory_target: float | None = None


@dataclass(frozen=True, slots=True)
class Limit:
    """One row without another side: our cost must be below `limit` seconds."""

    title: str
    limit: float | None
    ours: Callable[[], Cost]


def comparisons() -> dict[str, Comparison | Limit]:
    """All measurements by name; making their artefacts is up to whoever runs them."""
    return {
        "open_dump": Comparison(
            "`Inspector(etdump)`, 10,000 runs, more than 200,000 events",
            target=100,
            memory_target=5,
            upstream=lambda: _open(UPSTREAM, artifacts("large"), record=False, repeats=1),
            ours=lambda: _open(OURS, artifacts("large"), record=False, repeats=7),
        ),
        "open_record": Comparison(
            "`Inspector(etdump, etrecord)`, BERT base, XNNPACK, 110 M parameters",
            target=20,
            upstream=lambda: _open(UPSTREAM, artifacts("bert_base_xnnpack"), True, 1),
            ours=lambda: _open(OURS, artifacts("bert_base_xnnpack"), True, 3),
        ),
        "to_dataframe": Comparison(
            "`to_dataframe()`, more than 5,000 distinct events",
            target=20,
            upstream=lambda: _to_dataframe(UPSTREAM, repeats=3),
            ours=lambda: _to_dataframe(OURS, repeats=7),
        ),
        "cold_start": Comparison(
            "whole process: the table of a small dump with its record",
            target=15,
            upstream=lambda: _cold_start(
                ["-m", "executorch.devtools.inspector.inspector_cli", "--etdump_path"],
                "--etrecord_path",
                repeats=3,
            ),
            ours=lambda: _cold_start(["-m", "etscope", "inspect"], "--etrecord", repeats=10),
        ),
        **_numerics(),
        "dataset_64": Limit(
            "`evaluate()`: 64 samples run and compared, a CNN on portable kernels",
            None,
            lambda: evaluated("cnn_portable", 64),
        ),
        "dataset_512": Limit(
            "`evaluate()`: 512 samples", None, lambda: evaluated("cnn_portable", 512)
        ),
        "run_overhead": Comparison(
            "CPU of an iteration of `run()`, the bare bindings as the other side, a CNN of 2.5 ms",
            target=1 / 1.05,
            upstream=lambda: overhead(False, "cnn_portable"),
            ours=lambda: overhead(True, "cnn_portable"),
        ),
        **{
            f"delegate_events_{backend}": Limit(
                f"the profile's table of a dump with 1,000,000 events of {title}",
                2,
                partial(decoded, backend),
            )
            for backend, title in (("qnn", "QNN"), ("vulkan", "Vulkan"), ("coreml", "Core ML"))
        },
        "debug_buffer": Limit(
            "a debug buffer of 1.3 GB: open it, sum one tensor of 16 MiB", 0.1, large_debug_buffer
        ),
        "report": Limit(
            "CPU of `etscope report`: BERT base, XNNPACK, dump and record; at most 8 MiB",
            5,
            written,
        ),
        "report_painted": Limit(
            "first content of that report in headless Chromium, from opening the file", 2, painted
        ),
        "size": Limit("CPU of `etscope info --size`: a program of 3 GB with 224 weights", 1, sized),
        "size_cold": Limit(
            "`etscope info --size`, the process: 3 GB of random weights, nothing of them in memory",
            1,
            sized_cold,
        ),
        "etdb_start": Limit(
            "CPU of `etdb`, the whole process: BERT base, XNNPACK, at its first operator",
            1,
            started,
        ),
        "etdb_step": Limit("`etdb`: a step, a BERT of 4 layers on portable kernels", 0.01, stepped),
        "etdb_complete": Limit("`etdb`: a completion among 3,200 nodes", 0.1, completed),
        **_runtime(),
        "help": Limit("CPU of `etscope --help` above `python -c pass`", 0.1, _help),
        "open_20k": Limit("`Inspector(etdump)`, 20,000 events", None, lambda: _ours("large_20k")),
        "open_200k": Limit("`Inspector(etdump)`, 200,000 events", None, lambda: _ours("large")),
        "open_2m": Limit("`Inspector(etdump)`, 2,000,000 events", None, lambda: _ours("large_2m")),
    }


def _numerics() -> dict[str, Comparison | Limit]:
    """The numeric gap beside upstream's, and beside PyTorch's run of the model."""
    found: dict[str, Comparison | Limit] = {}
    models = {
        "cnn_portable": "a CNN, portable",
        "cnn_xnnpack": "a CNN, XNNPACK",
        "cnn_xnnpack_int8": "a CNN, XNNPACK int8",
        "llama_xnnpack": "a Llama, XNNPACK",
        "bert_portable": "BERT, 4 layers, portable",
        "bert_rows_xnnpack": "an encoder of BERT base's size, XNNPACK, 109 M parameters",
    }
    new = 'CPU of `calculate_numeric_gap("MSE")`, warm, of a new Inspector'
    ways: dict[str, tuple[str, Callable[[str, str, int], Cost]]] = {
        "": (new, gap),
        "_again": ("the same, of an Inspector that was asked before", partial(gap, again=True)),
        "_process": ("the same, of a whole process", lambda side, name, _: gap_process(side, name)),
    }
    for way, (title, cost) in ways.items():
        for name, what in models.items():
            ours = partial(cost, OURS, name, 10)
            target = 2 if name == "bert_rows_xnnpack" else 5
            found[f"numeric_gap{way}_{name}"] = (
                Limit(f"{title}: {what} (upstream fails)", None, ours)
                if name == "llama_xnnpack"
                else Comparison(
                    f"{title}: {what}",
                    target=1 if way == "_again" else target,
                    upstream=partial(cost, UPSTREAM, name, 5),
                    ours=ours,
                )
            )
    for name in ("bert_portable", "bert_rows_xnnpack"):  # others take less than 50 ms
        found[f"numeric_gap_eager_{name}"] = Comparison(
            f"the same, asked before, less 50 ms, PyTorch's run as the other side: {models[name]}",
            target=1 / 1.5,
            upstream=partial(eager, name),
            ours=partial(gap_above, name, 0.05),
        )
    base, bert = "bert_base_xnnpack", "BERT base, XNNPACK, 110 M parameters"
    return {
        **found,
        "numeric_gap_cold": Limit(
            f"the same, the first call of a process after imports: {bert} (upstream fails)",
            2,
            partial(gap, OURS, base, 1, warm_up=0),
        ),
        "diagnosis_bert": Comparison(
            f"CPU of `diagnose_numerics()`, asked before, PyTorch's run as the other side: {bert}",
            target=1 / 5,
            upstream=partial(eager, base),
            ours=partial(diagnosis, base),
        ),
        "numerics_process": Limit(
            "CPU of a whole process: `etscope numerics`, a CNN on portable kernels",
            2,
            partial(command, "cnn_portable"),
        ),
    }


def _runtime() -> dict[str, Comparison | Limit]:
    """Sides of the debugger on a running program; the other side is the program without it."""
    plain = "`target runtime`: a run without breakpoints, the plain runner as the other side, "
    return {
        "etdb_run": Comparison(
            f"{plain}a CNN on portable kernels",
            target=1 / 1.1,
            upstream=lambda: etdb_runtime.plain_run("cnn_portable"),
            ours=lambda: etdb_runtime.debugged_run("cnn_portable"),
        ),
        "etdb_run_transformer": Comparison(
            f"{plain}a transformer on portable kernels",
            target=1 / 1.1,
            upstream=lambda: etdb_runtime.plain_run("transformer_portable"),
            ours=lambda: etdb_runtime.debugged_run("transformer_portable"),
        ),
        "etdb_run_bert": Comparison(
            f"{plain}BERT base, XNNPACK",
            target=1 / 1.1,
            upstream=lambda: etdb_runtime.plain_run("bert_base_xnnpack"),
            ours=lambda: etdb_runtime.debugged_run("bert_base_xnnpack"),
        ),
        "etdb_watch": Comparison(
            "`target runtime`: such a run with `watch nan`, without it as the other side, a CNN",
            target=0.5,
            upstream=lambda: etdb_runtime.unwatched("cnn_portable"),
            ours=lambda: etdb_runtime.watched("cnn_portable"),
        ),
        "etdb_watch_transformer": Comparison(
            "such a run with `watch nan`, without it as the other side, a transformer",
            target=0.5,
            upstream=lambda: etdb_runtime.unwatched("transformer_portable"),
            ours=lambda: etdb_runtime.watched("transformer_portable"),
        ),
        "etdb_lock_step": Comparison(
            "`break if gap(sqnr) < -200` through a run of BERT base, XNNPACK; the run and then the "
            "reference as the other side",
            target=0.5,
            upstream=lambda: etdb_runtime.apart("bert_base_xnnpack"),
            ours=lambda: etdb_runtime.together("bert_base_xnnpack"),
        ),
        "etdb_step_runtime": Limit(
            "`step` of `target remote` on this machine, median of 1,000, a transformer on portable "
            "kernels",
            0.005,
            lambda: etdb_runtime.stepped(0.5),
        ),
        "etdb_step_runtime_p99": Limit(
            "the slowest of a hundred of them", 0.005, lambda: etdb_runtime.stepped(0.99)
        ),
        "etdb_dap_stop": Limit(
            "`etdb --dap`: a stop with stack and variables on the runtime, the 95th of a hundred, "
            "1,000 instructions",
            0.1,
            lambda: etdb_dap.shown("runtime"),
        ),
        "etdb_dap_tensor": Limit(
            "the same: a tensor of 100 MiB expanded", 0.2, lambda: etdb_dap.expanded("runtime")
        ),
    }


def _open(setup: str, made: Artifact, record: bool, repeats: int) -> Cost:
    linked = f", etrecord={str(made.etrecord)!r}" if record else ""
    # Ours makes its objects when they are asked for, so both sides ask for all of them.
    use = (
        "[(event.perf_data.avg, event.op_types)"
        " for block in result.event_blocks for event in block.events]"
    )
    return measured(
        setup,
        f"result = Inspector(etdump_path={str(_times(made))!r}{linked}); {use}",
        repeats=repeats,
    )


def _ours(name: str) -> Cost:
    return _open(OURS, artifacts(name), record=False, repeats=5)


def _times(made: Artifact) -> Path:
    """The dump that has times only, where there is one: profiling is done without outputs."""
    return made.etdump_timing or made.etdump


def _to_dataframe(setup: str, repeats: int) -> Cost:
    """One call on a fresh Inspector: ours makes its objects on demand, and pays for them here."""
    dump = str(_times(artifacts("wide")))
    return measured(
        setup,
        "result = inspector.to_dataframe()",
        prepare=f"import pandas\ninspector = Inspector(etdump_path={dump!r})",
        repeats=repeats,
    )


def _cold_start(command: list[str], record_flag: str, repeats: int) -> Cost:
    made = artifacts("cnn_xnnpack")
    return process(*command, str(_times(made)), record_flag, str(made.etrecord), repeats=repeats)


def _help() -> Cost:
    nothing = process("-c", "pass", repeats=10, cpu=True)
    ours = process("-m", "etscope", "--help", repeats=10, cpu=True)
    return Cost(ours.seconds - nothing.seconds)
