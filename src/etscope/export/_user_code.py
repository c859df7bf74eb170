"""Somebody's Python: found, imported and called, and its errors told as theirs."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from etscope.errors import EtscopeError, MissingFileError, UsageError

_FRAMES = 3


@contextmanager
def blaming(what: str) -> Iterator[None]:
    """Turn what a user's code raises into a `UsageError` with the lines that it came from.

    `what` begins the message: "models.py:make_model() fails".
    """
    try:
        yield
    except EtscopeError:
        raise
    except (Exception, SystemExit) as error:
        from etscope.bridge.failures import innermost, own_frames

        lines = "".join(f"\n  at {frame}" for frame in own_frames(error)[-_FRAMES:])
        raise UsageError(f"{what}: {innermost(error)}{lines}") from error


def import_target(target: str) -> ModuleType:
    """The module of a dotted name, seen from the current folder, or of a path to a .py file.

    The folder stays on `sys.path`, as it does when Python runs a file in it.
    """
    if target.endswith(".py"):
        return _import_file(Path(target))
    if not all(part.isidentifier() for part in target.split(".")):
        raise UsageError(
            f"{target!r} is no name of a module, and no file of that name is here",
            hint="give package.module:attribute, path/to/file.py:attribute or a .pt2 file",
        )
    _put_on_path(Path.cwd())
    with blaming(f"cannot import {target} from {Path.cwd()}"):
        return importlib.import_module(target)


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise MissingFileError(f"file not found: {path}")
    _put_on_path(path.resolve().parent)
    name = path.stem
    known = sys.modules.get(name)
    if known is not None and Path(getattr(known, "__file__", None) or "").resolve() == (
        path.resolve()
    ):
        return known
    if known is not None or not name.isidentifier():
        name = f"etscope_model_{abs(hash(str(path.resolve()))):x}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"cannot import {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where torch looks for what functions of the module refer to
    try:
        with blaming(f"cannot import {path}"):
            spec.loader.exec_module(module)
    except EtscopeError:
        del sys.modules[name]
        raise
    return module


def _put_on_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def attribute(module: ModuleType, path: str, spec: str) -> Any:
    """What "name" or "Class.method" is in the module; a method of a class's instance, bound."""
    value: Any = module
    owner: Any = module
    for name in path.split("."):
        if not hasattr(value, name):
            names = [one for one in dir(value) if not one.startswith("_")]
            close = get_close_matches(name, names)
            raise UsageError(
                f"{spec}: there is no {name!r} in {_called(value)}",
                hint=f"did you mean {close[0]!r}?" if close else None,
            )
        owner, value = value, getattr(value, name)
    if inspect.isclass(owner) and inspect.isfunction(value):
        name = value.__name__
        if not isinstance(inspect.getattr_static(owner, name, None), staticmethod):
            value = getattr(called(owner, spec.rpartition(".")[0]), name)
    return value


def _called(value: Any) -> str:
    name = getattr(value, "__name__", None) or type(value).__name__
    return f"{'module' if isinstance(value, ModuleType) else 'class'} {name}"


def called(function: Callable[[], Any], spec: str) -> Any:
    """What a function or class gives when it is called without arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of built-ins; the call will tell
        signature = inspect.Signature()
    needed = [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if needed:
        raise UsageError(
            f"{spec} needs arguments: {', '.join(needed)}",
            hint="write a function without arguments that returns (module, example_inputs), and "
            "name that",
        )
    with blaming(f"{spec}() fails"):
        return function()
