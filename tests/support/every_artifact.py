"""Parameters of tests that hold for any artefact."""

from __future__ import annotations

import pytest

from tests.support.artifacts import VARIED

# One for each kind of content that files have; the others have more of the same.
DISTINCT = frozenset(
    {
        *("allocations", "bf16_fp16", "bundled", "channels_last", "cond", "while_loop"),
        *("dynamic_shape", "empty_blocks", "forward_and_extra", "two_methods", "method_only"),
        *("int_outputs", "nan_output", "scalar_outputs", "program_outputs", "varying_inputs"),
        *("cnn_portable", "cnn_xnnpack", "cnn_xnnpack_int8", "cnn_xnnpack_lowered"),
        *("many_delegates", "recurrent_xnnpack", "written_state", "replaced_operators"),
        *("external_portable", "external_xnnpack", "llama_shared_external"),
        *("llama_quantized_cache", "llama_generate_8da4w"),
    }
)


def every_artifact(*without: str) -> list[object]:
    """The names of the fast artefacts; those with nothing of their own are for the night."""
    assert VARIED >= DISTINCT
    return [
        pytest.param(name, marks=() if name in DISTINCT else pytest.mark.nightly)
        for name in sorted(VARIED - set(without))
    ]
