"""Example inputs from texts such as "float32[1,3,224,224]", for a model that has none."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from etscope.errors import UsageError

_INPUT = re.compile(r"(?:(?P<name>[A-Za-z_]\w*)=)?(?P<dtype>[a-z]+\d*)\[(?P<sizes>[^\]]*)\]")
_SIZE = re.compile(r"(?:(?P<dim>[A-Za-z_]\w*)=(?P<low>\d{1,9})\.\.)?(?P<size>\d{1,9})")
_HINT = "for example float32[1,3,224,224], ids=int64[1,16], or [b=1..8,3,224,224] with a type"


def inputs_of_texts(texts: Sequence[str]) -> tuple[Any, Any]:
    """Return example inputs and dynamic shapes, as `torch.export.export` takes both.

    Each text is TYPE[SIZE,…] or NAME=TYPE[SIZE,…]; a size may be DIM=LOW..HIGH, which the program
    takes any value of. Floats are drawn from a normal distribution, integers are 0 or 1, which are
    indices of any table. With names the inputs are a dict; the dynamic shapes are None if no size
    is dynamic.

    Raises `UsageError` for a text of another form, and for named and unnamed ones together.
    """
    import torch

    values, shapes = [], []
    dims: dict[str, Any] = {}
    for text in texts:
        match = _INPUT.fullmatch(text.replace(" ", ""))
        dtype = None if match is None else getattr(torch, match["dtype"], None)
        if match is None or not isinstance(dtype, torch.dtype):
            raise UsageError(f"{text!r} is not an input", hint=_HINT)
        sizes: list[int] = []
        dynamic: dict[int, Any] = {}
        for index, part in enumerate(filter(None, match["sizes"].split(","))):
            size = _SIZE.fullmatch(part)
            if size is None or (size["dim"] and int(size["low"]) >= int(size["size"])):
                raise UsageError(f"{part!r} in {text!r} is not a size", hint=_HINT)
            sizes.append(int(size["size"]))
            if size["dim"]:
                made = torch.export.Dim(size["dim"], min=int(size["low"]), max=sizes[-1])
                dynamic[index] = dims.setdefault(size["dim"], made)
                if (dims[size["dim"]].min, dims[size["dim"]].max) != (made.min, made.max):
                    raise UsageError(f"{size['dim']} has two ranges", hint="give it one")
        if dtype.is_floating_point:
            values.append(torch.randn(sizes).to(dtype))
        else:
            values.append(torch.randint(0, 2, sizes).to(dtype))
        shapes.append((match["name"], dynamic))
    names = [name for name, _ in shapes if name]
    if names and len(set(names)) != len(texts):
        raise UsageError("some inputs have a name, or the same one", hint="name all, or none")
    is_dynamic = bool(dims)
    if names:
        named = dict(zip(names, values, strict=True))
        return named, (dict(shapes) if is_dynamic else None)
    return tuple(values), (tuple(one for _, one in shapes) if is_dynamic else None)
