"""A graph computed from a record's JSON gives the very bits of the rebuilt program, or is left."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch.exir")

from torch import nn  # noqa: E402

from etscope import Inspector  # noqa: E402
from etscope.bridge.reference.recorded import plain_graph  # noqa: E402
from etscope.bridge.reference.reference import arrays_of, reference_arrays  # noqa: E402
from etscope.diagnosis.reference import ReferenceGraphs  # noqa: E402
from etscope.errors import FormatError, NumericGapError  # noqa: E402
from etscope.etrecord.loading import load_recorded, load_to_run  # noqa: E402
from etscope.export import export  # noqa: E402
from etscope.formats.etrecord.reader import RecordFile, read_etrecord  # noqa: E402
from etscope.model.exported_graph import graph_from_record  # noqa: E402
from tests.support.artifacts import artifacts  # noqa: E402
from tests.support.numeric_runs import ATEN, inputs_of  # noqa: E402

PLAIN = [
    ("cnn_portable", ATEN),
    ("cnn_portable", "edge_dialect_exported_program/forward"),
    ("transformer", ATEN),
    ("many_delegates", ATEN),
    ("recurrent_xnnpack", ATEN),
    # Its weights in the record are not where torch would put them.
    ("recurrent_xnnpack", "edge_dialect_exported_program/forward"),
    # Operators of libraries that torch does not load by itself.
    ("cnn_xnnpack_int8", ATEN),
    ("channels_last", "edge_dialect_exported_program/forward"),
]
# Control flow, sizes that are not fixed, operators that write, delegates.
LEFT = [
    ("cond", ATEN),
    ("dynamic_shape", ATEN),
    ("rewritten_state", ATEN),
    ("cnn_xnnpack_lowered", "edge_dialect_exported_program/forward"),
]


def record(name: str) -> RecordFile:
    path = artifacts(name).etrecord
    assert path is not None
    return read_etrecord(path)


def recorded(file: RecordFile, graph: str) -> Any:
    return load_recorded(file, graph, file.state_dict(graph), computing(file, graph))


def computing(file: RecordFile, graph: str) -> list[str]:
    nodes = graph_from_record(file, graph).nodes
    return [node.name for node in nodes if node.kind == "call_function"]


def leaves(value: Any) -> list[Any]:
    return (
        [leaf for item in value for leaf in leaves(item)]
        if isinstance(value, (list, tuple))
        else [value]
    )


class WithoutGradients(nn.Module):
    """The body of the `with` is a graph of its own, whose values are used inside and outside."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        with torch.no_grad():
            z = x.cos() * y
            w = z + 1
        return self.layer(z) * w + y


def test_the_body_of_no_grad_is_run_within(tmp_path: Path) -> None:
    inputs = (torch.randn(2, 3),)
    export(WithoutGradients(), inputs).save(tmp_path)
    file = read_etrecord(tmp_path / "model.etrecord")
    content = json.dumps(file.program_json(ATEN))
    assert "wrap_with_set_grad_enabled" in content, "the graph has no body of its own"
    check_values(file, ATEN, inputs)


def test_the_exporter_is_not_imported_for_plain_graphs() -> None:
    made = [artifacts(name) for name in ("cnn_xnnpack_int8", "channels_last")]
    files = [[str(x) for x in (a.etdump, a.etrecord, a.debug_buffer, a.inputs_pt)] for a in made]
    code = f"""
import sys, torch
from etscope import Inspector
for dump, record, values, inputs in {files}:
    inspector = Inspector(etdump_path=dump, etrecord=record, debug_buffer_path=values)
    inputs = torch.load(inputs)["forward"][0]
    assert len(inspector.calculate_numeric_gap("MSE", inputs=inputs))
    assert inspector.diagnose_numerics(inputs=inputs).is_fine
    assert "executorch.exir" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(("name", "graph"), PLAIN)
def test_the_values_are_those_of_the_rebuilt_program(name: str, graph: str) -> None:
    check_values(record(name), graph, inputs_of(name))


def check_values(file: RecordFile, graph: str, inputs: Any) -> None:
    plain = recorded(file, graph)
    assert plain is not None
    found = [
        (name, [np.array(leaf) for leaf in leaves(arrays_of(value))])
        for name, value in plain.run(inputs)
    ]
    expected = [
        [np.array(leaf) for leaf in leaves(value)]
        for _, value in reference_arrays(load_to_run(file, graph), inputs)
    ]
    assert [name for name, _ in found] == computing(file, graph)
    assert len(found) == len(expected) >= 3
    for (_, ours), theirs in zip(found, expected, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "name",
    [
        *("cnn_portable", "cnn_xnnpack_int8", "llama_xnnpack", "nan_output"),
        *(
            pytest.param(name, marks=pytest.mark.nightly)
            for name in ("channels_last", "many_delegates", "recurrent_xnnpack", "int_outputs")
        ),
    ],
)
def test_a_diagnosis_is_that_with_the_rebuilt_program(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = artifacts(name)
    quick = Inspector(
        etdump_path=made.etdump, etrecord=made.etrecord, debug_buffer_path=made.debug_buffer
    ).diagnose_numerics(inputs=inputs_of(name))
    prepared: list[Any] = []

    def rebuilt(graphs: ReferenceGraphs, graph: Any) -> Any:
        prepared.append(graphs.rebuilt(graph))
        return prepared[-1]

    monkeypatch.setattr(ReferenceGraphs, "runnable", rebuilt)
    slow = Inspector(
        etdump_path=made.etdump, etrecord=made.etrecord, debug_buffer_path=made.debug_buffer
    ).diagnose_numerics(inputs=inputs_of(name))
    assert prepared
    assert repr(quick) == repr(slow)


@pytest.mark.parametrize(("name", "graph"), LEFT)
def test_what_is_not_plain_is_left(name: str, graph: str) -> None:
    assert recorded(record(name), graph) is None


def test_inputs_are_checked() -> None:
    plain = recorded(record("cnn_portable"), ATEN)
    with pytest.raises(NumericGapError, match="no inputs to run"):
        next(plain.run(None))
    with pytest.raises(NumericGapError, match="takes 1 inputs, not 2"):
        next(plain.run([torch.zeros(1), torch.zeros(1)]))
    with pytest.raises(NumericGapError, match=r"float32\[1\] where the program takes"):
        next(plain.run([torch.zeros(1)]))


@pytest.mark.parametrize(
    "change",
    [
        lambda node: node.update(target="torch.ops.aten.relu_.default"),  # writes
        lambda node: node.update(target="torch.ops.aten.no_such_operator.default"),
        lambda node: node.update(target="torch.os.system"),
        lambda node: node["inputs"][0]["arg"].update(as_tensor={"name": "nobody"}),
        lambda node: node["inputs"].clear(),
        lambda node: node["outputs"].append({"as_sym_int": {"as_name": "s0"}}),
    ],
)
def test_a_changed_graph_is_left_to_torch(change: Any) -> None:
    file = record("cnn_portable")
    program, names = file.program_json(ATEN), computing(file, ATEN)
    graph = plain_graph(program, names)
    assert graph is not None
    assert graph.with_weights(file.state_dict(ATEN), file.constants(ATEN)) is not None
    assert graph.with_weights({}, file.constants(ATEN)) is None
    nodes = program["graph_module"]["graph"]["nodes"]
    change(next(node for node in nodes if node["target"].startswith("torch.ops.aten.relu")))
    assert plain_graph(program, names) is None


def test_damaged_weights_are_told(tmp_path: Path) -> None:
    made = artifacts("cnn_portable")
    path = tmp_path / "damaged.etrecord"
    assert made.etrecord is not None
    shutil.copyfile(made.etrecord, path)
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo("exported_program_state_dict")
    content = bytearray(path.read_bytes())
    content[member.header_offset + member.file_size // 2] ^= 1
    path.write_bytes(content)
    inspector = Inspector(
        etdump_path=made.etdump, etrecord=path, debug_buffer_path=made.debug_buffer
    )
    with pytest.raises(FormatError, match="CRC-32 is wrong"):
        inspector.calculate_numeric_gap(
            "MSE", reference_graph=ATEN, inputs=inputs_of("cnn_portable")
        )
