"""Planted faults are found; what is known is kept; the repro fails by itself."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn

from etscope.errors import FormatError, MismatchError, MissingDataError, UsageError
from etscope.export import Source, export
from etscope.formats.json_values import JsonValue
from etscope.model.graph import Graph, ModuleFrame, Node
from etscope.search.bisect import _bisect, bisect
from etscope.search.bisect._bisect import STRATEGIES, PieceSearch, Verdict, piece_text
from etscope.search.bisect._probe import Answer, Piece
from etscope.search.trial import LOWER, RUN, VALUE
from tests.support.artifacts import artifacts
from tests.support.bisect.planted import PLANTS, WIDTH, Tangent, backend, generated
from tests.support.warm import warm_python

KINDS = (VALUE, LOWER, RUN)  # of failures of PLANTS


def source(model: Any, inputs: Any) -> Source:
    return Source("", "model", model, inputs)


def quick(model: Any, example: Any, folder: Path, **options: Any) -> Any:
    """A bisection in this process, of the planted backend; its script is not tried."""
    with backend() as name, mock.patch("etscope.search.bisect._probe.confirm_failure"):
        options = {"backend": name, "isolate": False, **options}
        return bisect(source(model, example), folder, **options)


@dataclass(frozen=True)
class Recorded:
    """The graph of a model of `generated`, and answers of real pieces of it."""

    planted: str
    graph: Graph
    answers: Mapping[str, Answer]

    @classmethod
    def of(cls, seed: int) -> Recorded:
        document = json.loads(artifacts("bisected").extra(f"{seed}.json").read_text())
        nodes = tuple(
            Node(
                name,
                "call_function",
                op,
                op,
                inputs=tuple(inputs),
                modules=tuple(ModuleFrame(path, path, "Module") for path in modules),
            )
            for name, op, inputs, modules in document["nodes"]
        )
        recorded = JsonValue(document["answers"]).members()
        answers = {piece: one.read_as(Answer) for piece, one in recorded.items()}
        return cls(document["planted"], Graph("recorded", nodes), answers)

    def __call__(self, piece: Piece) -> Answer:
        return self.answers[piece_text(piece)]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", range(12))
def test_each_strategy_finds_what_is_planted(seed: int, strategy: str) -> None:
    """By answers of real pieces, which are not lowered and run again."""
    recorded = Recorded.of(seed)
    whole = recorded(tuple(range(len(recorded.graph.nodes))))
    assert whole.kind == KINDS[seed % 3]

    def verdict(piece: Piece) -> Verdict:
        answer = recorded(piece)
        return Verdict(answer.like(whole), answer.outputs)

    (piece,) = PieceSearch(recorded.graph, verdict).run(strategy)
    ops = [recorded.graph.nodes[index].op for index in piece]
    assert recorded.planted in ops and len(ops) <= 3 < len(recorded.graph.nodes), ops
    assert recorded(piece).kind == whole.kind


# One of each plant and strategy: the first is that of the repro; the others are recorded.
REAL = (4, 8)


@pytest.mark.parametrize(
    "seed",
    [seed if seed in REAL else pytest.param(seed, marks=pytest.mark.nightly) for seed in range(12)],
)
def test_the_planted_operator_is_found(seed: int, tmp_path: Path) -> None:
    plant, kind = PLANTS[seed % 3], KINDS[seed % 3]
    strategy = (*STRATEGIES, STRATEGIES[0])[seed // 3]
    model, inputs = generated(seed, plant())

    found = quick(model, inputs, tmp_path, strategy=strategy)

    assert found.whole.kind == kind
    ((piece, answer),) = found.found
    assert plant.op in [found.graph.nodes[index].op for index in piece]
    assert len(piece) <= 3 < len(found.graph.nodes)
    assert answer.kind == kind


# -- what the pieces are tried on


class Only(nn.Module):
    """Wrong where the tangent is far from the sine, of large values only."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.tan(x + 1) - 1)


def test_a_piece_is_bad_when_any_sample_is(tmp_path: Path) -> None:
    small, large = torch.full((1, 4), -1.0), torch.full((1, 4), 0.4)
    assert quick(Only(), (small,), tmp_path / "one").found == ()

    found = quick(Only(), None, tmp_path / "two", inputs=[(small,), (large,)])
    assert found.nodes == [["tan"]]
    with pytest.raises(UsageError, match="sample 2 of the inputs has other shapes"):
        quick(Only(), None, tmp_path / "bad", inputs=[(small,), (torch.ones(2, 4),)])


class Nan(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cos(torch.log(x))


def test_nan_is_good_only_where_the_reference_has_it(tmp_path: Path) -> None:
    inputs = (torch.tensor([[-1.0, 1.0]]),)
    assert quick(Nan(), inputs, tmp_path / "same").found == ()
    program = torch.export.export(Nan(), inputs)
    with mock.patch("etscope.bridge.lowering.subprograms.run_reference") as reference:
        values = [("log", torch.zeros(1, 2)), ("cos", torch.ones(1, 2))]
        reference.side_effect = lambda *_: (pair for pair in values)
        found = quick(program, None, tmp_path / "other")
    assert found.whole.kind == VALUE
    assert found.whole.error != found.whole.error


def test_a_command_decides(tmp_path: Path) -> None:
    """By what it finds in the piece's expected outputs: something above 2."""
    script = tmp_path / "check.py"
    script.write_text(
        "import sys, numpy\n"
        "with numpy.load(sys.argv[1]) as file:\n"
        "    sys.exit(any((file[name] > 2).any() for name in file.files) * 3)\n"
    )
    command = f"{warm_python()} {script} {{expected}} {{program}}"
    model = nn.Sequential(nn.Softplus(), Doubled(), nn.ELU()).eval()
    found = quick(model, (torch.ones(1, 2),), tmp_path / "out", command=command)
    assert (found.whole.kind, found.whole.error) == ("command", 3)
    assert [node.op for node in found.graph.nodes if node.name in found.nodes[0]] == [
        "aten.mul.Tensor"
    ]
    with pytest.raises(MissingDataError, match="the whole model cannot be judged"):
        quick(model, (torch.ones(1, 2),), tmp_path / "no", command="sh -c 'exit 125' {program}")
    with pytest.raises(UsageError, match="where the program goes"):
        quick(model, (torch.ones(1, 2),), tmp_path / "no", command="true")


class Doubled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


# -- what is kept


def test_an_interrupted_bisection_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By recorded answers; the state is that of the model all the same."""
    model, inputs = generated(0, Tangent())
    monkeypatch.setattr(_bisect, "Probe", lambda *_: Recorded.of(0))
    monkeypatch.setattr(_bisect, "write_repro", lambda *_: None)
    tried: list[Any] = []

    def stop(piece: Any, _: Any) -> None:
        tried.append(piece)
        if len(tried) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quick(model, inputs, tmp_path, progress=stop)
    kept = json.loads((tmp_path / "state.json").read_text())
    assert len(kept["trials"]) == 2

    with pytest.raises(UsageError, match="earlier bisection"):
        quick(model, inputs, tmp_path, resume=False)
    again: list[Any] = []
    found = quick(model, inputs, tmp_path, progress=lambda piece, _: again.append(piece))
    assert found.nodes == [["tan"]]
    assert again
    assert not set(again) & set(tried)

    with pytest.raises(MismatchError, match=r"another check: snr 40\.0, and now it is mae"):
        quick(model, inputs, tmp_path, check="mae", tolerance=1.0)
    other, _ = generated(3, Tangent())
    with pytest.raises(MismatchError, match="another model"):
        quick(other, inputs, tmp_path)
    (tmp_path / "state.json").write_text('{"version": 1, "given": [], "trials": {"0": {}}}')
    with pytest.raises(FormatError, match=r"state\.json"):
        quick(model, inputs, tmp_path)


# -- the repro


def test_the_repro_fails_by_itself_and_only_then(tmp_path: Path) -> None:
    """In a process that has only its folder; with the right program it does not fail."""
    model, inputs = generated(0, Tangent())
    with backend() as name:
        found = bisect(source(model, inputs), tmp_path / "out", backend=name, isolate=False)
    assert found.nodes == [["tan"]] and found.whole.kind == VALUE
    assert found.repro is not None
    moved = tmp_path / "moved"
    shutil.move(found.repro.parent, moved)
    assert {file.name for file in moved.iterdir()} == {
        *("piece.pt2", "program.pte", "inputs-0.npz", "expected-0.npz", "repro.json", "repro.py"),
    }
    code, text = script(sys.executable, "-I", moved / "repro.py")
    assert code == 1
    assert text.startswith(f"FAILS: tan: snr = {found.found[0][1].error:g} (tolerance 40)")

    settings = json.loads((moved / "repro.json").read_text())
    (moved / "repro.json").write_text(json.dumps({**settings, "backend": "portable"}))
    code, text = script(warm_python(), moved / "repro.py", "--lower")
    assert code == 0, text
    assert text.startswith("good: tan: snr = ")


def script(*command: str | Path) -> tuple[int, str]:
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout


def test_the_model_may_be_quantized(tmp_path: Path) -> None:
    """Cut between quantize and dequantize, and delegated."""
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()).eval()
    options = {"backend": "xnnpack", "quantize": True, "strategy": "linear", "tolerance": 1e9}
    found = quick(model, (torch.ones(1, WIDTH),), tmp_path, **options)
    assert found.found == ()
    assert any("quantize_per_tensor" in node.op for node in found.graph.nodes)


def test_options_that_make_no_sense(tmp_path: Path) -> None:
    model = source(nn.ReLU(), (torch.ones(1),))
    for options, words in (
        ({"strategy": "random"}, "unknown strategy"),
        ({"check": "nonsense", "tolerance": 1.0}, "unknown metric"),
        ({"check": "nonsense"}, "unknown metric"),
        ({"check": "mae"}, "give a tolerance"),
        ({"command": "x {program}", "check": "mae"}, "exclude each other"),
        ({"backend": "nonsense"}, "unknown backend"),
        ({"isolate": False, "timeout": 1.0}, "needs a run in a separate process"),
    ):
        with pytest.raises(UsageError, match=words):
            bisect(model, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


class Keywords(nn.Module):
    def forward(self, x: torch.Tensor, *, scale: torch.Tensor) -> torch.Tensor:
        return torch.tan(x) * scale


def test_a_record_may_have_methods_and_inputs_by_keyword(tmp_path: Path) -> None:
    given = {"x": torch.ones(1, 2), "scale": torch.ones(1)}
    programs = {
        "forward": torch.export.export(Keywords(), (), given),
        "other": torch.export.export(nn.ReLU(), (torch.ones(2),)),
    }
    export(programs).save(tmp_path, "saved", bundle=False)
    path = tmp_path / "saved.etrecord"
    with backend() as name, mock.patch("etscope.search.bisect._probe.confirm_failure"):
        found = bisect(path, tmp_path / "a", backend=name, isolate=False)
        assert found.nodes == [["tan"]]
        options: dict[str, Any] = {"backend": name, "isolate": False, "method": "other"}
        sample = (torch.ones(2),)
        assert bisect(path, tmp_path / "b", inputs=[sample], **options).found == ()
        with pytest.raises(MissingDataError, match="no method 'third'"):
            bisect(path, tmp_path / "c", **{**options, "method": "third"})
