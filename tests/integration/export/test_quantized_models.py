"""Models that people quantize before etscope sees them: an answer of each verb, or an error that
says whose fault it is. The whole table is for the night: `tests.support.quantized.survey`."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("torchao")

from etscope.backends.registry.export_options import ExportOptions
from etscope.bridge.lowering.variants import float_methods
from etscope.errors import ExportFailure, RuntimeFailure, UsageError
from etscope.export import export
from etscope.run import run
from etscope.search.sensitivity import sensitivity
from tests.support.quantized.models import MODELS
from tests.support.quantized.survey import BACKENDS, answers

FEW = ("export", "run", "numerics RUN", "bisect", "report", "info RECORD")


@pytest.mark.parametrize(
    ("name", "backend"),
    [("words_8", "portable"), ("xnn_dynamic", "xnnpack")],
)
def test_each_verb_answers(name: str, backend: str) -> None:
    found = list(answers(name, backend, FEW))
    assert [(cell.verb, cell.error) for cell in found] == [(verb, "") for verb in FEW]


@pytest.mark.nightly
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", MODELS)
def test_each_verb_answers_for_all(name: str, backend: str) -> None:
    found = list(answers(name, backend))
    assert found
    assert not [cell for cell in found if cell.is_bug]


@pytest.mark.parametrize(
    ("name", "why", "way_out"),
    [
        ("8da_int4_group", "no kernel computes torchao::", "--quantize 8da4w"),
        ("int8_dynamic", "no kernel computes aten::_int_mm", "--quantize 8da4w"),
        ("words_padded", "no kernel computes torchao::dequantize_affine", "padding_idx = None"),
        ("float8_weights", "no kernel of aten::permute_copy takes float8_e4m3fn", "8da8w"),
    ],
)
def test_an_operator_without_a_kernel(name: str, why: str, way_out: str) -> None:
    model, inputs = MODELS[name]()
    with pytest.raises(ExportFailure, match=re.escape(why)) as caught:
        export(model, inputs)
    assert "models.py" in caught.value.message
    assert way_out in (caught.value.hint or "")


@pytest.mark.parametrize("backend", BACKENDS)
def test_weights_that_the_program_quantizes(backend: str) -> None:
    model, inputs = MODELS["xnn_unfolded"]()
    made = export(model, inputs, backend=backend)
    with pytest.raises(RuntimeFailure) as caught:
        run(made.program_bytes(), inputs, iterations=1)
    assert "fold_quantize=True" in (caught.value.hint or "")


@pytest.mark.parametrize("name", ["float8_weights", "words_8", "subclass_weight"])
def test_weights_in_parts_have_a_fingerprint(name: str) -> None:
    """So do those that `torch.Tensor.reshape` does not flatten."""
    model, inputs = MODELS[name]()
    methods = [float_methods(model, inputs, ExportOptions()) for _ in range(2)]
    one, same = (found["forward"].fingerprint for found in methods)
    assert one == same


@pytest.mark.parametrize("name", ["8da_int4_group", "xnn_dynamic"])
def test_the_sensitivity_of_a_quantized_model_is_refused(name: str) -> None:
    model, inputs = MODELS[name]()
    with pytest.raises(UsageError, match="the model is quantized already: it has"):
        sensitivity(model, inputs, backend="xnnpack")
