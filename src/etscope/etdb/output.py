"""Output of commands: texts, tables and facts in order, written as text or as JSON; and stops and
values as lines of text."""

from __future__ import annotations

import io
import math
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, TextIO

import numpy as np

from etscope.analysis.profile.trace import UNAVAILABLE
from etscope.analysis.program.source_location import user_lines
from etscope.errors import EtscopeError
from etscope.etdb.debugger import PLAIN_COLUMNS, Debugger
from etscope.etdb.protocol.messages import Statistics
from etscope.etdb.targets.remote_tensor import RemoteTensor, excerpt
from etscope.etdb.targets.target import Stop
from etscope.model.graph import Node, SourceLine
from etscope.model.report import Report, Section, filled_columns
from etscope.model.table import Table
from etscope.units import count as counted
from etscope.units import format_duration, format_float
from etscope.views import write_table
from etscope.views.tables.cells import plain_rows, visible
from etscope.views.tables.report import turned

PLAIN_WIDTH = 100  # without a terminal
_CONTINUATION = 4  # further indent of folded lines
_SHOWN_WHOLE = 40  # numbers
_MOST_IN_JSON = 1000  # numbers of a tensor

Item = str | Table | Section


@dataclass
class Output:
    """The output of a command. values: the values that the texts describe, by name, for JSON.
    finding: True if a run stopped at a condition of the user. ends: True if the session is over.
    code: the exit code of a script with a failed command.
    """

    items: list[Item] = field(default_factory=list)
    values: list[tuple[str, Any]] = field(default_factory=list)
    finding: bool = False
    ends: bool = False
    code: int = 0

    def say(self, *lines: str) -> Output:
        """Add lines of text."""
        self.items.extend(lines)
        return self

    def table(self, table: Table, columns: Iterable[str] | None = None) -> Output:
        """Add a table, or the named columns of it."""
        self.items.append(table if columns is None else table.select(columns))
        return self

    def add(self, other: Output) -> Output:
        """Add all of another output."""
        self.items.extend(other.items)
        self.values.extend(other.values)
        self.finding = self.finding or other.finding
        self.ends = self.ends or other.ends
        self.code = self.code or other.code
        return self

    def report(self, report: Report) -> Output:
        self.items.extend(report.sections)
        return self


def write_output(
    output: Output,
    out: TextIO,
    *,
    width: int | None = None,
    color: bool | None = None,
    fold: int | None = None,
) -> None:
    """Write an output as text. Nothing in it can move the cursor or change a terminal. fold: width
    at which lines of text are wrapped between words."""
    before: Item | None = None
    for item in output.items:
        if before is not None and not (isinstance(before, str) and isinstance(item, str)):
            out.write("\n")
        if isinstance(item, str):
            lines = [visible(line) for line in item.split("\n")]
            out.writelines(f"{part}\n" for line in lines for part in folded(line, fold))
        else:
            if isinstance(item, Table):
                table = item
            elif item.is_facts:
                table = turned(item.table)
            else:
                table = item.table.select(filled_columns(item.table))
            write_table(table, "table", out, width=width or PLAIN_WIDTH, color=color)
        before = item


def folded(line: str, width: int | None) -> list[str]:
    """Wrap a line; continuation lines are indented further."""
    if width is None or len(line) <= width:
        return [line]
    indent = len(line) - len(line.lstrip()) + _CONTINUATION
    return textwrap.wrap(
        line,
        width,
        subsequent_indent=" " * min(indent, width // 2),
        break_on_hyphens=False,
        replace_whitespace=False,
    )


def error_text(error: EtscopeError) -> str:
    """An error as one or several lines, with control characters of file names made visible."""
    return "\n".join(visible(line) for line in f"error: {error}".split("\n"))


def text_of(output: Output) -> str:
    out = io.StringIO()
    write_output(output, out, color=False)
    return out.getvalue()


def json_of(output: Output) -> list[dict[str, Any]]:
    """An output as plain values: {"text": …}, {"facts": {…}} or {"table": title, "rows": […]}; then
    {"value": name, …} for each value that the texts describe."""
    objects: list[dict[str, Any]] = []
    for item in output.items:
        if isinstance(item, str):
            objects.append({"text": item})
            continue
        table = item.table if isinstance(item, Section) else item
        keys: Sequence[str] = [column.key for column in table.columns]
        rows = [dict(zip(keys, row, strict=True)) for row in plain_rows(table)]
        if isinstance(item, Section) and item.is_facts:
            objects.append({"facts": rows[0] if rows else {}, "title": table.title})
        else:
            objects.append({"table": table.title, "rows": rows, "notes": list(table.notes)})
    objects += [{"value": name, **_plain_value(value)} for name, value in output.values]
    return objects


def _plain_value(value: Any) -> dict[str, Any]:
    """A value for JSON: {"number": …}, {"list": […]}, or the type, shape and statistics of a
    tensor; small ones with all of their numbers."""
    if isinstance(value, (list, tuple)):
        parts = map(_plain_value, value)
        return {"list": [part.get("number", part) for part in parts]}
    if isinstance(value, str):
        return {"string": value}
    if value is UNAVAILABLE or value is None:
        return {"number": None}
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and not value.ndim):
        return {"number": np.asarray(value).astype(object).item()}
    if not isinstance(value, (np.ndarray, RemoteTensor)):
        return {"number": value}
    found: dict[str, Any] = {"dtype": str(value.dtype), "shape": list(value.shape)}
    if value.dtype.kind in "biufV":
        one = tensor_statistics(value)
        ranges = {"min": one.least, "max": one.greatest, "mean": one.mean, "std": one.deviation}
        # NaN if no number is finite: not a value of the tensor.
        found |= {name: None if math.isnan(number) else number for name, number in ranges.items()}
        found |= {"nan": one.nan, "inf": one.plus_inf + one.minus_inf}
        if value.size <= _MOST_IN_JSON:
            array = np.asarray(value)
            found["numbers"] = (
                array.astype(np.float64) if array.dtype.kind == "V" else array
            ).tolist()
    return found


# -- stops


def stop_lines(debugger: Debugger, stop: Stop) -> list[str]:
    """Describe a stop: its operator, module, time, and line of Python."""
    head = [f"[{stop.position}]", stop.node or stop.name]
    if stop.node:
        op, node = (name.replace(".", "_").strip("_") for name in (stop.op, stop.node))
        if op not in node:
            head.append(f"({stop.op})")
    facts = []
    if stop.instruction is not None:
        facts.append(f"instruction {stop.instruction}")
    if stop.loop_pass:
        facts.append(f"pass {stop.loop_pass}")
    if stop.kind == "delegate":
        facts.append(f"{stop.backend or 'delegate'}, {counted(len(stop.nodes), 'node')}")
    elif stop.backend:
        facts.append(f"in {stop.backend}")
    if stop.module is not None:
        facts.append(stop.module or "(root)")
    if stop.ticks is not None and debugger.shows_times:
        facts.append(duration_text(debugger, stop.ticks))
    lines = [" ".join(head) + "".join(f" · {fact}" for fact in facts)]
    if (line := line_of(stop)) is not None:
        others = f"   (+{len(stop.lines) - 1} lines)" if len(stop.lines) > 1 else ""
        lines.append(f"    {source_text(line)}{others}")
    return lines


def duration_text(debugger: Debugger, ticks: int) -> str:
    """ "1.234 ms"."""
    scale = debugger.scale
    return f"{format_duration(float(scale(ticks)), scale.unit)} {scale.unit}"


def operators(count: int) -> str:
    """ "1 operator", "1,234 operators"."""
    return counted(count, "operator")


def source_text(line: SourceLine) -> str:
    """ "model.py:34  x = self.conv(x)"."""
    place = f"{PurePath(line.file).name}:{line.line}"
    return f"{place}  {line.text}" if line.text else place


def modules_of(stop: Stop) -> list[tuple[str, str]]:
    """The modules of a stop as (path, type), innermost first, without containers that have no code
    of their own (`ModuleList`)."""
    node = stop.nodes[-1] if stop.nodes else None
    types = {} if node is None else {m.path: m.type.rpartition(".")[2] for m in node.modules}
    if stop.module is None:
        return []
    parts = stop.module.split(".") if stop.module else []
    paths = [".".join(parts[:length]) for length in range(len(parts), -1, -1)]
    return [(path, types.get(path, "")) for path in paths if path in types or not types]


def line_of(stop: Stop) -> SourceLine | None:
    """The line to show for a stop: of its last node, whose value it has, if that is known."""
    frames = frames_of(stop)
    shown = next((line for line in stop.lines if frames and str(line) == str(frames[0])), None)
    return shown or (stop.lines[0] if stop.lines else None)


def frames_of(stop: Stop) -> list[SourceLine]:
    """The user's own frames of a stop, innermost first."""
    return user_frames(stop.stack)


def user_frames(stack: Sequence[SourceLine]) -> list[SourceLine]:
    """The user's own frames of a stack, innermost first."""
    return [frame for frame in reversed(stack) if user_lines([frame])]


def module_of_frame(node: Node, depth: int) -> str:
    """The path of the module whose code a frame of the user is in. depth: 1 for the outermost."""
    own = [one.path for one in node.modules if not one.type.startswith("torch.nn.")]
    return own[min(depth, len(own)) - 1] if own else ""


def level_of_frame(stop: Stop, number: int) -> int:
    """The index, in `modules_of`, of the module that a frame of `frames_of` is in."""
    paths = [path for path, _ in modules_of(stop)]
    depth = len(frames_of(stop)) - number
    module = module_of_frame(stop.nodes[-1], depth) if stop.nodes else ""
    return paths.index(module) if module in paths else 0


# -- values


def value_lines(value: Any, *, full: bool = False, width: int = PLAIN_COLUMNS) -> list[str]:
    """Describe a value: type and shape, range, and its first numbers. full: all of its numbers,
    with enough digits to read back the same value: at most 9 for float32. width: the width for
    lines of numbers.
    """
    if value is UNAVAILABLE:
        return ["<no debug buffer>"]
    if isinstance(value, (list, tuple)):
        if not any(isinstance(item, (np.ndarray, RemoteTensor)) for item in value):
            return [str([v.item() if isinstance(v, np.generic) else v for v in value])]
        lines = []
        for index, item in enumerate(value):
            head = f"[{index}] "
            inner = value_lines(item, full=full, width=width - len(head))
            first, *rest = ["not there"] if item is None else inner
            lines += [head + first, *(" " * len(head) + line for line in rest)]
        return lines
    if isinstance(value, RemoteTensor) and not full and value.ndim and value.size:
        # Only statistics and the numbers that are shown are fetched.
        head = f"{value.dtype}{list(value.shape)}  {_statistics_text(value)}"
        whole = math.prod(value.shape[-2:]) <= _SHOWN_WHOLE
        shown = excerpt(value, _SHOWN_WHOLE)
        rows = _rows(shown, ["0"] * (value.ndim - 2), _SHOWN_WHOLE if whole else 0, width)
        return [head.rstrip(), *rows]
    if not isinstance(value, (np.ndarray, np.generic, RemoteTensor)):
        return [repr(value) if full and isinstance(value, float) else _number(value)]
    array = np.asarray(value)
    if array.ndim == 0:
        return [str(array[()]) if full else _number(array.item())]
    head = f"{array.dtype}{list(array.shape)}"
    if array.size == 0:
        return [f"{head}  empty"]
    head = f"{head}  {_statistics_text(array)}"
    if full:
        wide = array.astype(np.float64) if array.dtype.kind == "V" else array
        text = np.array2string(
            wide, threshold=sys.maxsize, max_line_width=width, floatmode="unique"
        )
        return [head, *text.split("\n")]
    cut: list[str] = []
    while array.ndim > 2:
        array, cut = array[0], [*cut, "0"]
    return [head, *_rows(array, cut, _SHOWN_WHOLE, width)]


def tensor_statistics(tensor: np.ndarray[Any, Any] | RemoteTensor) -> Statistics:
    """Return statistics of a tensor's elements; for a remote tensor the runner computes them."""
    if isinstance(tensor, RemoteTensor):
        return tensor.statistics()
    wide = tensor.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    numbers = [np.nan] * 4
    if finite.size:
        numbers = [float(n) for n in (finite.min(), finite.max(), finite.mean(), finite.std())]
    nan, plus, minus = (int(of.sum()) for of in (np.isnan(wide), wide == np.inf, wide == -np.inf))
    return Statistics(wide.size, nan, plus, minus, *numbers)


def _statistics_text(tensor: np.ndarray[Any, Any] | RemoteTensor) -> str:
    """ "min -1.2  max 3.4  mean 0.1  std 0.9", with the count of NaN and infinities if any."""
    if tensor.dtype.kind not in "biufV":
        return ""
    found = tensor_statistics(tensor)
    if tensor.dtype.kind == "b":
        return f"{round(found.mean * found.elements):,} of {found.elements:,} true"
    numbers = (found.least, found.greatest, found.mean, found.deviation)
    named = zip(("min", "max", "mean", "std"), numbers, strict=True)
    parts = [f"{name} {_number(number)}" for name, number in named if not np.isnan(number)]
    counts = ((found.nan, "NaN"), (found.plus_inf + found.minus_inf, "Inf"))
    return "  ".join(parts + [f"{count:,} {what}" for count, what in counts if count])


def _rows(array: np.ndarray[Any, Any], cut: Sequence[str], threshold: int, width: int) -> list[str]:
    wide = array.astype(np.float64) if array.dtype.kind == "V" else array
    text = np.array2string(
        wide, threshold=threshold, edgeitems=3, precision=5, max_line_width=width
    )
    head = [f"[{', '.join(cut)}]"] if cut else []
    return [*head, *text.split("\n")]


def _number(value: Any) -> str:
    if isinstance(value, float):
        return format_float(value) or "nan"
    return str(value)
