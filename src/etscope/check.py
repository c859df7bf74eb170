"""Check a program or a run against an earlier one, as for a pull request.

from etscope.capture import open_capture
from etscope.check import check

checked = check(open_capture("before"), open_capture("after"), max_size="1%")
print(checked.headline, checked.exit_code)
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from etscope.analysis.check.compare import Outcome, check_limits, compare
from etscope.analysis.check.measure import measure
from etscope.analysis.check.measured import Measured, is_baseline, read_baseline
from etscope.analysis.check.report import Checked
from etscope.analysis.profile.trace import Capture
from etscope.capture import open_capture
from etscope.capture.files import runs_of_files
from etscope.capture.outputs import output_errors
from etscope.errors import FormatError, UsageError, reading
from etscope.formats.bytes.files import PathLike
from etscope.support.optional import require
from etscope.support.options import takes_fields
from etscope.units import count

__all__ = [
    "CheckOptions",
    "Checked",
    "Outcome",
    "check",
    "open_sides",
    "read_baseline",
    "read_options",
]

Threshold = str | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """Options of `check()`. A threshold is the most that NEW may be worse: a share ("2%", 0.02), a
    number, or "off"; None is its default.

    max_size: growth of the program's bytes (2 %). max_memory: growth of planned memory (2 %).
    max_flops,
        max_bytes: growth of the FLOPs and of the bytes moved (2 %). max_undelegated: fall of the
        share of nodes in delegates (1 % of all nodes). max_kernels: new kernels and backends that
        an app must register (0). max_interface: changed inputs and outputs (0). max_faults: new
        faults of the program (0). max_sqnr_drop: fall of the SQNR of outputs to the expected ones
        (1 dB). max_worst_drop: the same fall for the worst sample (3 dB). max_time: growth of the
        time (5 %).
    allow_unknown: "cannot tell" is a pass. method: check this method only. force: compare sides
    that
        may be of different models. source_unit: the unit of the runtime's clock.
    """

    max_size: Threshold = None
    max_memory: Threshold = None
    max_flops: Threshold = None
    max_bytes: Threshold = None
    max_undelegated: Threshold = None
    max_kernels: Threshold = None
    max_interface: Threshold = None
    max_faults: Threshold = None
    max_sqnr_drop: Threshold = None
    max_worst_drop: Threshold = None
    max_time: Threshold = None
    allow_unknown: bool = False
    method: str | None = None
    force: bool = False
    source_unit: str = "ns"


@takes_fields(CheckOptions)
def check(
    base: Capture | Measured | None,
    new: Capture | Measured,
    *,
    options: CheckOptions = CheckOptions(),
    **changes: object,
) -> Checked:
    """Check NEW against BASE.

    base, new: a program or a run, from `etscope.capture.open_capture`, or a stored baseline, from
        `read_baseline`. Without a base, NEW is only measured, to be a baseline.
    options, changes: fields of `CheckOptions`, as `max_time="10%"`; changes go before `options`.

    Raises `UsageError` for a threshold that is none, `MismatchError` for the sides of different
    models, and `MissingDataError` for a side without a program and times.
    """
    chosen = replace(options, **changes)  # type: ignore[arg-type]
    limits = check_limits(asdict(chosen))
    measured = None if base is None else _measured(base, chosen)
    other = _measured(new, chosen)
    rows = () if measured is None else compare(measured, other, limits, force=chosen.force)
    is_stored = isinstance(base, Measured)
    return Checked(measured, other, rows, is_stored, chosen.allow_unknown)


def _measured(side: Capture | Measured, options: CheckOptions) -> Measured:
    if isinstance(side, Measured):
        return side if options.method is None else side.only(options.method)
    trace = side.trace
    outputs = "there is no run" if trace is None else output_errors(trace)
    return measure(side, outputs, method=options.method, source_unit=options.source_unit)


def open_sides(
    paths: Sequence[PathLike], *, force: bool = False
) -> tuple[Capture | Measured | None, Capture | Measured]:
    """Open BASE and NEW; BASE is None for one path.

    paths: two, each a baseline, or a path for `open_capture`; or more files, which are grouped into
        two runs or programs, after a baseline, if that is the first one. force: accept files that
        do not belong together.

    Raises the errors of `open_capture` and `read_baseline`, `UsageError` for another number of
    sides.
    """
    if len(paths) > 2:
        if is_baseline(paths[0]):
            return read_baseline(paths[0]), open_capture(*paths[1:], force=force)
        runs = runs_of_files(paths)
        if len(runs) != 2:
            raise UsageError(
                f"a check needs BASE and NEW, but the files have {count(len(runs), 'side')}",
                hint="name two folders, or import the files of each: etscope runs import",
            )
        return runs[0].capture(force=force), runs[1].capture(force=force)
    if not paths:
        raise UsageError("a check needs NEW", hint="etscope check BASE NEW")
    *before, new = (
        read_baseline(path) if is_baseline(path) else open_capture(path, force=force)
        for path in paths
    )
    return next(iter(before), None), new


def read_options(folder: PathLike = ".") -> CheckOptions:
    """Return the options of the table `[tool.etscope.check]` of the nearest pyproject.toml, in the
    folder or one around it; the defaults without one.

    Raises `FormatError` for a broken file, `UsageError` for an unknown key or a wrong value.
    """
    here = Path(folder).absolute()
    for path in (one / "pyproject.toml" for one in (here, *here.parents)):
        if path.is_file():
            return _options_of(path)
    return CheckOptions()


def _options_of(path: Path) -> CheckOptions:
    wanted = "[tool.etscope.check]"
    toml = require("tomllib" if sys.version_info >= (3, 11) else "tomli", wanted_by=wanted)
    with reading("TOML", path):
        text = path.read_text(encoding="utf-8")
    try:
        table: Any = toml.loads(text)
    except ValueError as error:
        raise FormatError(f"{path} is not TOML: {error}") from error
    for name in ("tool", "etscope", "check"):
        table = table.get(name, {}) if isinstance(table, Mapping) else table
    if not isinstance(table, Mapping):
        raise UsageError(f"{wanted} of {path} is not a table")
    known = {one.name: one for one in fields(CheckOptions)}
    given = {name.replace("-", "_"): value for name, value in table.items()}
    for name, value in given.items():
        if name not in known:
            raise UsageError(
                f"unknown key {name.replace('_', '-')} in {wanted} of {path}",
                hint=f"keys are: {', '.join(key.replace('_', '-') for key in known)}",
            )
        is_flag = known[name].type == "bool"
        if not isinstance(value, bool if is_flag else (str, int, float)) or (
            isinstance(value, bool) != is_flag
        ):
            kind = "true or false" if is_flag else "a text or number"
            raise UsageError(f"{name.replace('_', '-')} in {wanted} of {path} is not {kind}")
    return CheckOptions(**given)
