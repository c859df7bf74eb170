"""`etscope doctor`: show what is installed, and how to install what is missing."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from etscope.cli.options.common import output_options
from etscope.cli.output.tables import OutputOptions
from etscope.cli.verb import verb

if TYPE_CHECKING:
    from etscope.model.table import Table

_SECONDS = 120  # a cold import of torch and executorch takes ten
_RUNTIME = """
import json
from executorch.runtime import Runtime
runtime = Runtime.get()
print(json.dumps([sorted(runtime.backend_registry.registered_backend_names),
                  len(runtime.operator_registry.operator_names)]))
"""
_USES = {
    "agent": "etscope agent mcp",
    "debugger": "the prompt of etdb: completion, history",
    "llm": "etscope export of language models",
    "model-explorer": "graphs for Model Explorer",
    "notebook": "reports in cells of notebooks",
    "pandas": "to_dataframe() of the Inspector",
    "parquet": "tables in Parquet",
    "perfetto": "timelines for Perfetto",
    "plot": "plots of the Inspector",
    "safetensors": "weights and values in safetensors files",
    "serve": "etscope report --serve",
    "tensorboard": "etscope report --tensorboard",
    "tokenizers": "text as input of language models",
}
_OK, _MISSING, _BROKEN, _OLD = "ok", "missing", "broken", "too old"


class _Part(NamedTuple):
    """One row: a part of the installation. fix: the line that installs it, if it is not there."""

    part: str
    state: str
    version: str | None
    used_for: str
    fix: str | None = None


@verb({"Output": ("--format",)})
@partial(output_options, to_file=False)
def command(output: OutputOptions) -> int:
    """Show what of ExecuTorch and of etscope's extras is installed, and how to install the rest.

    \b
    etscope doctor
    etscope doctor --format json

    Exit code: 5 if models cannot be exported and run on this machine.
    """
    from etscope.cli.output.progress import progress

    with progress("looking at the installation"):
        needed = [*_needed()]
        others = [*_native(), *_backends(), *_extras(), *_completion()]
    output.write_tables([_table([*needed, *others])])
    return 0 if all(part.state == _OK for part in needed) else 5


def _table(parts: list[_Part]) -> Table:
    from etscope._version import __version__
    from etscope.model.table import Column, Table

    columns = [
        Column("part"),
        Column("state"),
        Column("version"),
        Column("used_for", priority=1),
        Column("fix", is_sentence=True),
    ]
    system = f"{platform.system()} {platform.machine()}"
    title = f"etscope {__version__}, Python {platform.python_version()}, {system}"
    return Table.of_rows(columns, parts, title=title)


def _needed() -> Iterator[_Part]:
    """Yield the parts that `etscope run MODEL` needs."""
    install = "pip install 'etscope[torch]'"
    for name in ("torch", "executorch"):
        version = _version(name)
        state = _OK if version else _MISSING
        if version and _numbers(version) < _oldest(name):
            state = _OLD
        yield _Part(name, state, version, "export and run", None if state == _OK else install)
    if not _is_there("executorch"):
        return
    state, told = _runtime()
    # An executorch that was built for another torch cannot be imported.
    fix = None if state == _OK else f"{install}: torch and executorch do not fit together"
    yield _Part("runtime", state, told, "run", fix)


def _runtime() -> tuple[str, str]:
    """Load the runtime in a separate process, which it can abort. Return its state, with its
    backends and kernels, or the last line of its error."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _RUNTIME],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _BROKEN, f"it does not load within {_SECONDS} s"
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return _BROKEN, lines[-1] if lines else f"exit code {done.returncode}"
    backends, kernels = json.loads(done.stdout.splitlines()[-1])
    return _OK, f"{', '.join(backends)}; {kernels} kernels"


def _native() -> Iterator[_Part]:
    from etscope.run.native import native_missing

    missing = native_missing()
    state = _OK if missing is None else _MISSING
    yield _Part("native runner", state, None, "run and debug without Python", missing)


def _backends() -> Iterator[_Part]:
    """Yield the backends that models can be exported for, with their own packages."""
    from etscope.backends.registry.exports import BACKENDS

    for name, backend in BACKENDS.items():
        missing = not all(map(_is_there, backend.requires))
        fix = f"pip install 'etscope[{name}]'" if missing else None
        yield _Part(f"backend {name}", _MISSING if missing else _OK, None, backend.summary, fix)


def _extras() -> Iterator[_Part]:
    """Yield the other extras of etscope, with the versions of their packages."""
    from etscope.backends.registry.exports import BACKENDS
    from etscope.support.optional import EXTRAS

    distributions = metadata.packages_distributions()
    for extra in dict.fromkeys(EXTRAS.values()):
        if extra is None or extra in BACKENDS or extra == "torch":
            continue
        packages = [package for package, own in EXTRAS.items() if own == extra]
        missing = not all(map(_is_there, packages))
        known = (next(iter(distributions.get(one, [one]))) for one in packages)
        versions = ", ".join(f"{name} {version}" for name in known if (version := _version(name)))
        fix = f"pip install 'etscope[{extra}]'" if missing else None
        state = _MISSING if missing else _OK
        yield _Part(f"extra {extra}", state, versions or None, _USES.get(extra, ""), fix)


# The file that each shell reads.
_SHELLS = {"bash": ".bashrc", "zsh": ".zshrc", "fish": ".config/fish/config.fish"}


def _completion() -> Iterator[_Part]:
    """Yield whether the user's shell completes etscope's commands; nothing for other shells."""
    shell = Path(os.environ.get("SHELL", "")).name
    if shell not in _SHELLS:
        return
    line = f"etscope --completion {shell}"
    script = f"{line} | source" if shell == "fish" else f'eval "$({line})"'
    fix: str | None = f"echo '{script}' >> ~/{_SHELLS[shell]}"
    with suppress(OSError, RuntimeError):  # there is no such file, or no home
        text = (Path.home() / _SHELLS[shell]).read_text(encoding="utf-8", errors="replace")
        fix = None if line in text else fix
    state = _MISSING if fix else _OK
    yield _Part("completion", state, shell, "Tab completes commands and options", fix)


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _oldest(distribution: str) -> tuple[int, ...]:
    """Return the oldest version that etscope's extra `torch` takes; () if it does not say."""
    wanted = re.compile(rf"{distribution}>=([\d.]+).*extra == ['\"]torch['\"]")
    try:
        found = map(wanted.match, metadata.requires("etscope") or ())
    except metadata.PackageNotFoundError:  # sources that are not installed
        return ()
    return next((_numbers(one[1]) for one in found if one is not None), ())


def _numbers(version: str) -> tuple[int, ...]:
    """Return (2, 13) of "2.13.0+cpu"."""
    return tuple(int(part) for part in version.split("+")[0].split(".")[:2] if part.isdigit())
