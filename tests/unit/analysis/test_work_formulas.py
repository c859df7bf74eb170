"""Work counted by hand: ten operators of each kind, by the conventions of `work.formulas`."""

from __future__ import annotations

from typing import Any

import pytest

from etscope.analysis.work.formulas import RULES, work_of
from etscope.analysis.work.operation import (
    STATE,
    WEIGHT,
    Operand,
    Operation,
    Traffic,
    operator_name,
    sum_of,
)


def f32(*sizes: int) -> Operand:
    return Operand("float32", sizes)


def of(dtype: str, *sizes: int) -> Operand:
    return Operand(dtype, sizes)


def weight(*sizes: int, dtype: str = "float32") -> Operand:
    return Operand(dtype, sizes, WEIGHT)


def state(*sizes: int, dtype: str = "float32") -> Operand:
    return Operand(dtype, sizes, STATE)


def operation(target: str, arguments: list[Any], *outputs: Operand, is_view: bool = False) -> Any:
    """An operation with arguments in the order of the schema, as a program has them."""
    name, own_name = operator_name(target)
    values = tuple(("", tuple(a) if isinstance(a, tuple) else a) for a in arguments)
    return Operation(name, own_name, values, outputs, is_view)


A, B, C = f32(4, 6), f32(6, 8), f32(4, 8)
X, Y = f32(2, 3, 8, 8), f32(2, 16, 6, 6)
N = 2 * 3 * 8 * 8  # elements of X

PRODUCTS = [
    ("aten::mm.out", [A, B], C, 2 * 4 * 8 * 6),
    ("aten::bmm.out", [f32(5, 4, 6), f32(5, 6, 8)], f32(5, 4, 8), 5 * 2 * 4 * 8 * 6),
    ("aten::addmm.out", [f32(8), A, B, 1, 1], C, 2 * 4 * 8 * 6),
    ("aten::linear.out", [f32(2, 3, 6), weight(8, 6), weight(8)], f32(2, 3, 8), 2 * 6 * 8 * 6),
    ("aten::matmul.out", [f32(7), f32(7)], f32(), 2 * 7),
    # 3 input channels, a kernel of 3 x 3, for each of 2 * 16 * 6 * 6 results.
    (
        "aten::convolution.out",
        [X, weight(16, 3, 3, 3), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1],
        Y,
        2 * (2 * 16 * 6 * 6) * (3 * 3 * 3),
    ),
    # In 4 groups each result sees 2 of 8 channels.
    (
        "aten::convolution.out",
        [f32(1, 8, 5, 5), weight(12, 2, 3, 3), weight(12), [1], [1], [1], False, [0], 4],
        f32(1, 12, 5, 5),
        2 * (12 * 5 * 5) * (2 * 3 * 3),
    ),
    # Transposed: each of the 4 * 5 * 5 inputs goes to 6 / 2 channels and 2 x 2 places.
    (
        "aten::convolution.out",
        [f32(1, 4, 5, 5), weight(4, 3, 2, 2), None, [2, 2], [0, 0], [1, 1], True, [0, 0], 2],
        f32(1, 6, 10, 10),
        2 * (4 * 5 * 5) * (3 * 2 * 2),
    ),
    # Keys of another length than queries, and values of another size.
    (
        "aten.scaled_dot_product_attention.default",
        [f32(2, 4, 10, 16), f32(2, 4, 12, 16), f32(2, 4, 12, 8)],
        f32(2, 4, 10, 8),
        2 * (2 * 4 * 10) * 12 * (16 + 8),
    ),
    # The first token at position 5: of a cache of 32 the 5 + 3 first are attended to.
    (
        "llama::custom_sdpa.out",
        [f32(1, 3, 4, 16), state(1, 32, 2, 16), state(1, 32, 2, 16), 5, None, 0.0, True],
        f32(1, 3, 4, 16),
        2 * (3 * 4) * 8 * (16 + 16),
    ),
]
ELEMENTWISE = [
    ("aten::mul.out", [X, X], X, N),
    ("aten::add.out", [X, f32(8), 1], X, N),
    ("aten::add.out", [X, X, 2], X, 2 * N),
    ("aten::relu.out", [X], X, N),
    ("aten::clamp.out", [X, 0.0, None], X, N),
    ("aten::hardtanh.out", [X, 0.0, 6.0], X, 2 * N),
    ("aten::silu.out", [X], X, 2 * N),
    ("aten::gelu.out", [X, "none"], X, 5 * N),
    ("aten::gelu.out", [X, "tanh"], X, 9 * N),
    ("aten::le.Tensor_out", [f32(8, 1), f32(1, 8)], of("bool", 8, 8), 64),
]
REDUCTIONS = [
    ("aten::sum.IntList_out", [X, [1], False], f32(2, 8, 8), N),
    ("aten::mean.out", [X, [-1], True], f32(2, 3, 8, 1), N + 48),
    ("aten::amax.out", [X, [1], False], f32(2, 8, 8), N),
    ("aten::argmax.out", [X, 1, False], of("int64", 2, 8, 8), N),
    ("aten::max.dim_max", [X, 1, False], f32(2, 8, 8), N),
    ("aten::any.out", [of("bool", 4, 4), 0], of("bool", 4), 16),
    ("aten::var.correction_out", [A, [1]], f32(4), 4 * 24 + 2 * 4),
    ("aten::linalg_vector_norm.out", [A, 2.0], f32(), 2 * 24 + 1),
    ("aten::logsumexp.out", [A, [1], False], f32(4), 4 * 24 + 2 * 4),
    ("aten::cumsum.out", [A, 0], A, 24),
]
NORMALISATIONS = [
    ("aten::native_layer_norm.out", [A, [6], weight(6), weight(6), 1e-5], A, 7 * 24),
    ("aten::native_layer_norm.out", [A, [6], None, None, 1e-5], A, 5 * 24),
    ("aten.layer_norm.default", [A, [6], weight(6), None], A, 6 * 24),
    ("aten::native_group_norm.out", [X, weight(3), weight(3), 2, 3, 64, 1], X, 7 * N),
    ("aten.group_norm.default", [X, 3, weight(3), weight(3)], X, 7 * N),
    (
        "aten::_native_batch_norm_legit_no_training.out",
        [X, weight(3), weight(3), weight(3), weight(3), 0.1, 1e-5],
        X,
        4 * N,
    ),
    ("aten.batch_norm.default", [X, None, None, weight(3), weight(3), False], X, 2 * N),
    ("aten.rms_norm.default", [A, [6], weight(6), 1e-6], A, 4 * 24 + 3 * 4),
    ("aten::_softmax.out", [X, -1, False], X, 5 * N),
    ("aten::_log_softmax.out", [A, -1, False], A, 5 * 24),
]
POOLING = [
    ("aten::avg_pool2d.out", [X, [2, 2], [2, 2]], f32(2, 3, 4, 4), (4 + 1) * 96),
    ("aten::avg_pool2d.out", [X, [8]], f32(2, 3, 1, 1), (64 + 1) * 6),
    ("aten::max_pool2d_with_indices.out", [X, [3, 3], [2, 2]], f32(2, 3, 3, 3), 9 * 54),
    ("aten::_adaptive_avg_pool2d.out", [X, [1, 1]], f32(2, 3, 1, 1), N + 6),
    ("aten::upsample_nearest2d.out", [X, [16, 16]], f32(2, 3, 16, 16), 0),
    ("aten::upsample_bilinear2d.vec_out", [X, [16, 16]], f32(2, 3, 16, 16), 9 * 4 * N),
]
Q = of("int8", 2, 3, 8, 8)
QUANTIZED = [
    ("quantized_decomposed::quantize_per_tensor.out", [X, 0.1, 0, -128, 127], Q, 5 * N),
    ("quantized_decomposed::dequantize_per_tensor.out", [Q, 0.1, 0, -128, 127], X, 2 * N),
    ("quantized_decomposed.quantize_per_channel.default", [X, f32(3), f32(3), 1], Q, 5 * N),
    ("quantized_decomposed.dequantize_per_token.default", [Q, f32(2, 3, 8, 1)], X, 2 * N),
    ("quantized_decomposed::choose_qparams.Tensor_out", [A, -128, 127], f32(1), 2 * 24),
    (
        "quantized_decomposed.choose_qparams_per_token_asymmetric.default",
        [A, "torch.int8"],
        f32(4, 1),
        2 * 24,
    ),
    (
        "quantized_decomposed::mixed_linear.out",
        [A, weight(8, 6, dtype="int8"), weight(8)],
        C,
        2 * 4 * 8 * 6,
    ),
    (
        "quantized_decomposed::embedding_byte.out",
        [weight(100, 16, dtype="int8"), weight(100), None, -128, 127, of("int64", 5)],
        f32(5, 16),
        2 * 80,
    ),
    ("torchao.choose_qparams_affine.default", [A, "asymmetric"], f32(4, 1), 2 * 24),
    # int8 activations, int4 weights of 8 rows: 6 multiply-adds for each result.
    (
        "torchao::_linear_8bit_act_4bit_weight.out",
        [A, weight(24, dtype="uint8"), f32(1), f32(8), f32(6)],
        C,
        2 * 4 * 8 * 6,
    ),
]


@pytest.mark.parametrize(
    ("target", "arguments", "output", "flops"),
    [*PRODUCTS, *ELEMENTWISE, *REDUCTIONS, *NORMALISATIONS, *POOLING, *QUANTIZED],
)
def test_flops(target: str, arguments: list[Any], output: Operand, flops: int) -> None:
    assert work_of(operation(target, arguments, output)).known_flops == flops


INDEX = of("int64", 5)
# Without FLOPs; bytes of weights, activations read and written, state read and written.
MOVEMENT = [
    ("aten::permute_copy.out", [A, [1, 0]], f32(6, 4), (0, 96, 96, 0, 0)),
    ("aten.permute.default", [A, [1, 0]], f32(6, 4), (0, 0, 0, 0, 0)),
    ("executorch_prim::et_view.default", [A, [24]], f32(24), (0, 0, 0, 0, 0)),
    ("aten::cat.out", [(A, A), 0], f32(8, 6), (0, 96, 192, 0, 0)),
    # Of what is sliced or indexed, only that is read.
    ("aten::slice_copy.Tensor_out", [f32(100, 4), 0, 0, 3], f32(3, 4), (0, 48, 48, 0, 0)),
    ("aten::embedding.out", [weight(100, 16), INDEX], f32(5, 16), (320, 40, 320, 0, 0)),
    ("aten::index.Tensor_out", [f32(100, 4), (INDEX,)], f32(5, 4), (0, 80 + 40, 80, 0, 0)),
    ("aten::expand_copy.out", [f32(1, 6), [4, 6]], A, (0, 24, 96, 0, 0)),
    ("aten::full.out", [[4, 6], 0.0], A, (0, 0, 96, 0, 0)),
    (
        "llama::update_cache.out",
        [f32(1, 1, 2, 16), state(1, 32, 2, 16), 5],
        f32(1),
        (0, 128, 0, 0, 128),
    ),
    ("aten::copy_", [A], state(4, 6), (0, 96, 0, 0, 96)),
    ("aten::index_put.out", [state(9, 4), (INDEX,), f32(5, 4)], f32(9, 4), (0, 120, 144, 144, 0)),
    ("aten.index_put_.default", [state(9, 4), (INDEX,), f32(5, 4)], state(9, 4),
     (0, 120, 0, 0, 80)),
    ("dim_order_ops::_to_dim_order_copy.out", [of("int64", 5), False], f32(5), (0, 40, 20, 0, 0)),
    ("aten::sym_size.int", [A, 0], None, (0, 0, 0, 0, 0)),
]  # fmt: skip


@pytest.mark.parametrize(("target", "arguments", "output", "expected"), MOVEMENT)
def test_movement_has_bytes_and_no_flops(
    target: str, arguments: list[Any], output: Operand | None, expected: tuple[int, ...]
) -> None:
    outputs = () if output is None else (output,)
    work = work_of(operation(target, arguments, *outputs))
    assert work.known_flops == 0
    assert work.traffic == Traffic(*expected)


def test_weights_and_activations_are_told_apart() -> None:
    work = work_of(operation("aten::linear.out", [A, weight(8, 6), weight(8)], C))
    assert work.traffic == Traffic(
        weights=4 * (48 + 8), activations_read=96, activations_written=128
    )
    assert work.intensity == (2 * 4 * 8 * 6) / (224 + 96 + 128)
    # A value that is read twice counts once.
    assert work_of(operation("aten::mul.out", [A, A], A)).traffic.activations_read == 96


def test_attention_reads_the_part_of_the_cache_that_is_filled() -> None:
    arguments = [f32(1, 3, 4, 16), state(1, 32, 2, 16), state(1, 32, 2, 16), 5, None]
    work = work_of(operation("llama::custom_sdpa.out", arguments, f32(1, 3, 4, 16)))
    assert work.traffic.state_read == 2 * (8 / 32) * (32 * 2 * 16 * 4)
    assert not work.is_bound

    arguments[3] = "value 7"  # computed as the program runs
    whole = work_of(operation("llama::custom_sdpa.out", arguments, f32(1, 3, 4, 16)))
    assert whole.flops == work.flops * 32 / 8
    assert whole.is_bound


def test_sub_bytes_are_packed() -> None:
    assert of("int4", 5).nbytes == 3
    assert of("uint2", 8).nbytes == 2
    assert of("bool", 8).nbytes == 8


@pytest.mark.parametrize(
    ("target", "arguments"),
    [
        ("mine::add.out", [A, A]),  # a custom operator is not ATen's of that name
        ("aten::fft_fft.out", [A]),
        ("aten::convolution.out", [A]),  # without a weight
        ("aten::linear.out", [of("complex1024", 4), weight(8, 6)]),
        ("aten::avg_pool2d.out", [X]),
        ("aten::mm.out", [f32(), B]),
        ("aten::relu.out", [f32(*[2**31 - 1] * 40)]),  # a file may claim any size
        ("not an operator", [A]),
    ],
)
def test_unknown_work_is_none_and_never_zero(target: str, arguments: list[Any]) -> None:
    work = work_of(operation(target, arguments, A))
    assert (work.known_flops, work.known_bytes, work.intensity) == (None, None, None)
    assert work.unknown


def test_work_that_depends_on_values_has_bytes() -> None:
    work = work_of(operation("aten::topk.values", [A, 2], f32(4, 2), of("int64", 4, 2)))
    assert work.known_flops is None
    assert work.known_bytes == 96 + 32 + 64


def test_a_sum_says_what_is_missing() -> None:
    known = work_of(operation("aten::mm.out", [A, B], C))
    unknown = work_of(operation("mine::op.out", [A], A))
    both = sum_of([known, unknown, unknown])
    assert (both.known_flops, both.unknown) == (known.flops, ("mine.op",))
    assert sum_of([unknown]).known_flops is None
    assert sum_of([]).known_flops == 0


def test_each_rule_is_of_a_name_that_can_be_asked_for() -> None:
    for name in RULES:
        namespace, _, operator = name.partition(".")
        assert operator_name(f"{namespace}::{operator}.out")[0] == name
