"""What ExecuTorch's own export of language models gives: the program, and its record."""

from __future__ import annotations

import importlib.util
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from etscope.analysis.profile.trace import Trace
from etscope.errors import ExportFailure, UsageError
from etscope.etrecord import parse_etrecord
from etscope.export import load_model
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.etrecord.reader import read_etrecord
from etscope.formats.program.pte import read_pte
from etscope.run import generate
from tests.support.artifact_recipes import custom_attention
from tests.support.artifacts import artifacts


def test_a_program_says_what_its_model_says_without_a_cache() -> None:
    made, model = artifacts("llama_custom_sdpa"), custom_attention.llama().eval()
    assert made.inputs is not None
    assert made.outputs is not None
    inputs, outputs = np.load(made.inputs), np.load(made.outputs)
    seen, said = torch.empty((1, 0), dtype=torch.int64), []
    for method, case, _ in made.meta["runs"]:
        tokens, position = (torch.from_numpy(inputs[f"{method}/{case}/{i}"]) for i in (0, 1))
        assert int(position) == seen.shape[1]
        seen = torch.cat([seen, tokens], dim=1)
        said.append(torch.from_numpy(outputs[f"{method}/{case}/0"]))
        with torch.no_grad():
            assert torch.allclose(said[-1], model(seen), atol=1e-3)
    assert seen.shape == (1, custom_attention.PROMPT + custom_attention.STEPS)
    assert not torch.allclose(said[1], said[2])  # the position counts


def test_its_record_is_whole() -> None:
    made = artifacts("llama_custom_sdpa")
    assert made.etrecord is not None
    record = parse_etrecord(str(made.etrecord))
    assert record.program_buffer() == made.pte.read_bytes()
    assert [tuple(one.shape) for one in record._representative_inputs] == [(1, 3), (1,)]
    (expected,) = record._reference_outputs["forward"][0]
    with torch.no_grad():
        logits = custom_attention.llama().eval()(record._representative_inputs[0])
    assert torch.allclose(expected, logits, atol=1e-3)
    partition = record.partition["forward"]
    # The first partitioner takes linear layers that quantize their inputs, of which there are none.
    assert [one.backend for one in partition.partitionings] == ["XnnpackBackend"] * 2
    assert {call.backend for call in partition.calls} == {"XnnpackBackend"}


def test_its_operators_have_modules_and_lines() -> None:
    made = artifacts("llama_custom_sdpa")
    assert made.etrecord is not None
    record, program = read_etrecord(made.etrecord), read_pte(made.pte)
    profiles = Trace(read_etdump(made.etdump_timing), record=record, program=program).profiles()
    assert profiles  # of two phases, if the lengths of the calls tell them
    for profile in profiles:
        rows = [row for row in profile.rows if row.name == "llama::custom_sdpa.out"]
        modules = [row.attribution.module for row in rows]
        assert modules == [f"layers.{layer}.attention.SDPA" for layer in range(2)]
        assert {Path(line.file).name for row in rows for line in row.attribution.lines} == {
            "sdpa.py"
        }


def test_it_generates_on_both_runners() -> None:
    """The native one takes the library of the wheel, after Python's, whose names that needs."""
    made, context = artifacts("llama_custom_sdpa"), custom_attention.CONTEXT
    options: dict[str, Any] = {"prompt_length": 16, "iterations": 1, "warmup": 0, "end_tokens": ()}
    run = generate(made.pte, max_new_tokens=context - 15, trace=False, **options)
    found = run.generation
    assert found.stopped_by == "length"
    assert len(found.generated_tokens) == context - 15  # the last is not fed back
    with torch.no_grad():
        seen = torch.from_numpy(np.concatenate([found.prompt_tokens, found.generated_tokens]))
        model = custom_attention.llama().eval()
        for place in (16, 17, 100, 200, context):  # as the whole text without a cache gives it
            assert int(model(seen[None, :place]).argmax()) == int(seen[place])

    folder, name = (sysconfig.get_config_var(one) for one in ("LIBDIR", "INSTSONAME"))
    executorch = importlib.util.find_spec("executorch")
    assert executorch is not None
    (package,) = executorch.submodule_search_locations or ()
    kernels = [*Path(package, "extension/llm/custom_ops").glob("*custom_ops_aot_lib.*")]
    libraries = [Path(str(folder), str(name)), *kernels]
    if len(libraries) < 2 or not all(library.is_file() for library in libraries):
        pytest.skip("this Python, or this ExecuTorch, has no such library")
    same = generate(
        made.pte, max_new_tokens=40, trace=False, runner="native", libraries=libraries, **options
    )
    assert same.generation.generated_tokens.tolist() == found.generated_tokens[:40].tolist()


@pytest.mark.parametrize("field", ["export_only", "foundation_weights_file", "lora_weights_file"])
def test_what_a_program_and_its_record_cannot_hold(field: str, tmp_path: Path) -> None:
    path = custom_attention.write_config(tmp_path)
    path.write_text(path.read_text().replace("export:\n", f"export:\n  {field}: true\n"))
    with pytest.raises(UsageError, match=rf"export\.{field} in .*llm\.yaml cannot be kept"):
        load_model(str(path)).export()


def test_what_fails_inside(tmp_path: Path) -> None:
    path = custom_attention.write_config(tmp_path)
    (tmp_path / "params.json").write_text("{}")
    with pytest.raises(ExportFailure, match="export_llm fails: "):
        load_model(str(path)).export()
