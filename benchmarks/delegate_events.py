"""A million events of delegates: reading the dump, decoding, and the profile with its table."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.side import Cost, measured
from tests.support.delegate_dumps import Log, coreml, dump_of, qnn, vulkan

RUNS, EVENTS = 1_000, 1_000

_SETUP = """
from etscope.analysis.tables.profile_table import profile_table
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.trace import Trace
from etscope.formats.etdump.reader import read_etdump
from etscope.units import TimeScale
"""
_CODE = """
trace = Trace(read_etdump({path!r}))
assert len(trace.events.row) >= 1_000_000, len(trace.events.row)
result = [profile_table(one, Scale(TimeScale.NS, TimeScale.MS)) for one in trace.profiles()]
"""


def decoded(backend: str) -> Cost:
    """Seconds of a dump of `RUNS` runs with `EVENTS` events each, as that backend writes them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "etdump.etdp"
        path.write_bytes(dump_of(*[_LOGS[backend]()] * RUNS, call=(1_000, 900_000)))
        return measured(_SETUP, _CODE.format(path=str(path)), repeats=3)


def _qnn() -> Log:
    return qnn([(f"conv_{number}", 100 + number) for number in range(EVENTS)])


def _vulkan() -> Log:
    return vulkan(
        [(f"aten.op{number}.default", f"kernel_{number}", number, 90) for number in range(EVENTS)]
    )


def _coreml() -> Log:
    operations = [
        (f"op_{number}", f"op_{number}_cast", "ios16.conv", ("NE", "GPU", "CPU")[number % 3], 1e-3)
        for number in range(EVENTS)
    ]
    return coreml(operations, length=800_000)


_LOGS: dict[str, Callable[[], Log]] = {"qnn": _qnn, "vulkan": _vulkan, "coreml": _coreml}
