"""The rules that look at the graph: each finds what was put into a tiny model, and says nothing
about a model that has not got it."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from etscope.analysis.graphs.run_graph import written_as
from etscope.analysis.insights.facts import Facts
from etscope.analysis.insights.insights import insights
from etscope.analysis.insights.rules.fusion import parts_of
from etscope.analysis.insights.rules.overhead import loops
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.trace import Trace
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.etrecord.own_members import TOLD
from etscope.formats.etrecord.reader import read_etrecord
from etscope.model.finding import Finding
from etscope.model.graph import Node
from etscope.units import TimeScale
from tests.support.artifacts import artifacts


@cache
def facts(*model: str) -> Facts:
    """The facts of the recorded run of a model of `artifact_recipes.explained_graphs`."""
    made, stem = artifacts("explained_graphs"), "-".join(model).replace(" ", "_")
    trace = Trace(
        dump=read_etdump(made.extra(f"{stem}.etdp")),
        record=read_etrecord(made.extra(f"{stem}.etrecord")),
    )
    (profile,) = trace.profiles()
    return Facts(trace, profile, Scale(TimeScale.NS, TimeScale.MS))


def findings(rule: str, *model: str) -> list[Finding]:
    return list(insights(facts(*model), least_share=0.0, only=(rule,)))


def one(rule: str, *model: str) -> Finding:
    """The only finding of a rule, whose parts fit together."""
    (finding,) = findings(rule, *model)
    explained, quantity = finding.explanation, finding.quantity
    assert explained is not None and quantity is not None and quantity.share is not None
    assert 0 < quantity.share <= 1
    assert explained.low is not None and explained.low <= quantity.value <= (explained.high or 0)
    assert explained.sites and explained.evidence and explained.remedies
    assert sum(site.time or 0 for site in explained.sites) == pytest.approx(quantity.value)
    assert "explained_graphs.py:" in finding.sentence or rule == "layout-conversions"
    return finding


def evidence(finding: Finding) -> str:
    assert finding.explanation is not None
    return " ".join(finding.explanation.evidence)


def changes(finding: Finding) -> list[tuple[str, dict[str, Any]]]:
    """The changes of the remedies that can be tried."""
    assert finding.explanation is not None
    remedies = finding.explanation.remedies
    return [(one.change, dict(one.arguments)) for one in remedies if one.change is not None]


def names(finding: Finding) -> set[str]:
    """Those of the sites, without overloads, and kinds alone of XNNPACK's."""
    assert finding.explanation is not None
    return {re.split("[. ]", site.name)[0] for site in finding.explanation.sites}


def remedy(finding: Finding) -> str:
    """The text of the first."""
    assert finding.explanation is not None
    return finding.explanation.remedies[0].text


# -- operators in parts


def test_the_guard_of_attention() -> None:
    guard = {"eq", "logical_not", "any", "full_like", "where"}
    found = one("lost-fusion", "attention", "function")
    assert "scaled_dot_product_attention is decomposed" in found.sentence
    assert guard <= names(found)
    assert "bmm" not in names(found) and "expand_copy" not in names(found)
    assert changes(found) == [("pass", {"name": "fuse_sdpa"})]
    assert names(one("lost-fusion", "attention", "function", "portable")) == guard
    for by_hand in ("products", "bmm"):
        assert findings("lost-fusion", "attention", by_hand) == []


def test_operators_written_by_hand() -> None:
    graph = facts("by hand").run_graph
    assert graph is not None
    found = [parts.kind for parts in parts_of(graph)]
    assert sorted(found) == ["gelu", "gelu", "hardswish", "layer_norm", "softmax"]
    texts = [remedy(finding) for finding in findings("lost-fusion", "by hand")]
    gelu = ("gelu", 'gelu(..., approximate="tanh")')
    for function in (*gelu, "layer_norm", "hardswish", "softmax"):
        (text,) = (text for text in texts if f"functional.{function}`" in text)
        # XNNPACK has no layer norm: a small one is better in parts that it takes.
        begin = "its means in four dimensions" if function == "layer_norm" else "`torch.nn."
        assert text.startswith(f"Write {begin}")
        assert " at explained_graphs.py:" in text
    assert findings("lost-fusion", "alike") == []  # what only looks so


def test_a_softmax_in_parts_has_its_shift_inside_of_delegates_too() -> None:
    found = one("lost-fusion", "in delegates")
    assert names(found) >= {"amax", "Subtract", "Exp"}


def test_batch_norm_beside_its_convolution() -> None:
    found = one("lost-fusion", "batch norm", "nothing", "portable")
    assert names(found) == {"_native_batch_norm_legit_no_training"}
    assert ("backend", {"backend": "xnnpack"}) in changes(found)
    assert findings("lost-fusion", "convolved", "nothing", "portable") == []


# -- the same in each run


def test_positions_that_are_computed_in_each_run() -> None:
    found = one("runtime-constants", "positions", "computed")
    assert "arange" in names(found)
    assert changes(found) == [("pass", {"name": "fold_constants"})]
    assert "The values that other operators read take 2.00 KiB." in evidence(found)
    # Buffers and inputs are none.
    for model in (("positions", "kept"), ("cache",)):
        assert findings("runtime-constants", *model) == []


def test_weights_that_are_laid_out_in_each_run() -> None:
    found = one("runtime-constants", "between", "nothing", "portable")
    assert names(found) == {"permute_copy"}
    assert "These kernels read first.weight and last.weight." in evidence(found)


# -- quantized


def test_float_between_int8(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ("convolved", "cumsum", "xnnpack", "int8")
    found = one("float-among-quantized", *model)
    assert "cumsum in float among int8 operators takes" in found.sentence
    assert "cumsum is not an operator of XnnpackBackend" in evidence(found)
    assert "there would be 1 delegate call instead of 2." in evidence(found)
    assert "Inputs and outputs of cumsum are int8" in evidence(found)
    assert remedy(found).startswith("XNNPACK has no kernel for cumsum: ")
    kept = [one for one in found.explanation.remedies if one.change == "keep_float"]  # type: ignore[union-attr]
    assert f"`-X keep_float='{kept[0].arguments['select']}'`" in kept[0].text
    assert findings("outside-delegates", *model) == []
    # Of one that is refused for a reason, what takes that away comes first.
    answers: Any = facts(*model).run_graph.partition.refusals  # type: ignore[union-attr]
    for node, said in list(answers.items()):
        refused = [replace(answer, answer=TOLD, reason="int powers") for answer in said]
        monkeypatch.setitem(answers, node, tuple(refused))
    assert remedy(one("float-among-quantized", *model)).startswith("Write the power as products")


def test_a_move_between_int8_is_quantized_for_nothing() -> None:
    found = one("cancelling-quantization", "convolved", "flip", "xnnpack", "int8")
    assert "Between the conversions are only operators that compute nothing: flip" in evidence(
        found
    )
    assert changes(found) == [("pass", {"name": "cancel_qdq"})]
    assert findings("float-among-quantized", "convolved", "flip", "xnnpack", "int8") == []


@pytest.mark.parametrize("rule", ["float-among-quantized", "cancelling-quantization"])
def test_int8_throughout_is_fine(rule: str) -> None:
    assert findings(rule, "convolved", "nothing", "xnnpack", "int8") == []
    assert findings(rule, "convolved", "flip") == []  # in float


# -- copies


def test_copies_that_change_nothing_and_part_delegates() -> None:
    found = one("needless-copies", "attention", "products")
    assert names(found) == {"expand_copy"}
    assert "there would be 1 delegate call instead of 3." in evidence(found)
    assert changes(found) == [("pass", {"name": "remove_dead_copies"})]
    assert len(facts("attention", "bmm").run_graph.calls) == 1  # type: ignore[union-attr]


def test_copies_that_a_view_could_be() -> None:
    found = one("needless-copies", "between", "unsqueeze")
    assert names(found) == {"unsqueeze_copy", "squeeze_copy"}
    assert findings("needless-copies", "alike") == []


def test_a_buffer_that_is_copied_to_change_a_row() -> None:
    found = one("rewritten-buffers", "cache")
    assert "Buffers of 8.00 KiB are copied twice" in found.sentence
    assert names(found) == {"index_put", "copy_"}
    assert all("index_put" not in names(f) for f in findings("outside-delegates", "cache"))
    moved = one("rewritten-buffers", "moved cache")  # all its rows
    assert "Buffers of 8.00 KiB are copied twice" in moved.sentence
    assert names(moved) >= {"copy_", "Copy"}
    assert "`buffer.index_copy_(1, position % length, new)`" in remedy(moved)


def test_slices_that_are_put_together_again() -> None:
    (found,) = findings("needless-copies", "in delegates")
    assert "Slices that are put together again" in found.sentence
    assert names(found) >= {"Slice", "Copy"}
    assert "explained_graphs.py:" in found.sentence


# -- loops


def test_a_loop_inside_of_a_delegate() -> None:
    (found,) = findings("unrolled-loops", "in delegates")
    assert found.quantity is not None and 0 < (found.quantity.share or 0) <= 1
    assert "A loop of 16 steps, which export unrolled, runs as " in found.sentence
    assert "explained_graphs.py:" in found.sentence
    # Of 32 events the 20 with most time are named.
    assert {"Multiply"} <= names(found) <= {"Slice", "Multiply"}
    assert changes(found) == [("pass", {"name": "batch_loops"})]


def test_layers_one_after_the_other_are_no_loop() -> None:
    graph = facts("layers").run_graph
    assert graph is not None
    assert not list(loops(graph))
    assert findings("unrolled-loops", "alike") == []


# -- layouts


def test_transposes_inside_of_a_delegate_that_undo_each_other() -> None:
    (found,) = findings("layout-conversions", "in delegates")
    assert "Transposes that undo each other" in found.sentence
    assert "Between the transposes are only operators that accept any order: mul" in evidence(found)
    assert changes(found) == []


def test_images_that_xnnpack_lays_out() -> None:
    found = one("layout-conversions", "convolved", "nothing")
    assert names(found) == {"Transpose"}
    assert changes(found) == [("channels_last", {})]
    assert findings("layout-conversions", "channels last") == []


def test_a_copy_to_another_layout() -> None:
    found = one("layout-conversions", "convolved", "channels", "portable")
    assert names(found) == {"_to_dim_order_copy"}
    assert "dimensions in the order (0, 1, 2, 3) to (0, 2, 3, 1)" in evidence(found)
    assert findings("layout-conversions", "convolved", "nothing", "portable") == []


# -- types


def test_a_type_that_is_not_taken() -> None:
    found = one("untaken-types", "between", "double")
    assert "on float64 run outside of delegates" in found.sentence
    assert changes(found) == [("dtype", {"dtype": "float32"})]
    assert findings("outside-delegates", "between", "double") == []
    assert findings("untaken-types", "alike") == []


# -- islands


def test_an_operator_outside_of_delegates_and_why() -> None:
    both = findings("outside-delegates", "between", "islands")
    norm, mean = sorted(both, key=lambda found: "mean" in names(found))
    assert "layer_norm (native_layer_norm) runs outside of delegates" in norm.sentence
    assert "native_layer_norm is not an operator of XnnpackBackend" in evidence(norm)
    assert "there would be 2 delegate calls instead of 3." in evidence(norm)
    assert "2 values of 4.00 KiB go between" in evidence(norm)
    assert "refused mean: “mean.dim only supports averaging 4D tensors" in evidence(mean)
    assert "x.unsqueeze(-1).mean((2, 3), keepdim=True)" in remedy(mean)


def test_the_transposes_at_the_borders_of_an_island_are_beside_its_time() -> None:
    found = one("outside-delegates", "convolved", "erf")
    assert names(found) == {"erf"}  # as without the graph
    assert "2 transposes take another" in evidence(found)
    outer = one("layout-conversions", "convolved", "erf")
    assert "XNNPACK added 2 transposes" in evidence(outer)  # of the model's input and output


# A busy machine may have these of any model.
OF_THE_MACHINE = ("first-run", "unsteady", "threads", "delegate-rest", "outside-instructions")


@pytest.mark.parametrize("model", [("attention", "bmm"), ("positions", "kept"), ("channels last",)])
def test_sound_models_have_no_findings(model: tuple[str, ...]) -> None:
    found = insights(facts(*model), least_share=0.0)
    assert [one.sentence for one in found if one.kind not in OF_THE_MACHINE] == []


@pytest.mark.parametrize(
    ("function", "op", "written"),
    [
        (
            "instance_norm,torch.nn.modules.instancenorm.InstanceNorm2d",
            "repeat",
            "nn.InstanceNorm2d",
        ),
        ("silu_2,torch.nn.functional.silu", "sigmoid", "F.silu"),
        ("conv2d,torch.nn.modules.conv.Conv2d", "conv2d", None),
        ("relu,torch.nn.functional.relu", "relu", None),
        ("", "index_select", "roll"),
    ],
)
def test_what_the_model_has_where_a_decomposition_made_a_node(
    function: str, op: str, written: str | None
) -> None:
    metadata = {"source_fn_stack": function, "torch_fn": "" if function else "roll_1;builtin.roll"}
    node = Node("n", "call_function", op, f"aten.{op}.default", metadata=metadata)
    assert written_as(node) == written
