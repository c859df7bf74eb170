"""Run a script written for ExecuTorch's own developer tools, with etscope in their place.

    python -m etscope.compat SCRIPT [ARGUMENT …]
    python -m etscope.compat -m MODULE [ARGUMENT …]
    python -m etscope.compat -c CODE [ARGUMENT …]

Imports from `executorch.devtools` (until 2024 `executorch.sdk`) return the module of etscope with
that path, in the script and in the Python processes that it starts. `install` does the same for a
running program. Other modules of ExecuTorch are not replaced; scripts that only read files do not
need them.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import runpy
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from etscope.errors import MissingNameError, UsageError

__all__ = ["install", "main"]

_ROOTS = ("executorch.devtools", "executorch.sdk")
# Modules of upstream, and the modules of etscope with their names.
_ELSEWHERE = {
    "edir": "debug_format",
    "intermediate_output_tap._convenience": "intermediate_output_tap",
    "intermediate_output_tap._reducers": "intermediate_output_tap",
    "intermediate_output_tap._selectors": "intermediate_output_tap",
    "intermediate_output_tap._spec": "intermediate_output_tap",
    "intermediate_output_tap._strip_pass": "intermediate_output_tap",
    "intermediate_output_tap._tap_pass": "intermediate_output_tap",
}
# Its sitecustomize.py calls `install` when a Python process starts.
_STARTUP = Path(__file__).with_name("startup")
_HINT = "docs/appendix/differences.md, Names that are not there, says why, and what to take instead"


def install() -> None:
    """Replace `executorch.devtools` and `executorch.sdk` by etscope's modules in later imports.

    Both names refer to the same module, so that classes are identical. The import of a module that
    etscope does not have raises `MissingNameError`, an ImportError.

    Raises `UsageError` if ExecuTorch's own modules are imported already.
    """
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    loaded = [name for name in sys.modules if name in _ROOTS]
    if loaded:
        raise UsageError(
            f"{loaded[0]} is imported already",
            hint="call etscope.compat.install() before the first import",
        )
    if importlib.util.find_spec("executorch") is None:
        sys.modules["executorch"] = package = ModuleType("executorch")
        package.__path__ = []
    sys.meta_path.insert(0, _Finder())


def counterpart(name: str) -> str | None:
    """Return etscope's module for a module of upstream's developer tools; None for any other."""
    for root in _ROOTS:
        if name == root:
            return "etscope"
        if name.startswith(f"{root}."):
            path = name.removeprefix(f"{root}.")
            for old, new in _ELSEWHERE.items():
                if path == old or path.startswith(f"{old}."):
                    path = new + path.removeprefix(old)
            return f"etscope.{path}"
    return None


def _importable(name: str) -> str | None:
    """Return the counterpart of a module. Raises `MissingNameError` if etscope does not have it."""
    ours = counterpart(name)
    if ours is None:
        return None
    try:
        found = importlib.util.find_spec(ours)
    except ModuleNotFoundError:  # of the package around it
        found = None
    if found is None:
        error = MissingNameError(f"etscope has no {name}", hint=_HINT)
        error.name = name
        raise error
    return ours


def _of_checkout(module: str) -> str:
    """Return a module's name with its package: scripts in a checkout of ExecuTorch may write
    "devtools.inspector.inspector_cli". A package of that name, if there is one, stays."""
    top = module.partition(".")[0]
    is_root = f"executorch.{top}" in _ROOTS and importlib.util.find_spec(top) is None
    return f"executorch.{module}" if is_root else module


class _Finder(MetaPathFinder):
    """Finds the modules of upstream in etscope."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        ours = _importable(fullname)
        return None if ours is None else ModuleSpec(fullname, _Loader(ours))


class _Loader(Loader):
    """Loads an existing module under another name. importlib takes it from `sys.modules` and keeps
    its attributes.

    A module that is not a package gets an empty `__path__`. Without it, Python does not ask finders
    for modules below it, and `_Finder` could not report a missing one.
    """

    def __init__(self, ours: str) -> None:
        self._ours = ours

    def exec_module(self, module: ModuleType) -> None:
        ours = importlib.import_module(self._ours)
        if not hasattr(ours, "__path__"):
            ours.__path__ = []
        sys.modules[module.__name__] = ours


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the script, module or code of the command line, as `python` does.

    Its Python processes use etscope's tools, too: multiprocessing with any start method, and
    `subprocess` if the environment keeps `PYTHONPATH`.

    Raises `MissingNameError` for a name that etscope does not have, and the errors of the script.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    kind = words[0] if words[:1] in (["-m"], ["-c"]) else None
    if kind is not None:
        del words[0]
    if not words or (kind is None and words[0] in ("-h", "--help")):
        print((__doc__ or "").strip(), file=sys.stdout if words else sys.stderr)
        raise SystemExit(0 if words else UsageError.exit_code)
    install()
    # Child processes find `sitecustomize.py` on this path.
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(_STARTUP) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(_STARTUP), *filter(None, paths)])
    sys.argv = words
    try:
        if kind == "-m":
            words[0] = _of_checkout(words[0])
            runpy.run_module(_importable(words[0]) or words[0], run_name="__main__", alter_sys=True)
        elif kind == "-c":
            sys.argv = ["-c", *words[1:]]
            module = sys.modules["__main__"] = ModuleType("__main__")
            exec(compile(words[0], "<string>", "exec"), vars(module))
        elif not Path(words[0]).exists():
            print(f"etscope.compat: can't open file {words[0]!r}", file=sys.stderr)
            raise SystemExit(UsageError.exit_code)
        else:
            sys.path[0] = str(Path(words[0]).resolve().parent)
            runpy.run_path(words[0], run_name="__main__")
    except ImportError as error:
        # Python's message for a missing name.
        is_ours = str(error.name).startswith(("etscope", *_ROOTS))
        if is_ours and "cannot import name" in str(error.msg):
            raise MissingNameError(str(error.msg), hint=_HINT) from error
        raise
