"""Options that several verbs share, with the same words everywhere."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from etscope.units import TimeScale
from etscope.views import GRAPH_VIEWS, TABLE_VIEWS

__all__ = [
    "GRAPHS",
    "UNITS",
    "error_options",
    "gathered",
    "graph_output_options",
    "output_options",
    "some_of",
    "table_options",
]

# What people call the reference graphs, and the record.
GRAPHS = {"edge": "edge_dialect_exported_program", "exported": "exported_program"}
UNITS = [scale.value for scale in TimeScale]

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _names(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[str, ...] | None:
    """The comma-separated names of `value`."""
    if value is None:
        return None
    names = tuple(name.strip() for name in value.split(",") if name.strip())
    if not names:
        raise click.BadParameter("expected names separated by commas")
    return names


def _applied(function: _Function, *decorators: Callable[[_Function], _Function]) -> _Function:
    for decorator in reversed(decorators):
        function = decorator(function)
    return function


def some_of(allowed: Sequence[str]) -> Callable[..., tuple[str, ...]]:
    """A callback that takes some of these words, separated by commas, or none."""

    def chosen(
        context: click.Context, parameter: click.Parameter, value: str | None
    ) -> tuple[str, ...]:
        names = tuple(name.strip() for name in (value or "").split(",") if name.strip())
        if unknown := [name for name in names if name not in allowed]:
            raise click.BadParameter(f"{unknown[0]!r} is not one of {', '.join(allowed)}")
        return names

    return chosen


def gathered(
    function: _Function,
    options: Sequence[Callable[[Any], Any]],
    *,
    names: Collection[str],
    parameter: str,
    make: Callable[..., Any],
) -> _Function:
    """Add options; the function gets what they say, by these names, as one parameter that is made
    of them."""

    @functools.wraps(function)
    def called(**values: Any) -> Any:
        mine = {name: values.pop(name) for name in names}
        return function(**{parameter: make(**mine)}, **values)

    return _applied(called, *options)  # type: ignore[return-value]


def output_options(function: _Function) -> _Function:
    """Add `--format`, `-o/--output` and `--color`: parameters `format`, `output`, `color`.

    `output` is a path, or None for standard output; "-" is standard output too.
    """
    return _output_options(function, list(TABLE_VIEWS))


def graph_output_options(function: _Function) -> _Function:
    """`output_options` with the formats of graphs beside those of tables."""
    return _output_options(function, [*TABLE_VIEWS, *GRAPH_VIEWS])


def _output_options(function: _Function, formats: list[str]) -> _Function:
    return _applied(
        function,
        click.option(
            "--format",
            "-f",
            type=click.Choice(formats),
            help="Form of the output. Default: by the suffix of --output, else table.",
        ),
        click.option(
            "--output",
            "-o",
            type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
            metavar="FILE",
            help="Write to FILE; - is standard output.",
        ),
        click.option(
            "--color",
            type=click.Choice(["auto", "always", "never"]),
            default="auto",
            show_default=True,
            help="Colour the table; auto: on a terminal, unless NO_COLOR is set.",
        ),
    )


def error_options(function: _Function) -> _Function:
    """Add `--metric --tolerance --graph`: how values are held against a reference, and which.

    `metric` is a name, `tolerance` a number or None, `graph` one of `GRAPHS`.
    """
    return _applied(
        function,
        click.option(
            "--metric",
            default="sqnr",
            show_default=True,
            metavar="NAME",
            help="Metric of the errors.",
        ),
        click.option(
            "--tolerance",
            type=float,
            metavar="X",
            help="Worst error of an operator that is fine, in the metric. Default: by type.",
        ),
        click.option(
            "--graph",
            type=click.Choice(list(GRAPHS)),
            default="edge",
            show_default=True,
            help="The reference: the program before lowering, or as torch.export made it.",
        ),
    )


def table_options(function: _Function) -> _Function:
    """Add `--columns --sort --limit --unit`: what of a table is shown, and in which unit.

    `columns` is a tuple of names or None, `sort` a column name or None, a leading "-" meaning
    largest first, `limit` the number of rows or None for all, `unit` one of `UNITS` or None.
    """
    return _applied(
        function,
        click.option(
            "--columns", metavar="NAME,…", callback=_names, help="Show these columns, in order."
        ),
        click.option("--sort", metavar="NAME", help="Sort by this column; -NAME: largest first."),
        click.option(
            "--limit", "-n", type=click.IntRange(min=0), metavar="N", help="Show N rows at most."
        ),
        click.option("--unit", type=click.Choice(UNITS), help="Unit of the times shown."),
    )
