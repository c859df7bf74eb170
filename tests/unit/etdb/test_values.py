"""Looking at values: of the device, of the reference, and the gap between them."""

from __future__ import annotations

import re

import numpy as np
import pytest

from etscope.analysis.metrics import find_metric
from etscope.etdb import Session
from etscope.etdb.scope import gap_between, single
from tests.support.artifacts import artifacts
from tests.support.etdb.sessions import refused, said, session


def softmax() -> tuple[Session, np.ndarray]:
    """A session at the last operator, and what the runtime returned."""
    with np.load(artifacts("cnn_portable").outputs) as arrays:
        expected = arrays[arrays.files[0]]
    one = session("cnn_portable")
    said(one, "start", "until op:softmax")
    return one, expected


def test_the_last_value_is_what_the_runtime_returned() -> None:
    one, expected = softmax()
    for text in ("$", "$0", "aten__softmax_default", "device(aten__softmax_default)", "#23"):
        got = float(said(one, f"print ({text})[0, 3] * 1"))
        assert got == pytest.approx(float(expected[0, 3]), rel=1e-4), text


def test_numbers_are_examined_with_all_digits() -> None:
    one, expected = softmax()
    text = said(one, "x/3f $")
    assert len(text.split()) == 5
    assert float(text.split()[2]) == pytest.approx(float(expected[0, 0]), rel=1e-4)
    bits = said(one, "x/1x $").split()[2]
    assert bits == "0x" + expected[0, 0].tobytes()[::-1].hex()
    assert "unknown format 'q'" in refused(one, "x/3q $")
    assert "at most" in refused(one, "x/99999 $")
    assert np.float32(said(one, "print/f $[0, 3]")) == expected[0, 3]
    assert said(one, "print $[0, 3]") != said(one, "print/f $[0, 3]")
    numbers = said(one, "print/f $ + 0").splitlines()[1:]
    words = " ".join(numbers).replace("[", "").replace("]", "").split()
    assert [np.float32(word) for word in words] == list(expected[0])
    for line, shown in (
        ("print/f 1 / 3", "0.3333333333333333"),
        ("print nan", "nan"),
        ("print -inf", "-inf"),
        ("print $.max() < inf", "True"),
        ("print True", "True"),
    ):
        assert said(one, line) == f"{shown}\n"
    said(one, "break if $.max() == inf")


def test_functions_compare_with_the_reference() -> None:
    one, _ = softmax()
    text = said(one, "print $")
    assert "reference: float32[1, 10]" in text
    assert re.search(r"gap: SQNR (inf|\d+)", text)
    assert "reference" not in said(one, "print $ + 0")
    assert "reference" not in said(session("cnn_portable", inputs=False), "start", "print $")
    assert float(said(one, "print (ref() - $).abs().max()")) < 1e-5
    assert float(said(one, "print gap(max_abs)")) < 1e-5
    assert float(said(one, "print gap(max_abs, aten_relu_default)")) < 1e-4
    assert "unknown metric" in refused(one, "print gap(nothing)")
    shape = said(one, 'print weight("stem.conv.weight").shape')
    assert shape.strip() == "[8, 3, 3, 3]"
    assert "no weight" in refused(one, 'print weight("nothing")')


def test_values_that_are_not_there_yet_say_so() -> None:
    one = session("cnn_portable")
    said(one, "start")
    assert "no value yet" in refused(one, "print aten_relu_default")
    assert "has not run yet" in refused(one, "print #5")
    assert "did you mean" in refused(one, "print aten_relu_defalt")
    assert "no node has the debug handle" in refused(one, "print %9999")
    assert "$x was not set" in refused(one, "print $x")
    said(one, "set $first = $.mean()", "step")
    assert said(one, "print $first") != said(one, "print $.mean()")
    assert "a recorded run cannot be changed" in refused(one, "set aten_convolution_default = 0")
    artifact = artifacts("cnn_portable")
    without = Session(artifact.etrecord, artifact.etdump)
    said(without, "start")
    assert "debug buffer" in refused(without, "print aten_convolution_default")


def test_displayed_expressions_follow_the_run() -> None:
    one = session("cnn_portable")
    said(one, "start")
    assert "1: $.max() = " in said(one, "display $.max()")
    assert "1: $.max() = " in said(one, "step")
    said(one, "display aten__softmax_default")
    assert "(aten__softmax_default has no value yet)" in said(one, "step")
    said(one, "undisplay 2")
    assert "2:" not in said(one, "step")
    assert "nothing is displayed as 9" in refused(one, "undisplay 9")


def test_a_call_tells_the_operators_own_error() -> None:
    one = session("cnn_portable")
    said(one, "start", "until op:relu")
    text = said(one, "call $")
    assert "the run's own value is inf dB from this result" in text
    assert float(said(one, "call 1 + 1")) == 2


def test_gap_tells_how_to_see_the_rows_that_it_leaves_out() -> None:
    one = session("cnn_portable")
    for line in ("gap run", "gap"):
        text = said(one, line)
        (again,) = re.findall(r"more rows: (.*) shows all", text)
        assert "more rows" not in said(one, again)
        assert len(said(one, again).splitlines()) > len(text.splitlines())
        assert "convolution" in text
    assert one.execute("gap").exit_code == 0
    assert "unknown metric" in refused(one, "gap nothing")
    rows = session("cnn_portable").gap("run 4").data[0]["rows"]
    assert [row["instruction"] for row in rows] == [0, 1, 2, 3]
    said(one, "target live", "start", "step 3", "set $ = 0")
    worst, in_order = (one.gap(words).data[0]["rows"] for words in ("", "run"))
    assert [row["stop"] for row in in_order] == [0, 1, 2, 3]
    assert worst[0]["stop"] == 3


def test_each_output_of_a_delegate_is_named_and_compared() -> None:
    one = session("attention_xnnpack")
    said(one, "start")
    stops = one.debugger.some_target().stops
    several = [
        stop.position
        for stop in stops
        if stop.kind == "delegate"
        and len(one.debugger.some_target().device_values(stop.position)) > 1
    ]
    assert several
    said(one, f"step {several[0]}")
    text = said(one, "print $")
    names = re.findall(r"^\[\d+\] is (\S+)$", text, re.MULTILINE)
    assert len(set(names)) > 1
    assert text.count("gap: SQNR") == len(names)
    assert "[0] " in said(one, "print ref()")
    assert all(
        name in {row["node"] for row in one.info("tensors").data[0]["rows"]} for name in names
    )


def test_one_value_and_several_have_no_gap() -> None:
    metric = find_metric("sqnr")
    several = [np.ones(3), np.ones((2, 2))]
    assert gap_between(metric, several, np.ones(3)) is None
    assert single([several, np.ones(2)]) == [several, pytest.approx(np.ones(2))]


@pytest.mark.parametrize(
    ("name", "run", "method"),
    [
        ("recurrent_xnnpack", 1, "forward"),
        ("forward_and_extra", 3, "extra"),
        ("forward_and_extra", 4, "forward"),
    ],
)
def test_the_gap_is_of_the_run_that_is_walked(name: str, run: int, method: str) -> None:
    """A run's number counts all runs of the dump, of whatever they are."""
    one = session(name, inputs=False)
    path = artifacts(name).inputs
    with np.load(path) as arrays:
        one.debugger.inputs = [
            arrays[key] for key in arrays.files if key.startswith(f"{method}/0/")
        ]
    text = said(one, f"run {run}", "gap")
    assert f"SQNR of {method} to" in text
    assert "no operator goes wrong" in text


def test_several_outputs_are_computed_with_one_by_one() -> None:
    one = session("transformer_portable")
    said(one, "target live", "tbreak op:split_with_sizes_copy", "run")
    shape = "[1, 16, 32]"
    assert said(one, "print $.shape") == f"[{shape}, {shape}, {shape}]\n"
    assert said(one, "print ($ * 2).shape") == said(one, "print $.shape")
    assert said(one, "print $.sum(-1).shape") == "[[1, 16], [1, 16], [1, 16]]\n"
    assert "[2] float32[1, 16, 32]  min 0  max 0" in said(one, "print $ - ref()")
    most = [float(said(one, f"print/f ${number}.max()")) for number in range(3)]
    assert float(said(one, "print/f $.max()")) == max(most)
    assert said(one, f"print $.max() > {max(most) * 0.99}") == "True\n"
    assert "show one of them: $0, $1, $2" in refused(one, "x/4 $")
    assert "[0, 0, 0]" in said(one, "x/4 $1")


def test_lines_of_numbers_are_as_wide_as_what_they_are_written_to() -> None:
    one = session("transformer_portable")
    said(one, "start", "until op:split_with_sizes_copy")
    before = said(one, "print/f $0[0, 0]")
    assert 80 < max(map(len, before.split("\n"))) <= 90
    for width in (40, 60, 120):
        one.debugger.columns = lambda width=width: width  # type: ignore[misc]
        for line in ("print/f $0[0, 0]", "print $0[0, 0]", "print/f $"):
            rows = said(one, line).split("\n")
            numbers = [row for row in rows if re.fullmatch(r"[\d\s.e+\-\[\]]+", row)]
            assert width * 0.6 < max(map(len, numbers)) <= width, line
        assert said(one, "print/f $0[0, 0]").split() == before.split()


def test_one_of_several_outputs_is_set() -> None:
    one = session("transformer_portable")
    said(one, "target live", "tbreak op:split_with_sizes_copy", "run")
    before = said(one, "print/f $2")
    assert said(one, "set $1 = nan") == "$1 = nan\n"
    assert said(one, "print isnan($1).all()") == "True\n"
    assert said(one, "print isnan($0).any() or isnan($2).any()") == "False\n"
    assert said(one, "print/f $2") == before
    assert "gave 3 values" in refused(one, "set $3 = 0")
    said(one, "set $0 = $2", "set $x = 3")
    assert said(one, "print ($0 == $2).all()") == "True\n"
    said(one, "step", "set $0 = 5")
    assert said(one, "print $.min() == 5 and $.max() == 5") == "True\n"


def test_names_of_a_loop_come_first_in_it() -> None:
    one = session("while_loop")
    said(one, "start")
    seen = set()
    while (stop := one.debugger.stop) is not None:
        if stop.node == "aten_mul_tensor":
            seen.add(stop.path)
            assert said(one, "print (aten_mul_tensor == $).all()") == "True\n"
            assert float(said(one, "print gap(max_abs, aten_mul_tensor)")) < 1e-6
        said(one, "step")
    assert seen == {"submodule_0/aten_mul_tensor", "submodule_1/aten_mul_tensor"}
    assert "several values are called" in refused(one, "print aten_mul_tensor")
    said(one, "break op:tanh", "run")  # whose passes are compared with their own
    for _ in range(4):
        assert float(said(one, "print gap(max_abs)")) < 1e-6
        said(one, "continue")


def test_json_has_the_numbers_of_print() -> None:
    one = session("cnn_portable")
    said(one, "start")
    tensor = one.value("$")

    def values(line: str) -> dict[str, dict[str, object]]:
        found = [part for part in one.execute(line).data if "value" in part]
        return {part.pop("value"): part for part in found}

    assert values("print $.max()") == {"$.max()": {"number": float(tensor.max())}}
    assert values("print $.shape") == {"$.shape": {"list": list(tensor.shape)}}
    assert values("print 1 < 2") == {"1 < 2": {"number": True}}
    small = values("print $[0, 0, :2, :2]")["$[0, 0, :2, :2]"]
    assert small["numbers"] == tensor[0, 0, :2, :2].tolist()
    whole = values("print $")
    assert whole["$"]["shape"] == list(tensor.shape) and "numbers" not in whole["$"]
    assert whole["$"]["max"] == float(tensor.max())
    assert whole["reference"]["dtype"] == "float32"
    gap = whole["gap sqnr"]["number"]
    assert isinstance(gap, float) and gap > 90
