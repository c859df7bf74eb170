"""Which operator an event inside XNNPACK is of: by hand, and on models whose lines are known."""

from __future__ import annotations

import functools
import inspect
import linecache
import math
import re
import warnings
from collections import Counter

import pytest

from etscope.analysis.profile.profile import Row
from etscope.analysis.profile.trace import Trace
from etscope.analysis.program.xnnpack_events import Pairing, pair
from etscope.analysis.selector_fields import tensor_fields
from etscope.errors import EtscopeWarning
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.etrecord.reader import read_etrecord
from etscope.formats.program.pte import read_pte
from etscope.formats.program.xnnpack import XnnNode, XnnTensor
from tests.support.artifacts import artifacts
from tests.support.xnnpack_models import MODELS

LINE = re.compile(r"# is: (.+)$")


def nodes(*kinds: str) -> tuple[XnnNode, ...]:
    """Operators with the debug handles 1, 2, …; "Add+" has a fused activation."""
    return tuple(
        XnnNode(kind.rstrip("+"), handle, clamped=kind.endswith("+"))
        for handle, kind in enumerate(kinds, 1)
    )


def handles(events: list[str], *kinds: str) -> list[int | None]:
    found = pair(events, nodes(*kinds))
    return [None if one is None else one.node.debug_handle for one in found]


@pytest.mark.parametrize(
    ("events", "kinds", "expected"),
    [
        pytest.param(
            ["Fully Connected (NC, F32) GEMM #1", "Add (ND) #1", "Fully Connected (NC, F32) #2"],
            ("FullyConnected", "Add", "FullyConnected"),
            [1, 2, 3],
            id="kinds and their order tell",
        ),
        pytest.param(
            ["Fully Connected (NC) #1", "Batch Matrix Multiply (NC, F32) GEMM #1"],
            ("FullyConnected", "StaticTranspose", "BatchMatrixMultiply"),
            [1, 3],
            id="an operator that was left out",
        ),
        pytest.param(
            ["Static Reshape (NC) #1", "Add (ND) #1"],
            ("StaticReshape", "StaticReshape", "Add"),
            [None, 3],
            id="which of two was left out is not guessed",
        ),
        pytest.param(
            ["Add (ND) #1", "Clamp (NC) #1"],
            ("Add+", "Clamp"),
            [1, None],
            id="a clamp that is either fused or an operator",
        ),
        pytest.param(
            ["Pack LH (X32) #1", "Fully Connected (NC) #1"],
            ("FullyConnected",),
            [None, 1],
            id="packing belongs to no operator",
        ),
        pytest.param([], ("Clamp",), [], id="nothing"),
    ],
)
def test_operators_of_events(
    events: list[str], kinds: tuple[str, ...], expected: list[int | None]
) -> None:
    assert handles(events, *kinds) == expected


def test_a_fused_activation_may_run_apart() -> None:
    first, second, third = pair(
        ["Add (ND) #1", "Clamp (NC) #1", "Add (ND) #2"], nodes("Add+", "Add")
    )
    assert first is not None and second is not None and third is not None
    assert [one.node.debug_handle for one in (first, second, third)] == [1, 1, 2]
    assert [one.activation for one in (first, second, third)] == [False, True, False]


@pytest.mark.parametrize(
    ("events", "kinds"),
    [
        (["Add (ND) #1"], ("Add", "Add")),
        (["Add (ND) #1", "Add (ND) #2"], ("Add",)),
        (["Add (ND) #1", "Divide (ND) #1"], ("Div", "Add")),
        (["Add (ND) #1", "Something New (NC) #1"], ("Add", "Add")),
        (["Add (ND) #1", "Something New (NC) #1"], ("Add", "Newer")),
        (["Add (ND) #1"], ()),
    ],
)
def test_what_does_not_fit_has_no_operators_at_all(
    events: list[str], kinds: tuple[str, ...]
) -> None:
    assert handles(events, *kinds) == [None] * len(events)


# -- models in which each line says what it becomes


@functools.cache
def rows_of(name: str) -> list[Row]:
    """The rows of the events inside of calls, of a recorded run."""
    made = artifacts(f"xnnpack_{name}")
    with warnings.catch_warnings():
        warnings.simplefilter("error", EtscopeWarning)
        record, program = read_etrecord(made.extra("etrecord.bin")), read_pte(made.pte)
        (profile,) = Trace(read_etdump(made.etdump), record=record, program=program).profiles()
    return [row for row in profile.rows if row.kind == "delegated"]


def planted(row: Row) -> str:
    """What the line says that the event was put at."""
    (line,) = row.attribution.lines
    said = LINE.search(linecache.getline(line.file, line.line).rstrip())
    assert said is not None, f"{row.name} was put at {line}, which does not run in XNNPACK"
    return f"{line.line} {said[1]}"


@pytest.mark.parametrize("name", MODELS)
def test_events_have_the_tensors_of_their_operators(name: str) -> None:
    rows = [row for row in rows_of(name) if row.attribution.nodes]
    assert rows
    for row in rows:
        found = row.attribution
        wanted = {
            math.prod(value.tensor.shape)
            for node in found.nodes
            for value in node.outputs
            if value.tensor is not None
        }
        sizes = tensor_fields(found.outputs)["shape"]
        assert found.inputs and len(sizes) == 1, row.name
        assert math.prod(map(int, sizes[0].split("x"))) in wanted, row.name


def test_equal_operators_need_no_choice_but_those_of_other_shapes_have_no_tensors() -> None:
    reshape = XnnNode("StaticReshape", 7)
    assert pair(["Static Reshape (NC) #1"], [reshape, reshape]) == [Pairing(reshape)]
    one, other = (XnnTensor("float32", (size,)) for size in (4, 8))
    reshapes = [XnnNode("StaticReshape", 7, outputs=(tensor,)) for tensor in (one, other)]
    (found,) = pair(["Static Reshape (NC) #1"], reshapes)
    assert found is not None and found.node.outputs == ()


@pytest.mark.parametrize("name", MODELS)
def test_every_event_is_at_its_line(name: str) -> None:
    # Those of a node: the others are shown at the lines of their call.
    rows = [row for row in rows_of(name) if row.attribution.nodes and row.attribution.lines]
    assert [planted(row).partition(" ")[2] for row in rows] == [
        row.name.partition(" (")[0] for row in rows
    ]
    make, _ = MODELS[name]
    assert Counter(planted(row) for row in rows) == Counter(lines_of_model(make))


def lines_of_model(make: type) -> list[str]:
    source, first = inspect.getsourcelines(make)
    return [
        f"{number} {said[1]}"
        for number, text in enumerate(source, first)
        if (said := LINE.search(text.rstrip()))
    ]


@pytest.mark.parametrize("name", ["linears", "residuals"])
def test_every_quantized_event_is_at_its_line(name: str) -> None:
    rows = rows_of(f"{name}_int8")
    rows = [row for row in rows if row.attribution.nodes and row.attribution.lines]
    kinds = {row.name.partition(" ")[0] for row in rows}
    assert "Fully" in kinds or "Convolution" in kinds
    for row in rows:
        logged = str(row.delegate_id)  # its row may have a better name
        event, said = logged.partition(" (")[0].partition(" #")[0], planted(row)
        if event == "Invalid Unary Op":
            assert row.name.partition(" (")[0] in said.lower().replace(" ", "")
        elif event not in ("Convert", "Transpose"):
            assert said.partition(" ")[2] == event
    make, _ = MODELS[name]
    at = Counter(planted(row) for row in rows if not row.name.startswith("Convert"))
    assert at == Counter(lines_of_model(make))


def test_a_conversion_of_layout_is_of_no_node() -> None:
    transposes = [row for row in rows_of("residuals") if row.name.startswith("Transpose")]
    assert len(transposes) == 2
    assert all(row.attribution.nodes == () for row in transposes)
    assert all(row.attribution.debug_handles is None for row in transposes)


def test_a_relu_that_runs_apart_is_a_relu() -> None:
    (clamp,) = [row for row in rows_of("residuals") if row.name.startswith("Clamp")]
    assert clamp.attribution.op_types == ["aten.relu.default"]
