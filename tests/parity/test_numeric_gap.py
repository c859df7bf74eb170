"""`calculate_numeric_gap` against ExecuTorch's own, wherever that gives an answer.

Ours has each of upstream's rows with the same gap, and more. What is meant to differ is named here;
`docs/appendix/differences.md` tells why.
"""

from __future__ import annotations

import importlib
import math
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import etscope
from tests.support.artifacts import artifacts
from tests.support.numeric_runs import ATEN, EDGE, inputs_of

upstream = pytest.importorskip("executorch.devtools")

NAMES = (
    "cnn_portable",
    "cnn_xnnpack",
    "cnn_xnnpack_int8",
    "cond",
    "int_outputs",
    "deconvolution",
    "replaced_operators",
    "many_delegates",
    "attention_xnnpack",
    "rewritten_state",
    "transformer",
    "transformer_portable",
    "recurrent_xnnpack",
)

# Where upstream gives no answer; `docs/appendix/differences.md` tells why.
UPSTREAM_FAILS = {
    ("transformer", ATEN): "Error computing",
    ("transformer", EDGE): "Error computing",
    ("transformer_portable", ATEN): "Error computing",
    ("transformer_portable", EDGE): "Error computing",
    ("recurrent_xnnpack", ATEN): "tuple index out of range",
    ("recurrent_xnnpack", EDGE): "tuple index out of range",
    ("cond", ATEN): "debug_handle",
    ("rewritten_state", ATEN): "Cannot use 'exported_program'",
}

# Rows of upstream that are wrong, by artefact and debug handles.
WRONG = {
    # outputs of a delegate, taken in the order of its handles
    "many_delegates": {(5, 6, 7, 8)},
}


@pytest.fixture(scope="module")
def with_inputs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The record of an artefact with the inputs of its first run, written by upstream."""
    folder = tmp_path_factory.mktemp("records")

    def path(name: str) -> Path:
        target = folder / f"{name}.etrecord"
        if not target.exists():
            record = upstream.parse_etrecord(str(artifacts(name).etrecord))
            record.update_representative_inputs(list(inputs_of(name)))
            record.save(str(target))
        return target

    return path


def frames(name: str, record: Path, distance: str, graph: str | None) -> tuple[Any, Any]:
    """(ours, upstream's); upstream's is the error when there is one."""
    made = artifacts(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        files = {"etdump_path": str(made.etdump), "debug_buffer_path": str(made.debug_buffer)}
        ours = etscope.Inspector(**files, etrecord=str(record))
        try:
            theirs = upstream.Inspector(**files, etrecord=str(record))
            expected = theirs.calculate_numeric_gap(distance, reference_graph=graph)
        except Exception as error:
            expected = error
        return ours.calculate_numeric_gap(distance, reference_graph=graph), expected


def same(one: float, other: float) -> bool:
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return one == other or math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-300)


# The pairs do not depend on the distance, and the distances are compared in test_numerics.py.
@pytest.mark.parametrize(
    ("name", "graph", "distance"),
    [
        *((name, graph, "MSE") for name in NAMES for graph in (ATEN, EDGE)),
        *(("int_outputs", ATEN, distance) for distance in ("L1", "SNR")),
    ],
)
def test_each_of_upstreams_gaps_is_there(
    name: str, graph: str, distance: str, with_inputs: Any
) -> None:
    ours, theirs = frames(name, with_inputs(name), distance, graph)
    assert len(ours)
    if (name, graph) in UPSTREAM_FAILS:
        assert isinstance(theirs, Exception) and UPSTREAM_FAILS[name, graph] in str(theirs)
        return
    assert list(ours.columns) == list(theirs.columns)
    assert len(ours) >= len(theirs)
    by_handles: dict[tuple[int, ...], list[float]] = {}
    for _, row in ours.iterrows():
        for handle in row["aot_debug_handle"]:
            by_handles.setdefault(handle, []).extend(row["gap"])
    missing = []
    for _, row in theirs.iterrows():
        handles = row["aot_debug_handle"]
        if handles in WRONG.get(name, ()):
            continue
        near = [gap for handle in handles for gap in by_handles.get(handle, [])]
        if not all(any(same(gap, own) for own in near) for gap in row["gap"]):
            missing.append((handles, row["aot_ops"][-1], row["gap"], sorted(set(near))[:9]))
    assert not missing


@pytest.mark.parametrize("name", ["int_outputs", "cnn_portable"])
def test_comparators_get_the_tuples_of_operators_with_several_outputs(
    name: str, with_inputs: Any
) -> None:
    """Each entry of upstream's mapping is in ours, with the same values."""
    made = artifacts(name)
    found: list[dict[Any, list[tuple[Any, Any]]]] = []
    for package in (upstream, etscope):
        comparators = importlib.import_module(f"{package.__name__}.inspector.numerical_comparator")
        mappings: list[Any] = []

        class Watching(comparators.MSEComparator):  # type: ignore[name-defined,misc]
            kept = mappings

            def preprocessing(self, mapping: Any) -> Any:
                self.kept.append(mapping)
                return mapping

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            package.Inspector(
                etdump_path=str(made.etdump),
                debug_buffer_path=str(made.debug_buffer),
                etrecord=str(with_inputs(name)),
            ).calculate_numeric_gap(Watching(), reference_graph=EDGE)
        entries: dict[Any, list[tuple[Any, Any]]] = {}
        for (handles, expected), (same, logged) in mappings[0].items():
            assert handles == same
            entries.setdefault(handles, []).append((expected, logged))
        found.append(entries)
    theirs, ours = found

    assert sum(isinstance(expected, tuple) for [(expected, _)] in theirs.values()) >= 3
    for handles, [(expected, logged)] in theirs.items():
        mine = ours[handles][-1]  # before it the views that share its handle
        for one, other in zip(mine, (expected, logged), strict=True):
            assert type(one) is type(other)
            torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_qualcomms_comparator_takes_operators_with_several_outputs(with_inputs: Any) -> None:
    qualcomm = pytest.importorskip(
        "executorch.backends.qualcomm.debugger.qcom_numerical_comparator_sample"
    )
    made, record = artifacts("int_outputs"), etscope.parse_etrecord(with_inputs("int_outputs"))
    inspector = etscope.Inspector(
        etdump_path=made.etdump, debug_buffer_path=made.debug_buffer, etrecord=record
    )

    comparator = qualcomm.QcomMSEComparator(record.edge_dialect_program)
    frame = inspector.calculate_numeric_gap(comparator, reference_graph=EDGE)

    assert [gap for gaps in frame["gap"] for gap in gaps] == [0.0] * 3
