"""The process that measures a job: `python -m etscope.lab.worker.measure FOLDER`.

What is in the folder when it starts:

    order.json        the order (`etscope.lab.jobs.task.Order`) as JSON
    files/…           the job's files, named as `etscope.lab.jobs.task.place_of` says

and what it leaves there:

    answer.json       {state, summary, environment, marks, error, error_slug}: see `Outcome`
    out/…             files of the job: run.etdp, values.etdp, debug.bin, outputs.npz, run.json,
                      conditions.json; of an A/B job also ab.json, and baseline.run.etdp

It says what it does, and what the runtime said, on stderr. Its exit code is 0 whenever there is an
answer: how the job went is the job's matter.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from etscope.errors import (
    DeviceLost,
    EtscopeError,
    FormatError,
    LabError,
    MissingDependencyError,
    RuntimeFailure,
)
from etscope.lab.jobs.records import DeviceConfig
from etscope.lab.jobs.spec import JobSpec, spec_of
from etscope.lab.jobs.states import State
from etscope.lab.jobs.task import place_of as place_of_file
from etscope.lab.worker._measured import Measured, TimeUp

ORDER, ANSWER, OUT = "order.json", "answer.json", "out"


def main(name: str) -> int:
    """Do the order in the folder of that name, and write down the answer."""
    folder = Path(name)
    answer = answer_to(folder)
    part = folder / f"{ANSWER}.part"
    part.write_text(json.dumps(answer))
    part.replace(folder / ANSWER)
    return 0


def answer_to(folder: Path) -> dict[str, Any]:
    """Do the order in a folder; the answer as plain JSON. Never raises."""
    names: dict[str, str] = {}
    try:
        order = json.loads((folder / ORDER).read_text())
        spec = spec_of(order["spec"])
        config = DeviceConfig(**order["device"])
        files = {
            field: folder / place_of_file(field, ref.name) for field, ref in spec.files.items()
        }
        names = {str(path): spec.files[field].name or field for field, path in files.items()}
        return _answer(_measured(spec, config, files, folder / OUT))
    except Exception as error:
        return _failure(error, names)


def state_of(error: Exception) -> State:
    """The state of a job that ended with an error."""
    if isinstance(error, DeviceLost):
        return State.DEVICE_LOST
    if isinstance(error, TimeUp):
        return State.TIMEOUT
    if isinstance(error, (RuntimeFailure, LabError, MissingDependencyError)):
        return State.FAILED
    return State.USER_ERROR if isinstance(error, EtscopeError) else State.FAILED


def _measured(spec: JobSpec, config: DeviceConfig, files: dict[str, Path], out: Path) -> Measured:
    from etscope.lab.worker.measuring import measured  # numpy and the runner come with it

    out.mkdir(exist_ok=True)
    return measured(spec, config, files, out)


def _answer(done: Measured) -> dict[str, Any]:
    return {
        "state": (State.INVALID if done.broken else State.DONE).value,
        "summary": done.summary,
        "environment": done.environment,
        "marks": list(done.marks),
        "error": "; ".join(done.broken),
        "error_slug": "",
    }


def _failure(error: Exception, names: Mapping[str, str]) -> dict[str, Any]:
    """names: what the files at these paths were called by who submitted them."""
    slug = RuntimeFailure.slug
    if isinstance(error, EtscopeError):
        print(f"error: {error}", file=sys.stderr)
        message, slug = _sentence(error), error.slug
    elif isinstance(error, TimeUp):
        print(f"error: {error}", file=sys.stderr)
        message = str(error)
    else:
        traceback.print_exc()
        message = f"the lab failed: {type(error).__name__}: {error}"
        slug = LabError.slug
    for path, name in names.items():
        message = message.replace(path, name)
    return {
        "state": state_of(error).value,
        "summary": {},
        "environment": {},
        "marks": [],
        "error": message,
        "error_slug": slug,
    }


def _sentence(error: EtscopeError) -> str:
    """An error on one line: where, what, the runtime's last word, and what to do."""
    text = error.message
    if isinstance(error, FormatError) and error.path is not None:
        text = f"{error.path}: {text}"
    if isinstance(error, RuntimeFailure) and error.log.strip():
        text += f": {error.log.strip().splitlines()[-1].strip()}"
    return text if error.hint is None else f"{text} ({error.hint})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
