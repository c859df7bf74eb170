"""Real artefacts for the tests: seeded models, exported and run by ExecuTorch itself.

A test says ``artifacts("cnn_xnnpack")`` and gets the paths of a program, its ETRecord, its
ETDump and so on. What is made once stays in a cache folder (``$ETSCOPE_ARTIFACTS``, or
``.artifacts`` in the repository), in a folder whose name holds a hash of the sources it came
from, so an edited recipe is never answered by an old file.

Small ones are in git, packed (see ``tests/support/corpus.py``): they are unpacked, not built.

This module imports nothing but the standard library: each build runs in a process of its own
(see ``tests/support/artifact_recipes/__main__.py``), so a test that finds everything cached does
not pay for ``import torch``, and a crash of the runtime does not end the test run.

From a shell::

    python -m tests.support.artifacts cnn_portable two_methods   # build what is missing
    python -m tests.support.artifacts --all                      # everything, also the slow ones
    python -m tests.support.artifacts --list                     # what there is, and what is cached
    python -m tests.support.artifacts --prune                    # drop what older sources made
"""

from __future__ import annotations

import argparse
import ast
import atexit
import contextlib
import functools
import hashlib
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from tests.support import corpus

ROOT = Path(__file__).resolve().parents[2]

# Models of tests.support.explain.cases, seeded and clean, whose runs are explained.
EXPLAINED = """
    threshold shifted_windows threshold_among_int8 double_precision
    matrix_in_bfloat16 bfloat16_step fused_attention fused_causal_attention norm_in_parts
    softmax_in_parts GELU_by_erf transposed_weight expanded_weight scales_along_the_last
    repeated_heads mask_in_each_call positions_in_each_call flipped_rows_in_int8
    float_block_of_an_MLP portable_step many_experts cache_by_condition
    cache_that_moves float_weights_of_a_step eight_threads MLP residual_CNN mobile_CNN
    audio_encoder transformer_with_layer_norm causal_transformer vision_transformer decoder_step
    recurrent_step int8_CNN 8_bits_transformer
""".split()  # noqa: SIM905
# The models of tests/support/faults/small.py.
SMALL_FAULTS = ("FeedForward", "Convolutions", "Large", "OneLarge", "Embedded", "Attention")
# Many of one kind, by the function `make` of the module; or with files of their own.
FAMILIES: dict[str, str] = {
    **dict.fromkeys((f"fault_portable_{number}" for number in range(48)), "planted_faults"),
    **dict.fromkeys((f"fault_xnnpack_{number}" for number in range(12)), "planted_faults"),
    **dict.fromkeys((f"fault_taps_{number}" for number in range(12)), "planted_faults"),
    **dict.fromkeys((f"fault_kinds_{part}" for part in (*range(6), "inside")), "fault_kinds"),
    **dict.fromkeys((f"fault_small_{name}_portable" for name in SMALL_FAULTS), "small_faults"),
    **dict.fromkeys((f"fault_small_{name}_xnnpack" for name in SMALL_FAULTS), "small_faults"),
    **dict.fromkeys((
        "fault_int8", "fault_int8_calls", "fault_int8_dynamic", "fault_8da4w", "fault_fp16",
    ), "quantised_faults"),
    **dict.fromkeys((
        "net_portable", "net_xnnpack", "net_int8", "net_gelu_portable", "net_gelu_xnnpack",
        "net_twice", "net_layers_int8",
    ), "net_faults"),
    **dict.fromkeys((
        "values_convolutions_qnn_8", "values_convolutions_qnn", "values_attention_qnn_16",
        "values_sequences_qnn_8", "values_mobile_qnn_8", "values_convolutions_coreml",
        "values_attention_coreml", "values_mobile_coreml", "values_sequences_coreml",
        "values_kept_qnn_8", "values_vulkan", "values_vulkan_halves",
    ), "delegate_values"),
    **dict.fromkeys((
        "groups_32", "groups_of_rows", "groups_of_torchao", "groups_between_steps",
    ), "weights_by_group"),
    **dict.fromkeys((
        "xnnpack_convolutions", "xnnpack_linears", "xnnpack_linears_int8", "xnnpack_attention",
        "xnnpack_residuals", "xnnpack_residuals_int8", "xnnpack_elementwise", "xnnpack_shapes",
        "xnnpack_sound",
    ), "xnnpack_events"),
    **dict.fromkeys(("vulkan_fused", "vulkan_encoder", "qnn_without_map"), "delegate_lines"),
    **dict.fromkeys((f"explained_{case}" for case in EXPLAINED), "explained"),
    **{name: name for name in (
        "one_channel", "app_runs", "evaluated", "stateful", "quantization_cost", "llm_operators",
        "decoder_pair", "net_scan", "explained_graphs", "explained_threads", "bisected",
        "partitioned",
    )},
}  # fmt: skip
# name -> the module of tests/artifact_recipes that holds the function of that name
# (the longest builds first, so that none of them is left alone at the end)
RECIPES: dict[str, str] = {
    "bert_base_xnnpack": "bert",
    "bert_portable": "bert_portable",
    "bert_rows_xnnpack": "bert_rows",
    "wide": "scale",
    "large_2m": "scale",
    "cnn_portable": "cnn",
    "cnn_xnnpack": "cnn",
    "cnn_xnnpack_lowered": "cnn",
    "cnn_xnnpack_int8": "cnn",
    "cnn_portable_finetuned": "changed",
    "cnn_xnnpack_finetuned": "changed",
    "cnn_portable_inserted": "changed",
    "transformer": "transformer",
    "transformer_portable": "transformer",
    "deep_transformer": "deep_transformer",
    "llama_xnnpack": "llama",
    "decoders": "decoders",
    "two_methods": "methods",
    "forward_and_extra": "methods",
    "cond": "control_flow",
    "while_loop": "control_flow",
    "bf16_fp16": "values",
    "channels_last": "values",
    "varying_inputs": "values",
    "nan_output": "values",
    "inf_output": "values",
    "int_outputs": "values",
    "scalar_outputs": "values",
    "dynamic_shape": "values",
    "deconvolution": "lowering",
    "large_products": "products",
    "written_state": "lowering",
    "replaced_operators": "lowering",
    "attention_xnnpack": "numerics",
    "recurrent_xnnpack": "numerics",
    "many_delegates": "numerics",
    "batched_linear": "numerics",
    "rewritten_state": "numerics",
    "record_variants": "records",
    "bundled": "native_runs",
    "allocations": "native_runs",
    "program_outputs": "native_runs",
    "method_only": "native_runs",
    "empty_blocks": "native_runs",
    "large_20k": "scale",
    "large": "scale",
    "external_portable": "external",
    "external_xnnpack": "external",
    "llama_shared_external": "caches",
    "llama_rings": "caches",
    "llama_quantized_cache": "caches",
    "llama_generate": "language_models",
    "llama_custom_sdpa": "custom_attention",
    "llama_generate_8da4w": "quantised_language_models",
    "qwen_generate": "language_models",
    "gemma_generate": "language_models",
    "smollm_generate": "language_models",
    "vlm_generate": "language_models",
    "whisper_generate": "language_models",
    **FAMILIES,
}

# Minutes or gigabytes: for benchmarks and for tests that run each night.
SLOW = frozenset(
    {"bert_base_xnnpack", "bert_portable", "bert_rows_xnnpack", "large_2m"}
    | {f"fault_small_Large_{backend}" for backend in ("portable", "xnnpack")}
)
# One of each kind, for tests of readers that go over all there is.
VARIED = frozenset(RECIPES) - FAMILIES.keys() - SLOW

ABANDONED_SECONDS = 3600  # a build still unfinished after this long has been killed
UNAVAILABLE_EXIT = 75  # the child's exit code for "cannot be made on this machine"


class ArtifactUnavailable(Exception):
    """This machine cannot make the artefact (a reason to skip, not to fail)."""


class ArtifactFailed(Exception):
    """A recipe broke; the message ends with the last lines of its log."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """The files of one artefact; a path is None if the recipe makes no such file.

    ``inputs``, ``outputs`` and ``reference`` are ``.npz`` files with keys ``method/case/index``:
    what was fed, what the runtime gave back, what eager PyTorch gives. ``inputs_pt`` holds
    ``{method: [case, ...]}`` for torch, in every dtype and memory format. ``meta`` has the
    versions, the seconds, and ``runs``: the ``[method, case, repeats]`` really executed, in order.
    """

    name: str
    folder: Path
    pte: Path
    etdump: Path
    etrecord: Path | None
    debug_buffer: Path | None
    etdump_timing: Path | None
    bpte: Path | None
    inputs: Path | None
    inputs_pt: Path | None
    outputs: Path | None
    reference: Path | None
    meta: Mapping[str, Any]

    def extra(self, file: str) -> Path:
        """A file that only this artefact has, such as ``malformed.etdp``."""
        path = self.folder / file
        if not path.exists():
            held = ", ".join(sorted(child.name for child in self.folder.iterdir()))
            raise FileNotFoundError(f"{self.name} has no {file}; it has {held}")
        return path


def artifacts(name: str) -> Artifact:
    """The artefact, built first if the cache does not hold it."""
    outcome = _outcome(name)
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


@functools.cache
def _outcome(name: str) -> Artifact | ArtifactUnavailable:
    """Remembered either way: finding out that something is unavailable takes seconds, too."""
    try:
        return _artifact(name, _found_or_built(name))
    except ArtifactUnavailable as reason:
        return reason


def _found_or_built(name: str) -> Path:
    folder = _cached(name)
    if folder is None:
        with _locked(name):
            folder = _cached(name) or _unpacked(name) or _build(name)
    return folder


def is_packed(name: str) -> bool:
    """Whether git holds the artefact, of these sources and of the versions installed here."""
    return corpus.packed(name, source_hash(RECIPES[name]), versions()) is not None


def _unpacked(name: str) -> Path | None:
    """The finished folder, from the archive in git; None if git has none of these sources."""
    entry = corpus.packed(name, source_hash(RECIPES[name]), versions())
    if entry is None:
        return None
    folder = Path(tempfile.mkdtemp(prefix=f"building-{name}-", dir=cache_folder()))
    corpus.unpack(name, folder)
    return _finished(folder, _place(name, entry["versions"]))


def _place(name: str, of_versions: str) -> Path:
    """The folder of a finished artefact, of its sources as they are."""
    return cache_folder() / f"{name}-{of_versions}-{source_hash(RECIPES[name])}"


def _finished(folder: Path, final: Path) -> Path:
    folder.chmod(0o755)
    return folder.rename(final)


def cache_folder() -> Path:
    """Where artefacts are kept."""
    return Path(os.environ.get("ETSCOPE_ARTIFACTS") or ROOT / ".artifacts")


def _artifact(name: str, folder: Path) -> Artifact:
    def held(file: str) -> Path | None:
        path = folder / file
        return path if path.exists() else None

    return Artifact(
        name=name,
        folder=folder,
        pte=folder / "program.pte",
        etdump=folder / "etdump.etdp",
        etrecord=held("etrecord.bin"),
        debug_buffer=held("debug_output.bin"),
        etdump_timing=held("timing.etdp"),
        bpte=held("program.bpte"),
        inputs=held("inputs.npz"),
        inputs_pt=held("inputs.pt"),
        outputs=held("outputs.npz"),
        reference=held("reference.npz"),
        meta=json.loads((folder / "meta.json").read_text()),
    )


def _cached(name: str) -> Path | None:
    """The finished folder. Without torch, one that another environment has built will do."""
    installed = versions()
    if installed is not None:
        folder = _place(name, installed)
        return folder if folder.is_dir() else None
    found = sorted(cache_folder().glob(f"{name}-*-{source_hash(RECIPES[name])}"))
    return found[-1] if found else None


def versions() -> str | None:
    """The versions that artefacts depend on; None where torch or ExecuTorch is not installed."""
    try:
        return f"et{metadata.version('executorch')}-torch{metadata.version('torch')}"
    except metadata.PackageNotFoundError:
        return None


@functools.cache
def source_hash(module: str) -> str:
    """A hash of a recipe module, what it imports from here, and their C++."""
    digest = hashlib.sha256()
    for path in sorted(_sources(f"tests.support.artifact_recipes.{module}", set())):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _sources(module: str, seen: set[Path]) -> set[Path]:
    path = ROOT / (module.replace(".", "/") + ".py")
    if path in seen or not path.exists():
        return seen
    seen.add(path)
    native = path.with_suffix(".cpp")
    if native.exists():
        seen.add(native)
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module != "tests.support.artifacts":
            for imported in (node.module, *(f"{node.module}.{name.name}" for name in node.names)):
                if imported and imported.partition(".")[0] in ("tests", "benchmarks"):
                    _sources(imported, seen)
    return seen


@contextlib.contextmanager
def _locked(name: str) -> Iterator[None]:
    """One builder at a time; a second process waits and then finds the first one's folder."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    with open(cache_folder() / f"{name}.lock", "w") as file:
        if sys.platform != "win32":  # there, one process runs all tests
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(name: str) -> Path:
    """Run the recipe in a child, in a temporary folder that is renamed when it is whole."""
    installed = versions()
    if installed is None:
        raise ArtifactUnavailable(f"{name} is not cached, and torch or executorch is not installed")
    folder = Path(tempfile.mkdtemp(prefix=f"building-{name}-", dir=cache_folder()))
    started = time.perf_counter()
    try:
        _run_recipe(name, folder)
        _note_seconds(folder / "meta.json", time.perf_counter() - started)
        return _finished(folder, _place(name, installed))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _run_recipe(name: str, folder: Path) -> None:
    """In a process of its own, whose noise goes to ``build.log`` beside the artefact."""
    with _borrowed_builder() as builder:
        code = builder.run(name, folder)
    log = folder / "build.log"
    if code == UNAVAILABLE_EXIT:
        raise ArtifactUnavailable(f"{name}: {_tail(log.read_bytes(), lines=1)}")
    if code:
        raise ArtifactFailed(f"{name}: exit code {code}\n{_tail(log.read_bytes(), lines=30)}")


class _Builder:
    """A child that has imported torch and forks for every recipe; it ends with this process."""

    def __init__(self) -> None:
        self._noise = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the child)
        self._child = subprocess.Popen(
            [sys.executable, "-m", "tests.support.artifact_recipes"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._noise,
            text=True,
        )
        atexit.register(self._close)

    def run(self, name: str, folder: Path) -> int:
        """The exit code of the recipe."""
        assert self._child.stdin and self._child.stdout
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.write(json.dumps([RECIPES[name], name, str(folder)]) + "\n")
            self._child.stdin.flush()
        answer = self._child.stdout.readline()
        if not answer:
            self._noise.seek(0)
            raise ArtifactFailed(f"no recipe can run:\n{_tail(self._noise.read(), lines=30)}")
        return int(answer)

    def _close(self) -> None:
        self._child.communicate()
        self._noise.close()


_idle_builders: queue.SimpleQueue[_Builder] = queue.SimpleQueue()


@contextlib.contextmanager
def _borrowed_builder() -> Iterator[_Builder]:
    """An idle builder or a new one; one that has failed is not handed out again."""
    try:
        builder = _idle_builders.get_nowait()
    except queue.Empty:
        builder = _Builder()
    yield builder
    _idle_builders.put(builder)


def _note_seconds(meta: Path, seconds: float) -> None:
    """Measured here, so that the child's imports count."""
    facts = {"seconds": round(seconds, 1), **json.loads(meta.read_text())}
    meta.write_text(json.dumps(facts, indent=1) + "\n")


def _tail(log: bytes, *, lines: int) -> str:
    return "\n".join(log.decode(errors="replace").rstrip().splitlines()[-lines:])


def prune() -> list[Path]:
    """Remove what older sources or killed builds left behind."""
    current = {folder for name in RECIPES if (folder := _cached(name))}
    stale = [path for path in cache_folder().iterdir() if path not in current and _is_stale(path)]
    for path in stale:
        shutil.rmtree(path)
    return stale


def _is_stale(path: Path) -> bool:
    """Of what is not current: any finished folder, and a build that nobody works on any more."""
    if not path.name.startswith("building-"):
        return path.is_dir()
    return time.time() - path.stat().st_mtime > ABANDONED_SECONDS


def _megabytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.iterdir()) / 1e6


def _line(name: str, folder: Path | None) -> str:
    if folder is None:
        return f"{name:24} not built{' (slow)' if name in SLOW else ''}"
    meta = json.loads((folder / "meta.json").read_text())
    return (
        f"{name:24} {meta['seconds']:7.1f} s {_megabytes(folder):9.2f} MB "
        f"{meta['dump_runs']:>7,} runs {meta['dump_events']:>9,} events  {folder.name}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Build by name, build all, list, or prune."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--all", action="store_true", help="build all, also the slow ones")
    parser.add_argument("--fast", action="store_true", help="build all but the slow ones")
    parser.add_argument("--list", action="store_true", help="list the artefacts and build nothing")
    parser.add_argument("--jobs", type=int, default=2, help="builds at a time (default 2)")
    parser.add_argument("--prune", action="store_true", help="remove outdated folders")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in RECIPES]:
        parser.error(f"no such artefact: {', '.join(unknown)}; --list shows them")
    if options.prune:
        for path in prune():
            print(f"removed {path}")
    if options.list:
        for name in RECIPES:
            print(_line(name, _cached(name)))
    with ThreadPoolExecutor(options.jobs) as pool:
        fine = list(pool.map(_build_and_tell, _wanted(options)))
    return 0 if all(fine) else 1


def _wanted(options: argparse.Namespace) -> list[str]:
    if options.all:
        return list(RECIPES)
    if options.fast:
        return [name for name in RECIPES if name not in SLOW]
    return list(options.names)


def _build_and_tell(name: str) -> bool:
    try:
        print(_line(name, artifacts(name).folder), flush=True)
    except (ArtifactUnavailable, ArtifactFailed) as error:
        print(f"{name:24} {type(error).__name__}: {error}", flush=True)
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
