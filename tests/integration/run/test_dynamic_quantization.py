"""The verification of programs that choose the scales of int8 values as they run."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch.exir")

from etscope.analysis.comparison.verification import compare_outputs  # noqa: E402
from etscope.bundled_program import bundle_cases  # noqa: E402
from etscope.cli import main  # noqa: E402
from etscope.run import run  # noqa: E402

ROWS = 4  # XNNPACK chooses a scale for each of them, the reference one for all


@functools.cache
def quantized() -> tuple[bytes, Any, torch.Tensor]:
    """A program of two dynamically quantized layers; the model that it was made of; an input."""
    from executorch.backends.xnnpack.partition.config.xnnpack_config import ConfigPrecisionType
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from executorch.exir import to_edge_transform_and_lower
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    torch.manual_seed(3)
    layers = torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32)
    model = torch.nn.Sequential(*layers).eval()
    x = (torch.randn(ROWS, 64),)
    config = get_symmetric_quantization_config(is_per_channel=True, is_dynamic=True)
    quantizer = XNNPACKQuantizer().set_global(config)
    prepared = prepare_pt2e(torch.export.export(model, x).module(), quantizer)
    prepared(*x)
    converted: Any = convert_pt2e(prepared)
    partitioner = XnnpackPartitioner(
        config_precisions=ConfigPrecisionType.DYNAMIC_QUANT, per_op_mode=True
    )
    program = to_edge_transform_and_lower(
        torch.export.export(converted, x), partitioner=[partitioner]
    ).to_executorch()
    return bytes(program.buffer), converted, x[0]


def bundle(fault: int | None) -> bytes:
    """A .bpte with the outputs of the model as it is, or of one that has other weights in an output
    channel of a layer, of this index."""
    program, model, x = quantized()
    model = copy.deepcopy(model)
    if fault is not None:
        weights = [one for name, one in model.named_buffers() if "frozen_param" in name]
        weights[fault][3].zero_()
    expected = model(x).detach().numpy()
    return bundle_cases(program, {"forward": [((x.numpy(),), (expected,))]})


def test_a_sound_model_passes_and_faults_are_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sound = tmp_path / "sound.bpte"
    sound.write_bytes(bundle(None))
    done = run(sound, iterations=1, trace=False, isolate=False)
    assert done.verify().passed
    assert "scales of int8 values" in " ".join(done.verify().table().notes)
    assert not done.verify(atol=1e-5).passed  # a tolerance that is given is taken as it is
    assert main(["run", str(sound), "--iterations", "1", "--show", "verification"]) == 0
    assert "steps of int8" in " ".join(capsys.readouterr().out.split())
    for layer in (0, 1):
        verification = run(bundle(layer), iterations=1, trace=False, isolate=False).verify()
        assert not verification.passed


def test_other_outputs_are_not_loosened() -> None:
    expected = [np.linspace(-1, 1, 11, dtype=np.float32)]
    for off, dynamic, passes in ((0.02, False, False), (0.02, True, True), (0.04, True, False)):
        (check,) = compare_outputs(expected, [expected[0] + off], dynamic=dynamic)
        assert check.passed is passes
    whole = [np.array([0, 1000])]
    assert not compare_outputs(whole, [whole[0] + 3], dynamic=True)[0].passed
    nothing = [np.array([np.nan, np.inf], np.float32)]
    assert compare_outputs(nothing, nothing, dynamic=True)[0].passed
