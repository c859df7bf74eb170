"""State and memory by owner, against hand-computed bytes of real models."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from etscope.analysis.matching.export import Export
from etscope.analysis.memory.needs import (
    ACTIVATIONS,
    CALLERS,
    FRAGMENTS,
    INPUTS,
    PACKED,
    STATE_IN_DELEGATES,
    WEIGHTS_IN_PROGRAM,
    WEIGHTS_IN_PTD,
    context_section,
    lengths_up_to,
    memory_by_context,
    owner_tables,
    program_memory,
)
from etscope.analysis.memory.plan import memory_plans
from etscope.analysis.memory.size import size_files
from etscope.analysis.memory.state import KV_CACHE, OTHER_STATE, constant_methods, program_state
from etscope.analysis.memory.stored import MEASURED, OwnedBytes
from etscope.cli import main
from etscope.formats.etrecord.reader import read_etrecord
from etscope.formats.program.ptd import read_ptd
from etscope.formats.program.pte import Program, read_pte
from etscope.formats.program.pte_schema import KernelCall, ListValue, Value, ValueKind
from etscope.formats.run_json import DelegateMemory, MeasuredMemory
from tests.support.artifacts import artifacts
from tests.support.cli.fixtures import Run
from tests.support.formats.handmade import integer, method, pte_file, tensor, tensor_list

# Of the models of `artifact_recipes/caches.py`.
LAYERS, HEADS, HEAD_SIZE, CONTEXT, RING = 2, 2, 16, 32, 16
FLOAT, BYTE = 4, 1
A_LAYER = 2 * HEADS * HEAD_SIZE * FLOAT  # keys and values of one position


def sizes(owners: Sequence[OwnedBytes]) -> dict[str, int | None]:
    return {one.owner: one.size for one in owners}


def by_context(program: Program, *lengths: int) -> list[tuple[int, int]]:
    """The bytes of the KV cache, and of its next token, at each length."""
    memory = program_memory(Export(program))
    (group,) = memory.state.groups
    found = memory_by_context(memory, group, lengths)
    return [(one.kv_cache, one.per_token) for one in found]


# -- real models


def test_the_cache_of_a_llama() -> None:
    program = read_pte(artifacts("llama_shared_external").pte)
    token = LAYERS * A_LAYER
    lengths = (1, CONTEXT, 4096)
    assert by_context(program, *lengths) == [(token * length, token) for length in lengths]
    # A quantized one has its scales and zero points.
    program = read_pte(artifacts("llama_quantized_cache").pte)
    token = 2 * LAYERS * HEADS * (HEAD_SIZE * BYTE + FLOAT + BYTE)
    assert by_context(program, CONTEXT, 64) == [(token * CONTEXT, token), (token * 64, token)]


def test_a_window_stays_when_the_context_grows() -> None:
    program = read_pte(artifacts("llama_rings").pte)
    memory = program_memory(Export(program))
    found = memory_by_context(memory, ("forward",), (8, CONTEXT, 128))
    assert [one.kv_cache for one in found] == [
        2 * A_LAYER * 8,
        A_LAYER * (RING + CONTEXT),
        A_LAYER * (RING + 128),
    ]
    assert [one.per_token for one in found] == [2 * A_LAYER, A_LAYER, A_LAYER]
    assert [one.full_windows for one in found] == [0, A_LAYER * RING, A_LAYER * RING]
    planned = sizes(memory.methods["forward"])[ACTIVATIONS]
    assert [one.activations for one in found] == [None, planned, None]
    assert {one.other_state for one in found} == {RING * 8}  # the positions in the ring, int64


def test_names_come_from_the_record() -> None:
    files = artifacts("llama_rings")
    program = read_pte(files.pte)
    unnamed = program_state(Export(program)).methods["forward"]
    named = program_state(Export(program, read_etrecord(files.etrecord))).methods["forward"]
    assert {one.name for one in unnamed} == {None}
    assert [(one.name, one.kind, one.length) for one in named] == [
        ("layers.0.attention.kv_cache.k_cache", KV_CACHE, RING),
        ("layers.0.attention.kv_cache.v_cache", KV_CACHE, RING),
        ("layers.0.attention.kv_cache.cache_positions_manager.cache_positions", OTHER_STATE, None),
        ("layers.1.attention.kv_cache.k_cache", KV_CACHE, CONTEXT),
        ("layers.1.attention.kv_cache.v_cache", KV_CACHE, CONTEXT),
    ]
    assert [one.kind for one in unnamed] == [one.kind for one in named]
    assert [one.grows for one in named] == [False, False, None, True, True]


def test_what_methods_share_counts_once() -> None:
    files = artifacts("llama_shared_external")
    program, data = read_pte(files.pte), read_ptd(files.extra("weights.ptd"))
    memory = program_memory(Export(program, data=(data,)))
    assert memory.state.groups == (("decode", "prefill"),)
    assert memory.methods.keys() == {"decode", "prefill"}
    decode, prefill = sizes(memory.methods["decode"]), sizes(memory.methods["prefill"])
    together = sizes(memory.together)
    cache = LAYERS * A_LAYER * CONTEXT
    assert decode[KV_CACHE] == prefill[KV_CACHE] == together[KV_CACHE] == cache
    blobs = {entry.blob for entry in data.entries.values()}
    assert decode[WEIGHTS_IN_PTD] == together[WEIGHTS_IN_PTD] == sum(b.size for b in blobs)
    for owner in (ACTIVATIONS, PACKED):  # each method has its own
        assert together[owner] == (decode[owner] or 0) + (prefill[owner] or 0)


def test_without_its_ptd_what_xnnpack_has_there_is_not_known() -> None:
    files = artifacts("llama_shared_external")
    program, data = read_pte(files.pte), read_ptd(files.extra("weights.ptd"))
    known = sizes(program_memory(Export(program, data=(data,))).together)
    found = {one.owner: one for one in program_memory(Export(program)).together}
    tensors = sum(e.blob.size for e in data.entries.values() if e.scalar_type is not None)
    assert found[WEIGHTS_IN_PTD].size == tensors < (known[WEIGHTS_IN_PTD] or 0)
    assert found[f"{WEIGHTS_IN_PTD}, others"].known_by == "not known"
    assert found[PACKED].size is None


@pytest.mark.parametrize(
    "name", ["llama_rings", "llama_shared_external", "cnn_portable", "two_methods", "transformer"]
)
def test_owners_of_planned_memory_sum_to_it(name: str) -> None:
    program = read_pte(artifacts(name).pte)
    memory = program_memory(Export(program))
    plans = memory_plans(Export(program))
    assert memory.methods
    for one, owners in memory.methods.items():
        planned = (KV_CACHE, OTHER_STATE, ACTIVATIONS, INPUTS, FRAGMENTS)
        assert sum(sizes(owners).get(owner) or 0 for owner in planned) == plans[one].planned_bytes
        assert sizes(owners).get(WEIGHTS_IN_PROGRAM, 0) == plans[one].constant_bytes
        assert all(owner.size is None or owner.size > 0 for owner in owners)


def test_measured_copies_replace_the_estimate() -> None:
    program = read_pte(artifacts("cnn_xnnpack").pte)
    made = [DelegateMemory("forward", n, "XnnpackBackend", 1000, None) for n in range(2)]
    found = program_memory(Export(program), measured=MeasuredMemory((), tuple(made), ()))
    (packed,) = [one for one in found.methods["forward"] if one.owner == PACKED]
    assert (packed.size, packed.known_by) == (2000, MEASURED)
    unknown = [DelegateMemory("forward", 0, "XnnpackBackend", None, None)]
    found = program_memory(Export(program), measured=MeasuredMemory((), tuple(unknown), ()))
    (packed,) = [one for one in found.methods["forward"] if one.owner == PACKED]
    assert packed.known_by == "estimate"


# -- facts, one by one


def state(
    operator: str,
    args: tuple[int, ...],
    constants: dict[str, int],
    *,
    sizes: tuple[int, ...] = (1, 2, 32, 16),
    name: str | None = None,
    copies: Sequence[tuple[int, ...]] = (),
) -> dict[str, object]:
    """What is found of one buffer, which an operator writes, of a program with constant methods."""
    values: list[Value] = [
        tensor(*sizes, at=(1, 0), name=name),
        tensor(*sizes, at=(1, 65536)),
        tensor(1, at=(1, 131072)),
        ListValue(ValueKind.OPTIONAL_TENSOR_LIST, (-1, -1, 2)),
        integer(2),
        ListValue(ValueKind.OPTIONAL_TENSOR_LIST, (-1, 2, 2)),
        integer(-2),
    ]
    calls = [KernelCall(0, args), *(KernelCall(1, copied) for copied in copies)]
    operators = [operator, "aten::copy_"]
    made = method(values, calls, operators=operators, buffer_sizes=[0, 1 << 20])
    known = [
        method([integer(number)], name=constant, outputs=[0])
        for constant, number in constants.items()
    ]
    program = read_pte(pte_file(made, *known))
    assert constant_methods(program) == constants
    (found,) = [one for one in program_state(Export(program)).methods["forward"] if one.value == 0]
    return {"kind": found.kind, "dim": found.dim, "grows": found.grows}


CACHE = {"kind": KV_CACHE, "dim": 2, "grows": True}
UNSURE = {"kind": OTHER_STATE, "dim": None, "grows": None}
BACK = ((0, 1, 4, 0),)  # copy_(buffer, changed copy)
INDEX_PUT = ("aten::index_put.out", (0, 3, 2, 4, 1, 1))


INDEX_PUT_ = ("aten::index_put_", (0, 3, 2, 4, 0))
ADD = ("aten::add.out", (0, 2, 4, 1, 1))
SHORT = (1, 2, 24, 16)  # as long as nothing that is known


@pytest.mark.parametrize(
    ("operator", "args", "more", "expected"),
    [
        (*INDEX_PUT, {"copies": BACK}, CACHE),
        (*INDEX_PUT, {}, UNSURE),  # what is written does not come back
        ("aten::index_put.out", (0, 5, 2, 4, 1, 1), {"copies": BACK}, UNSURE),  # by two indices
        (*INDEX_PUT_, {}, CACHE),
        ("aten::index_copy.out", (0, 6, 2, 2, 1, 1), {"copies": BACK}, CACHE),
        ("aten::slice_scatter.out", (0, 2, 4, 4, 4, 4, 1, 1), {"copies": BACK}, CACHE),
        ("aten::select_scatter.out", (0, 2, 4, 4, 1, 1), {"copies": BACK}, CACHE),
        ("llama::update_cache.out", (2, 0, 4, 1, 1), {"sizes": (1, 32, 2, 16)},
         {**CACHE, "dim": 1}),
        (*INDEX_PUT_, {"sizes": SHORT}, {**UNSURE, "dim": 2}),
        (*INDEX_PUT_, {"sizes": SHORT, "name": "layers.0.k_cache"}, {**CACHE, "grows": False}),
        (*ADD, {}, UNSURE),
        (*ADD, {"name": "value_cache_3"}, CACHE),
        (*ADD, {"name": "cache_positions"}, UNSURE),
        (*ADD, {"name": "k_cache", "sizes": (1, 32, 32, 16)},  # two dimensions could be it
         {"kind": KV_CACHE, "dim": None, "grows": None}),
    ],
)  # fmt: skip
def test_a_cache_is_told_by_facts(
    operator: str, args: tuple[int, ...], more: dict[str, Any], expected: Mapping[str, object]
) -> None:
    constants = {"get_max_seq_len": 8, "get_max_context_len": 32}
    assert state(operator, args, constants, **more) == expected


def test_the_context_length_is_that_of_the_program_or_of_the_longest_cache() -> None:
    def of(constants: dict[str, int], **more: Any) -> dict[str, object]:
        return state(*INDEX_PUT, constants, copies=BACK, **more)

    assert of({"get_max_seq_len": 32}) == CACHE
    assert of({}) == {**UNSURE, "dim": 2}
    assert of({}, name="k_cache") == CACHE
    assert of({"get_max_context_len": 0, "get_max_seq_len": 32}) == CACHE


def test_what_a_program_does_not_hold() -> None:
    made = method(
        [tensor(4, at=(1, 0)), tensor(4, at=(1, 16))],
        delegates=[("CoreMLBackend", 0, 0)],
        inputs=[0],
        outputs=[1],
        buffer_sizes=[0, 32],
    )
    program = read_pte(pte_file(made, more={3: [{0: b"a stateful model"}]}))
    found = sizes(program_memory(Export(program)).methods["forward"])
    assert found[PACKED] is None
    assert found[STATE_IN_DELEGATES] is None
    # Inputs without a place are the caller's.
    program = read_pte(pte_file(method([tensor(2, 3)], inputs=[0], outputs=[0])))
    assert sizes(program_memory(Export(program)).methods["forward"]) == {CALLERS: 24}


def test_lengths() -> None:
    assert lengths_up_to(4096) == (32, 64, 128, 256, 512, 1024, 2048, 4096)
    assert lengths_up_to(100, 24) == (1, 2, 4, 8, 16, 24, 32, 64, 100)
    assert lengths_up_to(1) == (1,)


# -- on the command line


def test_info_shows_owners_and_the_growth(tmp_path: Path) -> None:
    files = artifacts("llama_shared_external")
    out = tmp_path / "memory.json"
    given = [str(files.pte), str(files.extra("weights.ptd")), "-r", str(files.etrecord)]
    assert main(["info", "--memory", "--context", "4096", *given, "-o", str(out)]) == 0
    found = json.loads(out.read_text())
    (report,) = found["reports"]  # the .ptd is the program's
    sections = report["sections"]
    assert list(sections)[:3] == ["memory_by_owner", "memory_by_context", "memory_state"]
    owners = sections["memory_by_owner"]
    total, parts = Counter[str](), Counter[str]()
    for row in owners:
        (total if row["owner"] == "total" else parts)[row["method"]] += row["size"] or 0
    assert total == parts and len(total) == 3
    last = sections["memory_by_context"][-1]
    assert last["context"] == 4096
    assert last["kv_cache"] == LAYERS * A_LAYER * 4096


def test_context_needs_memory_and_a_cache(run: Run) -> None:
    file = artifacts("cnn_portable").pte
    assert run("info", "--context", "64", file)[0] == 2
    code, _, err = run("info", "--memory", "--context", "64", file)
    assert code == 4 and "get_max_context_len" in err
    assert "no buffer of this program is known to grow" in " ".join(err.split())


def test_a_ptd_of_another_program_is_an_error() -> None:
    other = artifacts("external_portable").extra("weights.ptd")
    file = str(artifacts("llama_shared_external").pte)
    assert main(["info", "--memory", file, str(other)]) == 3
    assert main(["info", file, str(other)]) == 0  # each for itself
    assert main(["info", "--memory", str(other)]) == 2


def test_bounds_of_inputs_that_activations_are_planned_for_are_told() -> None:
    memory = program_memory(Export(read_pte(artifacts("llama_generate").pte)))
    notes = " ".join(context_section(memory, 256).table.notes)
    assert "up to int64[<=1, 128] of forward." in notes
    fixed = program_memory(Export(read_pte(artifacts("llama_rings").pte)))
    assert "up to" not in " ".join(context_section(fixed, 256).table.notes)


def test_tables_of_one_method() -> None:
    memory = program_memory(Export(read_pte(artifacts("llama_rings").pte)))
    owners, lengths = owner_tables(memory, "forward")
    assert sum(owners.values["size"][:-1]) == owners.values["size"][-1]
    assert lengths.values["context"][-1] == 8 * CONTEXT
    assert lengths.values["kv_cache"][-1] == A_LAYER * (RING + 8 * CONTEXT)
    assert owner_tables(memory, "get_max_seq_len") == ()
    (only,) = owner_tables(
        program_memory(Export(read_pte(artifacts("cnn_xnnpack").pte))), "forward"
    )
    assert f"{PACKED} (estimate)" in only.values["owner"]


def test_size_names_the_weights_of_a_llama_in_its_ptd() -> None:
    """Those of kernels, and those that XNNPACK asks for by hashes."""
    files = artifacts("llama_shared_external")
    paths = [files.pte, files.extra("weights.ptd")]
    _, ptd = size_files(paths, read_etrecord(files.etrecord))
    parts = {part.name: part for part in ptd.parts if part.kind == "weights"}
    assert {"model.model.embed_tokens.weight", "model.lm_head.weight"} < parts.keys()
    query = parts["model.model.layers.1.self_attn.q_proj.weight"]
    assert (query.module, query.size) == ("model.model.layers.1.self_attn.q_proj", 64 * 64 * FLOAT)
    assert query.shared_by == ("decode", "prefill")
    assert None not in parts
    assert sum(part.size for part in ptd.parts) == len(ptd.data)


def test_info_tells_who_asks_for_each_key(tmp_path: Path) -> None:
    files = artifacts("llama_shared_external")
    out = tmp_path / "info.json"
    both = [str(files.pte), str(files.extra("weights.ptd"))]
    assert main(["info", *both, "-o", str(out)]) == 0
    program, data = json.loads(out.read_text())["reports"]
    asked = {row["key"]: row for row in program["sections"]["external_keys"]}
    held = {row["key"]: row for row in data["sections"]["external_data"]}
    assert asked.keys() == held.keys() and len(held) > 10
    for key, row in held.items():
        assert row["asked_by"] == asked[key]["asked_by"] and row["asked_by"]
        assert row["bytes"] == asked[key]["bytes"]
    embedding = held["model.model.embed_tokens.weight"]
    assert embedding["asked_by"] == ["decode", "prefill"]


def test_tensor_lists_are_no_indices() -> None:
    """Arguments of the wrong kind say nothing."""
    values: list[Value] = [tensor(1, 32, at=(1, 0)), tensor_list(0), tensor(1, 32, at=(1, 256))]
    calls = [KernelCall(0, (0, 1, 2, 2)), KernelCall(1, (0, 1, 0, 2, 2))]
    made = method(
        values,
        calls,
        operators=["aten::index_put.out", "aten::index_copy.out"],
        buffer_sizes=[0, 512],
    )
    (one,) = program_state(Export(read_pte(pte_file(made)))).methods["forward"]
    assert (one.kind, one.dim) == (OTHER_STATE, None)
