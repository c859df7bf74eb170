"""Names of modules: a person's way to say them against those in a graph."""

from __future__ import annotations

import re
from collections.abc import Iterable

from etscope.model.graph import ModuleFrame

# How torch names the root in keys: "L__self__fc1", "L__self___fc1", "L['self'].fc1".
_ROOT = re.compile(r"^(L__self___?|L\['self'\]\.?)")


def matches_module(frames: Iterable[ModuleFrame], name: str) -> bool:
    """Whether one of the modules is called `name`: its key, or a run of components of its path.

    "conv" is "blocks.0.conv" and "conv.inner", never "conv2"; underscores may stand for the dots,
    as in torch's keys ("L__self___blocks_0_conv").
    """
    wanted = _ROOT.sub("", name)
    if not wanted:
        return name in ("L__self__", "L__self___", "L['self']")
    return any(frame.key == name or _in_path(frame.path, wanted) for frame in frames)


def _in_path(path: str, wanted: str) -> bool:
    if not path:
        return False
    return f".{wanted}." in f".{path}." or path.replace(".", "_") == wanted
