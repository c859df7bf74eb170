"""Stops and values in words."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

import numpy as np

from etscope.analysis.places import user_lines
from etscope.analysis.trace import UNAVAILABLE
from etscope.etdb._debugger import Debugger
from etscope.etdb._target import Stop
from etscope.model.graph import SourceLine
from etscope.units import format_duration, format_float


def stop_lines(debugger: Debugger, stop: Stop) -> list[str]:
    """Where the run stands: the operator, its module, its time, and its line of Python."""
    head = [f"[{stop.position}]", stop.node or stop.name]
    if stop.node and _plain(stop.op) not in _plain(stop.node):
        head.append(f"({stop.op})")
    facts = []
    if stop.instruction is not None:
        facts.append(f"instruction {stop.instruction}")
    if stop.loop_pass:
        facts.append(f"pass {stop.loop_pass}")
    if stop.kind == "delegate":
        facts.append(f"{stop.backend or 'delegate'}, {len(stop.nodes)} nodes")
    elif stop.backend:
        facts.append(f"in {stop.backend}")
    if stop.module is not None:
        facts.append(stop.module or "(root)")
    if stop.ticks is not None and debugger.shows_times:
        scale = debugger.scale
        facts.append(f"{format_duration(float(scale(stop.ticks)), scale.unit)} {scale.unit}")
    lines = [" ".join(head) + "".join(f" · {fact}" for fact in facts)]
    if stop.lines:
        lines.append(f"    {source_text(stop.lines[0])}" + _others(len(stop.lines)))
    return lines


def _plain(name: str) -> str:
    return name.replace(".", "_").strip("_")


def source_text(line: SourceLine) -> str:
    """ "model.py:34  x = self.conv(x)"."""
    place = f"{PurePath(line.file).name}:{line.line}"
    return f"{place}  {line.text}" if line.text else place


def _others(count: int) -> str:
    return f"   (+{count - 1} lines)" if count > 1 else ""


def frames_of(stop: Stop) -> list[SourceLine]:
    """The person's own frames of a stop, innermost first; all frames where none is theirs."""
    own = [frame for frame in stop.stack if user_lines([frame]) and _is_own(frame)]
    return list(reversed(own or stop.stack))


def _is_own(frame: SourceLine) -> bool:
    # Alone in a stack, a frame of torch is given as well: two tell.
    marked = SourceLine("<>", 0, "")
    return user_lines([frame, marked]) == (frame,) and "site-packages/torch/" not in frame.file


def value_lines(value: Any, *, full: bool = False) -> list[str]:
    """A value for a person: what it is, its range, and its first numbers."""
    if value is UNAVAILABLE:
        return ["<no debug buffer>"]
    if isinstance(value, (list, tuple)):
        if all(not isinstance(item, np.ndarray) for item in value):
            return [str(list(value))]
        return [
            line
            for index, item in enumerate(value)
            for line in _indented(f"[{index}] ", value_lines(item, full=full))
        ]
    if not isinstance(value, (np.ndarray, np.generic)):
        return [_number(value)]
    array = np.asarray(value)
    if array.ndim == 0:
        return [_number(array.item())]
    head = f"{array.dtype}{list(array.shape)}"
    if array.size == 0:
        return [f"{head}  empty"]
    return [f"{head}  {statistics(array)}", *_numbers(array, full)]


def statistics(array: np.ndarray[Any, Any]) -> str:
    """ "min -1.2  max 3.4  mean 0.1  std 0.9", with the count of NaN and infinities if any."""
    if array.dtype.kind == "b":
        return f"{int(array.sum()):,} of {array.size:,} true"
    if array.dtype.kind not in "iufV":
        return ""
    wide = array.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    parts = []
    if finite.size:
        numbers = (
            ("min", finite.min()),
            ("max", finite.max()),
            ("mean", finite.mean()),
            ("std", finite.std()),
        )
        parts = [f"{name} {_number(float(number))}" for name, number in numbers]
    nan, inf = int(np.isnan(wide).sum()), int(np.isinf(wide).sum())
    parts += [f"{count:,} {what}" for count, what in ((nan, "NaN"), (inf, "Inf")) if count]
    return "  ".join(parts)


def _numbers(array: np.ndarray[Any, Any], full: bool) -> list[str]:
    shown = array.astype(np.float64) if array.dtype.kind == "V" else array
    if full:
        return np.array2string(shown, threshold=sys.maxsize, max_line_width=90).split("\n")
    cut: list[str] = []
    while shown.ndim > 2:
        shown, cut = shown[0], [*cut, "0"]
    text = np.array2string(shown, threshold=40, edgeitems=3, precision=5, max_line_width=90)
    head = [f"[{', '.join(cut)}]"] if cut else []
    return [*head, *text.split("\n")]


def _number(value: Any) -> str:
    if isinstance(value, float):
        return format_float(value) or "nan"
    return str(value)


def _indented(head: str, lines: Sequence[str]) -> list[str]:
    return [(head if not number else " " * len(head)) + line for number, line in enumerate(lines)]
