"""Whatever a user may hold of a record, as the one interface that the tools read."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from etscope.errors import MissingDataError, UsageError
from etscope.etrecord._loading import bridge, field_of
from etscope.formats.etrecord import maps as etrecord_maps
from etscope.formats.etrecord.fingerprints import Fingerprints
from etscope.formats.etrecord.maps import DelegateMap, Handles, NumOutputs
from etscope.formats.etrecord.reader import EDGE, EXPORTED, RecordFile, RecordView, read_etrecord
from etscope.formats.etrecord.taps import MethodTaps

if TYPE_CHECKING:
    from etscope.etrecord._etrecord import ETRecord


def as_record(source: Any) -> RecordView:
    """A record to read from: of a path, bytes, an open file, an `ETRecord` of etscope, or one of
    ExecuTorch that was never saved. torch is needed only for the last, and for changed ones.

    Raises `UsageError` for anything else, and what `read_etrecord` raises for files.
    """
    if isinstance(source, (RecordFile, MemoryRecord)):
        return source
    if isinstance(source, (str, os.PathLike, bytes, bytearray, memoryview, io.IOBase)):
        return read_etrecord(source)  # type: ignore[arg-type]
    record = as_etrecord(source)
    if record._file is not None and not record.is_changed:
        return record._file
    return MemoryRecord(record)


def as_etrecord(source: Any) -> ETRecord:
    """The `ETRecord` of what `as_record` takes."""
    from etscope.etrecord._etrecord import ETRecord

    if isinstance(source, ETRecord):
        return source
    if isinstance(source, MemoryRecord):
        return source.record
    if isinstance(source, RecordFile):
        return ETRecord.from_file(source)
    if isinstance(source, (str, os.PathLike, bytes, bytearray, memoryview, io.IOBase)):
        return ETRecord.from_file(read_etrecord(source))  # type: ignore[arg-type]
    if hasattr(source, "edge_dialect_program") and hasattr(source, "_debug_handle_map"):
        return _from_upstream(source)
    raise UsageError(
        f"not an ETRecord: {type(source).__name__}", hint="give a path or an ETRecord object"
    )


def _from_upstream(source: Any) -> ETRecord:
    """Of ExecuTorch's object, known by its attributes: importing its class loads all its tools."""
    from etscope.etrecord._etrecord import ETRecord

    return ETRecord(
        exported_program=source.exported_program,
        export_graph_id=source.export_graph_id,
        edge_dialect_program=source.edge_dialect_program,
        graph_map=source.graph_map,
        _debug_handle_map=source._debug_handle_map,
        _delegate_map=source._delegate_map,
        _instruction_id_to_num_outs_map=getattr(source, "_instruction_id_to_num_outs_map", None),
        _reference_outputs=source._reference_outputs,
        _representative_inputs=source._representative_inputs,
    )


class MemoryRecord:
    """`RecordView` of an `ETRecord` that is not (or no longer) what a file holds.

    Graphs are serialized when asked for, without their weights.
    """

    def __init__(self, record: ETRecord) -> None:
        self.record = record
        self._json: dict[str, dict[str, Any]] = {}

    path: str | None = None

    @cached_property
    def _programs(self) -> dict[str, Any]:
        """Graph's name -> program, or the file if the graph is still only there."""
        return {**self._of("exported_program"), **self._of("edge_dialect_program"),
                **self._of("graph_map")}  # fmt: skip

    def _of(self, field: str) -> dict[str, Any]:
        record, file = self.record, self.record._file
        if file is not None and not record.is_loaded(field):
            return {name: file for name in file.graph_names if field_of(name) == field}
        if field == "graph_map":
            return dict(record.graph_map or {})
        if field == "edge_dialect_program":
            return {f"{EDGE}/{method}": edge for method, edge in record.edge_programs.items()}
        exported = record.exported_programs
        main = exported.pop(record._exported_method, None)
        programs = {} if main is None else {EXPORTED: main}
        return programs | {f"{EXPORTED}/{method}": other for method, other in exported.items()}

    @property
    def graph_names(self) -> tuple[str, ...]:
        """See `RecordFile`."""
        return tuple(self._programs)

    @property
    def edge_methods(self) -> tuple[str, ...]:
        """See `RecordFile`."""
        start = f"{EDGE}/"
        return tuple(name.removeprefix(start) for name in self._programs if name.startswith(start))

    def program_json(self, name: str) -> dict[str, Any]:
        """See `RecordFile`. Raises `RecordError` for a graph that cannot be serialized."""
        if name not in self._programs:
            held = ", ".join(self._programs) or "none"
            raise MissingDataError(
                f"the record has no graph {name!r}", hint=f"the graphs it has: {held}"
            )
        program = self._programs[name]
        if isinstance(program, RecordFile):
            return program.program_json(name)
        if name not in self._json:
            programs = bridge("an ETRecord in memory")
            self._json[name] = programs.program_json(program, name)
        return self._json[name]

    @cached_property
    def debug_handle_map(self) -> Handles | None:
        """See `RecordFile`."""
        content = self.record._debug_handle_map
        return None if content is None else etrecord_maps.debug_handles(content)

    @cached_property
    def handle_lists(self) -> Mapping[str, frozenset[int]]:
        """See `RecordFile`."""
        return etrecord_maps.handle_lists(self.record._debug_handle_map or {})

    @cached_property
    def delegate_map(self) -> DelegateMap | None:
        """See `RecordFile`."""
        content = self.record._delegate_map
        return None if content is None else etrecord_maps.delegates(content)

    @cached_property
    def instruction_id_to_num_outs_map(self) -> NumOutputs | None:
        """See `RecordFile`."""
        content = self.record._instruction_id_to_num_outs_map
        return None if content is None else etrecord_maps.num_outputs(content)

    @property
    def export_graph_id(self) -> int | None:
        """See `RecordFile`."""
        return self.record.export_graph_id

    @property
    def export_graph_ids(self) -> Mapping[str, int]:
        """See `RecordFile`."""
        record, file = self.record, self.record._file
        if file is not None and not record.is_loaded("exported_program"):
            return file.export_graph_ids
        further = record._further_exported
        ids = {f"{EXPORTED}/{method}": id(program.graph) for method, program in further.items()}
        return ids if self.export_graph_id is None else {EXPORTED: self.export_graph_id, **ids}

    @cached_property
    def fingerprints(self) -> Fingerprints | None:
        """See `RecordFile`. Without hashes of the graphs."""
        from etscope.etrecord._etrecord import program_fingerprints

        buffer = self.program_buffer()
        return None if buffer is None else program_fingerprints(buffer, {})

    @property
    def taps(self) -> Mapping[str, MethodTaps]:
        """See `RecordFile`."""
        return self.record.taps

    def program_buffer(self) -> bytes | None:
        """See `RecordFile`."""
        return self.record.program_buffer()

    def program_view(self) -> memoryview | None:
        """See `RecordFile`."""
        buffer = self.program_buffer()
        return None if buffer is None else memoryview(buffer)

    def reference_outputs(self) -> dict[str, Any] | None:
        """See `RecordFile`."""
        outputs: dict[str, Any] | None = _as_arrays(self.record._reference_outputs)
        return outputs

    def representative_inputs(self) -> Any:
        """See `RecordFile`."""
        return _as_arrays(self.record._representative_inputs)


def _as_arrays(content: Any) -> Any:
    """The same structure with numpy arrays in place of torch's tensors."""
    if content is None:
        return None
    from etscope.formats.torch_files.torch_archive import read_tensors

    return read_tensors(memoryview(bridge("tensors of an ETRecord").save_tensors(content)))
