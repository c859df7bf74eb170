"""Run a program on the ExecuTorch runtime, and get its ETDump, debug buffer and outputs.

from etscope.run import run

done = run("model.pte")
print(done.latency.p50_ns)
done.inspector().print_data_tabular()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from etscope.run._calls import Call
    from etscope.run._latency import Latency
    from etscope.run._outcome import Run
    from etscope.run._run import run

__all__ = ["Call", "Latency", "Run", "run"]

_HOMES = {"Call": "_calls", "Latency": "_latency", "Run": "_outcome", "run": "_run"}


def __getattr__(name: str) -> Any:
    # Loaded when used: the process that holds the runtime needs none of them.
    if name not in _HOMES:
        raise AttributeError(f"module 'etscope.run' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"etscope.run.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
