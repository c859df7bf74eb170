"""The smallest pools of a microcontroller build, on real programs, by the native runner."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from etscope.cli import main
from etscope.errors import RuntimeFailure, UsageError
from etscope.formats.program.pte import read_pte
from etscope.run._runner_host import HERE
from etscope.run.inputs import generate_inputs
from etscope.run.job import Job, JobCall, PoolSizes, read_result
from etscope.run.pools import (
    FAILS,
    METHOD,
    NOTHING,
    PLANNED,
    TEMPORARY,
    pools_report,
    smallest_pools,
)
from etscope.run.process import PoolTooSmall
from tests.support.artifacts import artifacts
from tests.support.native.runner import run_flags

ROOMY = PoolSizes(1 << 20, 1 << 20)


def a_job(pte: Path, pools: PoolSizes, method: str = "forward") -> Job:
    inputs = generate_inputs(read_pte(pte), method, 0)
    return Job(pte, (JobCall(method, inputs),), trace=False, pools=pools)


def execute(job: Job, folder: Path) -> None:
    folder.mkdir()
    HERE.execute(job, folder, "native", 60)


@pytest.mark.parametrize(
    "name", ["cnn_portable", "rewritten_state", "cond", "while_loop", "cnn_xnnpack_int8"]
)
def test_exactly_the_size_runs_and_a_byte_less_does_not(name: str, tmp_path: Path) -> None:
    """Told by other runs than those of the search."""
    pte = artifacts(name).pte
    (found,) = smallest_pools(pte, method="forward").methods
    assert {pool.less for pool in found.pools} <= {FAILS, NOTHING}
    assert found.size(METHOD) > 0
    planned = sum(read_pte(pte).method("forward").buffer_sizes)
    assert found.size(PLANNED) >= found.size(METHOD) + planned
    for pool, within in ((METHOD, False), (PLANNED, True)):
        exact = PoolSizes(found.size(pool), found.size(TEMPORARY), within)
        execute(a_job(pte, exact), tmp_path / f"{within}")
        used = {use.pool: use.peak for use in read_result(tmp_path / f"{within}").pools}
        assert used["method"] == exact.method
        assert used["temporary"] <= exact.temporary
        with pytest.raises(PoolTooSmall, match="the method pool is too small") as failed:
            less = replace(exact, method=exact.method - 1)
            execute(a_job(pte, less), tmp_path / f"{within}-less")
        assert failed.value.pool == "method"
        assert failed.value.asked > failed.value.left
        assert failed.value.size == exact.method - 1


def test_outputs_in_pools_are_those_of_malloc(tmp_path: Path) -> None:
    pte = artifacts("cnn_portable").pte
    execute(a_job(pte, replace(ROOMY, planned=True)), tmp_path / "pools")
    execute(replace(a_job(pte, ROOMY), pools=None), tmp_path / "malloc")
    (one,), (other,) = (read_result(tmp_path / name).calls for name in ("pools", "malloc"))
    assert len(one.outputs) == len(other.outputs) > 0
    for found, wanted in zip(one.outputs, other.outputs, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_every_method_has_sizes_of_its_own() -> None:
    pte = artifacts("two_methods").pte
    names = [method.name for method in read_pte(pte).methods]
    found = smallest_pools(pte)
    assert [one.method for one in found.methods] == names
    assert len(names) == 2
    (largest,) = {max(one.size(PLANNED) for one in found.methods)}
    settings = pools_report(found).section("settings")
    assert settings is not None
    lines = settings.table.values["setting"]
    assert f"-DET_ARM_BAREMETAL_METHOD_ALLOCATOR_POOL_SIZE={largest:#x}" in lines
    assert f"CONFIG_EXECUTORCH_METHOD_ALLOCATOR_POOL_SIZE={largest}" in lines


def test_test_cases_of_a_bundle_are_all_run() -> None:
    made = artifacts("bundled")
    (found,) = smallest_pools(made.bpte, method="forward").methods
    assert found.runs > 1
    assert found.size(METHOD) > 0
    with pytest.raises(UsageError, match="test case"):
        smallest_pools(made.pte, testset_index=1)


@pytest.mark.parametrize("pool", ["method", "temporary"])
def test_a_pool_of_nothing(pool: str, tmp_path: Path) -> None:
    pte = artifacts("allocations").pte
    with pytest.raises(PoolTooSmall) as failed:
        execute(a_job(pte, replace(ROOMY, **{pool: 0})), tmp_path / "run")
    assert (failed.value.pool, failed.value.size, failed.value.left) == (pool, 0, 0)
    assert failed.value.asked > 0


def test_kernels_that_work_in_temporary_memory(tmp_path: Path) -> None:
    pte = artifacts("allocations").pte
    (found,) = smallest_pools(pte).methods
    assert found.size(TEMPORARY) > 0
    (temporary,) = [pool for pool in found.pools if pool.pool == TEMPORARY]
    assert temporary.less == FAILS
    exact = PoolSizes(found.size(METHOD), found.size(TEMPORARY))
    execute(a_job(pte, exact), tmp_path / "exact")
    with pytest.raises(PoolTooSmall, match="pool is too small"):
        execute(a_job(pte, replace(exact, temporary=exact.temporary - 1)), tmp_path / "less")


SIZE = ("--method-pool", "9", "--temporary-pool", "9")


@pytest.mark.parametrize(
    ("flags", "say"),
    [
        (("--method-pool", "-1", *SIZE[2:]), "--method-pool -1: not a number"),
        (("--method-pool", "4294967296", *SIZE[2:]), "--method-pool 4294967296: not a number"),
        (("--method-pool", "many", *SIZE[2:]), "--method-pool many: not a number"),
        (("--method-pool", "0x10", *SIZE[2:]), "--method-pool 0x10: not a number"),
        (SIZE[:2], "pool"),
        (("--planned-in-pool",), "pool"),
        ((*SIZE, "--etdump-out", "a.etdp"), "pool"),
        ((*SIZE, "--method", "a", "--method", "b"), "pool"),
    ],
)
def test_wrong_flags(flags: tuple[str, ...], say: str, tmp_path: Path) -> None:
    done = run_flags("--program", artifacts("cnn_portable").pte, *flags, folder=tmp_path)
    assert done.returncode == 2
    assert say in done.stderr


def test_a_program_that_fails_for_another_reason_is_not_told_as_a_pool(tmp_path: Path) -> None:
    data = artifacts("cnn_portable").pte.read_bytes()
    foreign = tmp_path / "foreign.pte"
    foreign.write_bytes(data.replace(b"aten::convolution", b"aten::convolutiom"))
    with pytest.raises(RuntimeFailure, match="no kernel for aten::convolutiom") as failed:
        smallest_pools(foreign)
    assert not isinstance(failed.value, PoolTooSmall)


# -- the command


def test_the_command_names_delegates_beside_the_pools(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(artifacts("cnn_xnnpack").pte), "--pools"]) == 0
    out = capsys.readouterr().out
    assert "XnnpackBackend" in out
    assert "malloc" in out


def test_the_command_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    pte = artifacts("cnn_portable").pte
    assert main(["run", str(pte), "--pools", "-f", "json"]) == 0
    text = capsys.readouterr().out
    assert json.loads(text)["schema"] == "etscope.pools/1"
    assert pte.name in text
    assert "size_bytes" in text
    buffers = [size for size in read_pte(pte).method("forward").buffer_sizes if size]
    assert buffers
    assert all(str(size) in text for size in buffers)
    # It takes no options of traces.
    assert main(["run", str(pte), "--pools", "-X", "allocations=true", "--threads", "2"]) == 2
    assert "--threads, -X allocations" in capsys.readouterr().err
