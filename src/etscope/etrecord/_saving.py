"""The members of an ETRecord that is saved.

ExecuTorch's `parse_etrecord` (1.2 to 1.5) opens the file: what it does not know is in members that
it skips, those whose names end in "_state_dict", "_constants" or "_example_inputs".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from etscope.errors import RecordError
from etscope.etrecord._fingerprints import program_fingerprints
from etscope.etrecord._loading import bridge, field_of
from etscope.formats.bytes.zip_writer import Part
from etscope.formats.etrecord.fingerprints import fingerprints_to_json
from etscope.formats.etrecord.reader import (
    CONSTANTS,
    DEBUG_HANDLES,
    DELEGATES,
    EDGE,
    EXAMPLE_INPUTS,
    EXPORT_GRAPH_ID,
    EXPORT_GRAPH_IDS,
    EXPORTED,
    FINGERPRINTS,
    IDENTIFIER,
    NUM_OUTPUTS,
    OWN_BASE,
    OWN_EXPORTED,
    OWN_JSON,
    PROGRAM_BUFFER,
    REFERENCE_OUTPUTS,
    REPRESENTATIVE_INPUTS,
    SIBLINGS,
    SLIMMED,
    STATE_DICT,
    TAPS,
    RecordFile,
    slimmed_to_json,
)
from etscope.formats.etrecord.taps import taps_to_json

if TYPE_CHECKING:
    from etscope.etrecord._etrecord import ETRecord

# Larger JSON holds the blobs of delegates: it takes long to deflate and hardly shrinks.
_MAX_DEFLATED = 64 << 20

_JSON_FIELDS = {
    "_debug_handle_map": DEBUG_HANDLES,
    "_delegate_map": DELEGATES,
    "_instruction_id_to_num_outs_map": NUM_OUTPUTS,
}
_TENSOR_FIELDS = {
    "_reference_outputs": REFERENCE_OUTPUTS,
    "_representative_inputs": REPRESENTATIVE_INPUTS,
}


def record_parts(record: ETRecord) -> Iterator[Part]:
    """All members, each made when its turn comes.

    What is still only in the file that the record came from is copied as it is.
    """
    if not _is_complete(record):
        raise RecordError(
            "ETRecord must contain edge dialect program and executorch program to be saved"
        )
    graph_hashes: dict[str, str] = {}
    yield Part(IDENTIFIER, b"")
    yield from _exported_parts(record)
    for part in _edge_parts(record):
        name = part.name.removeprefix(EDGE + "/")
        if not name.endswith(SIBLINGS):
            graph_hashes[name] = hashlib.sha256(part.data).hexdigest()
        yield part
    yield from _extra_parts(record)
    yield from _metadata_parts(record)
    yield from _own_parts(record, graph_hashes)


def _is_complete(record: ETRecord) -> bool:
    file = record._file
    if file is not None and not record.is_loaded("edge_dialect_program"):
        has_edge = bool(file.edge_methods)
    else:
        has_edge = bool(record.edge_dialect_program)
    return has_edge and bool(record._debug_handle_map)


def _exported_parts(record: ETRecord) -> Iterator[Part]:
    file = record._file
    if file is not None and not record.is_loaded("exported_program"):
        yield from _copied_graphs(file, "exported_program")
        yield from _copied(file, (EXPORT_GRAPH_ID, EXPORT_GRAPH_IDS))
        return
    further = record.exported_programs
    main = record.exported_program
    if main is not None and (
        record._exported_method == "forward" or len(list(_methods(record))) == 1
    ):
        del further[record._exported_method]
        yield from _program_parts(main, EXPORTED, EXPORTED)
    for method, program in further.items():
        yield from _program_parts(
            program, f"{OWN_EXPORTED}{method}{OWN_BASE}", f"{OWN_EXPORTED}{method}{OWN_JSON}"
        )
    if record.export_graph_id is not None:
        yield Part(EXPORT_GRAPH_ID, json.dumps(record.export_graph_id).encode())
    if further:
        ids = {method: id(program.graph) for method, program in further.items()}
        yield _json_part(EXPORT_GRAPH_IDS, ids)


def _own_parts(record: ETRecord, graph_hashes: Mapping[str, str]) -> Iterator[Part]:
    """The program, its fingerprints, its taps, and what a slimmed file says of its cuts."""
    file = record._file
    buffer = record.program_buffer()
    if buffer is not None:
        fingerprints = program_fingerprints(buffer, graph_hashes)
        yield Part(PROGRAM_BUFFER, buffer)
        yield _json_part(FINGERPRINTS, fingerprints_to_json(fingerprints))
    elif file is not None:
        yield from _copied(file, (FINGERPRINTS,))
    if record.taps:
        yield _json_part(TAPS, taps_to_json(record.taps))
    if file is not None and file.cuts:
        cuts = {
            _member_of_today(file, name): file.cuts.get(file.graph_members[name], ())
            for name in file.graph_names
            if not record.is_loaded(field_of(name))
        }
        yield _json_part(SLIMMED, slimmed_to_json(cuts))


def _methods(record: ETRecord) -> Iterable[str]:
    file = record._file
    if file is not None and not record.is_loaded("edge_dialect_program"):
        return file.edge_methods
    return record.edge_programs


def _edge_parts(record: ETRecord) -> Iterator[Part]:
    file = record._file
    if file is not None and not record.is_loaded("edge_dialect_program"):
        yield from _copied_graphs(file, "edge_dialect_program")
        return
    for method, program in record.edge_programs.items():
        yield from _program_parts(program, f"{EDGE}/{method}", f"{EDGE}/{method}")


def _extra_parts(record: ETRecord) -> Iterator[Part]:
    file = record._file
    if file is not None and not record.is_loaded("graph_map"):
        yield from _copied_graphs(file, "graph_map")
        return
    for name, program in (record.graph_map or {}).items():
        member = name if "/" in name else f"{name}/forward"
        yield from _program_parts(program, member, member)


def _metadata_parts(record: ETRecord) -> Iterator[Part]:
    file = record._file
    for field, member in {**_JSON_FIELDS, **_TENSOR_FIELDS}.items():
        if file is not None and not record.is_loaded(field):
            yield from _copied(file, (member,))
            continue
        content = getattr(record, field)
        if content is not None and field in _JSON_FIELDS:
            yield _json_part(member, content)
        elif content is not None:
            yield Part(member, bridge("an ETRecord").save_tensors(content))


def _program_parts(program: Any, base: str, json_member: str) -> Iterator[Part]:
    serialized = bridge("an ETRecord").serialize_program(program, base)
    yield _text_part(json_member, serialized.json)
    yield Part(base + STATE_DICT, serialized.state_dict)
    yield Part(base + CONSTANTS, serialized.constants)
    yield Part(base + EXAMPLE_INPUTS, serialized.example_inputs)


def _text_part(member: str, content: bytes | memoryview) -> Part:
    return Part(member, content, deflate=len(content) <= _MAX_DEFLATED)


def _json_part(member: str, content: Any) -> Part:
    return _text_part(member, json.dumps(content).encode())


def _copied_graphs(file: RecordFile, field: str) -> Iterator[Part]:
    for name in file.graph_names:
        if field_of(name) != field:
            continue
        json_member = _member_of_today(file, name)
        yield _text_part(json_member, file.program_text(name))
        base = json_member.removesuffix(OWN_JSON)
        base += OWN_BASE if base != json_member else ""
        for suffix in SIBLINGS:
            yield Part(base + suffix, file.sibling(name, suffix))


def _member_of_today(file: RecordFile, name: str) -> str:
    """The graph's member, also where ExecuTorch 1.1 and before gave it another name."""
    member = file.graph_members[name]
    return name if member == EDGE else member


def _copied(file: RecordFile, members: Iterable[str]) -> Iterator[Part]:
    for member in members:
        if member in file.members:
            deflate = file.members[member].deflated
            yield Part(member, file.archive.read(member), deflate)
