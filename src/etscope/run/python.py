"""The Python runner: a job on the runtime of the `executorch` package, in a child process or in
this one.

The child finds its job in a folder, as JSON, and leaves there its result, or the error of etscope
that it raised.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from importlib.util import find_spec
from pathlib import Path

from etscope import errors
from etscope.analysis.generation.plan import task_from_json
from etscope.errors import EtscopeError, RuntimeFailure
from etscope.run.job import (
    DEBUG_BUFFER,
    ETDUMP,
    NONE,
    RESULT,
    Job,
    JobCall,
    describe_generation,
    describe_value,
    value_of,
)
from etscope.run.process import LOG, end_with_parent, failure, read_log, run_process

__all__ = ["python_missing"]

JOB = "job.json"
FAILURE = "failure.json"
_FAILED = 5  # the exit code of a `RuntimeFailure`

# The child's code. Python puts the current folder first on sys.path: a torch.py that lies there
# must not run. etscope comes last, from where it is here.
_CHILD = (
    "-c",
    "import sys; sys.path[:] = [place for place in sys.path if place]; "
    "*homes, folder = sys.argv[1:]; sys.path.extend(homes); "
    "from etscope.run.python import main; sys.exit(main(folder))",
)
_HOME = str(Path(errors.__file__).parents[1])


def python_missing() -> str | None:
    """Return why the Python runner is not available; None when it is."""
    absent = [name for name in ("torch", "executorch") if not _is_installed(name)]
    are = "are" if len(absent) > 1 else "is"
    return f"{' and '.join(absent)} {are} not installed" if absent else None


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):  # a finder refuses it, or it is loaded without a spec
        return False


def run_in_child(job: Job, folder: Path, timeout: float | None) -> None:
    """Execute a job in a new process; `etscope.run.job` lists the files it leaves in `folder`."""
    write_job(job, folder)
    line = command([sys.executable], str(folder), _HOME)
    code = run_process(line, folder, timeout, stoppable=job.generation is not None)
    conclude(code, folder)


# What a job and its calls say in the file as they do here.
_OF_JOB = ("trace", "debug_level", "debug_buffer_size", "threads")
_OF_CALL = ("method", "iterations", "warmup", "fresh")


def write_job(job: Job, folder: Path) -> None:
    """Write the job of the child, with the inputs, into `folder`."""
    generation = None
    if job.generation is not None:
        given = [
            describe_value(value, folder / f"given-{index}.raw")
            for index, value in enumerate(job.generation.given)
        ]
        generation = {"task": job.generation.to_json(), "given": given}
    calls = [
        {
            **{name: getattr(call, name) for name in _OF_CALL},
            "inputs": [
                describe_value(value, folder / f"input-{number}-{index}.raw")
                for index, value in enumerate(call.inputs)
            ],
        }
        for number, call in enumerate(job.calls)
    ]
    content = {
        **{name: getattr(job, name) for name in _OF_JOB},
        "program": str(job.program),
        "data": None if job.data is None else str(job.data),
        "libraries": [str(library) for library in job.libraries],
        "generation": generation,
        "calls": calls,
    }
    (folder / JOB).write_text(json.dumps(content), encoding="utf-8")


def _read_job(folder: Path) -> Job:
    content = json.loads((folder / JOB).read_bytes())
    generation = content["generation"]
    if generation is not None:
        given = tuple(value_of(one, folder) for one in generation["given"])
        generation = task_from_json(generation["task"], given)
    return Job(
        **{name: content[name] for name in _OF_JOB},
        generation=generation,
        program=Path(content["program"]),
        data=None if content["data"] is None else Path(content["data"]),
        libraries=tuple(map(Path, content["libraries"])),
        calls=tuple(
            JobCall(
                **{name: call[name] for name in _OF_CALL},
                inputs=tuple(value_of(one, folder) for one in call["inputs"]),
            )
            for call in content["calls"]
        ),
    )


def command(python: Sequence[str], folder: str, *homes: str) -> list[str]:
    """Return the command line of a child that does the job in `folder`. homes: folders with etscope
    for a Python that does not have it installed."""
    return [*python, *_CHILD, *homes, folder]


def conclude(code: int, folder: Path) -> None:
    """Raise the error that the child wrote, unless it ended well."""
    if code == 0:
        return
    path = folder / FAILURE
    log = read_log(folder)
    if not path.exists():
        raise failure(f"the process of the runtime ended with exit code {code}", log)
    with errors.reading("runner's failure", path):
        found = json.loads(path.read_bytes())
        kind, message, hint = getattr(errors, found["class"]), found["message"], found["hint"]
        if not (isinstance(kind, type) and issubclass(kind, EtscopeError)):
            raise TypeError(f"{found['class']} is not an error of etscope")
    if kind is RuntimeFailure:
        raise failure(message, log)
    raise kind(message, hint=hint)


def run_here(job: Job, folder: Path) -> None:
    """Execute a job in this process. When the runtime aborts, this process ends."""
    import etscope.bridge.runtime  # noqa: F401 - now: torch's loggers keep the stderr they find

    with _log_kept(folder):
        try:
            _execute(job, folder, is_own_process=False)
        except EtscopeError:
            raise
        except Exception as error:
            sys.stderr.flush()  # the log
            raise failure(_text_of(error), read_log(folder)) from error


def main(name: str) -> int:
    """Execute the job in the folder of that name; return the exit code of the child."""
    folder = Path(name)
    end_with_parent()
    kind, hint = RuntimeFailure.__name__, None
    try:
        _execute(_read_job(folder), folder, is_own_process=True)
    except EtscopeError as error:
        kind, message, hint = type(error).__name__, error.message, error.hint
    except Exception as error:
        message = _text_of(error)
    else:
        return 0
    failed = {"class": kind, "message": message, "hint": hint}
    (folder / FAILURE).write_text(json.dumps(failed), encoding="utf-8")
    return _FAILED


def _execute(job: Job, folder: Path, *, is_own_process: bool) -> None:
    from etscope.bridge.runtime import execute

    before = _memory("VmRSS")
    result = execute(
        job,
        folder / ETDUMP if job.trace else None,
        None if job.debug_level == NONE else folder / DEBUG_BUFFER,
    )
    for number, call in enumerate(result["calls"]):
        call["outputs"] = [
            describe_value(value, folder / f"output-{number}-{index}.raw")
            for index, value in enumerate(call["outputs"])
        ]
    if job.generation is not None:
        result["generation"] = describe_generation(result["generation"], folder)
    memory: dict[str, int | None] = {}
    if is_own_process:  # another holds whatever the user has in it
        memory = {"rss_before_bytes": before, "peak_rss_bytes": _memory("VmHWM")}
    (folder / RESULT).write_text(json.dumps({**result, **memory}), encoding="utf-8")


def _text_of(error: BaseException) -> str:
    return str(error).strip() or type(error).__name__


def _memory(field: str) -> int | None:
    """Read a field of Linux' /proc/self/status, in bytes. `getrusage` includes the parent's."""
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(rf"^{field}:\s*(\d+) kB", status, re.MULTILINE)
    return None if found is None else int(found[1]) * 1024


@contextmanager
def _log_kept(folder: Path) -> Iterator[None]:
    """Send the stderr of Python and of C++ to the log in `folder`."""
    sys.stderr.flush()
    kept = os.dup(2)
    with (folder / LOG).open("w", encoding="utf-8") as log:
        os.dup2(log.fileno(), 2)
        try:
            with redirect_stderr(log):  # the bindings write to Python's stderr
                yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
