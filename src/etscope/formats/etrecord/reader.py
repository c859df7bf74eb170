"""Read ETRecord files: a zip with members that are read and parsed on demand.

Reads the files of ExecuTorch 0.1 to 1.5 and of etscope. Upstream does not document the layout; it
comes from `devtools/etrecord/_etrecord.py` of each release.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import IO, TYPE_CHECKING, Any, Protocol, TypeVar

from etscope.errors import FormatError, MissingDataError, reading
from etscope.formats.bytes.files import BytesLike, PathLike, open_source
from etscope.formats.bytes.zip_archive import Member, ZipArchive, open_archive
from etscope.formats.exported_program.exported_json import (
    Cut,
    integer,
    mapping,
    parse_json,
    text,
    with_marks,
    without_payloads,
)
from etscope.formats.identify import describe
from etscope.formats.json_values import JsonValue
from etscope.support.shown import Shown

if TYPE_CHECKING:  # the modules of members are loaded with the first one
    from etscope.formats.etrecord.own_members import Fingerprints, MethodPartition, MethodTaps

__all__ = ["RecordFile", "read_etrecord"]

_ZIP = b"PK"
IDENTIFIER = "ETRECORD_V0"
EXPORTED = "exported_program"
EDGE = "edge_dialect_exported_program"
FLOAT = "float"  # extra graphs of the model before it was quantized: "float/<method>"
DEBUG_HANDLES = "debug_handle_map"
DELEGATES = "delegate_map"
NUM_OUTPUTS = "instruction_id_to_num_outs_map"
REFERENCE_OUTPUTS = "reference_outputs"
REPRESENTATIVE_INPUTS = "representative_inputs"
EXPORT_GRAPH_ID = "export_graph_id"
DELEGATE_INFO = "delegate_info"  # pytorch/executorch#21379
STATE_DICT, CONSTANTS, EXAMPLE_INPUTS = "_state_dict", "_constants", "_example_inputs"
SIBLINGS = (STATE_DICT, CONSTANTS, EXAMPLE_INPUTS)

# Names of members that ExecuTorch does not know have an ending that its reader skips.
OWN_PREFIX = "etscope/"
PROGRAM_BUFFER = OWN_PREFIX + "program_buffer_constants"
FINGERPRINTS = OWN_PREFIX + "fingerprints_constants"
EXPORT_GRAPH_IDS = OWN_PREFIX + "export_graph_ids_constants"
TAPS = OWN_PREFIX + "taps_constants"
PARTITION = OWN_PREFIX + "partition_constants"
EXPORT_WORDS = OWN_PREFIX + "export_words_constants"
EXTRA_GRAPH_IDS = OWN_PREFIX + "extra_graph_ids_constants"
SLIMMED = OWN_PREFIX + "slimmed_constants"
# Exported programs of further methods: etscope/exported_program/<method>/json_constants, and
# their siblings etscope/exported_program/<method>/program_state_dict and so on.
OWN_EXPORTED = OWN_PREFIX + EXPORTED + "/"
OWN_JSON = "/json_constants"
OWN_BASE = "/program"

_NOT_GRAPHS = frozenset(
    {
        IDENTIFIER,
        DEBUG_HANDLES,
        DELEGATES,
        NUM_OUTPUTS,
        REFERENCE_OUTPUTS,
        REPRESENTATIVE_INPUTS,
        EXPORT_GRAPH_ID,
        DELEGATE_INFO,
        "program_buffer",  # 0.1's reader knows it
    }
)
# Names reserved for etscope and ExecuTorch: a user's graph cannot have them.
RESERVED = _NOT_GRAPHS | {EXPORTED, EDGE, "et_dialect_graph_module"}


_T = TypeVar("_T")
Handles = dict[str, dict[int, tuple[int, ...]]]
DelegateMap = dict[str, dict[int, "DelegateEntry"]]
DelegateInfo = Mapping[str, Mapping[str, str]]
NumOutputs = dict[str, dict[int, int]]

_DECIMAL = re.compile(r"-?\d{1,18}")


@dataclass(frozen=True, slots=True)
class DelegateEntry:
    """A delegate's map of its operations.

    `identifiers` maps the backend's identifier of an operation to debug handles. Identifiers are
    text, even if the backend uses integers: the file has only text.
    """

    name: str
    identifiers: Mapping[str, tuple[int, ...]]


def slimmed_to_json(cuts: Mapping[str, tuple[Cut, ...]]) -> dict[str, Any]:
    """Return the content of the member `SLIMMED`: see `RecordFile.cuts`."""
    return {"version": 1, "cuts": cuts}


class RecordView(Protocol):
    """The parts of a record that the tools use, in a file or still in memory. See `RecordFile`."""

    @property
    def path(self) -> str | None: ...
    @property
    def edge_methods(self) -> tuple[str, ...]: ...
    @property
    def graph_names(self) -> tuple[str, ...]: ...
    @property
    def debug_handle_map(self) -> Handles | None: ...
    @property
    def handle_lists(self) -> Mapping[str, frozenset[int]]: ...
    @property
    def delegate_map(self) -> DelegateMap | None: ...
    @property
    def instruction_id_to_num_outs_map(self) -> NumOutputs | None: ...
    @property
    def delegate_info(self) -> DelegateInfo: ...
    @property
    def export_graph_id(self) -> int | None: ...
    @property
    def export_graph_ids(self) -> Mapping[str, int]: ...
    @property
    def fingerprints(self) -> Fingerprints | None: ...
    @property
    def taps(self) -> Mapping[str, MethodTaps]: ...
    @property
    def partition(self) -> Mapping[str, MethodPartition] | None: ...
    @property
    def export_words(self) -> tuple[str, ...]: ...
    def program_json(self, name: str) -> dict[str, Any]: ...
    def program_content(self, name: str) -> tuple[BytesLike, ...] | None: ...
    def program_buffer(self) -> bytes | None: ...
    def program_view(self) -> memoryview | None: ...
    def reference_outputs(self) -> dict[str, Any] | None: ...
    def representative_inputs(self) -> Any: ...
    def example_inputs(self, name: str) -> Any: ...
    def tensors(self, name: str) -> Mapping[str, Any]: ...


def read_etrecord(source: PathLike | BytesLike | IO[bytes]) -> RecordFile:
    """Open a record: only the zip's directory is read.

    Raises `MissingFileError` for a missing file, and `FormatError` for a file that is not an
    ETRecord or is an unsafe zip file (see `zip_archive`).
    """
    if not isinstance(source, (str, os.PathLike, bytes, bytearray, memoryview)):
        if source.seekable():
            source.seek(0)
        source = source.read()
    opened = open_source(source, "ETRecord")
    if bytes(opened.buffer[: len(_ZIP)]) != _ZIP:
        raise FormatError(f"not an ETRecord: {describe(opened.buffer)}", path=opened.path)
    archive = open_archive(opened.buffer, "ETRecord", opened.path)
    if IDENTIFIER not in archive.members:
        raise FormatError(
            f"not an ETRecord: this is a zip file without the member {IDENTIFIER}", path=opened.path
        )
    return RecordFile(archive)


class RecordFile(Shown):
    """An opened record. Missing parts are None: older versions write fewer."""

    def __init__(self, archive: ZipArchive) -> None:
        self.archive = archive
        self._programs: dict[str, dict[str, Any]] = {}

    def __repr__(self) -> str:
        return f"RecordFile({self.path!r}, {len(self.members)} members)"

    @property
    def path(self) -> str | None:
        """The file's path, None for a record in memory."""
        return self.archive.path

    @property
    def members(self) -> Mapping[str, Member]:
        """All members by name, with their sizes."""
        return self.archive.members

    @property
    def graph_names(self) -> tuple[str, ...]:
        """The names of all graphs: "exported_program" (and "exported_program/<method>" for methods
        other than the one that ExecuTorch keeps), "edge_dialect_exported_program/<method>", and
        further graphs as "<name>/<method>".
        """
        return tuple(self.graph_members)

    @property
    def edge_methods(self) -> tuple[str, ...]:
        """The methods of the edge program, by their real names."""
        start = len(EDGE) + 1
        return tuple(name[start:] for name in self.graph_members if name.startswith(EDGE + "/"))

    @cached_property
    def graph_members(self) -> Mapping[str, str]:
        """The member that holds the graph, for each name of `graph_names`."""
        exported: dict[str, str] = {}
        edge: dict[str, str] = {}
        extra: dict[str, str] = {}
        for name in self.members:
            if name.startswith(OWN_EXPORTED) and name.endswith(OWN_JSON):
                method = name[len(OWN_EXPORTED) : -len(OWN_JSON)]
                exported[f"{EXPORTED}/{method}"] = name
            elif name in _NOT_GRAPHS or name.startswith(OWN_PREFIX) or name.endswith("/"):
                continue
            elif name.endswith(SIBLINGS) and name + STATE_DICT not in self.members:
                continue  # it belongs to another graph, which has its own siblings
            elif name == EXPORTED:
                exported[name] = name
            elif name == EDGE:  # ExecuTorch 1.1 and before
                edge["forward"] = name
            elif name.startswith(EDGE + "/"):
                edge[name[len(EDGE) + 1 :]] = name
            elif "/" in name:  # ExecuTorch writes "<name>/<method>"
                extra[name] = name
        if list(edge) == ["forward"]:
            # ExecuTorch writes a single method as "forward": the maps have its real name.
            methods = list(self.json_member(DEBUG_HANDLES) or self.json_member(DELEGATES) or ())
            edge = {methods[0] if len(methods) == 1 else "forward": edge["forward"]}
        return exported | {f"{EDGE}/{method}": name for method, name in edge.items()} | extra

    @property
    def unknown_members(self) -> tuple[str, ...]:
        """The members that etscope does not know: of a later ExecuTorch, or of another tool."""
        known = _NOT_GRAPHS | {EXPORTED, EDGE}
        return tuple(
            name
            for name in self.members
            if "/" not in name and name not in known and not name.endswith(SIBLINGS)
        )

    def program_json(self, name: str) -> dict[str, Any]:
        """The serialized program of a graph, parsed once and kept.

        The payloads of delegate calls (blobs, weights) are replaced by marks, from which
        `exported_json.payload_size` gets their sizes.

        Raises `MissingDataError` for a graph that the record does not have.
        """
        if name not in self._programs:
            member = self._graph_member(name)
            with reading("ETRecord", self.path, member=member):
                data = with_marks(self.program_text(name), self.cuts.get(member, ()))
                content = parse_json(without_payloads(data))
                self._programs[name] = mapping(content, "a program")
        return self._programs[name]

    def program_content(self, name: str) -> tuple[BytesLike, ...]:
        """All bytes that `program_json` depends on; `ETRecord` has None for programs in memory."""
        cuts = self.cuts.get(self._graph_member(name), ())
        return self.program_text(name), repr(cuts).encode()

    def program_text(self, name: str) -> memoryview:
        """The bytes of a graph's JSON, payloads included."""
        return self.archive.read(self._graph_member(name))

    def sibling(self, name: str, suffix: str) -> memoryview:
        """Return the bytes of a graph's member of one of `SIBLINGS`; b"" if the record lacks it, as
        slimmed and old records do.

        Raises `FormatError` if the record has a later one: releases added them in that order.
        """
        member = self.sibling_member(name, suffix)
        if member in self.members:
            return self.archive.read(member)
        later = SIBLINGS[SIBLINGS.index(suffix) + 1 :]
        base = member.removesuffix(suffix)
        if SLIMMED not in self.members and any(base + one in self.members for one in later):
            raise FormatError(
                f"the record lost its member {member}, which the program needs",
                path=self.path,
            )
        return memoryview(b"")

    def sibling_member(self, name: str, suffix: str) -> str:
        """The name of a graph's member of one of `SIBLINGS`; the record may lack it."""
        member = self._graph_member(name)
        if member.startswith(OWN_EXPORTED):
            member = member.removesuffix(OWN_JSON) + OWN_BASE
        return member + suffix

    @cached_property
    def cuts(self) -> Mapping[str, tuple[Cut, ...]]:
        """The payloads that were cut out of each graph's member, in a slimmed record."""
        content = self.json_member(SLIMMED)
        if content is None:
            return {}
        with reading("ETRecord", self.path, member=SLIMMED):
            return {
                member: tuple(
                    (integer(at, "a place"), integer(size, "a size")) for at, size in cuts
                )
                for member, cuts in mapping(content["cuts"], "the cuts").items()
            }

    def _graph_member(self, name: str) -> str:
        if name not in self.graph_members:
            held = ", ".join(self.graph_members) or "none"
            raise MissingDataError(
                f"the record does not have a graph {name!r}", hint=f"its graphs: {held}"
            )
        return self.graph_members[name]

    @cached_property
    def debug_handle_map(self) -> Handles | None:
        """method -> instruction -> debug handles. `handle_lists`: instructions with lists."""
        return self._parsed(DEBUG_HANDLES, debug_handles)

    @cached_property
    def handle_lists(self) -> Mapping[str, frozenset[int]]:
        """method -> instructions with a list of debug handles: delegate calls."""
        return self._parsed(DEBUG_HANDLES, handle_lists) or {}

    @cached_property
    def delegate_map(self) -> DelegateMap | None:
        """method -> delegate instruction -> the backend's map of its operations."""
        return self._parsed(DELEGATES, delegates)

    @cached_property
    def delegate_info(self) -> DelegateInfo:
        """The words of the backends on their delegates at export, by "<method>/<name>" of the
        lowered module; a value that is not an object has the key ""."""
        content = self.json_member(DELEGATE_INFO) or {}
        return {
            delegate: {
                key: value if isinstance(value, str) else json.dumps(value)
                for key, value in (said if isinstance(said, dict) else {"": said}).items()
            }
            for delegate, said in content.items()
        }

    @cached_property
    def instruction_id_to_num_outs_map(self) -> NumOutputs | None:
        """method -> delegate instruction -> number of its outputs."""
        return self._parsed(NUM_OUTPUTS, num_outputs)

    @cached_property
    def export_graph_id(self) -> int | None:
        """The `graph_id` that `Node.origins` give for nodes of the exported program's graph."""
        if EXPORT_GRAPH_ID not in self.members:
            return None
        with reading("ETRecord", self.path, member=EXPORT_GRAPH_ID):
            return integer(parse_json(self.archive.read(EXPORT_GRAPH_ID)), "export_graph_id")

    @cached_property
    def export_graph_ids(self) -> Mapping[str, int]:
        """`export_graph_id` by name of the graph: for "exported_program", and for further methods
        and extra graphs in records that etscope wrote."""
        ids: dict[str, int] = {}
        if self.export_graph_id is not None:
            ids[EXPORTED] = self.export_graph_id
        with reading("ETRecord", self.path, member=EXPORT_GRAPH_IDS):
            for method, number in (self.json_member(EXPORT_GRAPH_IDS) or {}).items():
                ids[f"{EXPORTED}/{method}"] = integer(number, "a graph's id")
        return {**ids, **self.extra_graph_ids}

    @cached_property
    def extra_graph_ids(self) -> Mapping[str, int]:
        """`export_graph_id` of the extra graphs; empty in records that etscope did not write."""
        with reading("ETRecord", self.path, member=EXTRA_GRAPH_IDS):
            content = self.json_member(EXTRA_GRAPH_IDS) or {}
            return {name: integer(number, "a graph's id") for name, number in content.items()}

    @cached_property
    def fingerprints(self) -> Fingerprints | None:
        """Identity of the record's program; None in records that etscope did not write."""
        from etscope.formats.etrecord.own_members import fingerprints_from_json

        return self._own(FINGERPRINTS, fingerprints_from_json)

    @cached_property
    def taps(self) -> Mapping[str, MethodTaps]:
        """method -> its outputs that are taps; empty for a model without taps."""
        from etscope.formats.etrecord.own_members import taps_from_json

        return self._own(TAPS, taps_from_json) or {}

    @cached_property
    def partition(self) -> Mapping[str, MethodPartition] | None:
        """method -> the nodes that partitioners took and refused; None if the record lacks it, as
        records that etscope did not write do."""
        from etscope.formats.etrecord.own_members import partition_from_json

        return self._own(PARTITION, partition_from_json)

    @cached_property
    def export_words(self) -> tuple[str, ...]:
        """The arguments of the `etscope export` that made the record, with the model first; () of
        another tool's record."""
        return self._own(EXPORT_WORDS, lambda content: content.texts("words")) or ()

    def program_buffer(self) -> bytes | None:
        """The .pte file's bytes; None in records that etscope did not write."""
        view = self.program_view()
        return None if view is None else bytes(view)

    def program_view(self) -> memoryview | None:
        """Return the same bytes as a view of the memory-mapped file, which is read only when the
        view is used.
        """
        return self.archive.read(PROGRAM_BUFFER) if PROGRAM_BUFFER in self.members else None

    def reference_outputs(self) -> dict[str, Any] | None:
        """method -> a list of cases -> a list of outputs (numpy arrays or numbers).

        A new structure at each call; its arrays are views of the file.
        """
        if REFERENCE_OUTPUTS not in self.members:
            return None
        return mapping(self._tensors(REFERENCE_OUTPUTS), "reference outputs")

    def representative_inputs(self) -> Any:
        """The inputs of one case of "forward": a sequence of numpy arrays and numbers, or None."""
        if REPRESENTATIVE_INPUTS not in self.members:
            return None
        return self._tensors(REPRESENTATIVE_INPUTS)

    def example_inputs(self, name: str) -> Any:
        """The inputs that a graph was exported with, as (arguments, keywords); None without."""
        return self._sibling_tensors(name, EXAMPLE_INPUTS) or None

    def state_dict(self, name: str) -> Any:
        """A graph's parameters and buffers by qualified name, as views of the file."""
        return self._sibling_tensors(name, STATE_DICT)

    def state_dict_beside(self, name: str) -> tuple[Callable[[], Any], Callable[[], None]]:
        """Return a function that reads `state_dict` from bytes that a thread still checks, and one
        that waits for the thread: see `ZipArchive.read_beside`."""
        member = self.sibling_member(name, STATE_DICT)
        if not self.members.get(member) or not self.members[member].size:
            self.sibling(name, STATE_DICT)
            return dict, lambda: None
        data, wait = self.archive.read_beside(member)
        return lambda: self._tensors_in(data, member), wait

    def constants(self, name: str) -> Any:
        """A graph's lifted constants by name, as views of the file."""
        return self._sibling_tensors(name, CONSTANTS)

    def tensors(self, name: str) -> Mapping[str, Any]:
        """The `state_dict` and the `constants` of a graph."""
        return {**self.constants(name), **self.state_dict(name)}

    def _sibling_tensors(self, name: str, suffix: str) -> Any:
        data = self.sibling(name, suffix)
        return self._tensors_in(data, self.sibling_member(name, suffix)) if len(data) else {}

    def _tensors(self, member: str) -> Any:
        return self._tensors_in(self.archive.read(member), member)

    def _tensors_in(self, data: memoryview, member: str) -> Any:
        from etscope.formats.torch_files.torch_archive import read_tensors

        with reading("ETRecord", self.path, member=member):
            return read_tensors(data, checked=True)

    def _parsed(self, member: str, parse: Callable[[Any], _T]) -> _T | None:
        """The content of a JSON member, parsed; None if the record does not have it."""
        content = self.json_member(member)
        if content is None:
            return None
        with reading("ETRecord", self.path, member=member):
            return parse(content)

    def _own(self, name: str, read: Callable[[JsonValue], _T]) -> _T | None:
        """A member that etscope adds, read; None if the record does not have it."""
        return self._parsed(name, lambda content: read(JsonValue(content, name)))

    def json_member(self, name: str) -> dict[str, Any] | None:
        if name not in self.members:
            return None
        with reading("ETRecord", self.path, member=name):
            return mapping(parse_json(self.archive.read(name)), f"the content of {name}")


# --------------------------------------------------------------------------------------------
# The maps of an ETRecord, from its JSON (text keys, lists) or from memory (int keys, tuples).
#
# They link instructions of the runtime to debug handles of the graph. ExecuTorch makes them when
# it emits the program; 0.1 to 0.7 do not write `instruction_id_to_num_outs_map`.


def debug_handles(content: object) -> Handles:
    """method -> instruction -> debug handles, one or several."""
    return {
        method: {instruction: _handles(value) for instruction, value in entries.items()}
        for method, entries in _by_method(content).items()
    }


def handle_lists(content: object) -> dict[str, frozenset[int]]:
    """Return method -> instructions with a list of debug handles: delegate calls."""
    return {
        method: frozenset(
            instruction
            for instruction, value in entries.items()
            if isinstance(value, (list, tuple))
        )
        for method, entries in _by_method(content).items()
    }


def delegates(content: object) -> DelegateMap:
    """method -> delegate instruction -> its `DelegateEntry`."""
    return {
        method: {instruction: _delegate(value) for instruction, value in entries.items()}
        for method, entries in _by_method(content).items()
    }


def num_outputs(content: object) -> NumOutputs:
    """method -> delegate instruction -> number of its outputs."""
    return {
        method: {
            instruction: integer(value, "a number of outputs")
            for instruction, value in entries.items()
        }
        for method, entries in _by_method(content).items()
    }


def _by_method(content: object) -> dict[str, dict[int, Any]]:
    """method -> instruction -> value of a map."""
    methods: dict[str, dict[int, Any]] = {}
    for method, entries in mapping(content, "the map").items():
        by_instruction = methods[text(method, "a method's name")] = {}
        for key, value in mapping(entries, f"the map of {method!r}").items():
            is_text = isinstance(key, str) and _DECIMAL.fullmatch(key)
            by_instruction[int(key) if is_text else integer(key, "an instruction's index")] = value
    return methods


def _handles(value: object) -> tuple[int, ...]:
    if isinstance(value, (list, tuple)):
        return tuple(integer(handle, "a debug handle") for handle in value)
    return (integer(value, "a debug handle"),)


def _delegate(value: object) -> DelegateEntry:
    entry = mapping(value, "a delegate's entry")
    identifiers = entry.get("delegate_map")
    if identifiers is None:
        identifiers = {}
    named: dict[str, tuple[int, ...]] = {}
    for key, handles in mapping(identifiers, "a delegate's map").items():
        if not isinstance(key, (str, int)):
            raise FormatError(f"a delegate's identifier must be text or a number, found {key!r}")
        named[str(key)] = _handles(handles)
    return DelegateEntry(text(entry.get("name"), "a backend's name"), named)
