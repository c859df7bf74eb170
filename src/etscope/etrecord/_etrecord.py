"""`ETRecord`: make one, open one, save it, and read it through `RecordView`."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import IO, Any

from etscope.errors import MissingDataError, RecordError, UsageError
from etscope.etrecord.loading import (
    LOADERS,
    bridge,
    bundled_inputs,
    bundled_outputs,
    exported_method,
    field_of,
    is_bundled,
)
from etscope.etrecord.loading import ETRecordReservedFileNames as ETRecordReservedFileNames
from etscope.formats.bytes.files import BytesLike
from etscope.formats.bytes.zip_archive import NewMember, write_archive
from etscope.formats.etrecord import reader as etrecord_reader
from etscope.formats.etrecord.own_members import (
    Fingerprints,
    MethodFingerprint,
    MethodPartition,
    MethodTaps,
    fingerprints_to_json,
    partition_to_json,
    taps_to_json,
)
from etscope.formats.etrecord.reader import (
    CONSTANTS,
    DEBUG_HANDLES,
    DELEGATES,
    EDGE,
    EXAMPLE_INPUTS,
    EXPORT_GRAPH_ID,
    EXPORT_GRAPH_IDS,
    EXPORT_WORDS,
    EXPORTED,
    EXTRA_GRAPH_IDS,
    FINGERPRINTS,
    FLOAT,
    IDENTIFIER,
    NUM_OUTPUTS,
    OWN_BASE,
    OWN_EXPORTED,
    OWN_JSON,
    OWN_PREFIX,
    PARTITION,
    PROGRAM_BUFFER,
    REFERENCE_OUTPUTS,
    REPRESENTATIVE_INPUTS,
    RESERVED,
    SIBLINGS,
    SLIMMED,
    STATE_DICT,
    TAPS,
    DelegateMap,
    Handles,
    NumOutputs,
    RecordFile,
    RecordView,
    read_etrecord,
    slimmed_to_json,
)
from etscope.support.shown import Shown

_JSON_MEMBERS = {
    "_debug_handle_map": DEBUG_HANDLES,
    "_delegate_map": DELEGATES,
    "_instruction_id_to_num_outs_map": NUM_OUTPUTS,
}
_TENSOR_MEMBERS = {
    "_reference_outputs": REFERENCE_OUTPUTS,
    "_representative_inputs": REPRESENTATIVE_INPUTS,
}


class ETRecord(Shown):
    """The graphs of a model, and the maps from instructions to them.

    Build it with the `add_*` methods, or open one with `parse_etrecord`. An opened record reads
    each attribute from the file on first use, and only programs and tensors need torch.

    Attributes:
        exported_program: the ATen program of "forward", or of the only method; None without one.
            `exported_programs` has all methods.
        export_graph_id: `id()` of that program's graph in the process that exported it.
        edge_dialect_program: the edge program; for several methods a dict by name.
        graph_map: the extra programs by "<name>/<method>".
        extra_graph_ids: the same as `export_graph_id`, for programs of `graph_map`.
        taps: the outputs of each method that are taps (`MethodTaps`); empty for a model without.
        partition: the nodes that partitioners took and refused in each method; None if not kept.
        export_words: the arguments of the `etscope export` that does the same; () if unknown.

    The attributes with an underscore exist in ExecuTorch's class, too; its tools use them.
    """

    exported_program: Any
    export_graph_id: int | None
    edge_dialect_program: Any
    graph_map: dict[str, Any] | None
    _debug_handle_map: Mapping[str, Any] | None
    _delegate_map: Mapping[str, Any] | None
    _instruction_id_to_num_outs_map: Mapping[str, Any] | None
    _reference_outputs: Mapping[str, Any] | None
    _representative_inputs: Any
    _further_exported: dict[str, Any]
    extra_graph_ids: dict[str, int]
    taps: Mapping[str, MethodTaps]
    partition: Mapping[str, MethodPartition] | None
    export_words: tuple[str, ...]

    def __init__(
        self,
        exported_program: Any = None,
        export_graph_id: int | None = None,
        edge_dialect_program: Any = None,
        graph_map: dict[str, Any] | None = None,
        _debug_handle_map: Mapping[str, Any] | None = None,
        _delegate_map: Mapping[str, Any] | None = None,
        _instruction_id_to_num_outs_map: Mapping[str, Any] | None = None,
        _reference_outputs: Mapping[str, Any] | None = None,
        _representative_inputs: Any = None,
    ) -> None:
        self._file: RecordFile | None = None
        self._program: Any = None
        self._exported_method = "forward"
        self._edge_method: str | None = None
        self._further_exported = {}
        self.extra_graph_ids = {}
        self.taps = {}
        self.partition = None
        self.export_words = ()
        self.exported_program = exported_program
        self.export_graph_id = export_graph_id
        self.edge_dialect_program = edge_dialect_program
        self.graph_map = graph_map
        self._debug_handle_map = _debug_handle_map
        self._delegate_map = _delegate_map
        self._instruction_id_to_num_outs_map = _instruction_id_to_num_outs_map
        self._reference_outputs = _reference_outputs
        self._representative_inputs = _representative_inputs

    @classmethod
    def from_file(cls, file: RecordFile) -> ETRecord:
        """Make the record of an opened file."""
        record = cls.__new__(cls)
        record._file = file
        record._program = None
        record._exported_method = exported_method(file)
        record._edge_method = file.edge_methods[0] if len(file.edge_methods) == 1 else None
        return record

    def __getattr__(self, name: str) -> Any:
        file = self.__dict__.get("_file")
        if file is None or name not in LOADERS:
            raise AttributeError(f"'ETRecord' object has no attribute {name!r}")
        value = LOADERS[name](file)
        self.__dict__[name] = value
        return value

    def __repr__(self) -> str:
        path, names = (self._file.path, self._file.graph_names) if self._file else (None, ())
        return f"<ETRecord {path or 'in memory'}: {', '.join(names or self.edge_programs)}>"

    def _repr_html_(self) -> str | None:
        return None if self._file is None else self._file._repr_html_()

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *LOADERS})

    @property
    def is_changed(self) -> bool:
        """True if the record may differ from its file."""
        return self._program is not None or any(field in self.__dict__ for field in LOADERS)

    def _unread(self, field: str) -> RecordFile | None:
        """Return the file if the attribute is still only there; None if it is in memory."""
        return None if field in self.__dict__ else self._file

    # -- content

    @property
    def edge_programs(self) -> dict[str, Any]:
        """Map each method's name in the program to its edge program."""
        edge = self.edge_dialect_program
        if edge is None:
            return {}
        if isinstance(edge, Mapping):
            return dict(edge)
        methods = list(self._debug_handle_map or ())
        method = self._edge_method or (methods[0] if len(methods) == 1 else "forward")
        return {method: edge}

    @property
    def exported_programs(self) -> dict[str, Any]:
        """Map each added method to its exported program."""
        if self.exported_program is None:
            return dict(self._further_exported)
        return {self._exported_method: self.exported_program, **self._further_exported}

    def program_buffer(self) -> bytes | None:
        """Return the record's .pte file; None without one."""
        if self._program is not None:
            buffer: bytes = bridge("the program of a record").program_buffer(self._program)
            return buffer
        return None if self._file is None else self._file.program_buffer()

    # -- adding

    def add_exported_program(self, exported_program: Any) -> None:
        """Add the result of `torch.export`: a program, a dict of programs by method, or None for
        nothing.

        Raises `RecordError` if there is one already.
        """
        if self.exported_program is not None or self.export_graph_id is not None:
            raise RecordError(
                "Exported program already exists in the ETRecord. "
                "Cannot add exported program when it already exists."
            )
        if exported_program is None:
            return
        programs = bridge("an ETRecord").exported_programs(exported_program)
        method = next(iter(programs), "forward") if len(programs) == 1 else "forward"
        self._exported_method = method
        self.exported_program = programs.pop(method, None)
        self._further_exported = programs
        if self.exported_program is not None:
            self.export_graph_id = id(self.exported_program.graph)

    def add_edge_dialect_program(self, edge_dialect_program: Any) -> None:
        """Add the `EdgeProgramManager` (or `ExirExportedProgram`) of `to_edge()`: a deep copy of
        it, made before `to_executorch()` changes it.

        Raises `RecordError` if there is one already.
        """
        if self.edge_dialect_program is not None:
            raise RecordError(
                "Edge dialect program already exists in the ETRecord. "
                "Cannot add edge dialect program when it already exists."
            )
        programs = bridge("an ETRecord").edge_programs(edge_dialect_program)
        if len(programs) == 1:
            ((self._edge_method, self.edge_dialect_program),) = programs.items()
        else:
            self.edge_dialect_program = programs

    def add_executorch_program(self, executorch_program: Any) -> None:
        """Add the `ExecutorchProgramManager` of `to_executorch()`, or a `BundledProgram` of it. The
        bundle's test cases become reference outputs and representative inputs.

        Raises `RecordError` if there is one already, `UsageError` for test cases without outputs.
        """
        if any(getattr(self, field) is not None for field in (*_JSON_MEMBERS, *_TENSOR_MEMBERS)):
            raise RecordError(
                "Executorch program data already exists in the ETRecord. "
                "Cannot add executorch program data when it already exists."
            )
        program = executorch_program
        outputs = inputs = None
        if is_bundled(executorch_program):
            program = executorch_program.executorch_program
            if program is None:
                raise RecordError(
                    "this BundledProgram comes from a .pte file, which does not have debug maps",
                    hint="bundle the result of to_executorch()",
                )
            outputs = bundled_outputs(executorch_program)
            inputs = bundled_inputs(executorch_program)
        if not hasattr(program, "debug_handle_map"):
            raise RecordError(f"Unsupported type of executorch_program passed in {type(program)}.")
        self._program = program
        self._debug_handle_map = program.debug_handle_map
        self._delegate_map = program.delegate_map
        self._instruction_id_to_num_outs_map = program.instruction_id_to_num_outs_map
        self._reference_outputs = outputs
        self._representative_inputs = inputs

    def add_extra_export_modules(self, extra_recorded_export_modules: Mapping[str, Any]) -> None:
        """Add programs of other stages under any names: results of `torch.export` or `to_edge()`.
        They become the record's graphs "<name>/<method>".

        Raises `RecordError` for a reserved name.
        """
        programs = bridge("an ETRecord")
        added = {}
        for name, module in extra_recorded_export_modules.items():
            _check_graph_name(name)
            for method, program in programs.extra_programs(module).items():
                added[f"{name}/{method}"] = program
        self._add_graphs(added)

    def add_float_program(self, float_program: Any) -> None:
        """Add the result of `torch.export` for the model before quantization: a program, or a dict
        of programs by method. The graph "float/<method>" shows the cost of quantization.

        If the quantized program is made from this one (PyTorch 2 Export quantization of
        `float_program.module()`), add this very object: it identifies the nodes.

        Raises `RecordError` if there is one already, and for anything else.
        """
        if any(name.startswith(f"{FLOAT}/") for name in self.graph_map or {}):
            raise RecordError("the record already has a float program")
        programs = bridge("an ETRecord").exported_programs(float_program)
        self._add_graphs({f"{FLOAT}/{method}": one for method, one in programs.items()})

    def _add_graphs(self, programs: Mapping[str, Any]) -> None:
        self.graph_map = {**(self.graph_map or {}), **programs}
        ids = {name: id(program.graph) for name, program in programs.items()}
        self.extra_graph_ids = {**self.extra_graph_ids, **ids}

    def update_representative_inputs(self, representative_inputs: Any) -> None:
        """Set the inputs for comparisons of numbers: a list, or a `BundledProgram`, for its first
        test case."""
        given = representative_inputs
        self._representative_inputs = bundled_inputs(given) if is_bundled(given) else given

    def update_reference_outputs(self, reference_outputs: Any) -> None:
        """Set the correct outputs: a dict of method -> a list of cases, a list for the method
        "forward", or a `BundledProgram` with expected outputs."""
        given = reference_outputs
        if is_bundled(given):
            given = bundled_outputs(given)
        self._reference_outputs = {"forward": given} if isinstance(given, list) else given

    # -- saving and copying

    def save(self, path: str | os.PathLike[str] | IO[bytes]) -> None:
        """Write the record to a file or a stream. A file appears when it is complete.

        Raises `RecordError` if the edge program or the ExecuTorch program is missing, and for a
        program that cannot be serialized; then it does not write anything.
        """
        write_archive(self._parts(), path)

    def copy(self) -> ETRecord:
        """Copy the graphs into a new record, without the ExecuTorch program: to export the same
        model in another way."""
        copied = ETRecord(
            exported_program=self.exported_program,
            export_graph_id=self.export_graph_id,
            edge_dialect_program=self.edge_dialect_program,
            graph_map=self.graph_map,
        )
        copied._further_exported = dict(self._further_exported)
        copied._exported_method = self._exported_method
        copied._edge_method = self._edge_method
        copied.extra_graph_ids = dict(self.extra_graph_ids)
        copied.taps = self.taps
        copied.partition = self.partition
        copied.export_words = self.export_words
        return copied

    def _parts(self) -> Iterator[NewMember]:
        """Yield all members; make each one only when it is needed.

        Attributes that are still only in the record's file are copied unchanged.
        """
        file = self._unread("edge_dialect_program")
        edge_methods = list(self.edge_programs if file is None else file.edge_methods)
        if not edge_methods or not self._debug_handle_map:
            raise RecordError(
                "ETRecord must contain edge dialect program and executorch program to be saved"
            )
        yield NewMember(IDENTIFIER, b"")
        yield from self._exported_parts(edge_methods)
        graph_hashes: dict[str, str] = {}
        for part in self._graph_parts("edge_dialect_program"):
            name = part.name.removeprefix(EDGE + "/")
            if not name.endswith(SIBLINGS):
                graph_hashes[name] = hashlib.sha256(part.data).hexdigest()
            yield part
        yield from self._graph_parts("graph_map")
        for field, member in {**_JSON_MEMBERS, **_TENSOR_MEMBERS}.items():
            file = self._unread(field)
            content = getattr(self, field) if file is None else None
            if file is not None:
                yield from _copied(file, (member,))
            elif content is not None and field in _JSON_MEMBERS:
                yield _json_part(member, content)
            elif content is not None:
                yield NewMember(member, bridge("an ETRecord").save_tensors(content))
        yield from self._own_parts(graph_hashes)

    def _exported_parts(self, edge_methods: list[str]) -> Iterator[NewMember]:
        if (file := self._unread("exported_program")) is not None:
            yield from _copied_graphs(file, "exported_program")
            yield from _copied(file, (EXPORT_GRAPH_ID, EXPORT_GRAPH_IDS))
            return
        further, main = self.exported_programs, self.exported_program
        if main is not None and (self._exported_method == "forward" or len(edge_methods) == 1):
            del further[self._exported_method]
            yield from _program_parts(main, EXPORTED, EXPORTED)
        for method, program in further.items():
            base, json_member = (f"{OWN_EXPORTED}{method}{end}" for end in (OWN_BASE, OWN_JSON))
            yield from _program_parts(program, base, json_member)
        if self.export_graph_id is not None:
            yield NewMember(EXPORT_GRAPH_ID, json.dumps(self.export_graph_id).encode())
        if further:
            ids = {method: id(program.graph) for method, program in further.items()}
            yield _json_part(EXPORT_GRAPH_IDS, ids)

    def _graph_parts(self, field: str) -> Iterator[NewMember]:
        """Yield the members of the edge programs or of the extra programs."""
        if (file := self._unread(field)) is not None:
            yield from _copied_graphs(file, field)
        elif field == "edge_dialect_program":
            for method, program in self.edge_programs.items():
                yield from _program_parts(program, f"{EDGE}/{method}", f"{EDGE}/{method}")
        else:
            for name, program in (self.graph_map or {}).items():
                member = name if "/" in name else f"{name}/forward"
                yield from _program_parts(program, member, member)

    def _own_parts(self, graph_hashes: Mapping[str, str]) -> Iterator[NewMember]:
        """Yield etscope's own members, and the cuts of a slimmed file."""
        file, buffer = self._file, self.program_buffer()
        if file is not None:
            yield from _copied(file, (etrecord_reader.DELEGATE_INFO, *file.unknown_members))
        if buffer is not None:
            fingerprints = _program_fingerprints(buffer, graph_hashes)
            yield NewMember(PROGRAM_BUFFER, buffer)
            yield _json_part(FINGERPRINTS, fingerprints_to_json(fingerprints))
        elif file is not None:
            yield from _copied(file, (FINGERPRINTS,))
        if self.extra_graph_ids:
            yield _json_part(EXTRA_GRAPH_IDS, self.extra_graph_ids)
        if self.taps:
            yield _json_part(TAPS, taps_to_json(self.taps))
        if self.partition is not None:
            yield _json_part(PARTITION, partition_to_json(self.partition))
        if self.export_words:
            yield _json_part(EXPORT_WORDS, {"version": 1, "words": self.export_words})
        if file is not None and file.cuts:
            cuts = {
                _current_member(file, name): file.cuts.get(file.graph_members[name], ())
                for name in file.graph_names
                if self._unread(field_of(name)) is not None
            }
            yield _json_part(SLIMMED, slimmed_to_json(cuts))


def generate_etrecord(
    et_record: str | os.PathLike[str] | IO[bytes] | None = None,
    edge_dialect_program: Any = None,
    executorch_program: Any = None,
    exported_program: Any = None,
    extra_recorded_export_modules: Mapping[str, Any] | None = None,
    *,
    etrecord_path: str | os.PathLike[str] | IO[bytes] | None = None,
    export_modules: Mapping[str, Any] | None = None,
) -> None:
    """Make an ETRecord of these objects and save it.

    Args:
        et_record: the file to write (in older versions `etrecord_path`).
        edge_dialect_program: a deep copy of the result of `to_edge()`, taken before
            `to_executorch()`.
        executorch_program: the result of `to_executorch()`, or a `BundledProgram` of it.
        exported_program: the result of `torch.export`, or a dict of results by method. A dict with
            other keys than methods of the edge program counts as `export_modules`, which was in
            this place in older versions.
        extra_recorded_export_modules: programs of other stages by any names (in older versions
            `export_modules`).

    Raises `RecordError` (a `RuntimeError`) for objects that cannot be recorded, and `UsageError` (a
    `ValueError`) for a bundled test case without outputs. Then it does not write anything.
    """
    path = _renamed_argument("et_record", et_record, "etrecord_path", etrecord_path)
    if path is None or edge_dialect_program is None or executorch_program is None:
        raise RecordError(
            "generate_etrecord needs et_record, edge_dialect_program and executorch_program"
        )
    modules = _renamed_argument(
        "extra_recorded_export_modules",
        extra_recorded_export_modules,
        "export_modules",
        export_modules,
    )
    record = ETRecord()
    record.add_edge_dialect_program(edge_dialect_program)
    if (
        isinstance(exported_program, Mapping)
        and "forward" not in exported_program
        and not exported_program.keys() <= record.edge_programs.keys()
    ):
        modules = {**exported_program, **(modules or {})}
        exported_program = None
    record.add_exported_program(exported_program)
    record.add_executorch_program(executorch_program)
    if modules is not None:
        record.add_extra_export_modules(modules)
    record.save(path)


def _renamed_argument(name: str, value: Any, older_name: str, older_value: Any) -> Any:
    if value is not None and older_value is not None:
        raise RecordError(f"{name} and {older_name} are the same argument: pass only one")
    return older_value if value is None else value


def parse_etrecord(etrecord_path: str | os.PathLike[str] | IO[bytes]) -> ETRecord:
    """Open an ETRecord, of ExecuTorch 0.1 to 1.5 or of etscope.

    Attributes are read on first use, and only some need torch.

    Raises `MissingFileError` for a path that does not exist and `FormatError` (a `RuntimeError`)
    for a file that is not an ETRecord.
    """
    return ETRecord.from_file(read_etrecord(etrecord_path))


def _check_graph_name(name: str) -> None:
    """Raise `RecordError` if the names of the graphs "<name>/<method>", which become names of
    members, are reserved."""
    parts = name.split("/")
    if (
        not name
        or RESERVED & {name, parts[0]}
        or name.startswith(OWN_PREFIX)
        or any(part in ("", ".", "..") for part in parts)
        or name.endswith(SIBLINGS)
        or not name.isprintable()
        or "\\" in name
    ):
        raise RecordError(
            f"The name {name} provided in the extra_recorded_export_modules dict is a reserved "
            "name in the ETRecord namespace."
        )


# -- the members of a saved record
#
# ExecuTorch's `parse_etrecord` (1.2 to 1.5) must open the file. It skips members with names that
# end in "_state_dict", "_constants" or "_example_inputs", so etscope's own members have such names.

# Larger JSON is stored: it contains the blobs of delegates, which deflate slowly and hardly shrink.
_MAX_DEFLATED = 64 << 20


def _program_fingerprints(buffer: bytes, graph_hashes: Mapping[str, str]) -> Fingerprints:
    """Compute the fingerprints of a .pte file. graph_hashes: SHA-256 of each method's graph."""
    # Imported here, as these imports take longer than opening a record.
    from etscope.analysis.program.compatibility import instruction_labels
    from etscope.formats.program.pte import program_fingerprint, read_pte

    return Fingerprints(
        program_fingerprint(buffer),
        len(buffer),
        {
            method.name: MethodFingerprint(
                instruction_labels(method), graph_hashes.get(method.name)
            )
            for method in read_pte(buffer).methods
        },
    )


def _program_parts(program: Any, base: str, json_member: str) -> Iterator[NewMember]:
    serialized = bridge("an ETRecord").serialize_program(program, base)
    yield _text_part(json_member, serialized.json)
    yield NewMember(base + STATE_DICT, serialized.state_dict)
    yield NewMember(base + CONSTANTS, serialized.constants)
    yield NewMember(base + EXAMPLE_INPUTS, serialized.example_inputs)


def _text_part(member: str, content: bytes | memoryview) -> NewMember:
    return NewMember(member, content, deflate=len(content) <= _MAX_DEFLATED)


def _json_part(member: str, content: Any) -> NewMember:
    return _text_part(member, json.dumps(content).encode())


def _copied_graphs(file: RecordFile, field: str) -> Iterator[NewMember]:
    for name in file.graph_names:
        if field_of(name) != field:
            continue
        json_member = _current_member(file, name)
        yield _text_part(json_member, file.program_text(name))
        base = json_member.removesuffix(OWN_JSON)
        base += OWN_BASE if base != json_member else ""
        for suffix in SIBLINGS:
            yield NewMember(base + suffix, file.sibling(name, suffix))


def _current_member(file: RecordFile, name: str) -> str:
    """Return the graph's member, also by its name in ExecuTorch 1.1 and older."""
    member = file.graph_members[name]
    return name if member == EDGE else member


def _copied(file: RecordFile, members: Iterable[str]) -> Iterator[NewMember]:
    for member in members:
        if member in file.members:
            deflate = file.members[member].deflated
            yield NewMember(member, file.archive.read(member), deflate)


# -- reading any kind of record


def as_etrecord(source: Any) -> ETRecord:
    """Convert an argument of `as_record` to an `ETRecord`."""
    if isinstance(source, ETRecord):
        return source
    if isinstance(source, MemoryRecord):
        return source.record
    if isinstance(source, RecordFile):
        return ETRecord.from_file(source)
    if isinstance(source, (str, os.PathLike, bytes, bytearray, memoryview, io.IOBase)):
        return ETRecord.from_file(read_etrecord(source))  # type: ignore[arg-type]
    # Recognize ExecuTorch's class by its attributes: importing it loads all its tools.
    if hasattr(source, "edge_dialect_program") and hasattr(source, "_debug_handle_map"):
        return ETRecord(
            exported_program=source.exported_program,
            export_graph_id=source.export_graph_id,
            edge_dialect_program=source.edge_dialect_program,
            graph_map=source.graph_map,
            _debug_handle_map=source._debug_handle_map,
            _delegate_map=source._delegate_map,
            _instruction_id_to_num_outs_map=getattr(
                source, "_instruction_id_to_num_outs_map", None
            ),
            _reference_outputs=source._reference_outputs,
            _representative_inputs=source._representative_inputs,
        )
    raise UsageError(
        f"not an ETRecord: {type(source).__name__}", hint="give a path or an ETRecord object"
    )


def as_record(source: Any) -> RecordView:
    """Open a record for reading: a path, bytes, an open file, an `ETRecord` of etscope, or an
    unsaved one of ExecuTorch. Only the last one and changed records need torch.

    Raises `UsageError` for anything else, and the errors of `read_etrecord` for files.
    """
    if isinstance(source, (RecordFile, MemoryRecord)):
        return source
    if isinstance(source, (str, os.PathLike, bytes, bytearray, memoryview, io.IOBase)):
        return read_etrecord(source)  # type: ignore[arg-type]
    record = as_etrecord(source)
    if record._file is not None and not record.is_changed:
        return record._file
    return MemoryRecord(record)


class MemoryRecord:
    """`RecordView` of an `ETRecord` in memory, or changed since opening. Members: see `RecordFile`.

    Graphs are serialized on first use, without their weights.
    """

    def __init__(self, record: ETRecord) -> None:
        self.record = record
        self._json: dict[str, dict[str, Any]] = {}
        self.delegate_info = record._file.delegate_info if record._file is not None else {}

    path: str | None = None

    @cached_property
    def _programs(self) -> dict[str, Any]:
        """Map each graph's name to its program, or to the file if the graph is still only there."""
        record = self.record
        exported = record.exported_programs if record._unread("exported_program") is None else {}
        main = exported.pop(record._exported_method, None)
        programs: dict[str, Any] = {}
        for field in ("exported_program", "edge_dialect_program", "graph_map"):
            file = record._unread(field)
            if file is not None:
                programs |= {name: file for name in file.graph_names if field_of(name) == field}
            elif field == "exported_program":
                programs |= {} if main is None else {EXPORTED: main}
                programs |= {f"{EXPORTED}/{method}": one for method, one in exported.items()}
            elif field == "edge_dialect_program":
                programs |= {f"{EDGE}/{method}": e for method, e in record.edge_programs.items()}
            else:
                programs |= record.graph_map or {}
        return programs

    @property
    def graph_names(self) -> tuple[str, ...]:
        return tuple(self._programs)

    @property
    def edge_methods(self) -> tuple[str, ...]:
        return tuple(n.removeprefix(f"{EDGE}/") for n in self._programs if n.startswith(f"{EDGE}/"))

    def program_content(self, name: str) -> tuple[BytesLike, ...] | None:
        program = self._programs.get(name)
        return program.program_content(name) if isinstance(program, RecordFile) else None

    def program_json(self, name: str) -> dict[str, Any]:
        """See `RecordFile`. Raises `RecordError` for a graph that cannot be serialized."""
        if name not in self._programs:
            held = ", ".join(self._programs) or "none"
            raise MissingDataError(
                f"the record does not have a graph {name!r}", hint=f"its graphs: {held}"
            )
        program = self._programs[name]
        if isinstance(program, RecordFile):
            return program.program_json(name)
        if name not in self._json:
            programs = bridge("an ETRecord in memory")
            self._json[name] = programs.program_json(program, name)
        return self._json[name]

    def tensors(self, name: str) -> Mapping[str, Any]:
        """See `RecordFile`."""
        one = self._programs[name]
        return one.tensors(name) if isinstance(one, RecordFile) else one.state_dict | one.constants

    @cached_property
    def debug_handle_map(self) -> Handles | None:
        content = self.record._debug_handle_map
        return None if content is None else etrecord_reader.debug_handles(content)

    @cached_property
    def handle_lists(self) -> Mapping[str, frozenset[int]]:
        return etrecord_reader.handle_lists(self.record._debug_handle_map or {})

    @cached_property
    def delegate_map(self) -> DelegateMap | None:
        content = self.record._delegate_map
        return None if content is None else etrecord_reader.delegates(content)

    @cached_property
    def instruction_id_to_num_outs_map(self) -> NumOutputs | None:
        content = self.record._instruction_id_to_num_outs_map
        return None if content is None else etrecord_reader.num_outputs(content)

    @property
    def export_graph_id(self) -> int | None:
        return self.record.export_graph_id

    @property
    def export_graph_ids(self) -> Mapping[str, int]:
        file = self.record._unread("exported_program")
        if file is not None:
            return file.export_graph_ids
        further = self.record._further_exported
        ids = {f"{EXPORTED}/{method}": id(program.graph) for method, program in further.items()}
        ids |= self.record.extra_graph_ids
        return ids if self.export_graph_id is None else {EXPORTED: self.export_graph_id, **ids}

    @cached_property
    def fingerprints(self) -> Fingerprints | None:
        """See `RecordFile`. Without hashes of the graphs."""
        buffer = self.program_buffer()
        return None if buffer is None else _program_fingerprints(buffer, {})

    @property
    def taps(self) -> Mapping[str, MethodTaps]:
        return self.record.taps

    @property
    def partition(self) -> Mapping[str, MethodPartition] | None:
        return self.record.partition

    @property
    def export_words(self) -> tuple[str, ...]:
        return self.record.export_words

    def program_buffer(self) -> bytes | None:
        return self.record.program_buffer()

    def program_view(self) -> memoryview | None:
        buffer = self.program_buffer()
        return None if buffer is None else memoryview(buffer)

    def reference_outputs(self) -> dict[str, Any] | None:
        outputs: dict[str, Any] | None = _as_arrays(self.record._reference_outputs)
        return outputs

    def representative_inputs(self) -> Any:
        return _as_arrays(self.record._representative_inputs)

    def example_inputs(self, name: str) -> Any:
        program = self._programs[name]
        if isinstance(program, RecordFile):
            return program.example_inputs(name)
        return _as_arrays(program.example_inputs)


def _as_arrays(content: Any) -> Any:
    """Convert torch's tensors to numpy arrays in the same structure."""
    if content is None:
        return None
    from etscope.formats.torch_files.torch_archive import read_tensors

    return read_tensors(memoryview(bridge("tensors of an ETRecord").save_tensors(content)))
