"""Sizes of a program's tensors and delegates: upstream's `size_analysis_tool`.

`etscope info --size model.pte` shows the same for a program's file, without torch.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from etscope.errors import MissingDataError
from etscope.etrecord import parse_etrecord
from etscope.support.exits import exit_with

__all__ = ["generate_model_size_information", "main", "parse_args"]

Deserializers = dict[str, Callable[[bytes], dict[str, Any]]]


def generate_model_size_information(
    model: Any,
    delegate_deserializers: Deserializers | None = None,
    flatbuffer: bytes | None = None,
) -> dict[str, Any]:
    """Return the sizes of the parts of an `ExportedProgram`, as values for JSON.

    delegate_deserializers: backend id -> a function from its data to further keys of its entry.
    flatbuffer: the program's file; the overview gets its size without tensors and delegates.

    Keys: `tensor_data` and `delegate_blob_data`, lists with the largest first, and `overview`.
    Sizes are in bytes.
    """
    deserializers = delegate_deserializers or {}
    tensors = [_tensor(node, tensor) for node, tensor in _constants(model)]
    delegates: list[dict[str, Any]] = []
    for node, held in _attributes(model.graph_module):
        if hasattr(held, "element_size"):
            tensors.append(_tensor(node, held))
        else:
            backend, content = held.backend_id, held.processed_bytes
            entry = {"name": node.name, "backend_id": backend, "num_bytes": len(content)}
            if backend in deserializers:
                entry.update(deserializers[backend](content))
            delegates.append(entry)
    for entries in (tensors, delegates):
        entries.sort(key=lambda entry: entry["num_bytes"], reverse=True)

    of_tensors, of_delegates = (
        sum(one["num_bytes"] for one in all_) for all_ in (tensors, delegates)
    )
    overview = {
        "total_tensor_data_size": of_tensors,
        "total_delegate_blob_data_size": of_delegates,
    }
    if flatbuffer is not None:
        overview["serialization_metadata_size"] = len(flatbuffer) - of_tensors - of_delegates
        overview["model_size"] = len(flatbuffer)
    return {"tensor_data": tensors, "delegate_blob_data": delegates, "overview": overview}


def _constants(model: Any) -> Iterator[tuple[Any, Any]]:
    """Return the placeholders of a program's parameters, buffers and constants, and their tensors.
    The constants include buffers that are not persistent."""
    signature = model.graph_signature
    names = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    held = {**model.constants, **model.state_dict}
    for node in model.graph_module.graph.nodes:
        tensor = held.get(names.get(node.name)) if node.op == "placeholder" else None
        if tensor is not None:
            yield node, tensor


def _attributes(graph_module: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the tensors and delegates that a graph and its branches and loops name."""
    for node in graph_module.graph.nodes:
        if node.op == "get_attr":
            held = getattr(graph_module, node.target)
            if hasattr(held, "element_size") or hasattr(held, "processed_bytes"):
                yield node, held
            elif hasattr(held, "graph"):
                yield from _attributes(held)


def _tensor(node: Any, tensor: Any) -> dict[str, Any]:
    modules = node.meta.get("nn_module_stack")
    return {
        "name": node.name,
        "numel": tensor.numel(),
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "element_size": tensor.element_size(),
        "shape": list(tensor.shape),
        "num_bytes": tensor.element_size() * tensor.numel(),
        "nn_module_stack": None if modules is None else str(modules),
    }


def parse_args() -> argparse.Namespace:
    """Read the command line: `--etrecord_path` and `--output_path`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--etrecord_path", required=True, help="ETRecord of the model")
    parser.add_argument(
        "--output_path",
        default="model_size_information.json",
        help="JSON file to write (%(default)s)",
    )
    return parser.parse_args()


def main() -> None:
    """Write the sizes of a record's extra graphs.

    Raises `MissingDataError` for a record without such graphs.
    """
    options = parse_args()
    graphs = parse_etrecord(options.etrecord_path).graph_map or {}
    if not graphs:
        raise MissingDataError(
            f"{options.etrecord_path} does not have extra graphs",
            hint="record them: generate_etrecord(..., extra_recorded_export_modules={...})",
        )
    sizes = [generate_model_size_information(program) for program in graphs.values()]
    Path(options.output_path).write_text(json.dumps(sizes), encoding="utf-8")


if __name__ == "__main__":
    exit_with(main)
