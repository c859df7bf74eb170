"""An engine in a process of its own, to be killed: `python engine.py HOME [LEASE_SECONDS]`."""

from __future__ import annotations

import signal
import sys
import threading

from etscope_lab.engine import Engine, EngineOptions
from etscope_lab.lab import Lab


def main(home: str, lease_seconds: str = "3") -> None:
    ends = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ends.set())
    options = EngineOptions(lease_seconds=float(lease_seconds))
    with Lab.open(home) as lab:
        lab.engine = Engine(lab.home, lab.database, options, lab._notify)
        lab.engine.start()
        print("started", flush=True)
        ends.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
