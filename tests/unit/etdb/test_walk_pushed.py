"""A run that passes over what does not interest stops where one does that looks at everything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from etscope.etdb import Session
from etscope.etdb.protocol.messages import Condition
from etscope.etdb.targets.recorded import RecordedRuns
from etscope.etdb.targets.target import Stop, Watch
from tests.support.etdb.sessions import session

SCRIPTS = {
    "nan": ("watch nan", "run", "continue", "info breakpoints", "reverse-continue"),
    "range": ("watch $.max() > 3", "run", "c", "c 2", "rc", "rc", "continue 50", "rs 2", "info b"),
    "place": ("break op:relu", "tbreak op:softmax", "run", "c", "c", "c", "c", "c", "c", "rc 3"),
    "both": ("watch $.min() < -2", "break op:add", "run", "c", "c", "c", "rc", "rc", "run", "i b"),
    "other": ("break op:conv* if $.mean() > 0", "watch nan", "run", "c", "c", "c", "rc", "i b"),
    "moves": ("watch $.max() > 3", "start", "next", "next", "finish", "until op:softmax", "rn",
              "reverse-finish", "rs 3", "rc"),
    "none": ("watch $.max() > 1e9", "run", "rc", "step", "c"),
    "never": ("break id:0 if $.max() > 1e9", "start", "c"),
    "small": ("break op:relu if $.max() > 2", "run", "c", "disable 1", "c", "enable 1", "rc"),
}  # fmt: skip


class Pushing(RecordedRuns):
    """A recorded run that is walked as one that runs elsewhere."""

    keeps_values = False
    stands_at: int
    requests: int

    def restart(self) -> None:
        self.requests = 0

    def reach(self, position: int) -> None:
        self.stands_at = position

    def go(
        self, start: int, wanted: Callable[[Stop], bool], watches: Sequence[Watch] = ()
    ) -> int | None:
        self.requests += 1
        for stop in self.stops[start + 1 :]:
            held = any(w.at(stop) and self._holds(w, stop.position) for w in watches)
            if held or wanted(stop):
                self.stands_at = stop.position
                return stop.position
        return None

    def _holds(self, watch: Watch, position: int) -> bool:
        tests: dict[Condition, Callable[[Any], Any]] = {
            Condition.NAN: np.isnan,
            Condition.INF: np.isinf,
            Condition.BELOW: lambda array: array < watch.bound,
            Condition.ABOVE: lambda array: array > watch.bound,
        }
        return any(np.any(tests[watch.condition](v)) for v in self.device_values(position))


def pushed(name: str) -> Session:
    one = session(name)
    debugger = one.debugger
    assert debugger.trace is not None
    debugger.begin(Pushing(debugger.trace))
    return one


@pytest.mark.parametrize("name", ["cnn_portable", "nan_output"])
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_run_elsewhere_stops_where_a_recorded_one_does(name: str, script: str) -> None:
    one, other = session(name), pushed(name)
    one.execute("set times off")
    other.execute("set times off")
    for line in SCRIPTS[script]:
        told, again = one.execute(line), other.execute(line)
        assert again.text == told.text, line
        assert again.exit_code == told.exit_code, line
        assert one.debugger.position == other.debugger.position, line
        counts = [
            [(b.number, b.hits, b.looked, b.unknown) for b in s.debugger.breakpoints]
            for s in (one, other)
        ]
        if line == "run" or line[0] != "r":
            assert counts[0] == counts[1], line
        if other.debugger.stop is not None:
            target = other.debugger.target
            assert isinstance(target, Pushing)
            assert target.stands_at == other.debugger.position, line
        for s in (one, other):
            s.debugger.breakpoints.begin()


def test_a_run_without_stops_is_one_request() -> None:
    one = pushed("cnn_portable")
    for line in ("watch nan", "watch $.abs().max() > 1e9", "break op:relu if isinf($)", "run"):
        assert one.execute(line).ok
    target = one.debugger.target
    assert isinstance(target, Pushing)
    assert target.requests == 1
    looked = [point.looked for point in one.debugger.breakpoints]
    assert looked == [len(target.stops), len(target.stops), 6]
