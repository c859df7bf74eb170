"""Explanations of a wrong value by one operator that computes otherwise than the graph says.

Each change of a recorded call is tried by computing the value again (`changed.Reruns`): weights of
another layer, an argument that is left out, transposed, moved or converted, another eps,
activation, dimension or option, operands in another order. The factor of an argument is solved for,
by the secant method: one step where the value is linear in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from etscope.analysis.numerics.explain import Recomputing
from etscope.analysis.numerics.explanations import Candidate, Float64, Residual
from etscope.analysis.numerics.likenesses import along, number_text, wrong_slices
from etscope.analysis.numerics.rows import NumericsRow
from etscope.bridge.reference.backends import Arithmetic
from etscope.bridge.reference.changed import RecordedCall, Reruns, Weights, record_calls
from etscope.bridge.reference.changes import Change, changes_of, other_tensors
from etscope.bridge.reference.local_reference import DeviceValues, Memory
from etscope.bridge.reference.reference import ReferenceGraph
from etscope.model.graph import SAME_VALUE, Graph, Node, stem

_MOST_WEIGHTS = 40  # other weights of the shape, the nearest in the graph first
_TRANSPOSING = frozenset({"permute", "t", "transpose"})
_EPS = (0.0, 1e-12, 1e-10, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
_SECANT_STEPS = 5
_ALMOST = 0.9  # of the error, where a rounder number is tried
_MOST_ELEMENTS, _MOST_SLICES = 8, 3  # of a weight that are tried
_PROBES = 8


@dataclass(frozen=True, slots=True)
class _Factor:
    """An argument times a factor k, which is to be solved for. value: of a number, otherwise None.
    text: of what is scaled."""

    name: str
    text: str
    call: Callable[[float], Any]
    value: float | None = None
    is_weight: bool = False
    is_default: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Repeated:
    """A run beside the device's values that can be repeated. memory: as before it. arithmetic:
    the device's own. named: our graph of it."""

    graph: ReferenceGraph
    named: Graph
    inputs: Any
    device: DeviceValues
    memory: Memory
    arithmetic: Arithmetic

    def recomputing(self, rows: Sequence[NumericsRow]) -> Recomputing:
        """Repeat the run, and return the function that yields candidates for one of the rows."""
        wanted = {(row.pair.node, row.loop_pass): row.nodes for row in rows}
        calls = record_calls(
            self.graph, self.inputs, self.device, wanted, self.memory, self.arithmetic
        )
        weights = Weights(self.graph, self.named.parameters)

        def candidates(row: NumericsRow, residual: Residual) -> Iterator[Candidate]:
            known = calls.get((row.pair.node, row.loop_pass))
            if known is not None:
                reruns = Reruns(known, row.pair.element)
                yield from Hypotheses(residual, reruns, self.named, weights).candidates()

        return candidates


class Hypotheses:
    """Explanations of a value by the calls that lead to it.

    graph: names the weights. described: says where a node is, for a value of several operators.
    """

    def __init__(self, residual: Residual, reruns: Reruns, graph: Graph, weights: Weights) -> None:
        self._residual, self._reruns = residual, reruns
        self._graph, self._weights = graph, weights

    def candidates(self) -> Iterator[Candidate]:
        """Yield what was computed, while runs are left."""
        steps = list(reversed(list(enumerate(self._reruns.calls))))
        changes = [
            (one.first, order, at, one)
            for order, (at, call) in enumerate(steps)
            for one in self._changes(call)
        ]
        early = [one for one in changes if one[0] == 0]
        late = [one for one in changes if one[0] > 0]
        yield from self._computed(early)
        for at, call in steps:
            yield from self._eps(at, call)
            for factor in self._factors(call):
                if not self._reruns.are_left:
                    return
                yield from self._solved(at, call, factor)
        yield from self._weight_parts()
        yield from self._computed(sorted(late, key=lambda one: one[:2]))

    def _computed(self, changes: Sequence[tuple[int, int, int, Change]]) -> Iterator[Candidate]:
        for _, _, at, one in changes:
            if not self._reruns.are_left:
                return
            value = self._reruns.value(at, one.call)
            if value is not None:
                node = self._reruns.calls[at].name
                choices = one.choices * len(self._reruns.calls)
                yield Candidate(one.kind, one.text, value, 0, choices, one.parameters, node)

    # -- a number to solve for

    def _eps(self, at: int, call: RecordedCall) -> Iterator[Candidate]:
        own = call.given.get("eps")
        if not isinstance(own, float):
            return
        found: list[tuple[float, float, Any]] = []
        for eps in _EPS:
            value = None if eps == own else self._reruns.value(at, call.changed(eps=eps))
            if value is not None:
                found.append((self._residual.explained(value), eps, value))
        found.sort(key=lambda one: one[0], reverse=True)
        if found and found[0][0] < 0.9999 and own:
            found = [*self._between(at, call, own, found[0][1]), *found]
        for _, eps, value in found[:2]:
            text = f"an eps of {number_text(eps)} in place of {number_text(own)}"
            parameters = {"eps": eps, "instead_of": own}
            choices = len(_EPS) * len(self._reruns.calls)
            yield Candidate("eps", text, value, 1, choices, parameters, call.name)

    def _between(
        self, at: int, call: RecordedCall, own: float, near: float
    ) -> Iterator[tuple[float, float, Any]]:
        """The best eps, solved from the nearest of those that were tried."""

        def at_factor(k: float) -> Any:
            return self._reruns.value(at, call.changed(eps=own * k))

        solved = self._secant(at_factor, near / own if near else 0.5)
        if solved is not None and solved[0] > 0:
            k, value = self._rounder(at_factor, solved)
            yield self._residual.explained(value), own * k, value

    def _secant(self, at_factor: Callable[[float], Any], start: float) -> tuple[float, Any] | None:
        """The factor whose value is nearest to the device's, and that value, from the values at 1
        and at `start`. None if it leads nowhere."""
        residual = self._residual
        found = np.where(residual.known, residual.found, 0.0)
        known, value = (1.0, residual.expected), at_factor(start)
        if value is None or not np.isfinite(value[residual.known]).all():
            return None
        now = (start, value)
        best = max((residual.explained(value), start, value), (0.0, 1.0, residual.expected),
                   key=lambda one: one[0])  # fmt: skip
        for _ in range(_SECANT_STEPS):
            slope = np.where(residual.known, (now[1] - known[1]) / (now[0] - known[0]), 0.0)
            size = float((residual.weight * slope * slope).sum())
            left = np.where(residual.known, found - now[1], 0.0)
            step = float((residual.weight * slope * left).sum()) / size if size else 0.0
            k = now[0] + step
            if not math.isfinite(k) or abs(step) < 1e-9 * max(abs(k), 1.0):
                break
            value = at_factor(k)
            if value is None or not np.isfinite(value[residual.known]).all():
                break
            known, now = now, (k, value)
            share = residual.explained(value)
            was = best[0]
            if share > was:
                best = share, k, value
            if share < 0.2 or 1.0 - share < 2 * residual.resolution or share <= was:
                break
        return (best[1], best[2]) if best[0] > 0 else None

    def _solved(self, at: int, call: RecordedCall, factor: _Factor) -> Iterator[Candidate]:
        def at_factor(k: float) -> Any:
            return self._reruns.value(at, lambda: factor.call(k))

        choices = 8 * len(self._reruns.calls)
        parameters: dict[str, Any] = {"argument": factor.name}
        zero = at_factor(0.0)
        if zero is not None and not factor.is_default:
            words = f"{factor.text} left out"
            yield Candidate("left out", words, zero, 0, choices, parameters, call.name)
        solved = self._secant(at_factor, 0.0 if zero is not None else 0.5)
        if solved is not None and abs(solved[0]) > 1e-6:
            k, value = self._rounder(at_factor, solved)
            text = f"{factor.text} times {number_text(k)}"
            kind = "argument scale"
            if abs(k + 1) < 1e-5:
                text = f"{factor.text} with the sign turned"
            elif factor.value is not None:
                number = factor.value * k
                text = f"{factor.text} {number_text(number)} in place of "
                text += number_text(factor.value)
                parameters |= {"number": number, "instead_of": factor.value}
                kind = "argument scale" if factor.is_default else "number"
            parameters["factor"] = k
            yield Candidate(kind, text, value, 1, choices, parameters, call.name)
        if zero is not None and factor.is_weight and at == len(self._reruns.calls) - 1:
            yield from self._by_slice(call, factor, zero)

    def _rounder(
        self, at_factor: Callable[[float], Any], solved: tuple[float, Any]
    ) -> tuple[float, Any]:
        """The factor, or a rounder one that is as good: steps make the best one hard to find."""
        share = self._residual.explained(solved[1])
        if share < _ALMOST:
            return solved
        for digits in (1, 2, 3):
            k = float(f"{solved[0]:.{digits}g}")
            value = at_factor(k) if abs(k / solved[0] - 1) > 1e-6 else None
            if value is not None and self._residual.explained(value) > share:
                return k, value
        return solved

    def _by_slice(self, call: RecordedCall, factor: _Factor, zero: Float64) -> Iterator[Candidate]:
        """Factors of the weight in some channels: what the other arguments add is taken away."""
        residual = self._residual
        part = residual.expected - zero
        axis = residual.suspect.axis
        if axis is None or not np.isfinite(part).all() or np.allclose(zero, 0.0):
            return
        changed = replace(residual.suspect, value=residual.found - zero, local=part)
        for one in along(Residual(changed), axis, f"{factor.text} "):
            kind = "argument scale" if one.kind == "scale" else "argument scales"
            yield replace(one, kind=kind, value=one.value + zero, node=call.name)

    def _factors(self, call: RecordedCall) -> Iterator[_Factor]:
        """The arguments that a result may scale with: weights, numbers, then other tensors."""
        given = call.given
        written = {*call.names[: len(call.args)], *call.kwargs}
        found = []
        for name, value in given.items():
            if isinstance(value, torch.Tensor) and value.is_floating_point():

                def scaled(k: float, name: str = name, value: torch.Tensor = value) -> Any:
                    other = value * k if k else torch.zeros_like(value)
                    return call.changed(**{name: other})()

                text, weight = self._argument(call, name)
                factor = _Factor(name, text, scaled, is_weight=weight is not None)
                if value.numel() == 1 and weight is not None:  # a number of the program
                    factor = _Factor(name, f"its {name}", scaled, float(value))
                found.append(factor)
            elif isinstance(value, (int, float)) and not isinstance(value, bool):
                is_float = isinstance(value, float) or name in ("alpha", "beta", "other")
                if not is_float or not value or name == "eps" or not math.isfinite(value):
                    continue

                def numbered(k: float, name: str = name, value: float = value) -> Any:
                    return call.changed(**{name: value * k})()

                factor = _Factor(name, f"its {name}", numbered, float(value))
                found.append(replace(factor, is_default=name not in written))
        yield from sorted(found, key=lambda one: (one.is_default, not one.is_weight))

    # -- parts of weights

    def _weight_parts(self) -> Iterator[Candidate]:
        """One element of a weight is another number, or one of its slices has a factor: those that
        the error grows with most are tried."""
        residual, calls = self._residual, self._reruns.calls
        weights = {
            (at, name): value
            for at, call in enumerate(calls)
            for name, value in call.given.items()
            if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel() > 1
            and self._argument(call, name)[1] is not None
            and (value.dim() > 1 or at < len(calls) - 1)
        }  # fmt: skip
        towards = residual.weight * residual.error
        size = float(np.abs(towards).max()) or 1.0
        gradients = self._reruns.gradients(list(weights), towards / size) if weights else {}
        random = np.random.default_rng(0)
        probes = [
            self._reruns.gradients(list(gradients), random.choice((-1.0, 1.0), towards.shape))
            for _ in range(_PROBES if gradients else 0)
        ]
        found = []
        for (at, name), gradient in gradients.items():
            weight = weights[at, name]
            other = [probe[at, name] for probe in probes if (at, name) in probe]
            flat = _correlation(gradient, other).flatten()
            for one in flat.topk(min(_MOST_ELEMENTS, flat.numel())).indices.tolist():
                mask = torch.zeros(weight.numel(), dtype=torch.bool)
                mask[one] = True
                index = [int(part) for part in np.unravel_index(one, tuple(weight.shape))]
                words = f"element {index}" if len(index) > 1 else f"element {one}"
                found.append((at, name, words, mask.reshape(weight.shape), weight.numel()))
            for axis in range(min(weight.dim(), 2) if weight.dim() > 1 else 0):
                others = [other for other in range(weight.dim()) if other != axis]
                grown = [(one * weight).sum(others) for one in (gradient, *other)]
                share = _correlation(grown[0], grown[1:])
                for one in share.topk(min(_MOST_SLICES, share.numel())).indices.tolist():
                    mask = torch.zeros(weight.shape, dtype=torch.bool)
                    mask.select(axis, one).fill_(True)
                    words = f"index {one} of dimension {axis}"
                    found.append((at, name, words, mask, weight.shape[axis]))
        for at, name, words, mask, choices in found:
            if self._reruns.are_left:
                yield from self._part(
                    calls[at], at, (name, weights[at, name], mask), words, choices
                )

    def _part(
        self,
        call: RecordedCall,
        at: int,
        part: tuple[str, torch.Tensor, torch.Tensor],
        words: str,
        choices: int,
    ) -> Iterator[Candidate]:
        """The value with a part of a weight times a factor."""
        name, weight, mask = part

        def at_factor(k: float) -> Any:
            return self._reruns.value(
                at, call.changed(**{name: torch.where(mask, k * weight, weight)})
            )

        solved = self._secant(at_factor, 0.0)
        if solved is None:
            return
        k, value = solved
        text = f"{self._argument(call, name)[0]} times {number_text(k)} in its {words}"
        parameters = {"argument": name, "factor": k}
        if int(mask.sum()) == 1:
            old = float(weight[mask])
            text = f"the {words} of {self._argument(call, name)[0]} "
            text += f"{number_text(k * old)} in place of {number_text(old)}"
            parameters |= {"number": k * old, "instead_of": old}
        kind = "weight element" if int(mask.sum()) == 1 else "weight part"
        yield Candidate(kind, text, value, 1, 8 * choices, parameters, call.name)

    # -- other calls

    def _changes(self, call: RecordedCall) -> Iterator[Change]:
        yield from self._other_weights(call)
        node = self._graph.calls.get(call.name)
        if node is not None:
            yield from changes_of(call, stem(node.op))
        yield from self._tensors(call)

    def _argument(self, call: RecordedCall, name: str) -> tuple[str, str | None]:
        """Words for an argument, and the name of the weight that it is, or is a view of."""
        node: Node | None = self._graph.calls.get(call.name)
        if node is None:
            return f"its {name}", None
        source = dict(node.arguments).get(name, "")
        if source in self._graph.parameters:
            return self._graph.parameters[source], source
        behind = self._graph.by_name.get(source)
        while behind is not None and stem(behind.op) in SAME_VALUE | _TRANSPOSING and behind.inputs:
            if behind.inputs[0] in self._graph.parameters:
                return f"its {name} ({self._graph.parameters[behind.inputs[0]]})", None
            behind = self._graph.by_name.get(behind.inputs[0])
        return f"its {name}", None

    def _other_weights(self, call: RecordedCall) -> Iterator[Change]:
        """The weights of another layer: each alone, and all of a layer together."""
        node = self._graph.calls.get(call.name)
        if node is None:
            return
        names = [name for name, text in node.arguments if text in self._graph.parameters]
        own = {name: dict(node.arguments)[name] for name in names}
        placed = {one.name: (at, one) for at, one in enumerate(self._graph.nodes)
                  if one.kind == "placeholder" and one.name in self._graph.parameters}  # fmt: skip
        by_layer: dict[str, dict[str, str]] = {}
        for name, placeholder in own.items():
            if placeholder not in placed or not placed[placeholder][1].outputs:
                continue
            at, mine = placed[placeholder]
            spec = mine.outputs[0].tensor
            same = [
                (abs(other_at - at), other)
                for other, (other_at, one) in placed.items()
                if other != placeholder and one.outputs and one.outputs[0].tensor is not None
                and spec is not None and one.outputs[0].tensor.shape == spec.shape
                and one.outputs[0].tensor.dtype == spec.dtype
            ]  # fmt: skip
            same.sort()
            called = self._graph.parameters[placeholder]
            for _, other in same[:_MOST_WEIGHTS]:
                target = self._graph.parameters[other]
                if target.rpartition(".")[2] == called.rpartition(".")[2]:
                    by_layer.setdefault(target.rpartition(".")[0], {})[name] = other
                text = f"{target} in place of {called}"
                parameters = {"argument": name, "weight": target, "instead_of": called}
                yield Change(
                    "other weight", text, self._with_weights(call, {name: other}), parameters,
                    len(same), 0,
                )  # fmt: skip
        layer = self._graph.parameters[next(iter(own.values()))].rpartition(".")[0] if own else ""
        for other_layer, given in by_layer.items():
            if len(given) == len(own) > 1:
                text = f"the weights of {other_layer} in place of those of {layer}"
                parameters = {"layer": other_layer, "instead_of": layer}
                yield Change(
                    "other weight", text, self._with_weights(call, given), parameters,
                    len(by_layer), 0,
                )  # fmt: skip

    def _with_weights(self, call: RecordedCall, given: Mapping[str, str]) -> Callable[[], Any]:
        def run() -> Any:
            weights = {name: self._weights.read(one) for name, one in given.items()}
            if any(
                one is None or bool((one == one.flatten()[0]).all()) for one in weights.values()
            ):
                return None  # of one number: no layer is told by it
            return call.changed(**weights)()

        return run

    def _tensors(self, call: RecordedCall) -> Iterator[Change]:
        """A tensor of the arguments is transposed, moved, turned around or converted."""
        for name, value in call.given.items():
            several = isinstance(value, (list, tuple)) and len(value) > 1
            if several and all(isinstance(one, torch.Tensor) for one in value):
                yield Change(
                    "operands", f"its {name} in reversed order",
                    call.changed(**{name: list(value)[::-1]}), {"argument": name},
                )  # fmt: skip
            if not isinstance(value, torch.Tensor) or not value.dim():
                continue
            text, weight = self._argument(call, name)
            if weight is not None and value.dim() == 1 and value.is_floating_point():
                yield Change(
                    "left out", f"{text} left out (1 everywhere)",
                    call.changed(**{name: torch.ones_like(value)}), {"argument": name}, 8, 0,
                )  # fmt: skip
            if weight is not None:
                yield from self._swapped_channels(call, name, text, value)
            for kind, words, other, first in other_tensors(value, weight is not None):
                yield Change(
                    kind, f"{text} {words}", call.changed(**{name: other}), {"argument": name},
                    32, first,
                )  # fmt: skip

    def _swapped_channels(
        self, call: RecordedCall, name: str, text: str, value: torch.Tensor
    ) -> Iterator[Change]:
        """The two channels of the result that are wrong have each other's weights."""
        axis = self._residual.suspect.axis
        if axis is None or value.shape[0] != self._residual.error.shape[axis]:
            return
        wrong = wrong_slices(self._residual, axis).tolist()
        if len(wrong) == 2:
            order = list(range(value.shape[0]))
            order[wrong[0]], order[wrong[1]] = wrong[1], wrong[0]
            yield Change(
                "permuted argument", f"{text} with channels {wrong[0]} and {wrong[1]} swapped",
                call.changed(**{name: value[order]}), {"argument": name, "at": wrong}, 1, 0,
            )  # fmt: skip


def _correlation(gradient: torch.Tensor, probes: Sequence[torch.Tensor]) -> torch.Tensor:
    """The square of how much the error is of what each element does, up to a factor: the gradient
    over the size of that, which gradients in random directions of signs tell in the mean."""
    size = sum((probe.double().square() for probe in probes), torch.zeros(()))
    score = gradient.double().square()
    return score / (size + 1e-12 * size.max() + 1e-300) if probes else score
