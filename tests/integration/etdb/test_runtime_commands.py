"""The debugger's commands on the runtime itself: real programs, on the real server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etscope.etdb import Session
from etscope.etdb.protocol.runner import Runner
from etscope.etdb.session import Completer
from tests.support.artifacts import artifacts
from tests.support.etdb.command import etdb, ex
from tests.support.etdb.runtime_sessions import OPEN, begun, of_inputs, on_runtime, target_of
from tests.support.etdb.sessions import refused, said, session, where
from tests.support.ports import nobody_listens
from tests.support.rogue_programs import endless, random


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often a runner was asked to go, and how many elements it sent."""
    found = {"go": 0, "elements": 0}
    go, read = Runner.go, Runner.read

    def counted(self: Runner, *arguments: Any, **more: Any) -> Any:
        found["go"] += 1
        return go(self, *arguments, **more)

    def weighed(self: Runner, *arguments: Any, **more: Any) -> Any:
        array = read(self, *arguments, **more)
        found["elements"] += array.size
        return array

    monkeypatch.setattr(Runner, "go", counted)
    monkeypatch.setattr(Runner, "read", weighed)
    return found


# -- the same words in the same places

SCRIPTS = {
    "places": ("break op:relu", "tbreak op:softmax", "run", "c", "c 2", "rc", "bt", "list", "up"),
    "moves": ("start", "step 3", "next", "finish", "until op:softmax", "rn", "rs 2", "info stop"),
    "values": ("start", "print $", "print $[0, 0, :2]", "print $.max()", "x/6f $", "step 2",
               "print $.abs().max() > 1", "print #0.mean()", "display $.mean()", "step"),
    "watches": ("watch $.max() > 3", "break op:add if $.min() < 0", "run", "c", "c", "rc", "c 9"),
    "both": ("start", "print gap(sqnr) > 100", "print ref()", "print $ - ref()", "call $"),
    "ends": ("run", "rs", "reverse-continue", "rs", "info breakpoints", "info methods"),
}  # fmt: skip


@pytest.mark.parametrize("script", SCRIPTS)
def test_what_a_run_says_is_what_the_recorded_one_says(script: str) -> None:
    recorded, one = session("cnn_portable"), on_runtime("cnn_portable")
    said(recorded, "set times off")
    for line in SCRIPTS[script]:
        expected, told = recorded.execute(line), one.execute(line)
        # The first run of the dump, and the only one here.
        assert told.text == expected.text.replace("run 1 ", "run 0 "), line
        assert told.exit_code == expected.exit_code, line


def test_without_a_record_operators_are_found_by_name() -> None:
    one = on_runtime("cnn_portable", record=False)
    said(one, "tbreak op:add", "run")
    assert one.debugger.here().name == "native_call_add.out"
    assert "no ETRecord" in refused(one, "gap")
    said(one, "set $ = $ * 0")
    assert float(said(one, "print $.max()")) == 0
    assert "no lines of Python" in refused(one, "list")
    assert "no ETRecord is loaded" in refused(one, "print aten_add_tensor")
    assert "native_call_softmax" in said(one, "until id:23", "info ops").replace("__", "_")


def test_a_method_is_chosen() -> None:
    artifact = artifacts("two_methods")
    with np.load(artifact.inputs) as arrays:
        given = [arrays[key] for key in arrays.files if key.startswith("decode/0/")]
    one = Session(artifact.etrecord, artifact.pte, inputs=given)
    OPEN.append(one)
    assert "methods are" in refused(one, "target runtime --method nothing")
    assert "decode on ExecuTorch" in said(one, "target runtime --method decode")
    assert one.debugger.method == "decode"
    assert "run 0 is over" in said(one, "run")


# -- what the runner looks at by itself


def test_a_run_without_stops_is_one_request(requests: dict[str, int]) -> None:
    one = on_runtime("cnn_portable")
    said(one, "watch nan", "watch $.max() > 1e9", "break op:relu if isinf($)", "run")
    assert requests["go"] == 1
    counts = [(b.hits, b.looked, b.unknown) for b in one.debugger.breakpoints]
    assert counts == [(0, 24, 0), (0, 24, 0), (0, 6, 0)]
    said(one, "delete", "break op:softmax", "run")
    assert requests["go"] == 2


def test_numbers_that_are_no_tensors_are_looked_at_too() -> None:
    one = on_runtime("while_loop")
    said(one, "watch $ == 2", "run")
    assert one.debugger.here().name.startswith(("executorch_prim", "aten::sym_size"))
    said(one, "delete", "watch $.max() >= 4", "run")
    stop = one.debugger.here()
    assert float(said(one, "print $.max()")) >= 4
    assert stop.name.startswith(("executorch_prim", "aten::sym_size", "native_call"))


def test_a_large_tensor_stays_where_it_is(tmp_path: Path, requests: dict[str, int]) -> None:
    one = of_inputs(endless(tmp_path), np.arange(1 << 16, dtype=np.float32))
    said(one, "start")
    text = said(one, "print $")
    assert text.startswith("float32[65536]  min 0  max 131,070  mean 65,535.00  std 37,837.23")
    assert "[0.00000e+00 2.00000e+00 4.00000e+00 ... " in text
    assert said(one, "x/5f $").split() == ["[0]", "0", "2", "4", "6", "[4]", "8"]
    assert said(one, "print $[2:4]") == "float32[2]  min 4  max 6  mean 5  std 1\n[4. 6.]\n"
    assert said(one, "print $.max() - $.min() + $.mean()") == "196,605.00\n"
    said(one, "info tensors", "watch $.max() > 1e9", "break if $.min() < -1", "step 3")
    assert requests["elements"] < 50
    assert said(one, "print $.sum() > 1") == "True\n"
    assert requests["elements"] > 1 << 16


def test_one_of_a_delegates_outputs_is_not_set_to_all_of_them() -> None:
    one = on_runtime("many_delegates")
    said(one, "start", "until delegate:*")
    while "[1] is " not in said(one, "print $"):
        said(one, "until delegate:*")
    for expression in ("ref()", "$", "$ * 2"):
        told = refused(one, f"set $1 = {expression}")
        assert "takes one value, and this is a list of" in told, told
        assert "ref(NAME)" in told
    named = said(one, "print $").partition("[1] is ")[2].split()[0]
    said(one, f"set $1 = ref({named})", "set $1 = $1 * 2")


def test_state_that_was_written_back_is_shown_beside_the_references() -> None:
    one = on_runtime("rewritten_state")
    assert said(one, "start", "print b_cache.max() == 0") == "True\n"
    assert "breakpoint 1: op:copy_ · " in said(one, "break op:copy_")
    said(one, "run")
    stop = one.debugger.here()
    assert (stop.name, stop.nodes) == ("native_call_copy_", ())
    assert stop.lines  # those of what it writes
    said(one, "delete", "run")
    assert said(one, "print b_cache.max() > 1") == "True\n"
    assert said(one, "print gap(max_abs, b_cache)") == "0\n"
    assert "gap: SQNR inf dB" in said(one, "print b_cache")
    assert said(one, "reverse-step 2", "print b_cache.max() == 0") == "True\n"
    assert said(one, "start", "set b_cache = 7", "print (b_cache == 7).all()") == "True\n"
    assert said(one, "print (ref(b_cache) == 7).any()") == "False\n"
    assert said(one, "continue", "print b_cache[2].min()") == "7\n"  # written back


# -- in lock step with the reference


def test_the_first_divergence_is_found_and_put_right(requests: dict[str, int]) -> None:
    one = on_runtime("cnn_portable")
    said(one, "tbreak op:add", "run", "set $ = $ * 1.5", "break if gap(sqnr) < 60")
    assert where(one) == "aten_add_tensor"
    assert 5.9 < float(said(one, "print gap(sqnr)")) < 6.1
    assert "gap: SQNR 6.0" in said(one, "print $")
    worst = one.gap(3).data[0]["rows"][0]
    assert (worst["node"], worst["verdict"]) == ("aten_add_tensor", "wrong")
    assert where(one) == "aten_add_tensor"
    assert one.execute("gap").exit_code == 1
    result = one.execute("continue")
    assert result.exit_code == 1
    assert where(one) == "aten_convolution_default_3"
    # What it makes of its own, wrong input is right.
    (last,) = (row for row in gaps(one) if row["node"] == where(one))
    assert last["total_dB"] < 10
    assert last["local_dB"] > 100
    assert last["verdict"] == "inherited"
    assert "6.0206 dB" in said(one, "rs", "list/e")
    said(one, "set aten_add_tensor = ref(aten_add_tensor)")
    assert "is over" in said(one, "continue")
    assert {row["verdict"] for row in gaps(one)} == {"fine"}


def test_nan_is_the_worst_gap_unless_the_reference_has_it_too() -> None:
    one = on_runtime("cnn_portable")
    said(one, "start", "set $ = $ * 1e39 - $ * 1e39", "break if gap(sqnr) < 60")
    assert said(one, "print gap(sqnr)") == "-inf\n"
    assert "SQNR -inf dB" in said(one, "print $")
    assert "own value is -inf dB from this result" in said(one, "call $")
    (row,) = gaps(one)
    assert row["verdict"] == "wrong" and "NaN" in row["non_finite"]
    assert one.execute("continue").exit_code == 1
    other = on_runtime("nan_output")
    assert "is over" in said(other, "break if gap(sqnr) < 60", "break if gap(max_abs) > 1", "run")


def gaps(one: Session) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = one.gap("run 99").data[0]["rows"]
    return rows


def test_gap_after_a_nan_compares_nodes_of_several_values() -> None:
    one = on_runtime("transformer_portable")
    said(one, "start", "set $ = $ * 0 / 0", "continue")
    verdicts = {row["node"]: row["verdict"] for row in gaps(one)}
    assert list(verdicts.values()).count("wrong") == 1
    assert verdicts["aten_native_layer_norm_default[0]"] == "inherited"
    assert verdicts["aten__softmax_default"] == "inherited"


def test_gap_accuses_nobody_behind_a_branch() -> None:
    one = on_runtime("cond")
    said(one, "start", "until op:sigmoid", "set $ = $ * 1.5", "continue")
    rows = one.gap().data[0]["rows"]
    assert (rows[0]["node"], rows[0]["verdict"]) == ("submodule_0/aten_sigmoid_default", "wrong")
    behind = {row["node"]: row for row in rows}["aten_addmm_default_1"]
    assert (behind["verdict"], behind["local_dB"] > 100) == ("inherited", True)
    assert "node submodule_0/aten_sigmoid_default" in said(one, "blame")
    # The value of the branch is no operator's: what PyTorch makes of the reference's says so.
    for command in ("call aten_addmm_default_1", "gap aten_addmm_default_1 local"):
        assert "of the reference, since the run has no value of it: " in said(one, command)


def test_nodes_in_a_branch_are_taken_as_they_are_printed() -> None:
    one = on_runtime("cond")
    path = "submodule_0/aten_mul_tensor"
    assert "1 place" in said(one, f"break {path}")
    assert "breakpoint 1" in said(one, "run")
    assert one.debugger.here().path == path
    assert said(one, f"print {path}").splitlines()[0] == said(one, "print $").splitlines()[0]
    assert "the run against the reference" in said(one, f"gap {path}")
    # A value that changes the way says where the run stands.
    text = said(one, "delete", "start", "until op:sigmoid", "set aten_gt_scalar = False")
    assert "with this value the run takes another path, and now stands at" in text
    here = one.debugger.here().path or ""
    assert "submodule_1" in here and here.rpartition("/")[2] in text
    assert "another way" not in said(one, "set aten_gt_scalar = False")


def test_gaps_are_told_of_all_that_ran_and_the_run_stays() -> None:
    one = on_runtime("cnn_portable")
    assert "nothing has run yet" in refused(one, "gap")
    said(one, "start", "step 10")
    table = said(one, "gap run")
    assert "more rows" not in table
    assert "more rows: gap sqnr 11 run shows all" in said(one, "gap run 4")
    assert len([line for line in table.splitlines() if "cnn.py" in line]) == 11
    assert one.debugger.position == target_of(one).position == 10
    assert said(one, "gap run") == table


def test_inputs_and_weights_are_those_of_the_device() -> None:
    one = on_runtime("cnn_portable")
    assert float(said(one, "start", "print (x - ref(x)).abs().max()")) == 0
    said(one, "set x = x * 0")
    assert float(said(one, "print x.max()")) == 0 < float(said(one, "print ref(x).max()"))
    assert float(said(one, "print gap(sqnr, x)")) == 0
    told = said(one, "call $")
    assert "no value" not in told and "of the reference" not in told
    same = "print (p_stem_conv_weight == weight('stem.conv.weight')).all()"
    assert said(one, same) == "True\n"


def test_a_weight_that_a_delegate_keeps_is_none_of_the_program() -> None:
    one = on_runtime("cnn_xnnpack")
    # A call names the inputs that are not the run's.
    told = said(one, "start", "call $")
    assert "of the reference, since the run has no value of it: aten_linear" in told
    error = one.execute("print p_stem_conv_weight").error
    assert error is not None and 'weight("stem.conv.weight")' in str(error.hint)


def test_a_value_that_an_operator_fails_on_leaves_the_run_where_it_failed() -> None:
    one = on_runtime("dynamic_shape")
    said(one, "start", "until op:softmax")
    assert "et_view.default (instruction 4) failed" in refused(one, "set sym_size = 3")
    assert where(one) == "executorch_prim::et_view.default"
    assert (one.debugger.position, target_of(one).position) == (4, 3)
    assert "[3] aten_relu_default" in said(one, "reverse-step")
    assert "run 0 is over" in said(one, "start", "continue")


def test_what_does_not_fit_is_refused_and_nothing_is_set() -> None:
    one = on_runtime("cnn_portable")
    assert "has not begun" in refused(one, "set $ = 0")
    before = said(one, "start", "print $")
    for line, why in {
        "set $ = $[0, 0, :3]": "shape",
        "set $ = 'x'": "numbers",
        "set p_stem_conv_weight = 0": "weight",
        "set aten__softmax_default = 0": "no value yet",
    }.items():
        assert why in refused(one, line)
    assert said(one, "print $") == before


def test_a_repeated_run_that_differs_is_a_finding(tmp_path: Path) -> None:
    one = begun(Session(random(tmp_path)))
    said(one, "start", "step")
    result = one.execute("reverse-step")
    assert "native_call_rand.out (instruction 0) gave other numbers" in result.text
    assert result.exit_code == 1
    assert one.execute("info stop").exit_code == 0


# -- what is asked for wrongly

BAD = {
    "target runtime x": "what is 'x'",
    "target runtime --what 1": "no option --what",
    "target runtime --inputs": "--inputs of what",
    "target runtime --seed 1 --seed 2": "given twice",
    "target runtime --inputs nothing.npz": "not found",
    "target runtime --threads x": "a number of threads is expected",
    "target runtime --server /nothing": "not found",
    "target runtime --library /nothing.so": "not found",
    "target runtime --data /nothing.ptd": "not found",
    "target runtime --method nope": "method 'nope'",
    "target runtime 'x": "cannot read",
    "target remote": "target remote where",
    "target remote nowhere": "not an address",
    "target ssh:": "target ssh needs a host",
    "target ssh": "unknown target 'ssh'",
    "target ssh:x --port y": "a port is expected",
    "target gpu": "unknown target 'gpu'",
    "gcore x": "only a run on the runtime",
    "kill": "no run on the runtime is active",
}


def test_what_is_asked_for_wrongly_changes_nothing() -> None:
    one = session("cnn_portable")
    said(one, "start", "step")
    with nobody_listens() as port:
        silent = {f"target remote 127.0.0.1:{port}": "no etdb-server answers"}
        for line, message in (BAD | silent).items():
            assert message in refused(one, line), line
            assert where(one) == "aten__native_batch_norm_legit_no_training_default", line
    wrong = artifacts("nan_output")
    assert "not" in refused(one, f"target runtime --inputs {wrong.inputs_pt}")
    other = Session(wrong.etrecord, artifacts("cnn_portable").pte)
    inputs = artifacts("cnn_portable").inputs_pt
    assert "do not belong together" in refused(other, f"target runtime --inputs {inputs}")
    assert other.debugger.target is None
    bare = Session(artifacts("cnn_portable").etdump)
    assert "no program" in refused(bare, "target runtime")


def test_batches_end_with_the_code_of_what_was_found() -> None:
    artifact = artifacts("nan_output")
    files = [artifact.etrecord, artifact.pte, "--inputs", artifact.inputs_pt]
    lines = ex("target runtime", "watch nan", "run", "kill")
    done = etdb(*files, "--batch", "--json", *lines)
    assert done.returncode == 1, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["finding"] for answer in answers] == [False, False, True, False]
    assert answers[2]["stop"]["node"] == "aten_sqrt_default"
    assert etdb(artifact.etrecord, "--batch", "-ex", "run").returncode == 4
    wrong = [artifacts("cnn_portable").etrecord, artifact.pte, "--inputs", artifact.inputs_pt]
    assert etdb(*wrong, "--batch", "-ex", "target runtime").returncode == 3


def test_completion_and_help() -> None:
    one = session("cnn_portable")
    folder = artifacts("cnn_portable").pte.parent
    for line, found in {
        "target r": ["recorded", "runtime", "remote"],
        "target runtime --in": ["--inputs"],
        "gener": ["generate-core-file"],
        f"target runtime --inputs {folder}/inputs.p": [f"{folder}/inputs.pt"],
    }.items():
        assert Completer(one.debugger).complete(line)[1] == found
    assert "cannot be stepped into" in said(one, "help target")
    assert "not replaced" in said(one, "help gcore")
    assert "--traced" in refused(one, "target runtime --no")


def test_of_several_values_those_that_are_left_are_there() -> None:
    one = on_runtime("transformer")
    said(one, "start", "tbreak op:native_layer_norm", "continue", "step")
    # The operator after it writes where one of the three was.
    left = said(one, "print aten_native_layer_norm_default").splitlines()
    assert left[0].startswith("[0] float32[1, 16, 32]")
    assert "[2] not there" in left
    assert said(one, "print aten_native_layer_norm_default[0].shape") == "[1, 16, 32]\n"
    listed = said(one, "info tensors").splitlines()
    states = ["gone" in line for line in listed if "native_layer_norm" in line]
    assert states == [False, False, True]
    assert "of the reference" not in said(one, "call $")


def test_all_values_of_a_call_are_set_at_once() -> None:
    one = on_runtime("transformer")
    said(one, "start", "tbreak id:5", "continue")  # its outputs are two nodes' values
    assert said(one, "print [$[0].shape, $[1].shape]") == "[[1, 4, 16, 8], [1, 4, 8, 16]]\n"
    said(one, "set $ = [7, ref()[1]]")
    assert said(one, "print [$[0].min(), $[0].max()]") == "[7.0, 7.0]\n"
    assert said(one, "print ($[1] == ref()[1]).all()") == "True\n"
    said(one, "set $ = [ref()[0], 8]")
    assert said(one, "print gap(sqnr, aten_permute_copy_default)") == "inf\n"
    assert "2 values" in refused(one, "set $ = [1, 2, 3]")
    assert said(one, "print $[1].max()") == "8\n"
