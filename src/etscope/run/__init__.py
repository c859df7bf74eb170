"""Run a program on the ExecuTorch runtime; get its ETDump, debug buffer and outputs.

from etscope.run import run

done = run("model.pte")
print(done.latency.p50_ns)
done.inspector().print_data_tabular()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from etscope.support.lazy import lazy_names

if TYPE_CHECKING:
    from etscope.run._outcome import Latency, Run
    from etscope.run._run import Call, RunOptions, run
    from etscope.run._runner_host import Elsewhere, Place
    from etscope.run.generation.generate import GenerateOptions, generate
    from etscope.run.generation.outcome import GenerationRun

__all__ = [
    "Call", "Elsewhere", "GenerateOptions", "GenerationRun", "Latency", "Place", "Run",
    "RunOptions", "generate", "run",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Call": "etscope.run._run",
        "Elsewhere": "etscope.run._runner_host",
        "GenerateOptions": "etscope.run.generation.generate",
        "GenerationRun": "etscope.run.generation.outcome",
        "Latency": "etscope.run._outcome",
        "Place": "etscope.run._runner_host",
        "Run": "etscope.run._outcome",
        "RunOptions": "etscope.run._run",
        "generate": "etscope.run.generation.generate",
        "run": "etscope.run._run",
    },
)
