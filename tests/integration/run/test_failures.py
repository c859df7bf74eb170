"""Runs that cannot be: a typed error each time, with what the runtime said."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from etscope.errors import (
    EtscopeError,
    FormatError,
    MismatchError,
    MissingDataError,
    MissingFileError,
    RuntimeFailure,
    UsageError,
)
from etscope.export import export
from etscope.formats.program.pte import read_pte
from etscope.run import run
from etscope.run.process import explained, relevant
from tests.support.artifacts import artifacts
from tests.support.processes import cpu_seconds
from tests.support.run.ran import case
from tests.support.waiting import PATIENCE, until

# Lines that the runtime of ExecuTorch 1.5.1 wrote.
NO_BACKEND = "[method.cpp:87] Backend EthosUBackend is not registered.\n"
HARMLESS = (
    "[cpuinfo_utils.cpp:71] Reading file /sys/devices/soc0/image_version\n"
    "[cpuinfo_utils.cpp:87] Failed to open midr file /sys/devices/soc0/image_version\n"
)


@pytest.fixture
def no_leftovers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """After the test, no folder of a run is left."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    yield None
    assert list(scratch.iterdir()) == []


def changed(path: Path, old: bytes, new: bytes, folder: Path) -> Path:
    """A copy of a program in which one text stands in place of another of the same length."""
    assert len(old) == len(new)
    content = path.read_bytes()
    assert old in content
    copy = folder / "changed.pte"
    copy.write_bytes(content.replace(old, new))
    return copy


# -- what is known before anything runs


def test_a_tensor_that_is_not_loaded_has_its_line() -> None:
    """The runtime takes 16 dimensions at most, and names a value by its index."""

    class Deep(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.sin(x)
            return y.reshape([1] * 17 + [4]) * 2.0  # deep

    made = export(Deep(), (torch.ones(4),))
    for runner in ("python", "native"):
        with pytest.raises(RuntimeFailure, match="Tensor rank too large 18 > 16") as caught:
            run(made.program, etrecord=made.record, runner=runner, iterations=1)
        (line,) = re.findall(r"^  at .*", caught.value.message, re.MULTILINE)
        assert line.endswith("# deep") and "test_failures.py:" in line


def test_files_that_are_no_program(tmp_path: Path) -> None:
    made = artifacts("cnn_portable")
    cut, text = tmp_path / "cut.pte", tmp_path / "text.pte"
    cut.write_bytes(made.pte.read_bytes()[:1000])
    text.write_text("hello world, this is no program")
    wrong: list[tuple[object, type[EtscopeError], str]] = [
        (cut, FormatError, "."),
        (text, FormatError, "."),
        (made.etdump, FormatError, "ETDump"),
        (tmp_path / "nowhere.pte", MissingFileError, "."),
        (object(), UsageError, "etscope export"),
        (made.etrecord, MissingDataError, r"does not hold its program[\s\S]*give the .pte file"),
    ]
    for given, error, words in wrong:
        with pytest.raises(error, match=words):
            run(given)
    with pytest.raises(UsageError, match="cannot load the library"):
        run(made.pte, libraries=text, runner="python")


def test_what_does_not_fit_the_program() -> None:
    made = artifacts("cnn_portable")
    image = case(made, "forward/0")[0]
    with pytest.raises(MissingDataError, match=r"method 'backward'[\s\S]*forward"):
        run(made.pte, method="backward")
    for inputs, words in (
        ((image, image), "2"),
        (image.astype(np.float64), "input 0: float64"),
        (image[..., :5], "input 0"),
    ):
        with pytest.raises(MismatchError, match=words):
            run(made.pte, inputs)
    with pytest.raises(MissingDataError, match="no test case 9"):
        run(artifacts("bundled").bpte, testset_index=9)
    # The tracer of ExecuTorch 1.5 leaves a dump of these types behind that nobody can read.
    halves = artifacts("bf16_fp16").pte
    with pytest.raises(UsageError, match=r"b?float16[\s\S]*-X runner=native"):
        run(halves, debug_level="intermediate_outputs", runner="python")


# -- what the runtime says


def test_a_backend_that_is_not_there(tmp_path: Path) -> None:
    foreign = changed(artifacts("cnn_xnnpack").pte, b"XnnpackBackend", b"StrangeBackend", tmp_path)

    with pytest.raises(RuntimeFailure, match="needs the backend StrangeBackend") as caught:
        run(foreign, iterations=1)

    assert "is not registered" in caught.value.log


def test_an_operator_without_a_kernel_has_its_lines(tmp_path: Path) -> None:
    made = artifacts("cnn_portable")
    foreign = changed(made.pte, b"aten::convolution", b"aten::convolutiom", tmp_path)

    with pytest.raises(RuntimeFailure, match="no kernel for aten::convolutiom") as caught:
        run(foreign, etrecord=made.etrecord, verify=False, iterations=1)

    lines = caught.value.message.splitlines()[1:]
    assert 1 <= len(lines) <= 3
    assert all(re.search(r"^  at .*cnn\.py:\d+: .*conv", line) for line in lines)


class _Volume(torch.nn.Module):
    """Two operators in `forward`, of which portable kernels do not support the second."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv3d(1, 2, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        doubled = x * 2
        return self.conv(doubled)  # type: ignore[no-any-return]


def test_what_a_kernel_does_not_support_is_told_with_its_line(tmp_path: Path) -> None:
    made = export(_Volume(), (torch.ones(1, 1, 4, 4, 4),))
    pte, record = made.save(tmp_path, bundle=False)

    with pytest.raises(RuntimeFailure) as caught:
        run(record, iterations=1)
    with pytest.raises(RuntimeFailure, match=r"aten::convolution.out failed at instruction 2"):
        run(pte, iterations=1)

    first, at, reads, writes = caught.value.message.splitlines()
    assert first.startswith("aten::convolution.out failed at instruction 2")
    assert reads.startswith("  it reads float32[1, 1, 4, 4, 4], float32[2, 1, 3, 3, 3]")
    assert writes == "  it writes float32[1, 2, 2, 2, 2]"
    assert re.search(r"test_failures\.py:\d+: return self\.conv\(doubled\)", at)
    assert "Expect input tensor to be 3-D or 4-D" in caught.value.log
    assert "with type id" not in caught.value.log


def test_a_tensor_beyond_the_planned_memory(tmp_path: Path) -> None:
    made = artifacts("cnn_portable")
    size = read_pte(made.pte).methods[0].buffer_sizes[1]
    small = changed(made.pte, size.to_bytes(8, "little"), (64).to_bytes(8, "little"), tmp_path)
    with pytest.raises(RuntimeFailure, match="of planned memory 0, which has 64") as caught:
        run(small, etrecord=made.etrecord, verify=False, iterations=1)
    assert re.search(r"^  at .*cnn\.py:\d+: ", caught.value.message, re.MULTILINE)


class _Picked(torch.nn.Module):
    """Rows of a table that are picked after a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.table = torch.nn.Embedding(10, 8)

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return self.linear(x) + self.table(index)  # type: ignore[no-any-return]


def test_an_index_outside_of_a_table() -> None:
    inputs = (torch.ones(3, 8), torch.tensor([1, 2, 9]))
    made = export(_Picked(), inputs)
    with pytest.raises(RuntimeFailure, match=r"embedding.out failed .* InvalidArgument") as caught:
        run(made.record, [inputs[0], torch.tensor([1, 2, 99])], iterations=1)
    assert "self.table(index)" in caught.value.message
    assert "it reads float32[10, 8], int64[3]" in caught.value.message
    assert "an index is outside" in (caught.value.hint or "")


def test_a_delegate_call_that_fails_has_its_layouts() -> None:
    """With one channel, the strides of channels-last do not say where the channel is."""
    x = torch.randn(1, 1, 7, 5).to(memory_format=torch.channels_last)
    made = export(torch.nn.Conv2d(1, 5, 1), (x,), backend="xnnpack")
    with pytest.raises(RuntimeFailure, match="a delegate call failed at instruction 0") as caught:
        run(made.record, iterations=1)
    assert "it reads float32[1, 1, 7, 5] in dim order 0, 2, 1, 3" in caught.value.message


def test_a_debug_buffer_that_is_too_small_grows() -> None:
    pte = artifacts("cnn_portable").pte
    options = {"iterations": 1, "warmup": 0, "debug_level": "intermediate_outputs"}

    with pytest.raises(RuntimeFailure, match="1,000 bytes is too small") as caught:
        run(pte, debug_buffer_size=1000, grow=False, runner="python", **options)
    grown = run(pte, debug_buffer_size=5000, runner="python", **options)

    assert "Ran out of space" in caught.value.log
    assert grown.debug_buffer_path is not None
    assert grown.debug_buffer_path.stat().st_size > 5000


@pytest.mark.usefixtures("real_python")
def test_more_than_the_machine_has() -> None:
    with pytest.raises(RuntimeFailure, match="bytes of memory"):
        run(
            artifacts("cnn_portable").pte,
            iterations=10**9,
            debug_level="intermediate_outputs",
            separate=False,
            runner="python",
        )


@pytest.mark.usefixtures("no_leftovers", "real_python")
def test_an_abort_is_an_error_with_the_log(tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    source = tmp_path / "abort.cpp"
    source.write_text(
        "#include <cstdio>\n#include <cstdlib>\n"
        'int die() { std::fputs("[mine.cpp:3] the last word\\n", stderr); std::abort(); }\n'
        "static int dead = die();\n"
    )
    library = tmp_path / "abort.so"
    subprocess.run(["g++", "-shared", "-fPIC", source, "-o", library], check=True)

    with pytest.raises(RuntimeFailure, match="died of SIGABRT") as caught:
        run(artifacts("cnn_portable").pte, libraries=library, runner="python")

    assert caught.value.log == "[mine.cpp:3] the last word"


def test_damage_that_only_the_backend_finds(tmp_path: Path) -> None:
    made = artifacts("cnn_xnnpack")
    content = bytearray(made.pte.read_bytes())
    span = read_pte(made.pte).methods[0].delegates[0].blob
    content[span.offset : span.offset + 64] = bytes(64)
    path = tmp_path / "damaged.pte"
    path.write_bytes(content)

    for isolate in (True, False):
        with pytest.raises(RuntimeFailure) as caught:
            run(path, iterations=1, isolate=isolate)
        assert caught.value.log


@pytest.mark.usefixtures("no_leftovers", "real_python")
def test_a_run_that_takes_too_long() -> None:
    with pytest.raises(RuntimeFailure, match=r"did not end within 0\.5 s"):
        run(artifacts("cnn_portable").pte, iterations=10**8, timeout=0.5)


def test_harmless_lines_are_left_out_and_known_backends_told() -> None:
    assert relevant(HARMLESS + NO_BACKEND) == NO_BACKEND.strip()
    assert relevant(HARMLESS) == ""
    found = explained(NO_BACKEND)
    assert found is not None and found[1] is not None
    assert "EthosUBackend" in found[0]
    assert "Ethos-U" in found[1]


@pytest.mark.usefixtures("real_python")
def test_files_beside_the_user_do_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python starts with the current folder first among the places that modules come from."""
    for name in ("json", "torch", "numpy", "etscope"):
        (tmp_path / f"{name}.py").write_text("open('planted', 'w').close()\n")
    monkeypatch.chdir(tmp_path)

    run(artifacts("cnn_portable").pte, iterations=1, trace=False, runner="python")

    assert not (tmp_path / "planted").exists()


def test_terminating_the_command_ends_the_run(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "etscope", "run", artifacts("cnn_portable").pte]
    parent = subprocess.Popen([*command, "--iterations", str(10**9)], env=environment)
    until(lambda: any(map(is_at_work, children(parent.pid))))
    (child,) = children(parent.pid)

    parent.terminate()

    assert parent.wait(PATIENCE) == 143
    assert not Path(f"/proc/{child}").exists()
    assert list(tmp_path.glob("etscope-run-*")) == []


def children(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(one) for one in path.read_text().split()] if path.exists() else []


def is_at_work(pid: int) -> bool:
    """Whether it has computed for a while: who has started it knows of it by then."""
    try:
        return cpu_seconds(pid) >= 0.2
    except OSError:
        return False


def test_a_runner_that_cannot_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "runner"
    path.write_text("no program")
    path.chmod(0o755)
    monkeypatch.setenv("ETSCOPE_RUNNER", str(path))

    with pytest.raises(RuntimeFailure, match="cannot start"):
        run(artifacts("cnn_portable").pte, runner="native")
