"""What a command answers: sentences, tables and facts, in order. Views make text or JSON of it."""

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

from etscope.analysis.profile.source_location import user_lines
from etscope.analysis.profile.trace import UNAVAILABLE
from etscope.errors import EtscopeError
from etscope.etdb.debugger import Debugger
from etscope.etdb.targets.remote_tensor import excerpt
from etscope.etdb.targets.target import FarTensor, Stop, is_far
from etscope.model.graph import SourceLine
from etscope.model.report import Report, Section, filled_columns
from etscope.model.table import Table
from etscope.units import format_duration, format_float
from etscope.views import write_table
from etscope.views.tables.cell_values import plain_rows
from etscope.views.tables.report import turned
from etscope.views.tables.text_cells import visible

Item = str | Table | Section


@dataclass
class Output:
    """Parts of an answer. `finding`: a run stopped at what the person had said to look for.
    `ends`: the session is over. `code`: the exit code of a script that failed in a part."""

    items: list[Item] = field(default_factory=list)
    finding: bool = False
    ends: bool = False
    code: int = 0

    def say(self, *lines: str) -> Output:
        """Add lines of text."""
        self.items.extend(lines)
        return self

    def table(self, table: Table, columns: Iterable[str] | None = None) -> Output:
        """Add a table, with the named columns of it."""
        self.items.append(table if columns is None else table.select(columns))
        return self

    def report(self, report: Report, sections: Sequence[str] | None = None) -> Output:
        """Add the sections of a report."""
        self.items.extend(
            section for section in report.sections if sections is None or section.name in sections
        )
        return self

    def add(self, other: Output) -> Output:
        """Add all of another answer."""
        self.items.extend(other.items)
        self.finding = self.finding or other.finding
        self.ends = self.ends or other.ends
        self.code = self.code or other.code
        return self


# Answers as text for a person, and as JSON for a program.


PLAIN_WIDTH = 100  # where no terminal tells
_FOLDED = 4


def write_output(
    answer: Output,
    out: TextIO,
    *,
    width: int | None = None,
    color: bool | None = None,
    fold: int | None = None,
) -> None:
    """Write an answer for people. Nothing in it can move the cursor or change a terminal. fold:
    the width that lines of text are folded to, between words."""
    before: Item | None = None
    for item in answer.items:
        if before is not None and not (isinstance(before, str) and isinstance(item, str)):
            out.write("\n")
        if isinstance(item, str):
            lines = [visible(line) for line in item.split("\n")]
            out.writelines(f"{part}\n" for line in lines for part in folded(line, fold))
        else:
            write_table(_shaped(item), "table", out, width=width or PLAIN_WIDTH, color=color)
        before = item


def folded(line: str, width: int | None) -> list[str]:
    """A line in parts that a terminal need not break; what is below another is further inside."""
    if width is None or len(line) <= width:
        return [line]
    indent = len(line) - len(line.lstrip()) + _FOLDED
    return textwrap.wrap(
        line,
        width,
        subsequent_indent=" " * min(indent, width // 2),
        break_on_hyphens=False,
        replace_whitespace=False,
    )


def error_text(error: EtscopeError) -> str:
    """An error as text, one line or several. Messages and hints hold names from files."""
    return "\n".join(visible(line) for line in f"error: {error}".split("\n"))


def text_of(answer: Output, width: int = PLAIN_WIDTH) -> str:
    """An answer as plain text."""
    out = io.StringIO()
    write_output(answer, out, width=width, color=False)
    return out.getvalue()


def json_of(answer: Output) -> list[dict[str, Any]]:
    """An answer as plain values: {"text": …}, {"facts": {…}} or {"table": title, "rows": […]}."""
    return [_object(item) for item in answer.items]


def _shaped(item: Table | Section) -> Table:
    if isinstance(item, Section):
        table = item.table
        return turned(table) if item.is_facts else table.select(filled_columns(table))
    return item


def _object(item: Item) -> dict[str, Any]:
    if isinstance(item, str):
        return {"text": item}
    table = item.table if isinstance(item, Section) else item
    keys: Sequence[str] = [column.key for column in table.columns]
    rows = [dict(zip(keys, row, strict=True)) for row in plain_rows(table)]
    if isinstance(item, Section) and item.is_facts:
        return {"facts": rows[0] if rows else {}, "title": table.title}
    return {"table": table.title, "rows": rows, "notes": list(table.notes)}


# Stops and values in words.


_SHOWN_WHOLE = 40  # numbers


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
        facts.append(f"{stop.backend or 'delegate'}, {counted(len(stop.nodes), 'node')}")
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


def counted(count: int, noun: str) -> str:
    """ "1 node", "1,234 nodes"."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def operators(count: int) -> str:
    """ "1 operator", "1,234 operators"."""
    return counted(count, "operator")


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
        if not any(isinstance(item, np.ndarray) or is_far(item) for item in value):
            return [str([v.item() if isinstance(v, np.generic) else v for v in value])]
        return [
            line
            for index, item in enumerate(value)
            for line in _indented(f"[{index}] ", _item_lines(item, full))
        ]
    if is_far(value) and not full and value.ndim and value.size:
        return _far_lines(value)
    if not isinstance(value, (np.ndarray, np.generic)) and not is_far(value):
        return [_number(value)]
    array = np.asarray(value)
    if array.ndim == 0:
        return [_number(array.item())]
    head = f"{array.dtype}{list(array.shape)}"
    if array.size == 0:
        return [f"{head}  empty"]
    return [f"{head}  {statistics(array)}", *_numbers(array, full)]


def _item_lines(item: Any, full: bool) -> list[str]:
    return ["not there"] if item is None else value_lines(item, full=full)


def _far_lines(tensor: FarTensor) -> list[str]:
    """As `value_lines`, by its statistics and the few numbers that are shown."""
    head = f"{tensor.dtype}{list(tensor.shape)}  {far_statistics(tensor)}"
    rest = math.prod(tensor.shape[-2:])
    shown = _rows(
        excerpt(tensor, _SHOWN_WHOLE),
        ["0"] * (tensor.ndim - 2),
        _SHOWN_WHOLE if rest <= _SHOWN_WHOLE else 0,
    )
    return [head.rstrip(), *shown]


def far_statistics(tensor: FarTensor) -> str:
    """As `statistics`, counted where the tensor is."""
    if tensor.dtype.kind not in "biufV":
        return ""
    told = tensor.statistics()
    if tensor.dtype.kind == "b":
        return f"{round(told.mean * told.elements):,} of {told.elements:,} true"
    numbers = (told.least, told.greatest, told.mean, told.deviation)
    return _statistics_text(numbers, told.nan, told.plus_inf + told.minus_inf)


def statistics(array: np.ndarray[Any, Any]) -> str:
    """ "min -1.2  max 3.4  mean 0.1  std 0.9", with the count of NaN and infinities if any."""
    if array.dtype.kind == "b":
        return f"{int(array.sum()):,} of {array.size:,} true"
    if array.dtype.kind not in "iufV":
        return ""
    wide = array.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    nan, inf = int(np.isnan(wide).sum()), int(np.isinf(wide).sum())
    if not finite.size:
        return _statistics_text((), nan, inf)
    numbers = (finite.min(), finite.max(), finite.mean(), finite.std())
    return _statistics_text(numbers, nan, inf)


def _statistics_text(numbers: Sequence[float], nan: int, inf: int) -> str:
    named = zip(("min", "max", "mean", "std"), numbers, strict=False)
    parts = [f"{name} {_number(float(n))}" for name, n in named if not np.isnan(n)]
    parts += [f"{count:,} {what}" for count, what in ((nan, "NaN"), (inf, "Inf")) if count]
    return "  ".join(parts)


def _numbers(array: np.ndarray[Any, Any], full: bool) -> list[str]:
    shown = array.astype(np.float64) if array.dtype.kind == "V" else array
    if full:
        return np.array2string(shown, threshold=sys.maxsize, max_line_width=90).split("\n")
    cut: list[str] = []
    while shown.ndim > 2:
        shown, cut = shown[0], [*cut, "0"]
    return _rows(shown, cut, _SHOWN_WHOLE)


def _rows(array: np.ndarray[Any, Any], cut: Sequence[str], threshold: int) -> list[str]:
    shown = array.astype(np.float64) if array.dtype.kind == "V" else array
    text = np.array2string(shown, threshold=threshold, edgeitems=3, precision=5, max_line_width=90)
    head = [f"[{', '.join(cut)}]"] if cut else []
    return [*head, *text.split("\n")]


def _number(value: Any) -> str:
    if isinstance(value, float):
        return format_float(value) or "nan"
    return str(value)


def _indented(head: str, lines: Sequence[str]) -> list[str]:
    return [(head if not number else " " * len(head)) + line for number, line in enumerate(lines)]
