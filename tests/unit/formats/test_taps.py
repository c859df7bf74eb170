"""The member of a record that lists taps."""

from __future__ import annotations

import json

import pytest

from etscope.errors import FormatError, reading
from etscope.formats.etrecord.own_members import MethodTaps, Tap, taps_from_json, taps_to_json
from etscope.formats.json_values import JsonValue

TAPS = {
    "forward": MethodTaps(
        1,
        (
            Tap("conv", "aten.conv2d.default", "conv", 1, None, "body.0", "model.py:7", 3),
            Tap("topk", "aten.topk.default", "getitem_1", 2, 1),
        ),
    )
}


def test_it_comes_back_as_it_was() -> None:
    assert taps_from_json(JsonValue(json.loads(json.dumps(taps_to_json(TAPS))))) == TAPS
    assert [tap.name for tap in TAPS["forward"].taps] == ["conv", "topk[1]"]


@pytest.mark.parametrize(
    ("key", "value"),
    [(key, value) for key in ("node", "op", "value", "output") for value in (..., None, [1], 1.5)]
    + [("output", "1")],
)
def test_what_is_missing_or_of_another_type(key: str, value: object) -> None:
    content = taps_to_json(TAPS)
    tap = content["methods"]["forward"]["taps"][0]
    tap[key] = value
    if value is ...:
        del tap[key]
    with pytest.raises(FormatError), reading("ETRecord", None):
        taps_from_json(JsonValue(content))
