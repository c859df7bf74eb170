"""Calibrations: what they say of a machine, their file, and where they are found."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from etscope.errors import FormatError, MissingFileError, VersionError
from etscope.formats.calibration import (
    Cache,
    CalibratedDevice,
    Calibration,
    Estimate,
    GemmPoint,
    MemoryLevel,
    MemoryPoint,
    Peaks,
    caches_of,
    find_calibration,
    keep_calibration,
    parse_calibration,
    read_calibration,
    write_calibration,
)
from etscope.formats.conditions import Conditions, conditions_here, conditions_of
from etscope.formats.run_json import SavedRun

KIB, MIB = 1 << 10, 1 << 20


def about(median: float) -> Estimate:
    return Estimate(median, 0.98 * median, 1.03 * median, 7)


def peaks(threads: int, scale: float = 1.0) -> Peaks:
    memory = {16 * KIB: 80e9, 256 * KIB: 60e9, 4 * MIB: 40e9, 16 * MIB: 30e9, 256 * MIB: 10e9}
    return Peaks(
        threads=threads,
        gemm=(
            GemmPoint("float32", 256, 1024, 1024, about(scale * 90e9)),
            GemmPoint("float32", 64, 512, 512, about(scale * 70e9)),
            GemmPoint("int8", 256, 1024, 1024, about(scale * 200e9)),
        ),
        memory=tuple(MemoryPoint(size, about(scale * rate)) for size, rate in memory.items()),
        dispatch=about(200.0),
        delegate_call=about(1500.0),
    )


CALIBRATION = Calibration(
    device=CalibratedDevice(
        name="board",
        cpu="AMD EPYC",
        cores=2,
        architecture="x86_64",
        system="Linux 6.1",
        caches=(Cache(1, 32 * KIB, 1, 2), Cache(2, 512 * KIB, 1, 2), Cache(3, 32 * MIB, 2, 1)),
    ),
    runner="native",
    etscope="1.4.0",
    executorch="1.5.1",
    measured_at=datetime(2026, 5, 1, 12, tzinfo=timezone.utc),
    all_peaks=(peaks(1), peaks(2, 1.8)),
    before=Conditions(at=1.0, load=0.5, cores=2, governors=("powersave",), cpus="0-1"),
    after=Conditions(at=50.0, load=1.9, frequencies_mhz=(2400.0, 2400.0), virtual=True),
    marks=("the load was 1.9 on 2 cores",),
)


def run(**content: Any) -> SavedRun:
    machine = {"cpu": "AMD EPYC", "cores": 2}
    ran = {"threads": 2, "runner": "native", "executorch": "1.5.1", "conditions": machine}
    return SavedRun({**ran, **content})


def test_a_file_holds_the_whole_calibration(tmp_path: Path) -> None:
    path = tmp_path / "board.json"
    write_calibration(CALIBRATION, path)
    assert read_calibration(path) == replace(CALIBRATION, path=str(path))


def test_peaks_are_those_of_the_nearest_threads_and_the_best_product() -> None:
    one = CALIBRATION.peaks(1)
    assert (one.peak_flops("float32"), one.peak_flops("int8")) == (90e9, 200e9)
    assert one.peak_flops("float16") is None
    assert one.dtypes == ("float32", "int8")
    assert (one.dispatch_ns, one.delegate_call_ns) == (200.0, 1500.0)
    assert [CALIBRATION.peaks(threads).threads for threads in (1, 2, 8, None)] == [1, 2, 2, 2]


def test_bandwidth_lies_on_a_line_between_the_measured_sizes() -> None:
    one = CALIBRATION.peaks(1)
    assert one.bandwidth(16 * KIB) == 80e9
    # 64 KiB is half of the way from 16 to 256 KiB, in the logarithm.
    assert one.bandwidth(64 * KIB) == pytest.approx(70e9)
    assert one.bandwidth(1) == 80e9
    assert one.bandwidth(1 << 40) == 10e9
    assert Peaks(2).bandwidth(1000) is None


def rates(levels: Iterable[MemoryLevel]) -> list[tuple[str, float]]:
    return [(level.name, level.bytes_per_s) for level in levels]


def test_levels_of_memory_follow_the_caches() -> None:
    levels = CALIBRATION.memory_levels(2)
    assert [level.up_to_bytes for level in levels] == [64 * KIB, MIB, 32 * MIB, None]
    names, found = zip(*rates(levels), strict=True)
    assert names == ("L1", "L2", "L3", "memory")
    assert found == pytest.approx([1.8 * rate for rate in (80e9, 60e9, 40e9, 10e9)])
    assert CALIBRATION.memory_levels(1)[0].up_to_bytes == 32 * KIB
    without = replace(CALIBRATION, device=CalibratedDevice())
    assert rates(without.memory_levels(1)) == [("cache", 80e9), ("memory", 10e9)]
    assert Peaks(1).memory_levels(()) == ()
    # A smaller level is not slower.
    memory = tuple(MemoryPoint(size, about(rate)) for size, rate in ((16 * KIB, 1e9), (MIB, 3e9)))
    levels = Peaks(1, memory=memory).memory_levels((Cache(1, 32 * KIB, 1, 1), Cache(2, MIB, 1, 1)))
    assert rates(levels) == [("L1", 3e9), ("L2", 3e9), ("memory", 3e9)]


def test_another_machine_is_told() -> None:
    cpu, cores = ("CPU", "AMD EPYC", "Cortex-A55"), ("number of cores", 2, 4)
    for ran, differences in (
        ({}, ()),
        ({"conditions": None}, ()),
        ({"threads": 4}, (("number of threads", 2, 4),)),
        ({"conditions": {"cpu": "Cortex-A55", "cores": 4}}, (cpu, cores)),
        ({"runner": "python"}, (("runner", "native", "python"),)),
        ({"conditions": None, "environment": {"device": {"cpu": "Cortex-A55"}}}, (cpu,)),
    ):
        assert CALIBRATION.mismatch_with(run(**ran)) == tuple(
            f"the {what} is {mine} in the calibration and {theirs} in the run"
            for what, mine, theirs in differences
        )


GEMM = ("peaks", 0, "gemm", 0)


def damaged(*path: Any, value: Any) -> Any:
    """The file with another value at a path; without it for Ellipsis."""
    content = json.loads(json.dumps(CALIBRATION.to_json()))
    place = content
    for key in path[:-1]:
        place = place[key]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return content


@pytest.mark.parametrize(
    ("path", "value", "member", "words"),
    [
        (("runner",), ..., None, "'runner' is missing"),
        (("runner",), 3, "runner", "expected text, found 3"),
        (("device",), [], "device", "expected an object"),
        (("device", "cores"), 0, "device.cores", "a whole number above 0"),
        (("device", "caches", 1, "bytes"), "32K", "device.caches[1].bytes", "a whole number"),
        (("measured_at",), "yesterday", "measured_at", "an ISO 8601 time"),
        (("peaks",), [], "peaks", "does not have peaks"),
        (("peaks",), {}, "peaks", "expected an array"),
        (("peaks", 0, "threads"), 10**400, "peaks[0].threads", "a whole number above 0"),
        (("device", "caches", 0, "bytes"), 10**400, "device.caches[0].bytes", "a whole number"),
        (("conditions", "after", "load"), 10**400, "conditions.after.load", "expected a number"),
        (("peaks", 0, "gemm", 2, "dtype"), "int3", "peaks[0].gemm[2].dtype", "one of float32"),
        (("peaks", 0, "gemm", 2, "m"), True, "peaks[0].gemm[2].m", "a whole number above 0"),
        (("peaks", 1, "memory", 0), 16384, "peaks[1].memory[0]", "expected an object"),
        ((*GEMM, "flop_per_s", "median"), 0, "peaks[0].gemm[0].flop_per_s.median", "above 0"),
        ((*GEMM, "flop_per_s", "high"), 1, "peaks[0].gemm[0].flop_per_s", "between low and high"),
        (("peaks", 0, "dispatch_ns"), 7, "peaks[0].dispatch_ns", "expected an object, found 7"),
        (("conditions", "after", "load"), "much", "conditions.after.load", "expected a number"),
        (("marks",), [1], "marks[0]", "expected text"),
        (("peaks", 0, "dispatch_ns", "high"), math.inf, "peaks[0].dispatch_ns.high", "found inf"),
    ],
)
def test_a_damaged_member_is_named(
    path: tuple[Any, ...], value: Any, member: str | None, words: str
) -> None:
    with pytest.raises(FormatError, match=words) as error:
        parse_calibration(damaged(*path, value=value), "it.json")
    assert (error.value.path, error.value.member) == ("it.json", member)


def test_other_files_are_refused(tmp_path: Path) -> None:
    later = damaged("schema", value="etscope.calibration/2")
    with pytest.raises(VersionError, match=r"reads etscope\.calibration/1"):
        parse_calibration(later)
    with pytest.raises(FormatError, match=r"not a calibration: its schema is 'etscope\.run/1'"):
        parse_calibration(damaged("schema", value="etscope.run/1"))
    with pytest.raises(FormatError, match="expected an object"):
        parse_calibration([1])
    for text, words in (('{"schema": ', "broken JSON"), ("[" * 100_000, "nested|recursion")):
        (tmp_path / "broken.json").write_text(text)
        with pytest.raises(FormatError, match=words):
            read_calibration(tmp_path / "broken.json")
    large = tmp_path / "large.json"
    large.write_bytes(b" " * (5 << 20))
    with pytest.raises(FormatError, match="is too large"):
        read_calibration(large)
    with pytest.raises(MissingFileError):
        read_calibration(tmp_path / "absent.json")


def test_caches_are_read_from_sys() -> None:
    files = {}
    for core in range(2):
        caches = (
            *(f"1 Data 32K {core}", f"1 Instruction 48K {core}", f"2 Unified 512K {core}"),
            *("3 Unified 32M 0-1", "4 Unified many 0-1"),
        )
        for index, texts in enumerate(caches):
            folder = f"/sys/devices/system/cpu/cpu{core}/cache/index{index}"
            names = ("level", "type", "size", "shared_cpu_list")
            for name, text in zip(names, texts.split(), strict=True):
                files[f"{folder}/{name}"] = f"{text}\n"
    assert caches_of(files) == CALIBRATION.device.caches
    assert caches_of({}) == ()


@pytest.mark.parametrize(
    ("cpuinfo", "cpu"),
    [
        ("processor\t: 0\nmodel name\t: AMD EPYC\n\nprocessor\t: 1\n", "AMD EPYC"),
        ("processor\t: 0\nBogoMIPS\t: 2\n\nHardware\t: Qualcomm SM8550\n", "Qualcomm SM8550"),
        (
            "".join(
                f"processor\t: {core}\nCPU implementer\t: 0x41\nCPU variant\t: 0x1\n"
                f"CPU part\t: {part}\n\n"
                for core, part in enumerate(("0xd46", "0xd46", "0xd4d"))
            ),
            "Arm 0x41 0xd46, 0x41 0xd4d",
        ),
        ("processor : 0\n", ""),
    ],
)  # fmt: skip
def test_the_model_of_the_cpu(cpuinfo: str, cpu: str) -> None:
    assert conditions_of({"/proc/cpuinfo": cpuinfo}, 0.0).cpu == cpu


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("ETSCOPE_CALIBRATION", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "etscope" / "calibrations"


def test_the_calibration_that_fits_a_run_is_found(cache: Path) -> None:
    assert find_calibration(run()) is None
    python = replace(
        CALIBRATION, runner="python", measured_at=CALIBRATION.measured_at + timedelta(days=1)
    )
    phone = replace(CALIBRATION, device=CalibratedDevice(cpu="Arm 0x41 0xd4d", cores=8))
    for one in (replace(CALIBRATION, marks=("replaced",)), CALIBRATION, python, phone):
        assert keep_calibration(one).parent == cache
    assert len(list(cache.iterdir())) == 3
    (cache / "broken.json").write_text("{")
    native = find_calibration(run())
    assert native is not None
    assert (native.runner, native.marks) == ("native", CALIBRATION.marks)
    assert native.path == str(cache / "board-AMD-EPYC-2-cores-native-1.5.1.json")
    other = find_calibration(run(runner="python"))
    assert other is not None and other.runner == "python"
    far = find_calibration(run(conditions={"cpu": "Arm 0x41 0xd4d"}))
    assert far is not None and far.device.cores == 8
    assert find_calibration(run(conditions={"cpu": "AMD EPYC", "cores": 64})) is None
    assert find_calibration(run(conditions=None)) is None
    lab = find_calibration(run(conditions=None, environment={"device": {"cpu": "AMD EPYC"}}))
    assert lab is not None and lab.runner == "native"
    keep_calibration(replace(CALIBRATION, device=replace(CALIBRATION.device, name="other")))
    for name in ("board", "other"):
        mine = find_calibration(run(device=name))
        assert mine is not None and mine.device.name == name


def test_the_calibration_of_this_machine_is_found(cache: Path) -> None:
    here = conditions_here()
    if not here.cpu:
        pytest.skip("this machine does not tell its CPU")
    device = CalibratedDevice(cpu=here.cpu, cores=here.cores)
    keep_calibration(replace(CALIBRATION, device=device))
    found = find_calibration()
    assert found is not None and found.device == device


def test_a_variable_names_the_calibration(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mine.json"
    write_calibration(replace(CALIBRATION, marks=("mine",)), path)
    keep_calibration(CALIBRATION)
    monkeypatch.setenv("ETSCOPE_CALIBRATION", str(path))
    found = find_calibration(run())
    assert found is not None and found.marks == ("mine",)
    monkeypatch.setenv("ETSCOPE_CALIBRATION", "")
    assert find_calibration(run()) is None


def test_the_calibration_beside_a_run_is_of_its_device(cache: Path, tmp_path: Path) -> None:
    keep_calibration(CALIBRATION)
    job = SavedRun(run().content, str(tmp_path / "run.json"))
    found = find_calibration(job)
    assert found is not None and found.marks == CALIBRATION.marks
    write_calibration(replace(CALIBRATION, marks=("beside",)), tmp_path / "calibration.json")
    found = find_calibration(job)
    assert found is not None and found.marks == ("beside",)
    (tmp_path / "calibration.json").write_text("{}")
    with pytest.raises(FormatError, match="'schema' is missing"):
        find_calibration(job)
