"""The attributes of an `ETRecord` from a file, each read on first use, or from test cases.

The keys of maps are text, as in the file: ExecuTorch's parser returns the same. Programs and
tensors are torch's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np

from etscope.errors import UsageError, reading
from etscope.formats.bytes.files import ParseCache
from etscope.formats.etrecord.reader import (
    CONSTANTS,
    DEBUG_HANDLES,
    DELEGATES,
    EDGE,
    EXAMPLE_INPUTS,
    EXPORT_GRAPH_ID,
    EXPORTED,
    IDENTIFIER,
    NUM_OUTPUTS,
    REFERENCE_OUTPUTS,
    REPRESENTATIVE_INPUTS,
    SIBLINGS,
    RecordFile,
)
from etscope.support.optional import require


class ETRecordReservedFileNames(str, Enum):
    """Names of a record's members, as upstream's enumeration has them."""

    ETRECORD_IDENTIFIER = IDENTIFIER
    EXPORTED_PROGRAM = EXPORTED
    EXPORT_GRAPH_ID = EXPORT_GRAPH_ID
    EDGE_DIALECT_EXPORTED_PROGRAM = EDGE
    ET_DIALECT_GRAPH_MODULE = "et_dialect_graph_module"
    DEBUG_HANDLE_MAP_NAME = DEBUG_HANDLES
    DELEGATE_MAP_NAME = DELEGATES
    INSTRUCTION_ID_TO_NUM_OUTS_MAP_NAME = NUM_OUTPUTS
    REFERENCE_OUTPUTS = REFERENCE_OUTPUTS
    REPRESENTATIVE_INPUTS = REPRESENTATIVE_INPUTS

    __str__ = str.__str__


def bridge(wanted_by: str) -> Any:
    """Import the module with torch and executorch."""
    require("torch", wanted_by=wanted_by)
    require("executorch.exir", wanted_by=wanted_by)
    from etscope.bridge import programs

    return programs


def load_program(file: RecordFile, name: str) -> Any:
    """Rebuild the `ExportedProgram` of a graph of the file.

    First check texts that torch evaluates as code (names, symbolic sizes) against a strict grammar.
    Raises `FormatError` for a program that fails the check, or that torch cannot rebuild.
    """
    from etscope.formats.torch_files.program_safety import check_program

    programs = bridge("the ExportedProgram of a record")
    # Copies: the file may change between the check and torch's reading.
    content = bytes(file.program_text(name))
    siblings = [bytes(file.sibling(name, suffix)) for suffix in SIBLINGS]
    with reading("ETRecord", file.path, member=file.graph_members[name]):
        check_program(
            memoryview(content), map(memoryview, siblings), strict=programs.UNPICKLES_FREELY
        )
        return programs.deserialize_program(programs.SerializedProgram(content, *siblings), name)


def load_to_run(file: RecordFile, name: str) -> Any:
    """Do `load_program` to run the graph once: `state_dict` is a mapping that reads a weight from
    the file when a node uses it."""
    from etscope.formats.torch_files.program_safety import check_program

    programs = bridge("the ExportedProgram of a record")
    arrays = file.state_dict(name)
    if programs.UNPICKLES_FREELY or not isinstance(arrays, dict) or not arrays:
        return load_program(file, name)
    from etscope.bridge.tensors import StoredWeights

    content = bytes(file.program_text(name))
    siblings = [bytes(file.sibling(name, suffix)) for suffix in (CONSTANTS, EXAMPLE_INPUTS)]
    with reading("ETRecord", file.path, member=file.graph_members[name]):
        check_program(memoryview(content), map(memoryview, siblings), strict=False)
        parts = programs.SerializedProgram(content, b"", *siblings)
        return programs.deserialize_program(parts, name, StoredWeights(arrays))


def load_recorded(file: RecordFile, name: str, weights: Any, nodes: Sequence[str]) -> Any:
    """Return a graph of the file as a `bridge.reference.recorded.RecordedGraphInterpreter`, which
    takes a fraction of the time of `load_to_run`. None if the graph is not plain, or the file does
    not have its weights.

    weights: the graph's `state_dict`. nodes: names for the nodes that compute, in order. Raises the
    `FormatError`s of `load_program`.
    """
    from etscope.formats.torch_files.program_safety import check_plain

    require("torch", wanted_by="a reference run")
    siblings = [file.sibling(name, suffix) for suffix in (CONSTANTS, EXAMPLE_INPUTS)]

    def compiled() -> Any:
        from etscope.bridge.reference.recorded import plain_graph

        program = file.program_json(name)
        with reading("ETRecord", file.path, member=file.graph_members[name]):
            return plain_graph(program, nodes) if check_plain(program, siblings) else None

    graph = _PLAIN_GRAPHS.made(
        (*file.program_content(name), *siblings), (name, tuple(nodes)), compiled
    )
    if graph is None:
        return None
    constants = file.constants(name)
    if not isinstance(weights, dict) or not isinstance(constants, dict):
        return None
    return graph.with_weights(weights, constants)


_PLAIN_GRAPHS: ParseCache[Any] = ParseCache(most=16 << 20)


def field_of(graph: str) -> str:
    """Return the attribute of an `ETRecord` that holds the program of this graph."""
    fields = {EXPORTED: "exported_program", EDGE: "edge_dialect_program"}
    return fields.get(graph.partition("/")[0], "graph_map")


def exported_method(file: RecordFile) -> str:
    """Return the method of `ETRecord.exported_program`."""
    if EXPORTED not in file.graph_names:
        further = further_exported_names(file)
        return next(iter(further)) if len(further) == 1 else "forward"
    return file.edge_methods[0] if len(file.edge_methods) == 1 else "forward"


def further_exported_names(file: RecordFile) -> dict[str, str]:
    """Map method to graph's name, for the exported programs that only etscope records."""
    start = EXPORTED + "/"
    return {name[len(start) :]: name for name in file.graph_names if name.startswith(start)}


def _exported(file: RecordFile) -> Any:
    if EXPORTED in file.graph_names:
        return load_program(file, EXPORTED)
    further = further_exported_names(file)
    return load_program(file, *further.values()) if len(further) == 1 else None


def _further_exported(file: RecordFile) -> dict[str, Any]:
    names = further_exported_names(file)
    if EXPORTED not in file.graph_names and len(names) == 1:
        return {}
    return {method: load_program(file, name) for method, name in names.items()}


def _edge(file: RecordFile) -> Any:
    programs = {method: load_program(file, f"{EDGE}/{method}") for method in file.edge_methods}
    return programs if len(programs) > 1 else next(iter(programs.values()), None)


def _json(member: str) -> Callable[[RecordFile], Any]:
    return lambda file: file.json_member(member)


def _tensors(member: str) -> Callable[[RecordFile], Any]:
    def load(file: RecordFile) -> Any:
        if member not in file.members:
            return None
        programs = bridge(f"{member} as torch tensors")
        with reading("ETRecord", file.path, member=member):
            return programs.load_tensors(file.archive.read(member))

    return load


LOADERS: Mapping[str, Callable[[RecordFile], Any]] = {
    "exported_program": _exported,
    "export_graph_id": lambda file: file.export_graph_id or 0,
    "edge_dialect_program": _edge,
    "graph_map": lambda file: {
        name: load_program(file, name) for name in file.graph_names if field_of(name) == "graph_map"
    },
    "_debug_handle_map": _json(DEBUG_HANDLES),
    "_delegate_map": _json(DELEGATES),
    "_instruction_id_to_num_outs_map": _json(NUM_OUTPUTS),
    "_reference_outputs": _tensors(REFERENCE_OUTPUTS),
    "_representative_inputs": _tensors(REPRESENTATIVE_INPUTS),
    "_further_exported": _further_exported,
    "extra_graph_ids": lambda file: dict(file.extra_graph_ids),
    "taps": lambda file: dict(file.taps),
    "partition": lambda file: file.partition,
    "export_words": lambda file: file.export_words,
}


# -- Test cases of a `BundledProgram`, in the form of a record


def is_bundled(program: object) -> bool:
    """Recognize a `BundledProgram`, ExecuTorch's or ours, by its attributes: importing ExecuTorch's
    class loads all its tools."""
    return hasattr(program, "method_test_suites") and hasattr(program, "executorch_program")


def bundled_outputs(bundle: Any) -> dict[str, list[Any]]:
    """Map each method to the expected outputs of each of its test cases."""
    outputs: dict[str, list[Any]] = {}
    for suite in bundle.method_test_suites:
        for case in suite.test_cases:
            if not case.expected_outputs:
                raise UsageError(
                    f"Missing at least one set of expected outputs for method {suite.method_name}."
                )
        outputs[suite.method_name] = [
            _torch_values(case.expected_outputs) for case in suite.test_cases
        ]
    return outputs


def bundled_inputs(bundle: Any) -> Any:
    """Return the inputs of the first test case of "forward", or of the only method with cases."""
    suites = {suite.method_name: suite for suite in bundle.method_test_suites}
    suite = suites.get("forward") or (next(iter(suites.values())) if len(suites) == 1 else None)
    if suite is None:
        return None
    if not suite.test_cases:
        raise UsageError(
            f"The '{suite.method_name}' method is defined, but no corresponding input test cases "
            "are provided."
        )
    return _torch_values(suite.test_cases[0].inputs)


def _torch_values(values: list[Any]) -> list[Any]:
    """Convert arrays to torch tensors: a record saves only these."""
    if not any(isinstance(value, np.ndarray) for value in values):
        return values
    from etscope.bridge.tensors import torch_values

    return torch_values(values)
