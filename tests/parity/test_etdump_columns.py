"""Every column of every small artefact against flatc's decoding of the same file."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import pytest

from etscope.formats.etdump.reader import ETDump, EventKind, TensorRef, read_etdump
from tests.support.artifacts import VARIED, ArtifactUnavailable, artifacts

pytest.importorskip("executorch.devtools")

from executorch.devtools.etdump.serialize import deserialize_from_etdump_flatcc

NAMES = sorted(VARIED - {"large"})
_UNSET = -1


@pytest.fixture(scope="module", params=NAMES)
def both(request: pytest.FixtureRequest) -> tuple[ETDump, Any]:
    """What we read, and upstream's dataclasses made from flatc's JSON."""
    try:
        path = artifacts(request.param).etdump
    except ArtifactUnavailable as unavailable:
        pytest.skip(str(unavailable))
    return read_etdump(path), deserialize_from_etdump_flatcc(path.read_bytes())


def test_runs(both: tuple[ETDump, Any]) -> None:
    dump, theirs = both
    runs = theirs.run_data

    assert dump.version == theirs.version
    assert [dump.run_name_of(run) for run in range(dump.num_runs)] == [run.name for run in runs]
    assert dump.run_bundled_input_index.tolist() == [run.bundled_input_index for run in runs]
    counts = [len(run.events or ()) for run in runs]
    assert np.diff(dump.run_first_event).tolist() == counts
    assert dump.run.tolist() == [run for run, count in enumerate(counts) for _ in range(count)]
    assert [list(names) for names in dump.run_allocators] == [
        [allocator.name for allocator in run.allocators or ()] for run in runs
    ]


def test_columns(both: tuple[ETDump, Any]) -> None:
    dump, theirs = both
    expected = [_row(event) for event in _events(theirs)]

    actual = [_our_row(dump, event) for event in range(dump.num_events)]

    assert actual == expected


def test_values(both: tuple[ETDump, Any]) -> None:
    dump, theirs = both
    for event, their in enumerate(_events(theirs)):
        if their.debug_event is not None:
            assert dump.value(event) == _value(their.debug_event.debug_entry)
            marked = their.debug_event.debug_entry.output
            assert dump.is_output[event] == (marked is not None and marked.bool_val)


def _events(theirs: Any) -> list[Any]:
    return list(chain.from_iterable(run.events or () for run in theirs.run_data))


def _row(event: Any) -> dict[str, Any]:
    """Upstream's event as we name its parts; what its kind does not have is left at the default."""
    if event.allocation_event is not None:
        return _defaults(
            kind=EventKind.ALLOCATION,
            allocator_id=event.allocation_event.allocator_id,
            allocation_size=event.allocation_event.allocation_size,
        )
    if event.debug_event is not None:
        debug = event.debug_event
        chain_index = debug.chain_index
        return _defaults(
            kind=EventKind.DEBUG,
            name=debug.name,
            chain_index=_UNSET if chain_index == 2**64 - 1 else chain_index,
            instruction_id=debug.instruction_id,
            delegate_id_int=_int_id(debug),
            delegate_id_str=debug.delegate_debug_id_str,
        )
    profile = event.profile_event
    metadata = profile.delegate_debug_metadata
    return _defaults(
        kind=EventKind.PROFILE,
        name=profile.name,
        chain_index=profile.chain_index,
        instruction_id=profile.instruction_id,
        delegate_id_int=_int_id(profile),
        delegate_id_str=profile.delegate_debug_id_str,
        start=profile.start_time,
        end=profile.end_time,
        metadata=None if metadata is None else bytes(metadata),
    )


def _defaults(**values: Any) -> dict[str, Any]:
    return {
        "name": None,
        "chain_index": _UNSET,
        "instruction_id": _UNSET,
        "delegate_id_int": _UNSET,
        "delegate_id_str": None,
        "start": 0,
        "end": 0,
        "metadata": None,
        "allocator_id": 0,
        "allocation_size": 0,
    } | values


def _int_id(event: Any) -> int:
    return _UNSET if event.delegate_debug_id_int is None else event.delegate_debug_id_int


def _our_row(dump: ETDump, event: int) -> dict[str, Any]:
    names = ("chain_index", "instruction_id", "delegate_id_int", "start", "end")
    numbers = (*names, "allocator_id", "allocation_size")
    return {
        "kind": dump.kind[event],
        "name": _text(dump, dump.name[event]),
        "delegate_id_str": _text(dump, dump.delegate_id_str[event]),
        "metadata": dump.metadata(event) if dump.metadata_length[event] >= 0 else None,
    } | {name: int(getattr(dump, name)[event]) for name in numbers}


def _text(dump: ETDump, string: int) -> str | None:
    return None if string < 0 else dump.strings[string]


def _value(value: Any) -> Any:
    if value.tensor is not None:
        return _tensor(value.tensor)
    if value.tensor_list is not None:
        return tuple(map(_tensor, value.tensor_list.tensors))
    if value.double_value is not None:  # flatc prints 12 decimals
        return pytest.approx(value.double_value.double_val, rel=1e-11, abs=1e-12)
    for scalar in (value.int_value, value.bool_value, value.float_value):
        if scalar is not None:
            return next(iter(vars(scalar).values()))
    return None


def _tensor(tensor: Any) -> TensorRef:
    return TensorRef(
        tensor.scalar_type.value, tuple(tensor.sizes), tuple(tensor.strides), tensor.offset
    )
