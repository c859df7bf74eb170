"""The artefacts are what they claim to be: ExecuTorch made them, and upstream's tools open them,
which each night shows."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import artifacts as module
from tests.support.artifacts import RECIPES, ROOT, VARIED, Artifact, ArtifactUnavailable
from tests.support.every_artifact import every_artifact
from tests.support.upstream_oracle import opened_by_upstream

FAST = [name for name in RECIPES if name in VARIED]
SLOW = sorted(module.SLOW - module.FAMILIES.keys())
EACH = [*every_artifact(), *(pytest.param(name, marks=pytest.mark.nightly) for name in SLOW)]

# What upstream's Inspector (1.5.1) cannot open, and why.
LANGUAGE_MODELS = tuple(name for name in RECIPES if name.endswith("_generate"))
LANGUAGE_MODELS += ("llama_generate_8da4w", "llama_custom_sdpa")
_UNEQUAL = "AssertionError: Tensors Debug Data is different. Expected to be equal."
UPSTREAM_FAILS = {
    # It looks up the maps of "forward", whatever the methods are called.
    "two_methods": "KeyError: 'forward'",
    # A record of several methods holds a dict, which it takes for a program.
    "forward_and_extra": "AttributeError: 'dict' object has no attribute 'graph_module'",
    # It takes runs with equal events for repetitions and wants equal tensors.
    "varying_inputs": _UNEQUAL,
    **dict.fromkeys(LANGUAGE_MODELS, _UNEQUAL),
    # The same comparison, where NaN is not equal to NaN.
    "nan_output": _UNEQUAL,
    # The record's writer takes constants among the outputs, its reader does not.
    "scalar_outputs": "SerializeError: Unable to deserialize output node Argument(as_bool=True)",
    # It knows profile events and debug events only.
    "allocations": "ValueError: Unable to find populated event",
}
# Run with the file of their weights: the recipe compares the outputs.
EXTERNAL = ("external_portable", "external_xnnpack")
# Upstream takes twenty seconds for 200,000 events.
# Language models are compared with transformers' own cache in tests/integration/export, those of
# `caches` are there for their plans.
CACHES = ("llama_shared_external", "llama_rings", "llama_quantized_cache")
FOR_UPSTREAM = [name for name in FAST if name not in ("large", *EXTERNAL, *CACHES)]

# Runs in the dump; the first is the loading of the program (one for each method).
RUNS = {
    "two_methods": 2 + 5,
    "forward_and_extra": 2 + 4,
    "cond": 1 + 4,
    "varying_inputs": 1 + 4,
    "bundled": 1 + 8,
    "empty_blocks": 1 + 2 + 2,
    "attention_xnnpack": 1 + 1,
    "recurrent_xnnpack": 1 + 1,
    "many_delegates": 1 + 1,
    "batched_linear": 1 + 1,
    "rewritten_state": 1 + 1,
    "cnn_portable_finetuned": 1 + 1,
    "cnn_xnnpack_finetuned": 1 + 1,
    "cnn_portable_inserted": 1 + 1,
    "external_portable": 1 + 1,
    "external_xnnpack": 1 + 1,
    "bert_portable": 1 + 1,
    "bert_rows_xnnpack": 1 + 1,
    **dict.fromkeys(("decoders", "llama_shared_external"), 1 + 1),
    **dict.fromkeys(("llama_rings", "llama_quantized_cache"), 1 + 1),
    **dict.fromkeys(("llama_generate", "llama_generate_8da4w", "gemma_generate"), 1 + 6),
    "llama_custom_sdpa": 1 + 6,
    "qwen_generate": 1 + 14,
    "smollm_generate": 2 + 6,
    "vlm_generate": 3 + 14,
    "whisper_generate": 2 + 7,
    "wide": 1 + 2,
    "large_20k": 1 + 1_000,
    "large": 1 + 10_000,
    "large_2m": 1 + 100_000,
}
USUAL_RUNS = (1 + 3, 1 + 5)


def built(name: str) -> Artifact:
    """The artefact, or a skip where this machine cannot make it."""
    try:
        return module.artifacts(name)
    except ArtifactUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def upstream() -> dict[str, Any]:
    """All fast artefacts that can be had, opened by upstream's Inspector in one process."""
    return opened_by_upstream([name for name in FOR_UPSTREAM if _available(name)])


def _available(name: str) -> bool:
    try:
        return bool(module.artifacts(name))
    except ArtifactUnavailable:
        return False


def test_asking_for_a_cached_artefact_imports_no_torch() -> None:
    built("two_methods")
    code = (
        "import sys; from tests.support.artifacts import artifacts; artifacts('two_methods')\n"
        "print([name for name in ('torch', 'executorch', 'numpy') if name in sys.modules])"
    )
    child = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert child.stdout.strip() == "[]"


@pytest.mark.parametrize("name", EACH)
def test_builds_and_says_what_it_ran(name: str) -> None:
    artifact = built(name)
    assert artifact.pte.stat().st_size and artifact.etdump.stat().st_size
    assert artifact.etrecord and artifact.etrecord.stat().st_size
    expected = (RUNS[name],) if name in RUNS else USUAL_RUNS
    assert artifact.meta["dump_runs"] in expected
    executed = sum(repeats for _, _, repeats in artifact.meta.get("runs", ()))
    assert executed <= artifact.meta["dump_runs"]


@pytest.mark.parametrize("name", EACH)
def test_runtime_agrees_with_eager_pytorch(name: str) -> None:
    artifact = built(name)
    if name in (*EXTERNAL, *CACHES, *LANGUAGE_MODELS):
        return
    assert artifact.outputs and artifact.reference
    outputs, reference = np.load(artifact.outputs), np.load(artifact.reference)
    assert sorted(outputs) == sorted(reference) and len(outputs)
    for key in reference:
        np.testing.assert_allclose(outputs[key], reference[key], rtol=1e-2, atol=1e-4, err_msg=key)


@pytest.mark.nightly
@pytest.mark.parametrize("name", FOR_UPSTREAM)
def test_upstream_opens_it_or_fails_as_known(name: str, upstream: dict[str, Any]) -> None:
    artifact, report = built(name), upstream[name]
    assert report.get("error") == UPSTREAM_FAILS.get(name)
    if "error" not in report:
        blocks = report["blocks"]
        executed = sum(block["runs"] for block in blocks if block["name"] == "Execute")
        assert executed == sum(repeats for _, _, repeats in artifact.meta["runs"])


@pytest.mark.nightly
def test_bundled_runs_carry_their_index(upstream: dict[str, Any]) -> None:
    built("bundled")
    found = [block["bundled_input_index"] for block in upstream["bundled"]["blocks"]]
    assert found == [-1, 0, 1, 2, 3]


@pytest.mark.nightly
def test_branches_make_two_blocks(upstream: dict[str, Any]) -> None:
    counts = [block["events"] for block in upstream["cond"]["blocks"][1:]]
    assert len(set(counts)) == 2


@pytest.mark.nightly
def test_loop_repeats_instructions(upstream: dict[str, Any]) -> None:
    """Upstream keeps the last of equal events, so it shows fewer than the dump holds."""
    shown = sum(block["events"] * block["runs"] for block in upstream["while_loop"]["blocks"])
    assert built("while_loop").meta["dump_events"] > 2 * shown


@pytest.mark.nightly
def test_wide_has_thousands_of_distinct_events(upstream: dict[str, Any]) -> None:
    assert upstream["wide"]["blocks"][1]["events"] >= 5_000


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "tensors", "outputs"),
    [("program_outputs", 0, 1), ("method_only", 24, 1), ("bf16_fp16", 0, 0)],
)
def test_debug_levels(name: str, tensors: int, outputs: int, upstream: dict[str, Any]) -> None:
    built(name)
    block = upstream[name]["blocks"][1]
    assert (block["tensors"], block["outputs"]) == (tensors, outputs)


@pytest.mark.nightly
def test_large_is_large() -> None:
    assert built("large").meta["dump_events"] >= 200_000


def _fake_build(monkeypatch: pytest.MonkeyPatch, cache: Path, builds: list[str]) -> None:
    """A recipe that takes no time and notes that it ran."""

    def run(name: str, folder: Path) -> None:
        builds.append(name)
        (folder / "meta.json").write_text(json.dumps({"runs": []}))

    monkeypatch.setenv("ETSCOPE_ARTIFACTS", str(cache))
    monkeypatch.setenv("ETSCOPE_CORPUS", "off")
    monkeypatch.setattr(module, "_run_recipe", run)


def test_two_askers_build_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    builds: list[str] = []
    _fake_build(monkeypatch, tmp_path, builds)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(module._found_or_built, ["cond"] * 4))
    assert builds == ["cond"]
    assert len(set(found)) == 1


def test_a_failed_build_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(name: str, folder: Path) -> None:
        (folder / "program.pte").write_bytes(b"half")
        raise module.ArtifactFailed(name)

    _fake_build(monkeypatch, tmp_path, [])
    monkeypatch.setattr(module, "_run_recipe", fail)
    with pytest.raises(module.ArtifactFailed):
        module._found_or_built("cond")
    assert [path.name for path in tmp_path.iterdir()] == ["cond.lock"]


def test_a_recipe_that_breaks_shows_its_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """``picture`` is a function of the module, but no recipe."""
    built("cnn_portable")
    monkeypatch.setenv("ETSCOPE_ARTIFACTS", str(tmp_path))
    monkeypatch.setitem(RECIPES, "picture", "cnn")
    with pytest.raises(module.ArtifactFailed, match=r"(?s)picture: exit code 1\n.*Traceback.*seed"):
        module._found_or_built("picture")


def test_a_build_of_older_sources_is_not_taken_and_pruned(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    builds: list[str] = []
    _fake_build(monkeypatch, tmp_path, builds)
    monkeypatch.setattr(module, "source_hash", lambda _: "old")
    old = module._found_or_built("cond")
    monkeypatch.setattr(module, "source_hash", lambda _: "new")
    new = module._found_or_built("cond")
    assert old != new and builds == ["cond", "cond"]
    assert module.prune() == [old]
    assert new.is_dir()


@pytest.mark.parametrize("arguments", [["no_such_artefact"], ["--all", "--jobs", "none"]])
def test_wrong_arguments_are_refused(arguments: Sequence[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        module.main(arguments)
    assert stop.value.code == 2
