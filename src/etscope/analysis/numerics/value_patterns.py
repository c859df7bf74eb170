"""Explanations of a wrong value by the right one alone: scaled, moved, rounded, cut off.

Each function yields candidates, which `explanations.best_explanation` judges. Sums over the slices
along a dimension give the best factor and the best constant of each slice at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from etscope.analysis.numerics.explanations import Candidate, Explanation, Float64, Residual
from etscope.analysis.numerics.limits import nan_of, new_nan

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_FEW = 4  # elements; one of so few proves nothing
_MOST_LEVELS = 256  # of 8 bits
_MOST_SORTED = 1 << 18  # elements, to look for steps in: sorting more takes long
_ROUNDING = 64.0  # squares of epsilon: a slice or an element is off by more than 8 of them
_MOST_MOVED = 4096  # slices that are looked for at other places
_SHARED_ENERGY = 1e-6  # of a slice's share of the error, below which it is rounding

_Mask = npt.NDArray[np.bool_]


def value_patterns(residual: Residual) -> Iterator[Candidate]:
    """Yield all candidates for a residual that has errors."""
    if residual.dtype.kind == "b":
        yield Candidate("inverted", "inverted", 1.0 - residual.expected)
        yield from _filled(residual)
        yield from _moved(residual)
    elif residual.total:
        yield from _whole(residual)
        yield from _clamped(residual)
        yield from _filled(residual)
        yield from _moved(residual)
        for axis, size in enumerate(residual.error.shape):
            if size > 1:
                yield from along(residual, axis)
                yield from _slices_moved(residual, axis)
        yield from _boxes(residual)
        yield from _rounded(residual)


def non_finite(residual: Residual) -> Candidate | None:
    """Explain the whole error by NaN or infinities in place of numbers; None if there are none."""
    value, local = residual.suspect.value, residual.suspect.local
    added = new_nan(local, value)
    kind, mask = "NaN", nan_of(value) & ~nan_of(local)
    if not added:
        kind, mask = "Inf", np.isinf(residual.found) & np.isfinite(residual.expected)
    if not mask.any():
        return None
    where = described_mask(mask, residual.suspect.axis)
    count = int(mask.sum())
    text = f"{kind} {where}" if count > 1 else f"a single {kind} {where}"
    prediction = np.where(mask, residual.found, residual.expected)
    return Candidate("non-finite", text, prediction, 0, 1, {"count": count})


def single_element(residual: Residual) -> Explanation | None:
    """Explain the error by one wrong element among many right ones; None if more are wrong."""
    rounding = _ROUNDING * residual.epsilon**2 * residual.weight * np.square(residual.found)
    with np.errstate(invalid="ignore"):
        beyond = residual.energy > np.maximum(rounding, 1e-4 * residual.energy.max())
    if int(beyond.sum()) != 1 or residual.error.size < _FEW:
        return None
    index = tuple(int(one) for one in np.argwhere(beyond)[0])
    found, expected = float(residual.found[index]), float(residual.expected[index])
    text = f"one element, {list(index)}: {number_text(found)} in place of {number_text(expected)}"
    prediction = np.where(beyond, residual.found, residual.expected)
    if not residual.leaves_rounding(prediction):
        return None
    parameters = {"index": list(index), "number": found, "instead_of": expected}
    return Explanation("element", text, parameters, residual.explained(prediction))


# -- words


def number_text(number: float) -> str:
    """A number that was fitted, to six digits."""
    return f"{number:.6g}"


def slices_text(indices: Sequence[int], size: int, axis: int, channels: int | None) -> str:
    """Describe indices of a dimension: "channel 3", "indices 4 to 7 of dimension 0"."""
    name = "channel" if axis == channels else "index"
    several = "channels" if axis == channels else "indices"
    of = "" if axis == channels else f" of dimension {axis}"
    if len(indices) == size:
        return f"{'every' if axis == channels else 'each'} {name}{of}"
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    parts = [f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    listed = ", ".join(parts[:4]) + (f" and {len(indices)} in all" if len(parts) > 4 else "")
    return f"{name if len(indices) == 1 else several} {listed}{of}"


def described_mask(mask: _Mask, channels: int | None) -> str:
    """Say which elements a mask has: all, whole slices, or those from an index on."""
    if mask.all():
        return "in all elements"
    for axis, size in enumerate(mask.shape):
        others = tuple(one for one in range(mask.ndim) if one != axis)
        some, full = mask.any(axis=others), mask.all(axis=others)
        if (some == full).all() and mask.ndim > 1:
            return "in " + slices_text(np.flatnonzero(some).tolist(), size, axis, channels)
    flat = np.flatnonzero(mask)
    first = [int(one) for one in np.unravel_index(int(flat[0]), mask.shape)]
    if flat.size == 1:
        return f"at {first}"
    if flat[-1] - flat[0] + 1 == flat.size:
        last = [int(one) for one in np.unravel_index(int(flat[-1]), mask.shape)]
        return f"from {first} to {last}"
    return f"in {flat.size:,} of {mask.size:,} elements, the first at {first}"


# -- the whole value


def _scaled(
    factor: float, prediction: Float64, where: str = "", choices: int = 1, **at: Any
) -> Candidate:
    kind, text = (
        ("zero", "zero") if abs(factor) < 1e-9 else ("scale", f"times {number_text(factor)}")
    )
    return Candidate(kind, text + where, prediction, 1, choices, {**at, "factor": factor})


def _offset(
    constant: float, prediction: Float64, where: str = "", choices: int = 1, **at: Any
) -> Candidate:
    text = f"plus {number_text(constant)}{where}"
    return Candidate("offset", text, prediction, 1, choices, {**at, "constant": constant})


def _whole(residual: Residual) -> Iterator[Candidate]:
    found, expected = residual.found, np.where(residual.known, residual.expected, 0.0)
    weight = np.broadcast_to(residual.weight, found.shape)
    known = np.where(residual.known, found, 0.0)
    yield Candidate("negated", "with the sign turned", -expected)
    yield Candidate("absolute", "the absolute value", np.abs(expected))
    squares = float((weight * expected**2).sum())
    if squares:
        factor = float((weight * expected * known).sum()) / squares
        yield _scaled(factor, factor * expected)
    weights = float((weight * residual.known).sum())
    if not weights:
        return
    constant = float((weight * residual.error).sum()) / weights
    yield _offset(constant, expected + constant)
    means = [float((weight * one).sum()) / weights for one in (expected, known)]
    centred = np.where(residual.known, expected - means[0], 0.0)
    spread = float((weight * centred**2).sum())
    if spread:
        factor = float((weight * centred * known).sum()) / spread
        constant = means[1] - factor * means[0]
        text = f"times {number_text(factor)} plus {number_text(constant)}"
        parameters = {"factor": factor, "constant": constant}
        yield Candidate("affine", text, factor * expected + constant, 2, 1, parameters)


def _clamped(residual: Residual) -> Iterator[Candidate]:
    """The values are cut off at an end."""
    known = residual.known
    found, expected = residual.found[known], residual.expected[known]
    low, high = float(found.min()), float(found.max())
    ends = []
    if low > expected.min() and int((found == low).sum()) > 1:
        ends.append(("low", f"below at {number_text(low)}"))
    if high < expected.max() and int((found == high).sum()) > 1:
        ends.append(("high", f"above at {number_text(high)}"))
    if not ends:
        return
    names = [name for name, _ in ends]
    prediction = np.clip(
        residual.expected,
        low if "low" in names else -math.inf,
        high if "high" in names else math.inf,
    )
    cut = prediction != residual.expected
    text = f"cut off {' and '.join(text for _, text in ends)}"
    parameters = {name: {"low": low, "high": high}[name] for name in names}
    if int(cut.sum()) > len(ends) + 1:
        yield Candidate("clamped", text, prediction, len(ends), 2, parameters)


def _filled(residual: Residual) -> Iterator[Candidate]:
    """A part has one number in all elements, as memory that nothing was written to."""
    wrong = residual.error != 0
    if residual.epsilon:
        size = math.sqrt(float(np.square(residual.expected[residual.known]).mean()))
        wrong = np.abs(residual.error) > 1e-4 * size
    if not wrong.any():
        return
    numbers = residual.found[wrong]
    if numbers.size < 3 or (numbers != numbers[0]).any():
        return
    before = residual.expected[wrong]
    known = residual.found[residual.known]
    is_end = numbers[0] in (known.min(), known.max()) and known.size > numbers.size
    is_cut = is_end and ((before > numbers[0]).all() or (before < numbers[0]).all())
    if residual.dtype.kind != "b" and (is_cut or np.ptp(before) == 0):
        return  # cut off, or moved by one constant
    text = "zero" if not numbers[0] else f"{number_text(float(numbers[0]))} everywhere"
    kind = "zero" if not numbers[0] else "constant"
    text = f"{text} {described_mask(wrong, residual.suspect.axis)}"
    prediction = np.where(wrong, numbers[0], residual.expected)
    yield Candidate(kind, text, prediction, 1, 1, {"number": float(numbers[0])})


# -- numbers at other places


def _moved(residual: Residual) -> Iterator[Candidate]:
    expected = residual.expected
    sizes = expected.shape
    axes = range(expected.ndim)
    for axis in axes:
        if sizes[axis] < 3:  # two can be swapped only
            continue
        yield Candidate("reversed", f"reversed in dimension {axis}", np.flip(expected, axis), 0, 8)
        shifts = {1: "by one", -1: "by one", sizes[axis] // 2: "by half of its size"}
        for shift, words in shifts.items():
            way = "" if sizes[axis] == 2 * abs(shift) else (" up" if shift > 0 else " down")
            if sizes[axis] < 2 * abs(shift):
                continue
            text = f"rolled {words}{way} in dimension {axis}"
            parameters = {"axis": axis, "shift": shift}
            rolled = np.roll(expected, shift, axis)
            yield Candidate("rolled", text, rolled, 0, 16, parameters)
            if abs(shift) == 1 and sizes[axis] > 3:
                at = [slice(None)] * expected.ndim
                at[axis] = slice(0, 1) if shift > 0 else slice(-1, None)
                edge = tuple(at)
                shifted = rolled.copy()
                shifted[edge] = residual.found[edge]
                free = expected.size // sizes[axis]
                text = f"shifted by one{way} in dimension {axis}"
                yield Candidate("shifted", text, shifted, free, 16, parameters)
    if 2 <= expected.ndim <= 4:
        yield from _permuted(residual)


def _permuted(residual: Residual) -> Iterator[Candidate]:
    """Dimensions are swapped, or the numbers lie in memory as if they were."""
    expected = residual.expected
    long = [axis for axis, size in enumerate(expected.shape) if size > 1]
    seen = set()
    for order in permutations(range(expected.ndim)):
        moved = [axis for axis in order if axis in long]
        if moved == long or tuple(moved) in seen:
            continue
        seen.add(tuple(moved))
        turned = expected.transpose(order)
        parameters = {"dimensions": list(order)}
        swapped = [axis for axis in long if order[axis] != axis]
        kind, choices = "transposed", 2 * math.factorial(expected.ndim)
        if turned.shape == expected.shape:
            text = f"with dimensions {' and '.join(map(str, swapped))} transposed"
            yield Candidate(kind, text, turned, 0, choices, parameters)
        else:
            text = f"laid out with its dimensions in the order {', '.join(map(str, order))}"
            turned = np.ascontiguousarray(turned).reshape(expected.shape)
            yield Candidate(kind, text, turned, 0, choices, parameters)


def _slices_moved(residual: Residual, axis: int) -> Iterator[Candidate]:
    """Slices along a dimension have the numbers of others."""
    wrong = _wrong_slices(residual, axis)
    size = residual.error.shape[axis]
    per_slice = residual.error.size // size
    if not 1 <= len(wrong) <= _MOST_MOVED or per_slice * len(wrong) < 3:
        return
    found = np.moveaxis(residual.found, axis, 0).reshape(size, -1)[wrong]
    expected = np.moveaxis(residual.expected, axis, 0).reshape(size, -1)
    if not (np.isfinite(found).all() and np.isfinite(expected).all()):
        return
    rng = np.random.default_rng(0)
    probes = rng.standard_normal((expected.shape[1], 2)) / math.sqrt(expected.shape[1])
    marks, known = found @ probes, expected @ probes
    order = np.argsort(known[:, 0], kind="stable")
    at = np.clip(np.searchsorted(known[order, 0], marks[:, 0]), 1, size - 1)
    near = np.stack([order[at - 1], order[at], order[np.clip(at + 1, 0, size - 1)]])
    distances = np.abs(known[near] - marks).sum(axis=2)
    sources = near[distances.argmin(axis=0), np.arange(len(wrong))]
    if (sources == wrong).any():
        return
    prediction = residual.expected.copy()
    to, of = np.moveaxis(prediction, axis, 0), np.moveaxis(residual.expected, axis, 0)
    to[wrong] = of[sources]
    shown = 0 if len(wrong) == 2 else size
    listed = slices_text(wrong.tolist(), shown, axis, residual.suspect.axis)
    is_permutation = sorted(sources.tolist()) == wrong.tolist()
    if is_permutation and len(wrong) == 2:
        kind, text = "permuted", f"{listed} swapped"
    elif is_permutation:
        pairs = [f"{source} at {place}" for place, source in zip(wrong, sources, strict=True)]
        kind = "permuted"
        text = f"{listed} in another order ({', '.join(pairs[:4])}{', …' * (len(pairs) > 4)})"
    else:
        others = sorted(set(sources.tolist()))
        kind = "copied"
        own = slices_text(others, size, axis, residual.suspect.axis)
        text = f"{listed} with the numbers of {own}"
    parameters = {"axis": axis, "at": wrong.tolist()[:64], "from": sources.tolist()[:64]}
    choices = max(len(wrong) * size, 1)
    # The order of many is not as simple as a shift that explains it.
    rank = 0 if len(wrong) <= 2 else 2
    yield Candidate(kind, text, prediction, 0, choices, parameters, rank=rank)


# -- slices along a dimension


def _wrong_slices(residual: Residual, axis: int) -> npt.NDArray[np.int64]:
    """The indices of a dimension at which the slice has an error beyond rounding."""
    others = tuple(one for one in range(residual.error.ndim) if one != axis)
    energy = residual.energy.sum(axis=others)
    squares = residual.weight * np.square(np.where(residual.known, residual.expected, 0.0))
    rounding = _ROUNDING * residual.epsilon**2 * squares.sum(axis=others)
    beyond = energy > np.maximum(rounding, _SHARED_ENERGY * energy.max())
    return np.flatnonzero(beyond)


def along(residual: Residual, axis: int) -> Iterator[Candidate]:
    """Yield candidates for the wrong slices along a dimension: multiplied by a factor or shifted by
    a constant, the same for all or one for each.
    """
    wrong = _wrong_slices(residual, axis)
    shape = residual.error.shape
    size = shape[axis]
    if not wrong.size or (wrong.size == size and size == residual.error.size):
        return
    expected = np.where(residual.known, residual.expected, 0.0)
    found = np.where(residual.known, residual.found, 0.0)
    others = tuple(one for one in range(expected.ndim) if one != axis)
    weight = np.broadcast_to(residual.weight, shape)
    sums = {
        "squares": (weight * expected * expected).sum(axis=others)[wrong],
        "products": (weight * expected * found).sum(axis=others)[wrong],
        "errors": (weight * residual.error).sum(axis=others)[wrong],
        "weights": (weight * residual.known).sum(axis=others)[wrong],
    }
    listed = slices_text(wrong.tolist(), size, axis, residual.suspect.axis)
    where = f" in {listed}"
    at = {"axis": axis, "at": wrong.tolist()[:64]}
    column = [size if one == axis else 1 for one in range(expected.ndim)]

    def filled(numbers: Float64 | float, others: float) -> Float64:
        full = np.full(size, others)
        full[wrong] = numbers
        return full.reshape(column)

    squares, products = float(sums["squares"].sum()), float(sums["products"].sum())
    if squares and wrong.size < size:
        factor = products / squares
        yield _scaled(factor, expected * filled(factor, 1.0), where, size, **at)
    weights = float(sums["weights"].sum())
    if weights and wrong.size < size:
        constant = float(sums["errors"].sum()) / weights
        yield _offset(constant, expected + filled(constant, 0.0), where, size, **at)
    if wrong.size < 2:
        return
    with np.errstate(divide="ignore", invalid="ignore"):
        factors = np.nan_to_num(sums["products"] / sums["squares"])
        constants = np.nan_to_num(sums["errors"] / sums["weights"])
    ends = f"{number_text(factors.min())} to {number_text(factors.max())}"
    text = f"times a different factor in {listed} ({ends})"
    parameters = {**at, "factors": factors.tolist()[:64]}
    prediction = expected * filled(factors, 1.0)
    energy = residual.energy.sum(axis=others)[wrong]
    count = float((np.square(energy) / np.square(residual.energy).sum(axis=others)[wrong]).sum())
    yield Candidate("scales", text, prediction, wrong.size, 8, parameters, count=count)
    ends = f"{number_text(constants.min())} to {number_text(constants.max())}"
    text = f"plus a different constant in {listed} ({ends})"
    parameters = {**at, "constants": constants.tolist()[:64]}
    prediction = expected + filled(constants, 0.0)
    yield Candidate("offsets", text, prediction, wrong.size, 8, parameters, count=count)


def _boxes(residual: Residual) -> Iterator[Candidate]:
    """A block of several dimensions, times a factor or plus a constant."""
    shape = residual.error.shape
    wrong = [_wrong_slices(residual, axis) for axis in range(len(shape))]
    limited = [axis for axis, at in enumerate(wrong) if 0 < at.size < shape[axis]]
    if len(limited) < 2 or any(not at.size for at in wrong):
        return
    box = np.ix_(*wrong)
    expected, found = residual.expected[box], residual.found[box]
    if expected.size < 3 or not (np.isfinite(expected).all() and np.isfinite(found).all()):
        return
    places = [
        slices_text(wrong[axis].tolist(), shape[axis], axis, residual.suspect.axis)
        for axis in limited
    ]
    where = " in " + " and ".join(places)
    choices = math.prod(shape[axis] for axis in limited)
    squares = float(np.square(expected).sum())
    prediction = residual.expected.copy()
    if squares:
        factor = float((expected * found).sum()) / squares
        prediction[box] = factor * expected
        yield _scaled(factor, prediction, where, choices)
    constant = float((found - expected).mean())
    prediction = residual.expected.copy()
    prediction[box] = expected + constant
    yield _offset(constant, prediction, where, choices)


# -- coarser numbers


def _rounded(residual: Residual) -> Iterator[Candidate]:
    """The numbers went through a smaller type, or steps of one size."""
    found, expected = residual.found, residual.expected
    if residual.dtype.name == "float32" and found.size >= 8 and residual.known.all():
        for name, dtype in (("float16", np.dtype(np.float16)), ("bfloat16", _BFLOAT16)):
            with np.errstate(over="ignore"):
                short, other = found.astype(dtype), expected.astype(dtype)
            if (short.astype(float) == found).all() and (other.astype(float) != expected).any():
                near = np.abs(found - expected) <= 1.01 * np.abs(np.spacing(short).astype(float))
                prediction = np.where(near, found, expected)
                text = f"rounded to {name}"
                yield Candidate("rounded", text, prediction, 0, 2, {"type": name})
    errors = residual.error[residual.error != 0]
    if residual.dtype.kind in "iu" and errors.size > 8 and (errors == errors[0]).all():
        wrong = residual.error != 0
        if 0.05 < wrong.mean() < 0.95:  # of all elements it is a constant, of few a local fault
            way = "lower" if errors[0] < 0 else "higher"
            text = (
                f"{way} by {number_text(abs(errors[0]))} in {100 * wrong.mean():.0f} % of elements"
            )
            text += ", as if cut off and not rounded" if abs(errors[0]) == 1 else ""
            yield Candidate("one-sided", text, found, 0, 2, {"step": float(errors[0])})
        return
    if found.size < 64 or found.size > _MOST_SORTED or not residual.known.all():
        return
    levels = np.unique(found)
    if not 2 < levels.size <= min(_MOST_LEVELS, found.size // 4):
        return
    step = float(np.diff(levels).min())
    on_grid = np.abs(levels / step - np.rint(levels / step)) < 1e-3
    if not on_grid.all() or np.unique(expected).size <= 2 * levels.size:
        return
    # The numbers are multiples of a step: rounded to it, or cut off.
    scaled = expected / step
    for words, rounding in (
        ("rounded", np.rint),
        ("rounded down", np.floor),
        ("cut off", np.trunc),
    ):
        steps = rounding(scaled)
        near = np.abs(found / step - steps) < 1e-3
        at_ties = ~near & (np.abs(np.abs(scaled - steps) - 0.5) < 1e-2)
        if (near | at_ties).all():
            text = f"{words} to multiples of {number_text(step)}"
            yield Candidate("steps", text, found, 1, 3, {"step": step})
