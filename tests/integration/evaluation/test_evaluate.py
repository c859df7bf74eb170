"""`evaluate` and `evaluate_dump`: many samples on the runtime against the reference."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch.exir")

from etscope.errors import (  # noqa: E402
    MismatchError,
    MissingDataError,
    NumericGapError,
    RuntimeFailure,
    UsageError,
)
from etscope.evaluation import Evaluation, evaluate, evaluate_dump  # noqa: E402
from etscope.evaluation._evaluate import Collector  # noqa: E402
from etscope.run import Call, run  # noqa: E402
from tests.support.artifacts import artifacts  # noqa: E402
from tests.support.evaluation.models import CLASSES, Classifier, fault_line, inputs  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def files(name: str) -> tuple[Path, Path]:
    """The program and the record of a model: of `evaluation/models.py`."""
    made = artifacts("evaluated")
    return made.extra(f"{name}.pte"), made.extra(f"{name}.etrecord")


def evaluated(name: str, dataset: Any, **options: Any) -> Evaluation:
    """Of a model with "_off", by the record of the one without. In this process, which takes less
    time."""
    program, _ = files(name)
    right = name.removesuffix("_off")
    return evaluate(
        program, dataset, etrecord=files(right)[1], isolate=False, verify=right == name, **options
    )


RIGHT, FAULTY = "classifier", "classifier_off"


def test_a_right_program_is_fine() -> None:
    told: list[tuple[int, int | None]] = []
    found = evaluated(RIGHT, inputs(), top=2, progress=lambda done, of: told.append((done, of)))
    assert found.is_fine and found.verdict == "no operator goes wrong in 12 samples"
    assert [operator.row.label for operator in found.operators].count("addmm") == 2
    assert {operator.samples for operator in found.operators} == {12}
    assert told == [(number, 12) for number in range(1, 13)]
    assert found.task is not None
    assert (found.task.rows, found.task.agree, found.task.flipped) == (12, 12, 0)
    assert found.state is None and found.coverage.pairs == len(found.operators)


def test_a_fault_that_shows_in_some_samples() -> None:
    with torch.no_grad():
        right = [int(Classifier()(x).argmax()) for x in inputs()]
    found = evaluated(FAULTY, inputs(), labels=right, top=2)
    large = [f"#{number}" for number in range(12) if number % 3 == 2]
    assert [sample.name for sample in found.findings] == large
    (clamp,) = found.wrong
    assert clamp.row.label == "clamp" and clamp.row.lines[0].line == fault_line()
    assert (clamp.wrong, clamp.samples, clamp.share) == (4, 12, pytest.approx(1 / 3))
    assert clamp.local.worst is not None and clamp.local.worst < 30 and clamp.nan == 0
    assert clamp.local.median == np.inf and clamp.worst_sample in large
    # What comes after it inherits the error.
    last = found.operators[-1]
    assert last.wrong == 0 and last.total.worst is not None and last.total.worst < 40
    worst = found.worst_samples(4)
    assert {sample.name for sample in worst} == set(large)
    assert [sample.excess for sample in worst] == sorted((s.excess for s in worst), reverse=True)
    assert all(s.operator is not None and s.operator.label == "clamp" for s in worst)
    assert "4 of 12 samples have an operator that goes wrong" in found.verdict
    assert f"models.py:{fault_line()}" in found.verdict
    # The task: computed here, by PyTorch, with either model.
    with torch.no_grad():
        device = [int(Classifier(1.5)(x).argmax()) for x in inputs()]
    flipped = [n for n, (one, other) in enumerate(zip(right, device, strict=True)) if one != other]
    task = found.task
    assert task is not None and flipped
    assert {flip.sample for flip in task.flips} == {f"#{number}" for number in flipped}
    for flip in task.flips:
        number = int(flip.sample[1:])
        assert (flip.reference, flip.device) == (right[number], device[number])
        assert flip.reference_margin is not None and flip.reference_margin > 0
    assert task.reference_accuracy == 1.0
    assert task.accuracy == pytest.approx(1 - len(flipped) / 12)


def test_tables() -> None:
    found = evaluated(FAULTY, inputs(6), top=1)
    operators = found.operators_table()
    assert operators.values["wrong"] == [2 if op == "clamp" else 0 for op in operators.values["op"]]
    assert found.operators_table("error").values["op"][0] == "clamp"
    samples = found.samples_table(3)
    assert samples.values["verdict"] == ["wrong", "wrong", "fine"]
    assert samples.values["source"][0] == f"models.py:{fault_line()}"
    assert len(found.flips_table().values["sample"]) == (found.task.flipped if found.task else -1)
    summary = found.summary_table()
    counts = dict(zip(summary.values["what"], summary.values["count"], strict=True))
    assert counts["samples compared"] == 6 and counts["samples with a wrong operator or NaN"] == 2
    with pytest.raises(UsageError, match="sorted by run or error"):
        found.operators_table("size")
    for tolerance, fine in ((100.0, True), (1e-3, False)):  # in the unit of the metric
        other = evaluated(FAULTY, inputs(3), metric="max_abs", tolerance=tolerance)
        assert other.is_fine is fine
    with pytest.raises(MissingDataError, match="classes were not compared"):
        other.flips_table()


@pytest.mark.parametrize("name", ["cnn_portable", "cnn_xnnpack_int8"])
def test_artefacts_in_processes_of_their_own(name: str) -> None:
    made = artifacts(name)
    (given,) = torch.load(made.inputs_pt)["forward"][0]
    samples = [(given * scale,) for scale in (1.0, 0.5, -1.0)]
    found = evaluate(made.pte, samples, etrecord=made.etrecord, top=3)
    assert found.is_fine, found.notes
    assert len(found.samples) == 3
    assert found.task is not None and found.task.flipped == 0


def test_samples_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etscope.evaluation._evaluate._SAMPLES", 4)
    kept: weakref.WeakSet[Any] = weakref.WeakSet()
    most = 0

    def samples() -> Iterator[Any]:
        nonlocal most
        for number in range(22):
            most = max(most, len(kept))
            one = inputs()[number % 12].clone()
            kept.add(one)
            yield (one,)

    found = evaluated(RIGHT, samples())
    assert len(found.samples) == 22 and found.is_fine
    assert most <= 5  # of one process, and those that are being read
    del found
    gc.collect()
    assert len(kept) == 0


def test_bad_samples_are_named_or_skipped(tmp_path: Path) -> None:
    np.save(tmp_path / "1.npy", inputs()[0].numpy())
    np.save(tmp_path / "2.npy", inputs()[0].numpy()[:, :3])
    (tmp_path / "3.npy").write_bytes(b"nothing")
    with pytest.raises(MismatchError, match=r"sample 2\.npy: .*float32\[1, 3\]"):
        evaluated(RIGHT, tmp_path)
    found = evaluated(RIGHT, tmp_path, keep_going=True)
    assert [sample.verdict for sample in found.samples] == ["fine", "skipped", "skipped"]
    assert not found.is_fine and not found.findings and len(found.compared) == 1
    assert any("2 samples skipped, which is not a pass" in note for note in found.notes)
    (tmp_path / "1.npy").unlink()
    with pytest.raises(MissingDataError, match="none of 2 samples could be compared"):
        evaluated(RIGHT, tmp_path, keep_going=True)
    # Without a label nothing is said of a sample.
    skipped = evaluated(RIGHT, inputs(3), labels=[0, 1], keep_going=True, samples=3).skipped
    assert [sample.reason for sample in skipped] == ["the sample has no label"]


def test_a_sample_that_the_runtime_fails_on_is_found_among_others() -> None:
    program, record = files("picked")
    x = torch.arange(4.0)
    samples = [(x, torch.tensor([number])) for number in (0, 99, 2)]
    with pytest.raises(RuntimeFailure, match="sample #0"):
        evaluate(program, samples[1:2], etrecord=record)
    found = evaluate(program, samples, etrecord=record, keep_going=True)
    assert [sample.verdict for sample in found.samples] == ["fine", "skipped", "fine"]


def test_what_cannot_be_is_said() -> None:
    with pytest.raises(NumericGapError, match="needs an ETRecord"):
        evaluate(files(RIGHT)[0].read_bytes(), inputs())
    for error, options, words in (
        (UsageError, {"state": "warm"}, "unknown state 'warm'"),
        (UsageError, {"samples": 0}, "at least one sample"),
        (UsageError, {"top": 0}, "at least 1"),
        (UsageError, {"metric": "euclid"}, "unknown metric"),
        (UsageError, {"output": -1, "top": 1}, "counted from 0"),
        (MissingDataError, {"output": 1, "top": 1}, "output 1 for the classes does not exist"),
        (MismatchError, {"labels": [0, CLASSES]}, "not one of the 6 classes"),
    ):
        with pytest.raises(error, match=words):
            evaluated(RIGHT, inputs(2), **options)
    with pytest.raises(MismatchError, match="do not belong together"):
        evaluate(files("running")[0], inputs(), etrecord=files(RIGHT)[1], isolate=False)


# -- models that keep state

SEQUENCE = [torch.full((4,), value) for value in (1.0, 2.0, -0.5, 3.0)]


@pytest.mark.parametrize("state", ["fresh", "sequence"])
def test_state(state: str) -> None:
    found = evaluated("running", SEQUENCE, state=state)
    assert found.is_fine and found.state == state
    assert found.operators[0].total.worst == np.inf
    faulty = evaluated("running_off", SEQUENCE, state=state)
    assert len(faulty.findings) == 4
    # Wrong by itself is the first only: what the state has of it is inherited.
    assert [operator.row.label for operator in faulty.wrong] == ["mul"]


def test_the_state_of_a_sequence_is_the_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its outputs are those of the samples one after the other, and of each alone else."""
    captured: list[Any] = []
    original = Collector.add

    def add(self: Any, sample: Any, found: Any, reference: Any, device: Any, *more: Any) -> None:
        captured.append((np.array(reference[0]), np.array(device[0])))
        original(self, sample, found, reference, device, *more)

    monkeypatch.setattr(Collector, "add", add)
    evaluated("running", SEQUENCE, state="sequence")
    evaluated("running", SEQUENCE, state="fresh")
    total = torch.zeros(4)
    for x, sequence, fresh in zip(SEQUENCE, captured[:4], captured[4:], strict=True):
        total = total + x
        for got in sequence:
            np.testing.assert_allclose(got, torch.sin(total) + x, rtol=1e-5)
        for got in fresh:
            np.testing.assert_allclose(got, torch.sin(x) + x, rtol=1e-5)


# -- a dump


def dumped(name: str, samples: Any) -> Any:
    calls = [Call(None, (one,), iterations=1, warmup=0) for one in samples]
    right = name.removesuffix("_off")
    done = run(
        files(name)[0], calls, etrecord=files(right)[1], verify=right == name,
        debug_level="intermediate_outputs", separate=False, isolate=False,
    )  # fmt: skip
    opened = done.inspector()
    opened.trace.__dict__["kept"] = done  # its files
    return opened.trace


def test_a_dump_of_many_runs() -> None:
    trace = dumped(FAULTY, inputs(6))
    found = evaluate_dump(trace, inputs(6), top=1)
    here = evaluated(FAULTY, inputs(6), top=1)
    assert [s.name for s in found.findings] == [s.name for s in here.findings]
    for one, other in zip(found.operators, here.operators, strict=True):
        assert (one.wrong, one.local, one.total) == (other.wrong, other.local, other.total)
    assert found.task == here.task
    assert len(evaluate_dump(trace, inputs(6), run=2).findings) == 1
    assert len(evaluate_dump(trace, inputs(3), samples=3).samples) == 3
    for other_inputs in (inputs(5), inputs(12), iter(inputs(5)), iter(inputs(12))):
        with pytest.raises(MismatchError, match="6 runs of the method 'forward'"):
            evaluate_dump(trace, other_inputs)
    with pytest.raises(UsageError, match="ran 6 times"):
        evaluate_dump(trace, inputs(6), run=6)


def test_other_inputs_than_those_that_ran_are_in_doubt() -> None:
    trace = dumped(RIGHT, inputs(3))
    swapped = inputs(3)[[0, 2, 1]]
    found = evaluate_dump(trace, swapped)
    assert [sample.name for sample in found.findings] == ["#1", "#2"]
    assert all(sample.doubts for sample in found.findings)


def test_a_dump_of_a_model_with_state() -> None:
    trace = dumped("running", SEQUENCE)
    found = evaluate_dump(trace, SEQUENCE)
    assert found.is_fine and found.state == "dump"
    one = evaluate_dump(trace, SEQUENCE, run=3)
    assert one.is_fine and len(one.samples) == 1
    # Of a sample that is skipped nothing is known, and so of what comes after it.
    broken = [SEQUENCE[0], torch.zeros(5), *SEQUENCE[2:]]
    found = evaluate_dump(trace, broken, keep_going=True)
    assert [s.verdict for s in found.samples] == ["fine", "skipped", "skipped", "skipped"]
    assert "state before this sample is unknown" in found.samples[2].reason


def test_all_samples_together_tell_what_none_tells_alone() -> None:
    samples = torch.randn(40, 1, 48, 64, generator=torch.Generator().manual_seed(1))
    sound = evaluated("places", samples)
    assert sound.is_fine and not sound.deviating
    assert "samples show a mean error of" in str(sound.notes)

    found = evaluated("places_off", samples)
    assert not found.findings and found.is_finding and not found.is_fine
    (add,) = found.deviating
    assert add.row.label == "add" and add.wrong == 0 and add.deviation is not None
    assert add.deviation.index == (0, 3, 5)
    assert found.verdict.startswith("in no sample alone, but in all 40 together instruction 1, add")
    assert "(p < 1e-" in found.verdict
    table = found.operators_table("error")
    assert table.values["together"][0] == str(add.deviation)

    few = evaluated("places_off", samples[:5])
    assert few.is_fine
    assert "3 of 3 values have too few samples to be added up: 8 at least" in str(few.notes)
    given = evaluated("places_off", samples, tolerance=60.0)
    assert given.is_fine and given.operators[1].evidence is None
