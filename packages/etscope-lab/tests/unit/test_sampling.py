"""What readings during a run say of its executions: which were disturbed, and how a sustained load
went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etscope.errors import DeviceLost
from etscope.formats.conditions import Conditions
from etscope.run.remote import Completed
from etscope_lab.worker import sampling
from etscope_lab.worker.sampling import Course, Watched
from tests.support.waiting import until

END = 1000.0
READING = Conditions(temperature_c=50.0, frequencies_mhz=(2000.0, 1500.0), cores=4)


def _samples(*levels_ms: float, count: int = 1000, noise: float = 0.01) -> Any:
    draw = np.random.default_rng(4)
    times = np.repeat(levels_ms, count) * (1 + noise * draw.standard_normal(count * len(levels_ms)))
    return (times * 1e6).astype(np.int64)


def _every_second(samples: Any, **fields: Sequence[Any]) -> list[Conditions]:
    """A reading in each second of the run, with these values in order, the last one repeated."""
    seconds = int(samples.sum() / 1e9)
    return [
        replace(
            READING,
            at=END - seconds + n,
            **{name: values[min(n, len(values) - 1)] for name, values in fields.items()},
        )
        for n in range(seconds)
    ]


def test_readings_are_placed_by_the_end_of_the_run() -> None:
    samples = np.full(10, 1_000_000_000)  # from 990 to 1000 s
    at = (989.5, 990.5, 995.2, 999.9, 1000.1)
    readings = [replace(READING, at=one) for one in at]
    course = Course.of(samples, END, readings, 1)
    assert [execution for execution, _ in course.readings] == [1, 6, 10]
    shown = course.to_json(readings)
    assert [one.get("execution") for one in shown] == [None, 1, 6, 10, None]
    assert not any("disturbance" in one for one in shown)
    assert course.disturbed() == (0.0, "")
    assert Course.of(samples, END, [], 1).disturbed() == (0.0, "")


@pytest.mark.parametrize(
    ("fields", "threads", "words"),
    [
        ({"busy_s": (0, 1, 2, 4.4)}, 1, "other programs used the CPU"),
        ({"busy_s": (0, 1, 2, 4.4)}, 2, ""),  # two threads may use two cores, and 0.4 is noise
        ({"busy_s": (0, 1, 2, 4.4)}, None, ""),
        ({"stolen_s": (0, 0, 0, 0.3)}, 2, "other virtual machines took time of the CPU"),
        ({"stolen_s": (0, 0, 0, 0.1)}, 2, ""),
        ({"frequencies_mhz": ((2000,), (2000,), (2000,), (1700,), (2000,))}, 2,
         "the clock was lower than before or after"),
        ({"frequencies_mhz": ((2000,), (2000,), (2000,), (1900,), (2000,))}, 2, ""),
        ({"frequencies_mhz": ((),)}, 2, ""),
    ],
)  # fmt: skip
def test_disturbed_executions(fields: Mapping[str, Any], threads: int | None, words: str) -> None:
    samples = np.full(100, 100_000_000)  # 10 s
    readings = _every_second(samples, **fields)
    course = Course.of(samples, END, readings, threads)
    share, reason = course.disturbed()
    assert (share, reason) == (pytest.approx(0.1 if words else 0.0), words)
    shown = [one.get("disturbance") for one in course.to_json(readings)]
    assert [n for n, why in enumerate(shown) if why] == ([3] if words else [])


# -- a sustained load


def _sustained(samples: Any, **fields: Sequence[Any]) -> dict[str, Any]:
    return Course.of(samples, END, _every_second(samples, **fields), 1).sustained()


def test_a_steady_load() -> None:
    found = _sustained(_samples(30.0))
    assert (found["verdict"], found["executions"]) == ("steady", 1000)
    assert found["seconds"] == pytest.approx(30, rel=0.01)
    assert found["begin_ms"] == found["end_ms"] == pytest.approx(30, rel=0.01)
    assert "after_s" not in found


def test_throttling_has_a_lower_clock() -> None:
    samples = _samples(20.0, 26.0)  # 20 s, then 26 s
    clocks = [(2000.0,)] * 20 + [(1500.0,)]
    found = _sustained(samples, frequencies_mhz=clocks, temperature_c=[60.0] * 20 + [91.0])
    assert found["verdict"] == "throttled"
    assert found["reason"] == "the clock fell from 2000 to 1500 MHz at 91 °C"
    assert found["relative"] == pytest.approx(0.3, abs=0.02)
    assert found["after_s"] == pytest.approx(20, abs=1)  # a part is 0.8 s
    held = _sustained(samples, frequencies_mhz=[(2000.0,)])
    assert held["verdict"] == "slower"
    assert held["reason"].startswith("not by the clock, which was 2000 and is 2000 MHz")
    unknown = _sustained(samples, frequencies_mhz=[()])
    assert unknown["verdict"] == "slower"
    assert unknown["reason"] == "the clock is not known, so this may be throttling"


def test_what_is_no_throttling() -> None:
    assert _sustained(_samples(26.0, 20.0))["verdict"] == "faster"
    assert _sustained(_samples(20.0, 20.6))["verdict"] == "steady"  # less than 5 %
    back = _sustained(_samples(20.0, 26.0, 20.0))
    assert (back["verdict"], back["reason"]) == (
        "cannot tell", "the times changed, and changed back",
    )  # fmt: skip
    turns = _sustained(_samples(*(20.0, 26.0) * 6, count=100))
    assert (turns["verdict"], turns["reason"]) == (
        "cannot tell", "the times alternate between levels",
    )  # fmt: skip
    late = _sustained(np.concatenate([_samples(20.0, count=900), _samples(26.0, count=50)]))
    assert (late["verdict"], late["reason"]) == (
        "cannot tell", "the last change is too near to the end: give a longer duration_seconds",
    )  # fmt: skip
    few = _sustained(_samples(20.0, count=99))
    assert few["verdict"] == "cannot tell"
    assert few["reason"] == "99 executions are too few: give a longer duration_seconds"


def test_one_long_execution_covers_parts_of_its_own() -> None:
    samples = _samples(20.0, count=200)
    samples[100] = 2_000_000_000
    assert _sustained(samples)["verdict"] == "steady"


@pytest.mark.parametrize("noise", [0.002, 0.01, 0.05])
def test_steady_loads_are_seldom_said_to_throttle(noise: float) -> None:
    draw = np.random.default_rng(9)
    said = []
    for _ in range(200):
        walk = np.repeat(draw.normal(0, noise / 2, 30), 100)  # the machine, second by second
        samples = 10e6 * np.exp(walk + draw.normal(0, noise, 3000))
        said.append(_sustained(samples.astype(np.int64))["verdict"])
    assert said.count("slower") <= 1 and said.count("throttled") == 0


# -- readings while a command runs


class _Device:
    """A driver whose commands take as long as the test lets them."""

    def __init__(self, wanted: int) -> None:
        self.looks = 0
        self.wanted = wanted

    def look(self) -> None:
        self.looks += 1
        if self.looks == 3:
            raise DeviceLost("gone")

    def call(self, command: Sequence[str], timeout: float | None) -> Completed:
        until(lambda: self.looks >= self.wanted)
        return Completed(0, str(command))

    def push(self, files: Mapping[Path, str]) -> None: ...

    def pull(self, names: Sequence[str], folder: Path) -> None: ...


def test_a_command_is_watched_until_the_device_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "_EVERY", 0.01)
    device: Any = _Device(3)
    watched = Watched(device, device.look)
    assert watched.call(["run"], None).code == 0
    assert device.looks == 3  # the third one failed: no more
    [(begin, end)] = watched.spans
    assert end > begin
    device.wanted = 0
    watched.call(["short"], None)
    assert len(watched.spans) == 2
