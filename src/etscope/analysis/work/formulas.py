"""The FLOPs of each operator, and the bytes of those that do not read or write whole tensors.

The rules, by families of operators (n: elements of the output, m: elements of the input):

- Products of matrices, convolutions, attention: as `torch.utils.flop_counter` counts them, two for
  each multiply-add; no bias, no padding, no causal mask, no softmax inside of attention.
- Elementwise: for each element of the output, one for each arithmetic operation, comparison or
  function (an exponential is one) in the formula that torch's documentation gives. Conversions of
  type and choices of an element do not count.
- Reductions: one for each element that goes in, as products count k additions for k elements, and
  what follows them (the division of a mean) for each that comes out.
- Normalization, softmax, pooling, interpolation, quantization: by their formulas in the same way.
- Movement of data: none.

Operators that are not here have unknown work. So have sorts: their work depends on the values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from etscope.analysis.work.operation import (
    STATE,
    Operand,
    Operation,
    Traffic,
    UnfitError,
    Work,
    every_tensor,
    unknown_work,
)

FLOATS = ("float16", "bfloat16", "float32", "float64")  # from narrow to wide
INT8_INT4 = "8da4w"  # int8 activations, which are quantized as the program runs, by int4 weights
# Kernels of torchao, and of Vulkan's passes.
_INT8_BY_INT4 = re.compile(r"8bit_act_4bit_weight|8da4w|dq8ca_q4")

Flops = Callable[[Operation], float]
Moved = Callable[[Operation], Traffic]


def work_of(operation: Operation) -> Work:
    """Return the work of an operator; unknown if there is no rule for it, or if the rule does not
    fit its arguments.
    """
    rule = RULES.get(operation.name) or next(
        (rule for names, rule in _FAMILIES.items() if names.fullmatch(operation.name)), None
    )
    if rule is None:
        return unknown_work(operation.name)
    try:
        traffic = rule.moved(operation)
        flops = None if rule.flops is None else rule.flops(operation)
    except UnfitError:
        return unknown_work(operation.name)
    if flops is None:
        return Work(traffic=traffic, unknown=(operation.name,))
    is_bound = rule.depends_on_position and not _has_mask(operation) and _start(operation) is None
    work = Work(flops, traffic, is_bound=is_bound)  # or else all of the cache was counted
    if not flops:
        return work
    if _INT8_BY_INT4.search(operation.own_name):
        return work.in_dtype(INT8_INT4)
    # The widest float type that it reads; without any, the widest that it writes (it dequantizes).
    for tensors in (operation.inputs, operation.outputs):
        floats = [FLOATS.index(one.dtype) for one in tensors if one.dtype in FLOATS]
        if floats:
            return work.in_dtype(FLOATS[max(floats)])
    return work.in_dtype((operation.inputs or operation.outputs)[0].dtype)


# -- Bytes


def whole_tensors(operation: Operation) -> Traffic:
    """Count all inputs as read and all outputs as written; a view costs nothing. An operator in
    place writes its output where it read its input.
    """
    return Traffic.of(every_tensor(operation.inputs), every_tensor(operation.outputs))


def _part(operation: Operation) -> Traffic:
    """As many elements of the first tensor are read as are written: those that are picked."""
    source, *others = operation.inputs or (operation.input,)
    picked = sum(output.elements for output in operation.outputs)
    read = [(source, source.bytes_of(picked)), *every_tensor(others)]
    return Traffic.of(read, every_tensor(operation.outputs))


def _only_written(operation: Operation) -> Traffic:
    return Traffic.of((), every_tensor(operation.outputs))


def _nothing(operation: Operation) -> Traffic:
    return Traffic()


def _put(operation: Operation) -> Traffic:
    """Some elements of a tensor are replaced: in place, these alone are written."""
    if not operation.own_name.endswith("_"):
        return whole_tensors(operation)
    target, *others = operation.inputs or (operation.input,)
    values = max(others, key=lambda one: one.elements, default=target)
    return Traffic.of(every_tensor(others), [(target, target.bytes_of(values.elements))])


def _update_cache(operation: Operation) -> Traffic:
    """`llama::update_cache(value, cache, start_pos)` writes the value into the cache, in place; the
    output of its schema is not used (extension/llm/custom_ops/op_update_cache.cpp)."""
    value, indices = operation.tensor(0, "value"), operation.argument(3, "indices")
    read = [value, *([indices] if isinstance(indices, Operand) else [])]
    return Traffic.of(every_tensor(read), [(Operand(value.dtype, (), STATE), value.nbytes)])


def _embedding(operation: Operation) -> Traffic:
    """The rows of a table that the indices name; of a quantized one the scales of these rows."""
    table = operation.tensor(0, "weight")
    indices = operation.tensor(1 if operation.name == "aten.embedding" else 5, "indices")
    rows = max(1, table.size(0))
    per_row = operation.output.elements / max(1, indices.elements)  # elements of the output

    def read() -> Iterator[tuple[Operand, float]]:
        for one in operation.inputs:
            if one is indices:
                yield one, one.nbytes
            elif one is table and operation.name == "aten.embedding":
                yield one, one.bytes_of(round(per_row) * indices.elements)
            else:
                yield one, one.nbytes * min(1, indices.elements / rows)

    return Traffic.of(read(), every_tensor(operation.outputs))


def _sdpa_with_cache(operation: Operation) -> Traffic:
    """The part of the cache that is attended to is read."""
    key, value = operation.tensor(1, "key"), operation.tensor(2, "value")
    share = _attended(operation) / max(1, key.size(_sequence(operation)))
    read = ((one, one.nbytes * (share if one in (key, value) else 1.0)) for one in operation.inputs)
    return Traffic.of(read, every_tensor(operation.outputs))


# -- FLOPs


def none(operation: Operation) -> float:
    """Return 0, for operators that only move data."""
    return 0


def product(position: int, name: str) -> Flops:
    """Count the FLOPs of a matrix product: for each output element, one multiply-add for each
    element of the argument's last dimension (`mm_flop`, `bmm_flop`, `addmm_flop` of
    torch.utils.flop_counter).
    """

    def flops(operation: Operation) -> float:
        return 2 * operation.output.elements * operation.tensor(position, name).size(-1)

    return flops


def _convolution(operation: Operation) -> float:
    """`conv_flop_count` of torch.utils.flop_counter. weight: [out, in / groups, *kernel], for a
    transposed one [in, out / groups, *kernel]: groups and dilation are in its sizes."""
    weight = operation.tensor(1, "weight")
    is_transposed = "transpose" in operation.name or operation.argument(6, "transposed") is True
    around = operation.tensor(0, "input") if is_transposed else operation.output
    return 2 * around.elements * weight.elements // max(1, weight.size(0))


def attention(keys: Flops = lambda operation: operation.tensor(1, "key").size(-2)) -> Flops:
    """Count the FLOPs of the products with keys and with values (`sdpa_flop_count` of
    torch.utils.flop_counter). keys: how many there are for a query.

    query: [..., heads, length, size], key and value: [..., heads, keys, size].
    """

    def flops(operation: Operation) -> float:
        query, value = operation.tensor(0, "query"), operation.tensor(2, "value")
        rows = query.elements // max(1, query.size(-1))
        return 2 * rows * keys(operation) * (query.size(-1) + value.size(-1))

    return flops


def _sequence(operation: Operation) -> int:
    """The dimension of the positions in a cache: [batch, positions, heads, size] by default."""
    return 2 if operation.argument(14, "is_seq_at_dim_2") is True else 1


def _attended(operation: Operation) -> float:
    """The number of keys that `llama::custom_sdpa` computes with: all up to the last token's, with
    a mask all of the cache (`num_keys_for_causal_attention` of extension/llm/custom_ops/
    op_sdpa.cpp). If the position is not known, all of the cache."""
    along = _sequence(operation)
    keys = operation.tensor(1, "key").size(along)
    start = _start(operation)
    if start is None or _has_mask(operation):
        return keys
    return min(keys, start + operation.tensor(0, "query").size(along))


def _has_mask(operation: Operation) -> bool:
    return isinstance(operation.argument(4, "attn_mask"), Operand)


def _start(operation: Operation) -> float | None:
    """The position of a call's first token in the cache, if it is known."""
    start = operation.argument(3, "start_pos")
    return start if isinstance(start, (int, float)) else None


def each(count: float) -> Flops:
    """Count a number of operations for each element of the output."""
    return lambda operation: count * operation.output.elements


def _sum_or_difference(operation: Operation) -> float:
    """input + alpha * other."""
    has_factor = operation.argument(2, "alpha") not in (None, 1, 1.0)
    return (2 if has_factor else 1) * operation.output.elements


def _clamp(operation: Operation) -> float:
    """min(max(input, min), max): one for each bound."""
    bounds = [operation.argument(1, "min"), operation.argument(2, "max")]
    return max(1, sum(bound is not None for bound in bounds)) * operation.output.elements


def reduction(each_in: float, each_out: float = 0) -> Flops:
    """Count operations for each reduced element, and for each result."""
    return lambda op: each_in * op.input.elements + each_out * op.output.elements


def normalization(plain: float, weight: tuple[int, str], bias: tuple[int, str]) -> Flops:
    """Count `plain` operations for each element, and one more each for a weight and a bias. weight,
    bias: their positions and names among the arguments.
    """

    def flops(operation: Operation) -> float:
        given = (operation.argument(*weight), operation.argument(*bias))
        affine = sum(isinstance(value, Operand) for value in given)
        return (plain + affine) * operation.input.elements

    return flops


def _rms_norm(operation: Operation) -> float:
    """input * rsqrt(mean(input^2) + eps) * weight: squares, their sum, the product; for each row
    a division, an addition and a root."""
    has_weight = isinstance(operation.argument(2, "weight"), Operand)
    rows = operation.input.elements // max(1, operation.input.size(-1))
    return (4 if has_weight else 3) * operation.input.elements + 3 * rows


def _pooling(each_out: float) -> Flops:
    """Return the count of one for each element of a window, and for each result."""

    def flops(operation: Operation) -> float:
        given = operation.argument(1, "kernel_size")
        sizes = [size for size in given if isinstance(size, int)] if isinstance(given, list) else []
        sizes = [given] if isinstance(given, int) else sizes
        dimensions = re.search(r"pool([123])d", operation.name)
        if not sizes or dimensions is None:
            raise UnfitError(f"{operation.name} without its kernel's size")
        if len(sizes) == 1:
            sizes *= int(dimensions[1])
        return (math.prod(sizes) + each_out) * operation.output.elements

    return flops


@dataclass(frozen=True, slots=True)
class Rule:
    """The work of an operator. flops: None if they depend on the values. depends_on_position: they
    grow with the position of a language model's call."""

    flops: Flops | None
    moved: Moved = whole_tensors
    depends_on_position: bool = False


def _named(rules: Mapping[str, Rule], namespace: str = "aten") -> dict[str, Rule]:
    """The rules by full name; a key holds several names, with spaces between."""
    return {f"{namespace}.{name}": rule for names, rule in rules.items() for name in names.split()}


_PRODUCTS = {
    "mm bmm mv dot vdot matmul int_mm weight_int8pack_mm weight_int4pack_mm scaled_mm": Rule(
        product(0, "self")
    ),
    "linear": Rule(product(0, "input")),
    "addmm": Rule(product(1, "mat1")),
    "addmv": Rule(product(1, "mat")),
    "baddbmm": Rule(product(1, "batch1")),
    "convolution conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d": Rule(
        _convolution
    ),
    "scaled_dot_product_attention scaled_dot_product_flash_attention "
    "scaled_dot_product_flash_attention_for_cpu scaled_dot_product_efficient_attention "
    "scaled_dot_product_attention_math": Rule(attention()),
}
# Each with its formula in torch's documentation, where that is more than one function.
_ELEMENTWISE = {
    "mul div pow maximum minimum fmod remainder floor_divide atan2 true_divide hypot": Rule(
        each(1)
    ),
    "eq ne lt le gt ge logical_and logical_or logical_xor logical_not isnan isinf": Rule(each(1)),
    "bitwise_and bitwise_or bitwise_xor bitwise_not and or xor bitwise_left_shift "
    "bitwise_right_shift": Rule(each(1)),
    "abs neg sign exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal square sin cos tan "
    "asin acos atan sinh cosh tanh asinh acosh atanh erf erfc floor ceil round trunc sigmoid "
    "relu": Rule(each(1)),
    "add sub": Rule(_sum_or_difference),
    "rsub": Rule(_sum_or_difference),
    "clamp": Rule(_clamp),
    "clamp_min clamp_max": Rule(each(1)),
    "hardtanh relu6": Rule(each(2)),  # min(max(x, a), b)
    "leaky_relu prelu": Rule(each(2)),  # x > 0 ? x : slope * x
    "silu": Rule(each(2)),  # x * sigmoid(x)
    "elu": Rule(each(4)),  # x > 0 ? x : alpha * (exp(x) - 1)
    "celu selu": Rule(each(5)),
    "softplus": Rule(each(4)),  # log(1 + exp(beta * x)) / beta, beta 1, and the threshold
    "logit": Rule(each(3)),  # log(x / (1 - x))
    "mish": Rule(each(5)),  # x * tanh(log(1 + exp(x)))
    "hardswish": Rule(each(5)),  # x * min(max(x + 3, 0), 6) / 6
    "hardsigmoid": Rule(each(4)),  # min(max(x + 3, 0), 6) / 6
    # x * 0.5 * (1 + erf(x / sqrt 2)), or with tanh: 0.5 * x * (1 + tanh(a * (x + b * x^3)))
    "gelu": Rule(
        lambda op: (9 if op.argument(1, "approximate") == "tanh" else 5) * op.output.elements
    ),
    "glu": Rule(each(2)),  # a * sigmoid(b)
    "lerp": Rule(each(3)),  # start + weight * (end - start)
    "addcmul addcdiv": Rule(each(3)),  # input + value * a * b
    "cumsum cumprod": Rule(each(1)),
}
_REDUCTIONS = {
    "sum prod amax amin max min argmax argmin any all nansum": Rule(reduction(1)),
    "mean": Rule(reduction(1, 1)),
    "var": Rule(reduction(4, 2)),  # mean, difference, square, sum; two divisions
    "std": Rule(reduction(4, 3)),
    "var_mean": Rule(reduction(4, 2)),
    "norm linalg_vector_norm": Rule(reduction(2, 1)),  # sqrt(sum(x^2))
    "logsumexp": Rule(reduction(4, 2)),  # max, difference, exp, sum; log and sum
    "count_nonzero": Rule(reduction(2)),
}
_NORMALISATIONS = {
    # Mean, difference, square, sum of squares, product with 1 / sqrt(variance + eps).
    "layer_norm": Rule(normalization(5, (2, "weight"), (3, "bias"))),
    "native_layer_norm": Rule(normalization(5, (2, "weight"), (3, "bias"))),
    "group_norm": Rule(normalization(5, (2, "weight"), (3, "bias"))),
    "native_group_norm": Rule(normalization(5, (1, "weight"), (2, "bias"))),
    "instance_norm": Rule(normalization(5, (1, "weight"), (2, "bias"))),
    # With known statistics: difference and product.
    "batch_norm native_batch_norm native_batch_norm_legit_no_training "
    "native_batch_norm_legit": Rule(normalization(2, (1, "weight"), (2, "bias"))),
    "rms_norm": Rule(_rms_norm),
    # Largest element, difference, exponential, sum, division.
    "softmax safe_softmax": Rule(each(5)),
    "log_softmax": Rule(each(5)),  # the same with a difference of the logarithm
}
_POOLING = {
    "avg_pool1d avg_pool2d avg_pool3d": Rule(_pooling(1)),
    "max_pool1d max_pool2d max_pool3d max_pool2d_with_indices max_pool3d_with_indices": Rule(
        _pooling(0)
    ),
    "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d": Rule(reduction(1, 1)),
    "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d": Rule(reduction(1)),
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d": Rule(none),
    # w0 * a + w1 * b of one dimension; of two, twice that and once more of the results.
    "upsample_linear1d": Rule(each(3)),
    "upsample_bilinear2d": Rule(each(9)),
}
_VIEWS = (
    "view reshape flatten unflatten unsqueeze squeeze transpose t permute movedim expand "
    "expand_as broadcast_to slice select narrow split split_with_sizes tensor_split chunk unbind "
    "detach alias as_strided diagonal unfold view_as contiguous dropout lift_fresh "
    "view_as_real view_as_complex swapaxes"
)
_MOVEMENT = {
    _VIEWS: Rule(
        none,
        lambda op: _part(op) if op.own_name.endswith("_copy") and not op.is_view else Traffic(),
    ),
    "index index_select gather masked_select": Rule(none, _part),
    "embedding": Rule(none, _embedding),
    "cat stack constant_pad_nd pad clone to repeat repeat_interleave flip roll where type_as "
    "masked_fill slice_scatter select_scatter pixel_shuffle pixel_unshuffle reflection_pad1d "
    "reflection_pad2d replication_pad1d replication_pad2d tril triu local_scalar_dense item im2col "
    "channel_shuffle": Rule(none),
    # copy(self, source) reads the source alone.
    "copy": Rule(
        none, lambda op: Traffic.of(every_tensor(op.inputs[-1:]), every_tensor(op.outputs))
    ),
    "index_put index_copy index_fill scatter masked_scatter": Rule(none, _put),
    "full zeros ones empty arange scalar_tensor full_like zeros_like ones_like empty_like "
    "new_zeros new_ones new_full new_empty fill zero eye linspace": Rule(none, _only_written),
    "sym_size sym_numel sym_stride sym_constrain_range sym_constrain_range_for_size assert_scalar "
    "assert_tensor_metadata assert_async": Rule(none, _nothing),
    "scatter_add index_add": Rule(lambda op: op.inputs[-1].elements if op.inputs else 0, _put),
    "topk sort argsort nonzero unique": Rule(None),
}
# torch.ao.quantization.fx._decomposed: clamp(round(x / scale) + zero point), (q - zero point) *
# scale, and the extremes of what is to be quantized.
_QUANTIZED = {
    "quantize_per_tensor quantize_per_channel quantize_per_token quantize_per_channel_group": Rule(
        each(5)
    ),
    "dequantize_per_tensor dequantize_per_channel dequantize_per_token "
    "dequantize_per_channel_group": Rule(each(2)),
    "choose_qparams choose_qparams_symmetric choose_qparams_per_token "
    "choose_qparams_per_token_asymmetric": Rule(reduction(2)),
    "mixed_mm mixed_linear": Rule(product(0, "input")),
    "embedding_byte embedding_2bit embedding_4bit": Rule(each(2), _embedding),
    "add": Rule(each(10)),  # both dequantized, added, quantized
}
_TORCHAO = {
    "quantize_affine": Rule(each(5)),
    "dequantize_affine": Rule(each(2)),
    "choose_qparams_affine choose_qparams_per_token_asymmetric": Rule(reduction(2)),
}
_LLAMA = {
    "custom_sdpa custom_quantized_sdpa": Rule(attention(_attended), _sdpa_with_cache, True),
    "update_cache update_cache_with_indices": Rule(none, _update_cache),
}
_RUNTIME = {"et_view": Rule(none, _nothing), "et_copy_index": Rule(none, _only_written)}

RULES: Mapping[str, Rule] = {
    **_named(_PRODUCTS),
    **_named(_ELEMENTWISE),
    **_named(_REDUCTIONS),
    **_named(_NORMALISATIONS),
    **_named(_POOLING),
    **_named(_MOVEMENT),
    **_named({"clone_dim_order to_dim_order": Rule(none)}, "dim_order_ops"),
    **_named({"empty_dim_order": Rule(none, _only_written)}, "dim_order_ops"),
    **_named(_QUANTIZED, "quantized_decomposed"),
    **_named(_TORCHAO, "torchao"),
    **_named(_LLAMA, "llama"),
    **_named(_RUNTIME, "executorch_prim"),
    **_named({"view alloc": Rule(none, _nothing)}, "memory"),
}
# The rules of families of operators.
_FAMILIES: Mapping[re.Pattern[str], Rule] = {
    # Linear layers on packed low-bit weights: kernels of torchao and of Vulkan's passes.
    re.compile(r"(?:torchao|et_vk)\.linear_\w+"): Rule(
        lambda op: 2 * op.output.elements * op.input.size(-1)
    ),
    # Computations of sizes and positions.
    re.compile(r"_operator\.\w+|executorch_prim\.\w+|math\.\w+"): Rule(none, _nothing),
}
