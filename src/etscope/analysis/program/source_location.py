"""Source locations of events: the line of the user's Python and the module."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path, PurePath

from etscope.model.graph import ModuleFrame, Node, SourceLine, source_lines

# -- Names of modules, as users write them and as graphs store them.

# How torch names the root in keys: "L__self__fc1", "L__self___fc1", "L['self'].fc1".
_ROOT = re.compile(r"^(L__self___?|L\['self'\]\.?)")


def matches_module(frames: Iterable[ModuleFrame], name: str) -> bool:
    """Return whether one of the modules has the name `name`: as its key, or as consecutive
    components of its path.

    "conv" matches "blocks.0.conv" and "conv.inner", but not "conv2"; underscores may replace the
    dots, as in torch's keys ("L__self___blocks_0_conv").
    """
    wanted = _ROOT.sub("", name)
    if not wanted:
        return name in ("L__self__", "L__self___", "L['self']")
    return any(
        frame.key == name
        or f".{wanted}." in f".{frame.path}."
        or frame.path.replace(".", "_") == wanted
        for frame in frames
    )


# A model built only from the framework's modules (`nn.Sequential`) has no user line, and the line
# of the exporter that called it would not help. For its checks of dynamic sizes, torch stores
# "torch/fx/passes/runtime_assert.py", without a folder. ExecuTorch's examples are models:
# `export_llm` exports its Llama from there.
_FRAMEWORK = re.compile(r"(^|/(site|dist)-packages/)(torch|torchao|executorch(?!/examples))/")
# The wrapper that `etscope export` puts around a language model is shown only if no other line is
# known.
_AROUND = re.compile(r"(^|/)etscope/bridge/language_models/")


def user_line(stack_trace: str | None) -> SourceLine | None:
    """Return the line of a stack to show: the user's innermost frame.

    The user's frames are in the files and folders of $ETSCOPE_MINE, if the stack has any; else
    outside torch, torchao and executorch, or in ExecuTorch's examples. None without a user's frame.
    """
    return _user_line(stack_trace, os.environ.get(MINE, ""))


# The environment variable with the user's files and folders, separated as in $PATH.
MINE = "ETSCOPE_MINE"


@lru_cache(maxsize=4096)
def _user_line(stack_trace: str | None, mine: str) -> SourceLine | None:
    lines = user_lines(source_lines(stack_trace), mine)
    return lines[0] if lines else None


def user_lines(frames: Sequence[SourceLine], mine: str | None = None) -> tuple[SourceLine, ...]:
    """Return the line of a stack to show, as a tuple of one or none; see `user_line`.

    mine: replaces $ETSCOPE_MINE.
    """
    # Code that torch made and ran is in no file: "<eval_with_key>.12", "<string>".
    written = [
        frame
        for frame in reversed(frames)
        if not frame.file.startswith("<") and not _FRAMEWORK.search(frame.file)
    ]
    paths = _paths(os.environ.get(MINE, "") if mine is None else mine)
    own = [frame for frame in written if any(_is_below(frame.file, path) for path in paths)]
    models = [frame for frame in written if not _AROUND.search(frame.file)]
    return tuple((own or models or written)[:1])


def _is_below(file: str, path: Path) -> bool:
    """Return whether a file is the path or in it, but not in a virtual environment there."""
    found = PurePath(file)
    if not found.is_relative_to(path):
        return False
    return not {"site-packages", "dist-packages"} & set(found.relative_to(path).parts)


@lru_cache(maxsize=8)
def _paths(mine: str) -> tuple[Path, ...]:
    return tuple(Path(path).absolute() for path in mine.split(os.pathsep) if path)


def lines_of(nodes: Iterable[Node]) -> tuple[SourceLine, ...]:
    """Return the distinct lines to show of the nodes, in their order."""
    lines = (user_line(node.stack_trace) for node in nodes)
    return tuple(dict.fromkeys(line for line in lines if line is not None))


def innermost_lines_of(nodes: Iterable[Node]) -> tuple[SourceLine, ...]:
    """`lines_of` with libraries' lines, whatever $ETSCOPE_MINE is."""
    lines = (_user_line(node.stack_trace, "") for node in nodes)
    return tuple(dict.fromkeys(line for line in lines if line is not None))


# torch's name for the root of a control-flow branch, which it traces as a separate module.
_BRANCH_ROOT = "_export_root"
# torch's name for the module of a size that the exporter reads.
_NO_MODULE = "_empty_nn_module_stack_from_metadata_hook"


def is_located(node: Node) -> bool:
    return bool(node.modules) and user_line(node.stack_trace) is not None


def module_path(node: Node) -> str | None:
    """Path of the innermost module that the node was made in; "" is the root, None unknown."""
    if not node.modules or node.modules[-1].path == _NO_MODULE:
        return None
    path = node.modules[-1].path
    return "" if path == _BRANCH_ROOT else path.removeprefix(_BRANCH_ROOT + ".")


def module_type(node: Node) -> str | None:
    """Type of the node's innermost module without its package ("Conv2d")."""
    return None if module_path(node) is None else node.modules[-1].type.rpartition(".")[2]


def common_module(nodes: Iterable[Node]) -> str | None:
    """Path of the innermost module that contains all nodes.

    None if no node has a module; nodes without one (made by a pass) do not count.
    """
    paths = {path for node in nodes if (path := module_path(node)) is not None}
    if not paths:
        return None
    split = [path.split(".") if path else [] for path in paths]
    shared: list[str] = []
    for parts in zip(*split, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return ".".join(shared)


def block_family(path: str) -> str:
    """The path with the number of its outermost numbered block as "*": "layer.*.attention"."""
    parts = path.split(".")
    for position, part in enumerate(parts[:-1]):
        if part.isdigit():
            return ".".join([*parts[:position], "*", *parts[position + 1 :]])
    return path


def short_lines(lines: Sequence[SourceLine]) -> str:
    """The lines for a table cell: "model.py:34", or "model.py:34 +2" when there are others."""
    if not lines:
        return ""
    first = f"{PurePath(lines[0].file).name}:{lines[0].line}"
    return first if len(lines) == 1 else f"{first} +{len(lines) - 1}"
