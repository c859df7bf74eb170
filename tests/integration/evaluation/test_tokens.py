"""A language model beside its reference: on the runtime, in PyTorch, and with faults planted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch.exir")
pytest.importorskip("transformers")

from etscope.cli import main  # noqa: E402
from etscope.errors import MismatchError, NumericGapError, UsageError  # noqa: E402
from etscope.etdb import Session  # noqa: E402
from etscope.evaluation import TokenEvaluation, evaluate_tokens  # noqa: E402
from etscope.run import generate  # noqa: E402
from tests.support.artifacts import artifacts  # noqa: E402
from tests.support.evaluation.language_models import planted  # noqa: E402

Captured = pytest.CaptureFixture[str]

IDS = torch.randint(2, 512, (24,), generator=torch.Generator().manual_seed(3)).tolist()


def eager(ids: list[int]) -> torch.Tensor:
    """Return ln p of the right model in PyTorch, float64 [tokens, vocabulary]."""
    from tests.support.artifact_recipes.language_models import llama

    with torch.no_grad():
        logits = llama()(torch.tensor([ids])).logits[0]
    return torch.log_softmax(logits.double(), -1)


# Each call once, in this process.
ONCE: dict[str, Any] = {"iterations": 1, "warmup": 0}
HERE: dict[str, Any] = {"isolate": False, "runner": "python"}


def evaluated(program: Any, tokens: Any = IDS, **options: Any) -> TokenEvaluation:
    return evaluate_tokens(program, tokens, **HERE, **options)


@pytest.mark.parametrize("prompt", [None, 5])
def test_a_float_program_says_what_its_model_says(prompt: int | None) -> None:
    from tests.support.artifact_recipes.language_models import llama

    made = artifacts("llama_generate")
    found = evaluated(made.pte, reference=llama(), prompt_length=prompt)
    agreement = found.agreement
    assert len(agreement) == len(IDS) - 1
    assert not agreement.flips.any()
    assert agreement.kl.max() < 1e-8
    expected = eager(IDS[:-1])[range(len(IDS) - 1), IDS[1:]]
    assert agreement.reference_log_p == pytest.approx(expected.numpy(), rel=1e-6)
    assert agreement.log_p == pytest.approx(expected.numpy(), rel=1e-4)
    assert agreement.perplexity == pytest.approx(float(torch.exp(-expected.mean())), rel=1e-4)
    assert found.divergence is None
    # Each token by the call that gave its logits.
    calls = [0] * 5 + list(range(1, 19)) if prompt else [0] * 23
    assert found.places.call.tolist() == calls
    assert set(found.places.phase) == ({"prefill", "decode"} if prompt else {"prefill"})


def test_windows_of_a_long_text() -> None:
    """Each token from up to 8 before it, as PyTorch computes it in the same windows."""
    made = artifacts("llama_generate")
    found = evaluated(made.pte, etrecord=made.etrecord, context=8, stride=5)
    assert found.places.index.tolist() == list(range(1, 24))
    assert found.places.window.tolist() == [0] * 8 + [1] * 5 + [2] * 5 + [3] * 5
    assert found.places.position.tolist() == [*range(8), *[3, 4, 5, 6, 7] * 3]
    for row in (0, 7, 8, 12, 22):
        index = int(found.places.index[row])
        first = index - int(found.places.position[row]) - 1
        expected = eager(IDS[first:index])[-1]
        assert found.agreement.log_p[row] == pytest.approx(float(expected[IDS[index]]), rel=1e-4)
    assert found.agreement.kl.max() < 1e-8
    assert "4 windows" in " ".join(found.notes)


def test_a_quantized_program_flips_where_its_own_logits_do() -> None:
    made, right = artifacts("llama_generate_8da4w"), artifacts("llama_generate")
    found = evaluated(made.pte, reference=right.pte)
    tokens = {"tokens": IDS[:-1], "force_tokens": IDS[-1:]}
    with generate(made.pte, **tokens, logits=True, trace=False, **ONCE, **HERE) as run:
        own = torch.log_softmax(torch.tensor(run.logits).double(), -1)
    reference = eager(IDS[:-1])
    flips = (own.argmax(-1) != reference.argmax(-1)).numpy()
    assert 0 < flips.sum() < len(flips)
    assert found.agreement.flips.tolist() == flips.tolist()
    kl = torch.nn.functional.kl_div(own, reference, reduction="none", log_target=True).sum(-1)
    assert found.agreement.kl == pytest.approx(kl.numpy(), rel=1e-3)
    assert np.isfinite(found.agreement.kl).all()
    assert not found.is_within(max_kl=1e-6)
    assert not found.is_within(min_agreement=1.0)
    assert found.is_within(max_kl=10.0, min_agreement=0.0)
    # The float graph of its own record is the same reference.
    by_record = evaluated(made.pte, etrecord=made.etrecord)
    assert by_record.reference == "float of the record, in PyTorch"
    assert by_record.agreement.kl == pytest.approx(found.agreement.kl, rel=1e-3)
    assert "--quantization" in " ".join(by_record.notes)


# -- from the token to the operator


def faulty(
    program: Path, target: Path, weight: torch.Tensor, factor: float, rows: slice = slice(None)
) -> Path:
    """Write the program with rows of a weight times a factor."""

    def change(values: np.ndarray) -> None:
        values[rows] *= factor

    target.write_bytes(planted(program.read_bytes(), weight, change))
    return target


def numerics(capsys: Captured, folder: Path, record: Any, call: int) -> tuple[int, list[Any], str]:
    """The diagnosis of a call: the exit code, the wrong rows, the notes."""
    capsys.readouterr()
    words = ["numerics", folder, "-r", record, "--calls", call, "--format", "json"]
    code = main([str(word) for word in words])
    found = json.loads(capsys.readouterr().out)
    wrong = [row for row in found["rows"] if row["verdict"] == "wrong"]
    return code, wrong, " ".join(found["notes"])


# A weight, its factor, the rows that have it, the length of the prompt, and the module that is
# named: with the line of the call that the fault is in, and a delegate's has several.
FAULTS = {
    "k_proj": (
        *("model.layers.1.self_attn.k_proj", 1.5, slice(None), None),
        "model.layers.1.self_attn.k_proj",
    ),
    "one row of o_proj": (
        *("model.layers.0.self_attn.o_proj", -3.0, slice(3, 4), 2),
        "model.layers.0",
    ),
    "up_proj": ("model.layers.0.mlp.up_proj", 1.4, slice(None), 2, "model.layers.0"),
    "lm_head": ("lm_head", 4.0, slice(0, 256), None, "lm_head"),
}
NIGHTLY = ("up_proj", "lm_head")


@pytest.mark.parametrize(
    "fault",
    [pytest.param(one, marks=[pytest.mark.nightly] * (one in NIGHTLY)) for one in FAULTS],
)
def test_the_first_token_leads_to_the_operator(
    fault: str, tmp_path: Path, capsys: Captured
) -> None:
    from tests.support.artifact_recipes.language_models import llama

    made, saved = artifacts("llama_generate"), tmp_path / "ran"
    path, factor, rows, prompt, module = FAULTS[fault]
    weight = llama().get_submodule(path).weight
    program = faulty(made.pte, tmp_path / "faulty.pte", weight, factor, rows)
    found = evaluated(program, etrecord=made.etrecord, prompt_length=prompt, save=saved)
    at = found.divergence
    assert at is not None
    call = int(found.places.call[at])
    assert f"etscope numerics {saved} -r {made.etrecord} --calls {call}" in " ".join(found.notes)
    code, wrong, _ = numerics(capsys, saved, made.etrecord, call)
    assert (code, [row["module"] for row in wrong]) == (1, [module])


def test_a_decode_call_of_a_sound_program_accuses_nobody(tmp_path: Path, capsys: Captured) -> None:
    made = artifacts("llama_generate")
    with generate(
        made.pte,
        tokens=IDS[:6],
        force_tokens=IDS[6:12],
        etrecord=made.etrecord,
        debug_level="intermediate_outputs",
        **ONCE,
        **HERE,
    ) as run:
        run.save(tmp_path)
    words = ["numerics", str(tmp_path), "-r", str(made.etrecord)]
    assert main([*words, "--calls", "4"]) == 0
    assert "no operator goes wrong" in capsys.readouterr().out
    assert main([*words, "--calls", "4", "--stages"]) == 0
    assert "no operator is wrong in" in capsys.readouterr().out
    assert main([*words, "--calls", "decode", "--limit", "1"]) == 0
    assert main([*words, "--calls", "6"]) == 2
    assert "the dump has 6 calls" in capsys.readouterr().err
    assert main([*words, "--calls", "1", "--run", "1"]) == 2
    session = Session(str(tmp_path), str(made.etrecord))
    (table,) = session.execute("info runs").data
    shown = table["rows"]
    columns = ("call", "phase", "position", "tokens")
    first_two = [[row[name] for name in columns] for row in shown[:2]]
    assert first_two == [[0, "prefill", 0, 6], [1, "decode", 6, 1]]
    assert f"run {shown[3]['run']} is over" in session.execute("run --call 3").text
    assert "calls are 0 to 5" in session.execute("run --call 6").text


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, made = tmp_path_factory.mktemp("pair"), artifacts("decoder_pair")
    shutil.copy(made.pte, folder / "pair.pte")
    shutil.copy(made.extra("etrecord.bin"), folder / "pair.etrecord")
    return folder


def _diagnosed(
    folder: Path, program: Path, capsys: Captured, call: int, **options: Any
) -> tuple[int, list[Any], str]:
    """Generate with the values of calls, and diagnose one."""
    record = folder / "pair.etrecord"
    with generate(
        program,
        tokens=range(3, 16),
        force_tokens=[3, 5, 7, 11],
        etrecord=record,
        debug_level="intermediate_outputs",
        **ONCE,
        **options,
    ) as run:
        run.save(folder / "ran")
    return numerics(capsys, folder / "ran", record, call)


def test_a_fault_of_both_methods_is_named_in_each(pair: Path, capsys: Captured) -> None:
    from tests.support.artifact_recipes.decoders import Model

    weight = Model().body.attention[1].joined.weight
    program = faulty(pair / "pair.pte", pair / "both.pte", weight, 1.3)
    for call in (1, 4):  # of the prompt, and a decode step
        code, wrong, _ = _diagnosed(pair, program, capsys, call, **HERE)
        assert code == 1
        assert [row["module"] for row in wrong] == ["model.body.attention.1.joined"]


def test_a_fault_of_an_earlier_call_is_in_the_state_only(pair: Path, capsys: Captured) -> None:
    """The embedding of positions 0 to 7 is wrong, which the first call reads: a later one is right,
    in a state that is not."""
    from tests.support.artifact_recipes.decoders import Model

    weight = Model().body.places.weight
    program = faulty(pair / "pair.pte", pair / "early.pte", weight, 3.0, slice(0, 8))
    code, wrong, notes = _diagnosed(pair, program, capsys, 4, **HERE)
    assert (code, wrong) == (0, [])
    assert "the state before this run differs from the reference's" in notes
    code, wrong, notes = _diagnosed(pair, program, capsys, 0, **HERE)
    assert code == 1 and len(wrong) == 1
    assert "embedding" in wrong[0]["op"]
    assert "the state before" not in notes


def test_the_values_of_one_call_alone_are_enough(pair: Path, capsys: Captured) -> None:
    """What an earlier call left in the cache is seen in the values of this one."""
    from tests.support.artifact_recipes.decoders import Model
    from tests.support.native.runner import runner

    runner()  # skips where it is not built
    weight = Model().body.attention[0].joined.weight
    keys = slice(32, 64)
    program = faulty(pair / "pair.pte", pair / "keys.pte", weight, 1.3, keys)
    native = {"runner": "native", "values_at": (4, 4)}
    code, wrong, notes = _diagnosed(pair, program, capsys, 4, **native)
    assert code == 1
    assert [row["module"] for row in wrong] == ["model.body.attention.0.joined"]
    assert "attention.0.keys" in notes and "attention.0.values" not in notes
    code, wrong, notes = _diagnosed(pair, pair / "pair.pte", capsys, 4, **native)
    assert (code, wrong) == (0, [])
    assert "the state before" not in notes
    words = ["numerics", str(pair / "ran"), "-r", str(pair / "pair.etrecord"), "--calls", "2"]
    assert main(words) == 4
    assert "there are values of the calls 4" in capsys.readouterr().err


# -- the command, and bad input


def test_the_command_its_gates_and_formats(tmp_path: Path, capsys: Captured) -> None:
    made, right = artifacts("llama_generate_8da4w"), artifacts("llama_generate")
    tokens = tmp_path / "text.tokens"
    tokens.write_text(" ".join(map(str, IDS)))
    words = ["evaluate", str(made.pte), "--tokens", str(tokens), "--reference", str(right.pte)]
    words += ["-X", "isolate=false", "-X", "runner=python"]
    assert main(words) == 0
    assert "first diverging token" in capsys.readouterr().out
    assert main([*words, "--max-kl", "1e-6"]) == 1
    assert main([*words, "--min-agreement", "1"]) == 1
    assert main([*words, "--max-kl", "10", "--min-agreement", "0"]) == 0
    capsys.readouterr()
    assert main([*words, "--by-token", "--format", "json"]) == 0
    (report,) = json.loads(capsys.readouterr().out)["reports"]
    assert report["sections"]["agreement"]["tokens"] == 23
    rows = report["sections"]["tokens"]
    assert [row["id"] for row in rows] == IDS[1:]
    diverged = int(report["first_diverging_token"])
    assert rows[diverged - 1]["flip"] == "flip"
    assert all(row["flip"] is None or row["flip"] == "tie" for row in rows[: diverged - 1])
    assert main([*words, "--by-token", "--format", "csv", "--sort", "error", "--limit", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    kl = [float(line.split(",")[lines[0].split(",").index("kl_nats")]) for line in lines[1:]]
    assert kl == sorted(kl, reverse=True)


def test_the_folder_of_a_config_is_a_reference(tmp_path: Path) -> None:
    from tests.support.artifact_recipes.language_models import llama

    llama().save_pretrained(tmp_path)
    words = ["evaluate", str(artifacts("llama_generate").pte), "--tokens", ",".join(map(str, IDS))]
    words += ["--reference", str(tmp_path), "-X", "isolate=false", "-X", "runner=python"]
    assert main([*words, "--max-kl", "1e-6"]) == 0


def test_what_cannot_be_compared_is_refused() -> None:
    made, cnn = artifacts("llama_generate"), artifacts("cnn_portable")
    of_record = {"etrecord": made.etrecord}
    for error, program, tokens, options, words in (
        (NumericGapError, made, IDS, {}, "compared with a reference, and there is none"),
        (UsageError, made, [5], of_record, "a text of 1 token has no token to predict"),
        (MismatchError, made, [5, 512], of_record, "token 1 of the text is 512"),
        (
            *(MismatchError, made, IDS, {**of_record, "context": 129}),
            "a context of 129 tokens does not fit the cache of 128",
        ),
        (
            *(UsageError, made, IDS, {**of_record, "context": 8, "stride": 9}),
            "a stride of 9 tokens is more than the context of 8",
        ),
        (
            *(UsageError, made, IDS, {**of_record, "prompt_length": 0}),
            "prompt_length must be at least 1",
        ),
        (MismatchError, cnn, IDS, {}, "not like a language model's"),
    ):
        with pytest.raises(error, match=words):
            evaluated(program.pte, tokens, **options)
    for reference, words in (
        (cnn.pte, "the reference: .*not like a language model's"),
        (torch.nn.Embedding(512, 7), "a vocabulary of 7 tokens, and the program of 512"),
        (lambda tokens: torch.zeros(1, 1, 512), "returns logits of 1 of 23 tokens"),
        (lambda tokens: tokens, r"returns int64 \[1, 23\], not logits"),
    ):
        with pytest.raises(MismatchError, match=words):
            evaluated(made.pte, reference=reference)


def test_a_module_with_a_position_is_given_tokens_one_by_one() -> None:
    from etscope.bridge.reference.language_model import module_logits

    def last(tokens: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        row = torch.zeros(1, 4)
        row[0, 0], row[0, 1] = tokens[0, -1], position[0] + tokens.shape[1] - 1
        return row

    found = module_logits(last, np.array([7, 5, 9]))
    assert found[:, :2].tolist() == [[7, 0], [5, 1], [9, 2]]
