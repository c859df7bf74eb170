"""Tables and timelines made by hand for the tests of the views."""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from etscope.model.table import Column, Kind, Table
from etscope.model.timeline import Timeline, Track

# Names as a hostile file could hold them: terminal escapes, a bell, line breaks, a direction
# override, a zero-width space, markup of several languages, a lone surrogate, quotes, a formula.
HOSTILE = (
    "\x1b[31mred\x1b[0m\x07",
    "two\nlines\r\n\tand a tab",
    "abc\u202egnp.exe\u200b",
    "[bold]rich[/bold] <script>alert(1)</script> & `code` | pipe",
    "\ud800 lone surrogate \x9b31m",
    "\"quoted\", comma; and 'more' \\ #12 @someone *x* _y_",
    "=1+1",
)


def events() -> Table:
    """25 events as `etscope inspect` shows them, delegated ones below their call, and a total."""
    per_block = (
        ("XnnpackBackend", 0, "conv1"),
        ("Convolution (NHWC, F32) IGEMM #1", 1, "conv1"),
        ("Clamp (NC, F32) #2", 1, "act"),
        ("Max Pooling (NHWC, F32) #3", 1, "pool"),
        ("aten.native_layer_norm.default", 0, "norm"),
    )
    ops = [(name, depth, f"blocks.{b}.{leaf}") for b in range(5) for name, depth, leaf in per_block]
    times = [12.3456 / (1 + 0.5 * i * i) for i in range(len(ops))]
    total = sum(time for time, (_, depth, _) in zip(times, ops, strict=True) if depth == 0)
    shares = [time / total for time in times]
    added = accumulate(
        share if depth == 0 else 0.0 for share, (_, depth, _) in zip(shares, ops, strict=True)
    )
    values = {
        "instruction": [i if depth == 0 else None for i, (_, depth, _) in enumerate(ops)],
        "event": [name for name, _, _ in ops],
        "calls": [1] * len(ops),
        "avg": np.array(times),
        "p50": [0.98 * time for time in times],
        "share": shares,
        "cumulative": [
            part if depth == 0 else None for part, (_, depth, _) in zip(added, ops, strict=True)
        ],
        "module": [module for _, _, module in ops],
        "source": [f"/home/me/projects/vision/model.py:{34 + i}" for i in range(len(ops))],
    }
    last = {"event": "Method::execute", "avg": total, "p50": 0.98 * total, "share": 1.0}
    return Table(
        columns=(
            Column("instruction", Kind.INT, title="#", priority=6),
            Column("event"),
            Column("calls", Kind.COUNT, priority=4),
            Column("avg", Kind.DURATION, "ms"),
            Column("p50", Kind.DURATION, "ms", priority=3),
            Column("share", Kind.SHARE),
            Column("cumulative", Kind.SHARE, title="cum.", priority=5),
            Column("module", Kind.PATH, priority=2),
            Column("source", Kind.PATH, priority=1),
        ),
        values={name: [*column, last.get(name)] for name, column in values.items()},
        title="forward · 10 runs",
        notes=("Mean of 10 runs.",),
        depth=[depth for _, depth, _ in ops] + [0],
        breaks=frozenset({len(ops)}),
    )


def kinds() -> Table:
    """Every kind of column with None, NaN, an infinity, tiny and large values, and three depths."""
    nan = float("nan")
    return Table(
        columns=(
            Column("name"),
            Column("where", Kind.PATH),
            Column("id", Kind.INT),
            Column("calls", Kind.COUNT),
            Column("error", Kind.FLOAT),
            Column("time", Kind.DURATION, "us"),
            Column("share", Kind.SHARE),
            Column("size", Kind.BYTES),
            Column("ok", Kind.BOOL),
            Column("shape", Kind.LIST),
        ),
        values={
            "name": ["top", "Faltung, größer", "畳み込み", None, "last child"],
            "where": ["a/b.py:1", "encoder.layer.0", "", None, "x"],
            "id": np.array([1234567, -1, 0, 2, nan]),
            "calls": [1234567, 1.5, 0, None, 3],
            "error": np.array([1e-9, nan, 0.0, float("inf"), -2.5], np.float32),
            "time": [1234.5678, 0.0001, 0.0, nan, None],
            "share": [1.0, 0.1234, 0.00001, None, nan],
            "size": np.array([0, 1023, 1536, 1 << 20, 7 << 40]),
            "ok": [True, False, None, np.True_, False],
            "shape": [[1, 3, 224], (), None, ["a", "b"], np.array([2, 2])],
        },
        title="kinds",
        notes=("First note.", "Second note."),
        depth=[0, 1, 2, 2, 1],
    )


def hostile() -> Table:
    """Hostile text in names, title, notes and among numbers."""
    return Table(
        columns=(
            Column("name", title="na\x1b[1mme | <b>"),
            Column("where", Kind.PATH),
            Column("count", Kind.COUNT),
        ),
        values={
            "name": list(HOSTILE),
            "where": [f"/tmp/{name}/model.py:1" for name in HOSTILE],
            "count": [1, 2, 3, 4, 5, 6, "n/a\x1b[0m"],
        },
        title="title \x1b[2J",
        notes=(f"note {HOSTILE[0]} <i>",),
    )


def empty() -> Table:
    """Columns without rows."""
    return Table(
        columns=(Column("event"), Column("avg", Kind.DURATION, "ms")),
        values={"event": [], "avg": np.empty(0)},
        title="nothing",
        notes=("The dump has no events.",),
    )


def timeline() -> Timeline:
    """Two runs of a method with a delegate's own track below, three levels deep."""
    spans = [
        # track, start, end, name, args
        (0, 1_000_000_001, 1_000_010_000, 0, -1),
        (0, 1_000_000_100, 1_000_004_000, 1, 0),
        (0, 1_000_004_000, 1_000_009_999, 2, 1),
        (0, 1_000_005_000, 1_000_005_000, 3, -1),  # no longer than a tick
        (1, 1_000_000_200, 1_000_003_900, 1, 0),
        (0, 1_000_020_000, 1_000_030_000, 0, -1),
        (0, 1_000_020_100, 1_000_024_000, 1, 0),
        (0, 1_000_024_000, 1_000_030_000, 2, 1),
    ]
    track, start, end, name, args = np.array(spans, np.int64).T
    return Timeline(
        tracks=(Track("forward"), Track("XnnpackBackend", parent=0, note="delegate's clock")),
        names=("Method::execute", "XnnpackBackend", "native_call_add.out", HOSTILE[0]),
        args=(
            {"handle": 3, "module": "blocks.0", "source": "/home/me/model.py:34", "hot": True},
            {"handle": 4, "source": HOSTILE[3], "share": 0.5, "text": HOSTILE[4], "nothing": None},
        ),
        ticks_per_second=1e9,
        track=track.astype(np.int32),
        start=start,
        end=end,
        name_id=name.astype(np.int32),
        args_id=args.astype(np.int32),
        title="model.etdp",
    )


def cycles() -> Timeline:
    """One track of cycles."""
    return Timeline(
        tracks=(Track("dsp"),),
        names=("conv",),
        args=(),
        ticks_per_second=None,
        track=np.zeros(2, np.int32),
        start=np.array([10, 40]),
        end=np.array([30, 45]),
        name_id=np.zeros(2, np.int32),
        args_id=np.full(2, -1, np.int32),
    )


def crossing() -> Timeline:
    """Spans of one track that overlap without being nested."""
    return Timeline(
        tracks=(Track("pool"), Track("after")),
        names=("a", "b", "c"),
        args=(),
        ticks_per_second=1e9,
        track=np.array([0, 0, 0, 1], np.int32),
        start=np.array([0, 50, 60, 0]),
        end=np.array([100, 150, 160, 10]),
        name_id=np.array([0, 1, 2, 0], np.int32),
        args_id=np.full(4, -1, np.int32),
    )


def no_spans() -> Timeline:
    """A track without spans."""
    none = np.empty(0, np.int64)
    small = np.empty(0, np.int32)
    return Timeline((Track("forward"),), (), (), 1e9, small, none, none, small, small, "empty")
