"""What the native runner refuses: one line, and an exit code that says whose mistake it is."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import numpy as np
import pytest

from etscope.formats.etdump.reader import read_etdump
from etscope.formats.program.scalar_type import ScalarType
from tests.support.artifacts import artifacts
from tests.support.formats.handmade import method, pte_file
from tests.support.native.runner import run_flags
from tests.support.run.echo import CONSTANTS, echo_program, typed

USAGE, BAD_INPUT, RUNTIME = 2, 3, 5
LEVEL = ("--debug-level", "program_outputs")
ALL = ("--debug-level", "intermediate_outputs", "--debug-buffer-out", "d")


def program_in(folder: Path) -> Path:
    """One float32 tensor [2, 3] in and out."""
    return echo_program(folder / "echo.pte", [typed(ScalarType.FLOAT, 2, 3)])


def refuse(folder: Path, code: int, *flags: object, say: str) -> None:
    """The runner ends with that code, says so in one line of its own, and leaves no file."""
    before = sorted(folder.iterdir())
    done = run_flags(*flags, folder=folder)
    assert (done.returncode, done.stdout) == (code, "")
    own = [line for line in done.stderr.splitlines() if not line.startswith("[")]
    assert len(own) == 1, done.stderr
    assert own[0].startswith("etscope-runner: ")
    assert say in own[0]
    assert sorted(folder.iterdir()) == before


# -- flags


def test_help_describes_every_flag() -> None:
    done = run_flags("--help")
    assert (done.returncode, done.stderr) == (0, "")
    root = Path(__file__).parents[3]
    source = (root / "native/src/common/options.cpp").read_text()
    flags = [part.partition('"')[0] for part in source.split('{"')[1:] if part.startswith("--")]
    assert len(flags) > 20
    for flag in flags:
        assert f"\n  {flag} " in done.stdout
    assert all(len(line) <= 100 for line in done.stdout.splitlines())
    assert f"```text\n{done.stdout}```" in (root / "docs/how-to/record.md").read_text()
    assert run_flags("--version").stdout.startswith("etscope-runner, ExecuTorch 1.")


@pytest.mark.parametrize(
    ("flags", "say"),
    [
        ((), "--program is missing"),
        (("--nonsense",), "unknown flag --nonsense"),
        (("echo.pte",), "unknown flag echo.pte"),
        (("--program",), "--program needs a value: FILE"),
        (("--program", "x", "--allocations=1"), "--allocations takes no value"),
        (("--program", "x", "--iterations", "0"), "--iterations 0: it must be at least 1"),
        (("--program", "x", "--iterations", "-1"), "--iterations -1: not a number"),
        (("--program", "x", "--warmup", "ten"), "--warmup ten: not a number"),
        (("--program", "x", "--seed", "18446744073709551616"), "not a number"),
        (("--program", "x", "--threads", "0"), "--threads 0: it must be at least 1"),
        (("--program", "x", "--threads", "4294967296"), "not a number"),
        (("--program", "x", "--debug-level", "all"), "--debug-level all: it is none,"),
        (("--program", "x", "--profiling-level", "none"), "it is all or method"),
        (("--program", "x", "--rtol", "nan"), "--rtol nan: not a tolerance"),
        (("--program", "x", *LEVEL), "--debug-level needs --debug-buffer-out"),
        (("--program", "x", "--debug-buffer-out", "d"), "need a --debug-level"),
        (("--program", "x", *LEVEL, "--debug-buffer-out", "d"), "need --etdump-out"),
        (("--program", "x", "--allocations"), "need --etdump-out"),
        (("--program", "x", "--memory"), "--memory needs --result-out"),
        (
            ("--program", "x", "--memory", "--result-out", "r", "--etdump-out", "e"),
            "excludes --etdump-out",
        ),
        (("--program", "x", "--delegate-filter", "y"), "needs --debug-level intermediate_outputs"),
        (("--program", "x", "--value-filter", "y"), "--value-filter needs --debug-level"),
        (("--program", "x", "--iterations", "2", "--method", "y"), "come after its --method"),
        (
            ("--program", "x", "--input", "none", "--testset-index", "0"),
            "--testset-index and --input exclude each other",
        ),
        (("--program", "x", "--verify", "--input", "none"), "--verify and --input exclude"),
        (
            ("--program", "echo.pte", "--etdump-out", "e", *ALL, "--delegate-filter", "("),
            "--delegate-filter (: not a regular expression",
        ),
        (
            ("--program", "echo.pte", "--etdump-out", "e", *ALL, "--value-filter", "("),
            "--value-filter (: not a regular expression",
        ),
    ],
)
def test_wrong_flags(flags: tuple[str, ...], say: str, tmp_path: Path) -> None:
    program_in(tmp_path)
    refuse(tmp_path, USAGE, *flags, say=say)


@pytest.mark.parametrize(
    ("specs", "code", "say"),
    [
        ("float32", USAGE, "no file"),
        ("float31:2,3:x", USAGE, "no type of that name"),
        ("float32:2;3:x", USAGE, "sizes are numbers"),
        ("float32:-2,3:x", USAGE, "sizes are numbers"),
        ("float32:99999999999,3:x", USAGE, "sizes are numbers"),
        ("int:1.5", USAGE, "not an integer"),
        ("int:9223372036854775808", USAGE, "not an integer"),
        ("double:", USAGE, "not a number"),
        ("bool:1", USAGE, "a bool is true or false"),
        ("float32:2,3:absent", BAD_INPUT, "cannot read absent: No such file"),
        ("float32:2,3:.", BAD_INPUT, "cannot read .: not a file"),
        ("float32:2,2:x", BAD_INPUT, "x has 24 bytes; float32 [2, 2] takes 16"),
        ("float32:2147483647,2147483647,2147483647:x", BAD_INPUT, "more than there can be"),
        (
            "float32:6:x",
            BAD_INPUT,
            "input 0 of method 'forward' is float32 [2, 3], not float32 [6]",
        ),
        ("float32:3,2:x", BAD_INPUT, "is float32 [2, 3], not float32 [3, 2]"),
        ("float32:1,6:x", BAD_INPUT, "is float32 [2, 3], not float32 [1, 6]"),
        ("int32:2,3:x", BAD_INPUT, "is float32 [2, 3], not int32 [2, 3]"),
        ("int:1", BAD_INPUT, "input 0 of method 'forward' is a tensor, not an int"),
        ("float32:1,3:half", BAD_INPUT, "is not what the method takes: Error::"),  # a fixed shape
        ("none none", BAD_INPUT, "method 'forward' takes 1 inputs, not 2"),
    ],
)
def test_wrong_inputs(specs: str, code: int, say: str, tmp_path: Path) -> None:
    program_in(tmp_path)
    (tmp_path / "x").write_bytes(bytes(24))
    (tmp_path / "half").write_bytes(bytes(12))
    inputs = [word for spec in specs.split() for word in ("--input", spec)]
    refuse(tmp_path, code, "--program", "echo.pte", *inputs, say=say)


# -- files


@pytest.mark.parametrize(
    ("flags", "say"),
    [
        (("--program", "absent.pte"), "cannot read absent.pte: No such file"),
        (("--program", "."), "cannot read .: not a file"),
        (("--program", "text"), "text: not an ExecuTorch program (.pte or .bpte)"),
        (("--program", "empty"), "empty: not an ExecuTorch program"),
        (("--program", "echo.pte", "--data", "absent.ptd"), "cannot read absent.ptd"),
        (("--program", "echo.pte", "--library", "absent.so"), "--library absent.so: "),
        (("--program", "echo.pte", "--library", "text"), "--library text: "),
        (("--program", "echo.pte", "--outputs-dir", "absent"), "absent: not a folder"),
        (("--program", "echo.pte", "--etdump-out", "absent/x"), "cannot write absent/x: No such"),
        (("--program", "echo.pte", "--result-out", "absent/x"), "cannot write absent/x: No such"),
        (("--program", "echo.pte", "--method", "other"), "no method 'other'; it has forward"),
    ],
)
def test_files_and_names_that_are_not_there(
    flags: tuple[str, ...], say: str, tmp_path: Path
) -> None:
    program_in(tmp_path)
    (tmp_path / "text").write_text("this is not a program")
    (tmp_path / "empty").touch()
    refuse(tmp_path, BAD_INPUT, *flags, say=say)


def test_a_program_that_is_cut_off(tmp_path: Path) -> None:
    whole = program_in(tmp_path).read_bytes()
    (tmp_path / "half.pte").write_bytes(whole[: len(whole) // 2])
    done = run_flags("--program", "half.pte", "--result-out", "r", folder=tmp_path)
    assert done.returncode in (BAD_INPUT, RUNTIME)
    assert "half.pte" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "r").exists()


def test_flags_can_have_their_value_behind_an_equals_sign(tmp_path: Path) -> None:
    program_in(tmp_path)
    done = run_flags("--program=echo.pte", "--etdump-out=e", "--iterations=3", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(read_etdump(tmp_path / "e").run_name) == 4


def test_what_was_there_is_replaced_by_a_whole_file_only(tmp_path: Path) -> None:
    program_in(tmp_path)
    (tmp_path / "e").write_text("kept")
    run_flags("--program", "echo.pte", "--etdump-out", "e", "--method", "no", folder=tmp_path)
    assert (tmp_path / "e").read_text() == "kept"
    run_flags("--program", "echo.pte", "--etdump-out", "e", folder=tmp_path)
    assert len(read_etdump(tmp_path / "e").run_name) == 2


def test_a_pipe_is_written_to_as_it_is(tmp_path: Path) -> None:
    program_in(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    reading = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)  # without a writer, too
    done = run_flags("--program", "echo.pte", "--result-out", "pipe", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    answer = os.read(reading, 1 << 16).decode()
    os.close(reading)
    assert answer.startswith('{"runner": "native"')
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


# -- the method that is run


def test_forward_or_else_the_first_method_is_run_unless_another_is_named(tmp_path: Path) -> None:
    names = ("first", "forward", "last")
    made = [method([typed(ScalarType.FLOAT, 1)], inputs=[0], outputs=[0], name=n) for n in names]
    (tmp_path / "three.pte").write_bytes(pte_file(*made, segments=[bytes(16)], more=CONSTANTS))
    echo_program(tmp_path / "encode.pte", [typed(ScalarType.FLOAT, 1)], name="encode")
    for program, chosen in (("three.pte", "forward"), ("encode.pte", "encode")):
        done = run_flags("--program", program, "--result-out", "/dev/stdout", folder=tmp_path)
        assert f'"method": "{chosen}"' in done.stdout


# -- the runtime's log


def test_the_log_says_nothing_of_a_run_that_went_well(tmp_path: Path) -> None:
    made = artifacts("cnn_xnnpack")
    done = run_flags("--program", made.pte, "--threads", "1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_same_seed_gives_the_same_outputs(tmp_path: Path) -> None:
    made = artifacts("cnn_portable")
    found = []
    for seed in (1, 1, 2):
        done = run_flags("--program", made.pte, "--seed", seed, "--outputs-dir", tmp_path)
        assert done.returncode == 0
        found.append(np.fromfile(tmp_path / "output-0-0.raw", np.float32))
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])
