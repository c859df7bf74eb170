"""Generation of tokens on both runners: the same tokens as PyTorch, and what is recorded of it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etscope.errors import EtscopeWarning, MismatchError, UsageError
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.run_json import read_run_json
from etscope.run import generate
from tests.support.artifact_recipes.decoders import (
    CONTEXT,
    IMAGE,
    IMAGE_TOKENS,
    PROGRAMS,
    SOUND,
    VOCABULARY,
    eager_logits,
    eager_tokens,
)
from tests.support.artifacts import artifacts
from tests.support.native.runner import run_flags
from tests.support.processes import cpu_seconds
from tests.support.waiting import PATIENCE, until
from tests.support.warm import warm_python

PROMPT = [3, 17, 4, 200, 9, 9, 31, 77, 2, 100, 5]
RUNNERS = ("python", "native")
INPUTS: dict[str, list[Any]] = {"seeing": [IMAGE.numpy()], "listening": [SOUND.numpy()]}


def program(name: str) -> Path:
    return artifacts("decoders").extra(f"{name}.pte")


def once(name: str, **options: Any) -> Any:
    """Generate once, without a trace, unless the options say otherwise."""
    defaults: dict[str, Any] = {
        "tokens": PROMPT,
        "max_new_tokens": 12,
        "iterations": 1,
        "warmup": 0,
        "trace": False,
        "inputs": INPUTS.get(name, ()),
    }
    return generate(program(name), **{**defaults, **options})


# -- the tokens


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_tokens_are_those_of_pytorch(name: str, runner: str) -> None:
    run = once(name, runner=runner, iterations=2, warmup=1)
    assert run.tokens.tolist() == eager_tokens(name, PROMPT, 12)
    assert run.stopped_by == "length"
    calls = run.calls
    assert calls.run.max() == 1, "the generation to warm up is left out"
    phases = [calls.phases[index] for index in calls.phase[calls.run == 0]]
    decodes = phases.count("decode")
    assert decodes == (22 if name == "seeing" else 11)
    assert set(phases) - {"decode"} == {
        "prefill",
        *({"vision_encoder"} if name == "seeing" else ()),
        *({"encoder"} if name == "listening" else ()),
    }
    assert (calls.execute_ns > 0).all()
    assert (np.diff(calls.start_ns)[np.diff(calls.run) == 0] > 0).all()


@pytest.mark.parametrize("runner", RUNNERS)
def test_chunks_of_a_fixed_length_fill_the_cache(runner: str) -> None:
    """11 tokens go in two chunks of 8, and 61 in eight; the last of them are filled up."""
    run = once("pair", runner=runner)
    assert [(call.method, call.position, call.count) for call in run.task.prompt] == [
        ("prefill", 0, 8),
        ("prefill", 8, 3),
    ]
    prompt = [number * 7 % VOCABULARY for number in range(61)]
    run = once("pair", runner=runner, tokens=prompt, max_new_tokens=3)
    assert [call.method for call in run.task.prompt] == ["prefill"] * 8
    assert run.tokens.tolist() == eager_tokens("pair", prompt, 3)


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_full_cache_or_an_end_token_ends_it(runner: str) -> None:
    run = once("dynamic", runner=runner, max_new_tokens=1000)
    assert run.stopped_by == "context"
    assert len(run.tokens) == CONTEXT - len(PROMPT) + 1
    assert "The cache is full" in str(run.report().section("generation").table.notes)
    tokens = eager_tokens("dynamic", PROMPT, 12)
    run = once("dynamic", runner=runner, end_tokens=[tokens[4]])
    assert run.tokens.tolist() == tokens[: tokens.index(tokens[4]) + 1]
    assert run.stopped_by == "end token"


def test_both_runners_draw_the_same_tokens() -> None:
    for options in ({}, {"top_k": 9}, {"top_k": 30, "top_p": 0.5}):
        drawn = {"temperature": 0.9, **options}
        python, native = (
            [once("dynamic", runner=runner, seed=seed, **drawn).tokens.tolist() for seed in (0, 1)]
            for runner in RUNNERS
        )
        assert python == native, options
        assert python[0] != python[1], "seeds differ"


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("name", ["dynamic", "one", "without_cache", "pair"])
def test_logits_under_forced_tokens(name: str, runner: str) -> None:
    forced = [7, 8, 9, 10]
    run = once(name, runner=runner, force_tokens=forced, logits=True)
    assert run.tokens.tolist() == forced
    wanted = eager_logits(name, [*PROMPT, *forced[:-1]])
    # A one-token program gives logits of each token of the prompt, too.
    positions = run.logits_positions.tolist()
    assert positions == list(range(len(PROMPT) + 3))
    np.testing.assert_allclose(run.logits, wanted[positions], atol=1e-4)


@pytest.mark.parametrize("runner", RUNNERS)
def test_logits_of_generated_tokens(runner: str, tmp_path: Path) -> None:
    run = once("dynamic", runner=runner, logits=True, max_new_tokens=5)
    assert run.logits.shape == (5, VOCABULARY)
    assert run.logits.argmax(1).tolist() == run.tokens.tolist()
    assert run.logits_positions.tolist() == list(range(len(PROMPT) - 1, len(PROMPT) + 4))
    run.save_logits(tmp_path / "logits.npz")
    with np.load(tmp_path / "logits.npz") as found:
        np.testing.assert_array_equal(found["logits"], run.logits)


# -- what is kept


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("name", ["dynamic", "pair", "seeing"])
def test_saved_files(name: str, runner: str, tmp_path: Path) -> None:
    run = once(
        name,
        runner=runner,
        trace=True,
        warmup=1,
        iterations=2,
        debug_level="intermediate_outputs",
        max_new_tokens=4,
    )
    run.save(tmp_path)
    saved = read_run_json(tmp_path / "run.json").generation
    assert saved is not None
    assert saved.to_json() == run.generation.to_json()
    assert [one.traced for one in saved.passes] == [None, "times", "values"]
    for file, one in zip(("run.etdp", "values.etdp"), saved.passes[1:], strict=True):
        dump = read_etdump(tmp_path / file)
        executed = [dump.run_name_of(run) for run in range(dump.num_runs)].count("Execute")
        assert executed == len(one.calls)
    assert saved.prompt_tokens.tolist() == [
        *([-1] * IMAGE_TOKENS if name == "seeing" else []),
        *PROMPT,
    ]
    assert saved.generated_tokens.tolist() == eager_tokens(name, PROMPT, 4)
    assert (tmp_path / "debug.bin").stat().st_size > 0
    if name == "seeing":
        assert saved.inputs["text_decoder"] == ("output 0 of token_embedding", "positions")
        with np.load(tmp_path / "inputs.npz") as given:
            np.testing.assert_array_equal(given["given_0"], IMAGE.numpy())
    assert run.inspector().to_dataframe().shape[0] > 0


def test_values_of_some_calls(tmp_path: Path) -> None:
    """Only the native runner can; the dump has all calls, and values of some."""
    options: dict[str, Any] = {
        "trace": True, "debug_level": "intermediate_outputs", "max_new_tokens": 4,
    }  # fmt: skip
    whole = once("dynamic", runner="native", **options)
    some = once("dynamic", values_at=(2, 3), **options)
    assert some.passes["values"].result.runner == "native"
    sizes = []
    for number, run in enumerate((whole, some)):
        run.save(tmp_path / str(number))
        sizes.append((tmp_path / str(number) / "debug.bin").stat().st_size)
    # One call of 11 tokens and three of one.
    assert 0 < sizes[1] < sizes[0] / 2
    with pytest.raises(UsageError, match="call 4 does not exist"):
        once("dynamic", values_at=(4, 9), **options)
    with pytest.raises(UsageError, match="values of some calls only"):
        once("dynamic", runner="python", values_at=(2, 3), **options)


# Modules of this name are imported when Python starts: it tells who has a handler of Ctrl-C.
TELLING = """
import os, signal
install = signal.signal
def signal_told(number, handler):
    before = install(number, handler)
    if number == signal.SIGINT:
        open(os.path.join(os.path.dirname(__file__), str(os.getpid())), "w").close()
    return before
signal.signal = signal_told
"""


@pytest.mark.parametrize("runner", RUNNERS)
def test_an_interrupt_keeps_what_was_recorded(runner: str, tmp_path: Path) -> None:
    line = [sys.executable, "-m", "etscope", "generate", program("dynamic"), f"-Xrunner={runner}"]
    line += ["--tokens", "1,2", "--iterations", "1000000", "--save", tmp_path / "saved"]
    (tmp_path / "sitecustomize.py").write_text(TELLING)
    path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    with subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": path},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as child:  # fmt: skip
        try:
            until(lambda: generates(child.pid, tmp_path if runner == "python" else None))
            child.send_signal(signal.SIGINT)
            out, err = child.communicate(timeout=PATIENCE)
        finally:
            child.kill()
    assert child.returncode == 130, err
    assert "interrupted" in out
    saved = read_run_json(tmp_path / "saved" / "run.json").generation
    assert saved is not None
    assert saved.stopped_by == "interrupted"
    assert len(saved.passes[0].calls) > 0
    assert not (tmp_path / "saved" / "run.etdp").exists(), "the first pass is untraced"


def generates(pid: int, told: Path | None) -> bool:
    """Whether the runner that a process has started hears Ctrl-C, and has computed since: for so
    long that it has more than warmed up. told: where a Python tells that it hears it."""
    for runner in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with suppress(OSError):
            status = Path(f"/proc/{runner}/status").read_text()
            caught = int(re.findall(r"^SigCgt:\s+(\w+)", status, re.MULTILINE)[0], 16)
            hears = caught & 1 << signal.SIGINT - 1 and "python" not in status
            if hears if told is None else (told / runner).exists():
                begun = cpu_seconds(int(runner))
                until(lambda runner=runner, begun=begun: cpu_seconds(int(runner)) > begun + 0.3)
                return True
    return False


# -- prompts


def test_prompts(tmp_path: Path) -> None:
    tokenizer = artifacts("decoders").extra("tokenizer.json")
    run = prompted(prompt="w3 w17 w4", tokenizer=tokenizer, max_new_tokens=3)
    assert run.prompt_tokens.tolist() == [3, 17, 4]
    assert run.text == " ".join(f"w{token}" for token in run.tokens.tolist())
    assert run.generation.tokenizer_sha256 is not None
    # A drawn one is the same everywhere; without any, the first token is the model's.
    drawn = prompted(prompt_length=6, seed=11)
    assert drawn.prompt_tokens.tolist() == [145, 68, 49, 210, 123, 10]
    assert prompted().prompt_tokens.tolist() == [1]
    (tmp_path / "ids.txt").write_text("3, 17\n4")
    np.save(tmp_path / "ids.npy", np.array([[3, 17, 4]]))
    for file in ("ids.txt", "ids.npy"):
        assert prompted(tokens=tmp_path / file).prompt_tokens.tolist() == [3, 17, 4]


def prompted(**options: Any) -> Any:
    """What the native runner makes of another prompt."""
    return once("dynamic", **{"tokens": None, "max_new_tokens": 1, "runner": "native", **options})


def test_the_place_of_an_image() -> None:
    run = once("seeing", tokens=[3, -1, 17], max_new_tokens=2)
    assert run.prompt_tokens.tolist() == [3, *[-1] * IMAGE_TOKENS, 17]
    methods = [call.method for call in run.task.prompt]
    assert methods == [
        *("token_embedding", "text_decoder", "vision_encoder"),
        *("text_decoder", "token_embedding", "text_decoder"),
    ]


def test_weights_beside_the_program() -> None:
    data = artifacts("decoders").extra("external.ptd")
    for runner in RUNNERS:
        run = once("external", data=data, runner=runner)
        assert run.tokens.tolist() == eager_tokens("one", PROMPT, 12)
    with pytest.raises(UsageError, match="ptd"):
        once("external")


# -- bad input


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("dynamic", {"tokens": [1, VOCABULARY]}, "token 1 of the prompt is 256"),
        ("dynamic", {"tokens": [1] * (CONTEXT + 1)}, "the prompt has 65 tokens"),
        ("dynamic", {"force_tokens": [1, -3]}, "token 1 of the forced tokens is -3"),
        ("dynamic", {"force_tokens": [1] * 60}, "60 forced tokens"),
        ("dynamic", {"inputs": [np.zeros(3, np.float32)]}, "1 arrays were given"),
        ("listening", {"inputs": ()}, "encoder needs its input, float32"),
        ("seeing", {"inputs": [np.zeros((1, 3, 9, 9), np.float32)]}, "vision_encoder: "),
        ("seeing", {"tokens": [1, -1, -1]}, "but 1 are given"),
    ],
)
def test_what_does_not_fit(name: str, options: dict[str, Any], text: str) -> None:
    with pytest.raises(MismatchError, match=text) as error:
        once(name, **options)
    assert error.value.exit_code == 3


def test_a_program_that_is_no_language_model() -> None:
    for name, why in (
        ("cnn_portable", "input 0 is unknown: float32"),
        ("two_methods", "is known to take tokens"),
    ):
        with pytest.raises(MismatchError, match=why) as error:
            generate(artifacts(name).pte, tokens=[1])
        assert "etscope run" in str(error.value)


def test_a_tokenizer_of_another_model(tmp_path: Path) -> None:
    given = json.loads(artifacts("decoders").extra("tokenizer.json").read_text())
    given["model"]["vocab"]["more"] = VOCABULARY
    (tmp_path / "tokenizer.json").write_text(json.dumps(given))
    options = {"prompt": "w1", "tokenizer": tmp_path / "tokenizer.json"}
    with pytest.raises(MismatchError, match="257 tokens, and the program's vocabulary 256"):
        prompted(**options)
    assert prompted(**options, verify=False).prompt_tokens.tolist() == [1]


def test_a_state_that_survives_is_told() -> None:
    """A program whose output depends on how often it ran."""
    from tests.support.run.counting import counting_program

    with pytest.warns(EtscopeWarning, match="keeps a state"):
        generate(counting_program(), tokens=[1], max_new_tokens=3, iterations=2, trace=False)


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--method", "forward"], "needs a call for the prompt, and one with --decode"),
        (["--method", "forward", "--decode", "--method", "forward"], "come before those with"),
        ([], "--generate needs calls"),
        (["--method", "forward", "--iterations", "2"], "takes no --iterations"),
        (["--method", "forward", "--tokens", "1,x"], "--tokens x: not a number"),
        (["--method", "forward", "--tokens", "1,2", "--length", "1"], "--length is less"),
        (["--top-p", "0"], "--top-p 0: not a number that it may be"),
        (["--values-at", "3"], "it is FIRST..LAST"),
        (["--logits", "some"], "it is none, generated or all"),
    ],
)
def test_flags_of_the_native_runner(flags: list[str], text: str) -> None:
    done = run_flags("--program", program("one"), "--generate", *flags)
    assert done.returncode == 2, done.stderr
    assert text in done.stderr


def test_sources_that_the_native_runner_cannot_take() -> None:
    one = ["--method", "forward", "--position", 0, "--tokens", 1]
    two = ["--method", "forward", "--decode", "--input", "tokens", "--input", "position"]
    for inputs, text in (
        (["tokens"], "takes 2 inputs, not 1"),
        (["tokens", "output:forward:3"], "there is no such output"),
        (["tokens", "output:back:0"], "method 'back'"),
        (["position", "tokens"], "input 0 of method 'forward', position, is not what it takes"),
        (["tokens", "int:3"], "must be a tensor"),
    ):
        words = [word for one_input in inputs for word in ("--input", one_input)]
        done = run_flags("--program", program("one"), "--generate", *one, *words, *two)
        assert done.returncode == 3, done.stderr
        assert text in done.stderr


# -- the table


def test_report_with_memory(tmp_path: Path) -> None:
    run = once("dynamic", iterations=3, warmup=1, max_new_tokens=30, runner="native", memory=True)
    report = run.report()
    phases = report.section("phases").table
    assert phases.values["phase"] == ["prefill", "decode"]
    assert phases.values["tokens"] == [len(PROMPT), 29]
    assert "planned buffers" in report.section("memory_owners").table.values["owner"]
    pace = run.pace
    assert len(pace.first_token_ns) == 3
    assert len(pace.inter_token_ns) == 3 * 29
    # All of the time is that of a phase.
    calls = run.calls
    last = np.flatnonzero(np.append(np.diff(calls.run), 1))
    ends = (calls.start_ns + calls.execute_ns + calls.sampling_ns)[last]
    firsts = calls.start_ns[np.append(0, last[:-1] + 1)]
    assert pace.wall_ns.sum() == (ends - firsts).sum()
    assert 0 <= pace.host_share < 1
    run.save(tmp_path)
    assert read_run_json(tmp_path / "run.json").memory.measured is not None


def test_command(tmp_path: Path) -> None:
    line = [warm_python(), "-m", "etscope", "generate", program("dynamic"), "--tokens", "1,5,9"]
    line += ["--max-new-tokens", "5", "--save", tmp_path / "run", "--format", "json"]
    env = {**os.environ, "COLUMNS": "80"}
    done = subprocess.run(line, capture_output=True, text=True, env=env, check=True)
    (report,) = json.loads(done.stdout)["reports"]
    assert report["sections"]["generation"]["generated_tokens"] == 5
    assert "saved in" in done.stderr
    assert (tmp_path / "run" / "run.etdp").exists()
