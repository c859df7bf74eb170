"""A backend that a function lowers to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

from etscope.backends import BACKENDS, Backend, Chosen
from etscope.bridge.lowering import export as lowering


@contextmanager
def lowered_by(name: str, function: Callable[[Any], Any]) -> Iterator[None]:
    """Let the function make the edge programs of the backend of this name, which may be new."""
    real = lowering.edge_programs

    def edge_programs(programs: Any, backends: Sequence[Chosen], *options: Any) -> Any:
        if [one.name for one in backends] == [name]:
            return function(programs)
        return real(programs, backends, *options)

    with (
        mock.patch.dict(BACKENDS, {name: BACKENDS.get(name, Backend())}),  # type: ignore[arg-type]
        mock.patch.object(lowering, "edge_programs", edge_programs),
    ):
        yield
