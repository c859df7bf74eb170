"""The bytes of a program by what they are: sums, and modules against the record's parameters."""

from __future__ import annotations

import pytest

from etscope.analysis.matching.run_nodes import program_nodes
from etscope.analysis.weights import WEIGHTS, file_parts
from etscope.formats.etrecord.reader import read_etrecord
from etscope.formats.program.pte import read_pte
from tests.support.artifacts import artifacts

MODELS = ("cnn_portable", "cnn_xnnpack", "cnn_xnnpack_int8", "attention_xnnpack")

# The number of weights of convolutions, by module.
CONVOLUTIONS = {"stem.conv": 216, "stages.1.conv": 1152, "stages.2.second.conv": 2304}


@pytest.mark.parametrize("model", ["cnn_portable", "cnn_xnnpack", "cnn_xnnpack_int8"])
def test_weights_are_in_the_modules_that_read_them(model: str) -> None:
    made = artifacts(model)
    program, record = read_pte(made.pte), read_etrecord(made.etrecord)
    parts = file_parts(program, lambda method: program_nodes(program, method, record))
    sizes = dict.fromkeys(CONVOLUTIONS, 0)
    for part in parts:
        if part.module in CONVOLUTIONS and part.label is not None and part.label.endswith("]"):
            sizes[part.module] = max(sizes[part.module], part.size)
    width = 1 if model.endswith("int8") else 4
    assert sizes == {module: count * width for module, count in CONVOLUTIONS.items()}


def test_int8_weights_have_their_type() -> None:
    parts = file_parts(read_pte(artifacts("cnn_xnnpack_int8").pte))
    assert {part.dtype for part in parts if part.kind == WEIGHTS} == {"int8", "int32"}
    assert not any(part.kind == "named data" for part in parts)
