"""One interface to records of every kind: files, ours in memory, ExecuTorch's in memory."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch")

from executorch.exir import to_edge, to_edge_transform_and_lower  # noqa: E402

from etscope.errors import MissingDataError, MissingFileError, UsageError  # noqa: E402
from etscope.etrecord import ETRecord, as_etrecord, as_record, parse_etrecord  # noqa: E402
from etscope.etrecord._etrecord import MemoryRecord  # noqa: E402
from etscope.formats.etrecord.reader import RecordFile, RecordView, read_etrecord  # noqa: E402
from etscope.model.exported_graph import graph_from_record  # noqa: E402
from tests.support.etrecord.small_models import Net, lowered  # noqa: E402
from tests.support.etrecord_files import old_record, record_bytes  # noqa: E402

EDGE = "edge_dialect_exported_program"


def ours(*methods: str, bundled: bool = False) -> ETRecord:
    net, record = lowered(*methods), ETRecord()
    record.add_exported_program(net.exported)
    record.add_edge_dialect_program(net.edge)
    record.add_executorch_program(net.bundled() if bundled else net.program)
    return record


def upstreams(delegated: bool) -> Any:
    """ExecuTorch's own object, as the export flow hands it out."""
    exported = torch.export.export(Net().eval(), (torch.randn(2, 4),))
    if not delegated:
        return to_edge(exported, generate_etrecord=True).to_executorch().get_etrecord()
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

    lowered = to_edge_transform_and_lower(
        exported, partitioner=[XnnpackPartitioner()], generate_etrecord=True
    )
    return lowered.to_executorch().get_etrecord()


def assert_same(view: RecordView, file: RecordView) -> None:
    """Everything that the tools read is the same."""
    assert view.graph_names == file.graph_names
    assert view.edge_methods == file.edge_methods
    assert view.debug_handle_map == file.debug_handle_map
    assert view.handle_lists == file.handle_lists
    assert view.delegate_map == file.delegate_map
    assert view.instruction_id_to_num_outs_map == file.instruction_id_to_num_outs_map
    assert view.export_graph_id == file.export_graph_id
    assert view.export_graph_ids == file.export_graph_ids
    assert view.program_buffer() == file.program_buffer()
    for name in file.graph_names:
        assert graph_from_record(view, name) == graph_from_record(file, name)


@pytest.mark.parametrize("methods", [(), ("encode",), ("encode", "decode", "forward")])
def test_a_record_in_memory_is_as_the_file_of_it(methods: tuple[str, ...], tmp_path: Path) -> None:
    record, path = ours(*methods), tmp_path / "model.etrecord"
    record.save(path)
    view = as_record(record)
    assert isinstance(view, MemoryRecord) and view.path is None
    assert_same(view, read_etrecord(path))
    assert view.fingerprints is not None
    assert view.fingerprints.program_sha256 == read_etrecord(path).fingerprints.program_sha256  # type: ignore[union-attr]


@pytest.mark.parametrize("delegated", [False, True])
def test_upstreams_record_in_memory_is_as_upstreams_file(delegated: bool, tmp_path: Path) -> None:
    record, path = upstreams(delegated), tmp_path / "upstream.etrecord"
    record.save(path)
    view = as_record(record)
    assert_same(view, read_etrecord(path))
    assert view.handle_lists == {"forward": {0} if delegated else frozenset()}
    assert view.fingerprints is None


def test_tensors_in_memory_are_arrays() -> None:
    net, view = lowered(), as_record(ours(bundled=True))
    outputs = view.reference_outputs()
    assert outputs is not None
    expected = net.model(*net.inputs).detach().numpy()
    np.testing.assert_array_equal(outputs["forward"][0][0], expected)
    np.testing.assert_array_equal(view.representative_inputs()[0], net.inputs[0].numpy())
    assert as_record(ours()).reference_outputs() is None


def test_what_is_not_recorded_is_none() -> None:
    view = as_record(ETRecord())
    assert view.graph_names == () and view.handle_lists == {}
    assert view.debug_handle_map is view.delegate_map is None
    assert view.instruction_id_to_num_outs_map is view.program_buffer() is None
    assert view.export_graph_id is None and view.export_graph_ids == {}
    with pytest.raises(MissingDataError, match="does not have a graph"):
        view.program_json("forward")


def test_files_are_read_as_files(tmp_path: Path) -> None:
    path = tmp_path / "small.etrecord"
    path.write_bytes(record_bytes())
    for source in (path, str(path), path.read_bytes(), io.BytesIO(path.read_bytes())):
        assert isinstance(as_record(source), RecordFile)
        assert isinstance(as_etrecord(source), ETRecord)
    with pytest.raises(MissingFileError):
        as_record(tmp_path / "nothing")


def test_views_are_passed_through() -> None:
    file, memory = read_etrecord(record_bytes()), as_record(ours())
    assert as_record(file) is file and as_record(memory) is memory
    record = ours()
    assert as_etrecord(record) is record
    assert as_etrecord(as_record(record)) is record
    assert as_etrecord(file)._file is file


def test_an_opened_record_is_its_file_until_it_is_changed() -> None:
    record = parse_etrecord(old_record("1.2.0"))
    assert isinstance(as_record(record), RecordFile)
    record.update_reference_outputs([[torch.ones(1)]])
    view = as_record(record)
    assert view.reference_outputs()["forward"][0][0].tolist() == [1.0]  # type: ignore[index]
    assert view.debug_handle_map == read_etrecord(old_record("1.2.0")).debug_handle_map


def test_a_changed_record_of_a_release_that_torch_cannot_rebuild_keeps_its_graphs() -> None:
    record = parse_etrecord(old_record("0.7.0"))
    record.update_reference_outputs([[torch.ones(1)]])
    view, file = as_record(record), read_etrecord(old_record("0.7.0"))
    assert view.graph_names == file.graph_names
    for name in file.graph_names:
        assert graph_from_record(view, name) == graph_from_record(file, name)


def test_what_is_no_record() -> None:
    for source in (3, None, object(), {"a": 1}):
        with pytest.raises(UsageError, match="not an ETRecord"):
            as_record(source)
