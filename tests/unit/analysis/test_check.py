"""Every dump with its own record and program, and with all the others."""

from __future__ import annotations

import functools
import re
import warnings

import pytest

from etscope.analysis.profile.trace import Trace
from etscope.analysis.program.compatibility import Observed, differs_from_labels
from etscope.errors import EtscopeWarning, MismatchError
from etscope.formats.etdump.reader import ETDump, read_etdump
from etscope.formats.etrecord.reader import RecordFile, read_etrecord
from etscope.formats.program.pte import Program, read_pte
from etscope.model.event_table import EventKey
from tests.support.artifacts import artifacts

# Twins run the same instructions, and in a dump nothing tells them apart: three programs of one
# delegate with the same convolutions in it.
TWINS = ("cnn_xnnpack", "cnn_xnnpack_lowered", "cnn_xnnpack_int8")
NAMES = (
    *("cnn_portable", *TWINS, "transformer", "transformer_portable", "two_methods"),
    *("forward_and_extra", "cond", "while_loop", "bf16_fp16", "channels_last", "varying_inputs"),
    *("nan_output", "inf_output", "int_outputs", "dynamic_shape", "deconvolution"),
    *("written_state", "replaced_operators"),
)


@functools.cache
def dump(name: str) -> ETDump:
    return read_etdump(artifacts(name).etdump)


@functools.cache
def record(name: str) -> RecordFile:
    return read_etrecord(artifacts(name).etrecord)


@functools.cache
def program(name: str) -> Program:
    return read_pte(artifacts(name).pte)


def accepted(trace: Trace) -> bool:
    """Taken without a word: neither refused nor warned of."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", EtscopeWarning)
        try:
            trace.verify()
        except (MismatchError, EtscopeWarning):
            return False
    return True


@pytest.mark.parametrize("name", NAMES)
def test_own_files_are_accepted_and_all_others_refused(name: str) -> None:
    own = {*TWINS} if name in TWINS else {name}
    with_record = {other for other in NAMES if accepted(Trace(dump(name), record=record(other)))}
    with_program = {other for other in NAMES if accepted(Trace(dump(name), program=program(other)))}
    assert with_record == own
    # Of a program of one delegate call there is nothing but that: XNNPACK's is like any other's.
    delegates = {*TWINS, "forward_and_extra", "deconvolution"}
    assert with_program == (delegates if name in delegates else own)


def test_the_message_names_method_and_instruction() -> None:
    with pytest.raises(MismatchError) as error:
        Trace(dump("cnn_portable"), program=program("two_methods")).verify()
    assert "encode: instruction 0 ran convolution.out" in str(error.value)
    assert "decode: instruction 0 ran convolution.out" in str(error.value)
    assert error.value.exit_code == 3


def test_a_run_that_ended_early_is_of_its_method() -> None:
    labels = ("aten::mul.out", "aten::add.out", "aten::relu.out")
    events = {0: frozenset({"native_call_mul.out"}), 1: frozenset({"native_call_add.out"})}
    assert "never ran" in str(differs_from_labels(Observed(events, {}, has_jumps=False), labels))
    early = Observed(events, {}, has_jumps=False, ended=False)
    assert differs_from_labels(early, labels) is None
    del events[0]
    assert "instruction 0 (aten::mul.out) never ran" in str(differs_from_labels(early, labels))


def test_a_run_of_nothing_but_the_runtimes_own_operators_may_have_ended_early() -> None:
    """They log no values, so that nothing tells a core of them from the dump of a whole run."""

    def ended(*events: EventKey) -> bool:
        class Logged:
            keys, outputs = events, ()

        return Observed.of(Logged()).ended  # type: ignore[arg-type]

    own = EventKey("OPERATOR_CALL", 0, 0, None, 0, (), 0)
    assert not ended(own)
    assert ended(own, EventKey("native_call_add.out", 1, 0, None, 1, (), 0))
    assert ended(own, EventKey("DELEGATE_CALL", 1, 0, None, 1, (), 0))


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ({0: ["native_call_mm.out"]}, "instruction 0 ran mm.out, but is a delegate:Xnn"),
        (
            {0: ["DELEGATE_CALL"], 1: ["native_call_mm.out"]},
            "instruction 1 ran mm.out, but is aten",
        ),
        ({0: ["DELEGATE_CALL"], 1: ["DELEGATE_CALL"]}, "instruction 1 ran DELEGATE_CALL, but is"),
        ({0: ["DELEGATE_CALL"]}, "instruction 1 .* never ran"),
        ({2: ["native_call_add.out"]}, "instruction 2 ran, but the method has only 2"),
        ({0: ["DELEGATE_CALL"], 1: ["native_call_add.out", "OPERATOR_CALL"]}, None),
    ],
)
def test_the_first_difference_from_the_instructions(
    events: dict[int, list[str]], message: str | None
) -> None:
    observed = Observed({i: frozenset(names) for i, names in events.items()}, {}, has_jumps=False)
    difference = differs_from_labels(observed, ("delegate:XnnpackBackend", "aten::add.out"))
    if message is None:
        assert difference is None
    else:
        assert re.match(message, difference)
