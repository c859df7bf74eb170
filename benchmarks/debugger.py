"""Measure the waits of the debugger: its start, a step, a completion."""

from __future__ import annotations

from benchmarks.side import Cost, measured, process
from tests.support.artifacts import Artifact, artifacts

_OPEN = """
from etscope.etdb import Session
from etscope.etdb.session import Completer
"""


def started() -> Cost:
    """CPU of a whole process: the record and dump of BERT base opened, at the first operator."""
    made = artifacts("bert_base_xnnpack")
    files = [str(made.etrecord), str(made.etdump)]
    return process("-m", "etscope.etdb", *files, "--batch", "-ex", "start", repeats=5, cpu=True)


def stepped() -> Cost:
    """One of 500 steps through BERT on portable kernels, back and forth."""
    cost = _in_session(
        artifacts("bert_portable"),
        "session.execute('start')",
        "for _ in range(250): session.execute('step')\n"
        "for _ in range(250): session.execute('reverse-step')",
    )
    return Cost(cost.seconds / 500, cost.peak)


def completed() -> Cost:
    """One of 100 completions among more than 3,000 nodes, of which all begin so."""
    cost = _in_session(
        artifacts("wide"),
        "completer = Completer(session.debugger); completer.complete('print a')",
        "for _ in range(100): completer.complete('print a')",
    )
    return Cost(cost.seconds / 100, cost.peak)


def _in_session(made: Artifact, prepare: str, code: str) -> Cost:
    files = ", ".join(repr(str(path)) for path in (made.etrecord, made.etdump))
    return measured(f"{_OPEN}\nsession = Session({files})", code, repeats=3, prepare=prepare)
