"""What the inputs of a method are called by the model's author: from a record's graph."""

from __future__ import annotations

from etscope.errors import reading
from etscope.formats.etrecord.reader import EDGE, EXPORTED, RecordView
from etscope.formats.exported_program.exported_json import Json, mapping, sequence, text, union


def record_input_names(record: RecordView, method: str) -> tuple[str, ...] | None:
    """The names of the inputs that a user gives, in the order of the program's: nested ones flat,
    those without a tensor among them.

    None if the record has no graph of the method, or one that does not name them all. Raises
    `FormatError` if the graph is broken.
    """
    names = [f"{EDGE}/{method}", f"{EXPORTED}/{method}"]
    if method == "forward" or record.edge_methods == (method,):
        names.append(EXPORTED)  # ExecuTorch keeps one exported program, under the bare name
    for name in names:
        if name in record.graph_names:
            with reading("ETRecord", record.path, member=name):
                return _user_inputs(record.program_json(name))
    return None


def _user_inputs(program: Json) -> tuple[str, ...] | None:
    module = mapping(program["graph_module"], "graph_module")
    signature = mapping(module["signature"], "signature")
    names = []
    for spec in sequence(signature.get("input_specs") or [], "input_specs"):
        tag, content = union(spec)
        if tag == "constant_input":
            names.append(text(content["name"], "an input's name"))
        elif tag == "user_input":
            _, argument = union(content["arg"])
            name = argument.get("name") or argument.get("as_name") if argument else None
            if name is None:
                return None
            names.append(text(name, "an input's name"))
    return tuple(names)
