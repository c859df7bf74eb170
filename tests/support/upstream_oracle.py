"""What upstream's own Inspector says about the artefacts.

``python -m tests.support.upstream_oracle NAME...`` prints one JSON object: per artefact the blocks
that upstream finds, or the error it ends with. It runs in a process of its own, because it imports
torch and because upstream's reader may crash.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.artifacts import ROOT, Artifact, artifacts


def opened_by_upstream(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """``{name: {"blocks": [...]} or {"error": "Type: message"}}``, from a child process."""
    command = [sys.executable, "-m", "tests.support.upstream_oracle", *names]
    child = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if child.returncode:
        raise RuntimeError(f"upstream's reader ended with {child.returncode}:\n{child.stderr}")
    reports: dict[str, dict[str, Any]] = json.loads(child.stdout)
    return reports


def _report(artifact: Artifact) -> dict[str, Any]:
    from executorch.devtools import Inspector

    try:
        inspector = Inspector(
            etdump_path=str(artifact.etdump),
            etrecord=_text(artifact.etrecord),
            debug_buffer_path=_text(artifact.debug_buffer),
        )
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"blocks": [_block(block) for block in inspector.event_blocks]}


def _block(block: Any) -> dict[str, Any]:
    """Upstream drops all but one of equal events, so ``events`` may be below the dump's count."""
    runs = [len(event.perf_data.raw) for event in block.events if event.perf_data]
    return {
        "name": block.name,
        "bundled_input_index": block.bundled_input_index,
        "events": len(block.events),
        "runs": max(runs, default=0),
        "tensors": sum(bool(event.debug_data) for event in block.events),
        "resolved": sum(bool(event.op_types) for event in block.events),
        "outputs": len(block.run_output or ()),
    }


def _text(path: Path | None) -> str | None:
    return str(path) if path else None


def main(names: Sequence[str]) -> None:
    """All reports; what upstream prints on the way goes to stderr."""
    with contextlib.redirect_stdout(sys.stderr):
        reports = {name: _report(artifacts(name)) for name in names}
    json.dump(reports, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
