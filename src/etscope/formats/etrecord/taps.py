"""Which of a program's outputs are taps: a member of etscope's own in the ETRecord."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from etscope.formats.exported_program.exported_json import integer, mapping, sequence, text

VERSION = 1


@dataclass(frozen=True, slots=True)
class Tap:
    """An intermediate value that an export made an output.

    node, op: the node of the exported program that computes it, and its operator
        ("aten.conv2d.default"). element: which of its values, of one that has several.
    value: the value of the exported program that is the output. It is another than the node's
        where that cannot be one: of a quantised operator, its result after dequantisation.
    output: its position among the user's outputs of the method, from 0. It is one of the model's
        own when that is the same value.
    module: path of the module; None if not known. source: "file:line" in Python, None if unknown.
    handle: debug handle of the node of the edge program that gives the output, None if it has none.
    """

    node: str
    op: str
    value: str
    output: int
    element: int | None = None
    module: str | None = None
    source: str | None = None
    handle: int | None = None

    @property
    def name(self) -> str:
        """The node, and which of its values: "conv2d", "topk[1]"."""
        return self.node if self.element is None else f"{self.node}[{self.element}]"


@dataclass(frozen=True, slots=True)
class MethodTaps:
    """The taps of a method, in order of execution. `own_outputs`: how many outputs the model has
    of its own; they come first."""

    own_outputs: int
    taps: tuple[Tap, ...]


def taps_to_json(methods: Mapping[str, MethodTaps]) -> dict[str, Any]:
    """The content of the member."""
    return {
        "version": VERSION,
        "methods": {
            name: {
                "own_outputs": method.own_outputs,
                "taps": [
                    {
                        "node": tap.node,
                        "op": tap.op,
                        "value": tap.value,
                        "output": tap.output,
                        "element": tap.element,
                        "module": tap.module,
                        "source": tap.source,
                        "handle": tap.handle,
                    }
                    for tap in method.taps
                ],
            }
            for name, method in methods.items()
        },
    }


def taps_from_json(content: Mapping[str, Any]) -> dict[str, MethodTaps]:
    """Read the member. Keys that a later version may add are left out."""
    return {
        name: _method(mapping(value, "the taps of a method"))
        for name, value in mapping(content["methods"], "the methods").items()
    }


def _method(value: Mapping[str, Any]) -> MethodTaps:
    taps = [mapping(tap, "a tap") for tap in sequence(value["taps"], "the taps")]
    return MethodTaps(
        integer(value["own_outputs"], "a number of outputs"), tuple(_tap(tap) for tap in taps)
    )


def _tap(tap: Mapping[str, Any]) -> Tap:
    return Tap(
        node=text(tap["node"], "a node's name"),
        op=text(tap["op"], "an operator"),
        value=text(tap["value"], "a value's name"),
        output=integer(tap["output"], "a position"),
        element=_integer(tap.get("element")),
        module=_text(tap.get("module")),
        source=_text(tap.get("source")),
        handle=_integer(tap.get("handle")),
    )


def _integer(value: Any) -> int | None:
    return None if value is None else integer(value, "a number")


def _text(value: Any) -> str | None:
    return None if value is None else text(value, "a text")
