"""Lets ExecuTorch's serializer write the constants that branches of control flow hold.

`y * 2.0` inside a branch of `torch.cond` becomes, on the way to the edge dialect, a tensor that is
an attribute of the branch. ExecuTorch (to 1.5) cannot serialize those. They are written as what
makes the same tensor: a call of `aten.full`. ExecuTorch reads and runs that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from executorch.exir.serde import export_serialize, schema
from executorch.exir.serde import serialize as exir_serialize


@contextmanager
def branch_constants_allowed() -> Iterator[None]:
    """Within it, ExecuTorch's serializer also takes tensors of one value as attributes.

    The serializer has no place for this, so its class is exchanged for the time being.
    """
    original = exir_serialize.GraphModuleSerializer
    exir_serialize.GraphModuleSerializer = _Serializer
    try:
        yield
    finally:
        exir_serialize.GraphModuleSerializer = original


_NO_HANDLE = "0"  # ExecuTorch's UNSET_DEBUG_HANDLE


class _Serializer(exir_serialize.GraphModuleSerializer):  # type: ignore[misc]
    def handle_get_attr(self, node: torch.fx.Node) -> None:
        constant = _constant(node)
        if constant is None:
            return
        self.graph_state.nodes.append(
            schema.Node(
                name=node.name,
                target="torch.ops.aten.full.default",
                inputs=[
                    _argument("size", as_ints=list(constant.shape)),
                    _argument("fill_value", **_scalar(constant)),
                    _argument("dtype", as_scalar_type=_dtype(constant)),
                ],
                outputs=[
                    schema.Argument.create(
                        as_tensor=self.serialize_tensor_output(node.name, node.meta["val"])
                    )
                ],
                metadata=self._own_metadata(node),
            )
        )

    def _own_metadata(self, node: torch.fx.Node) -> dict[str, str]:
        """Where the constant comes from. It is no operation of the model: it must not share the
        debug handle and the origins of the one that uses it."""
        metadata: dict[str, str] = self.serialize_metadata(node)
        metadata.pop("from_node", None)
        return {**metadata, "debug_handle": _NO_HANDLE}

    def serialize_input(self, arg: Any, *rest: Any) -> Any:
        if isinstance(arg, torch.fx.Node) and _constant(arg) is not None:
            return schema.Argument.create(as_tensor=schema.TensorArgument(name=arg.name))
        return super().serialize_input(arg, *rest)


def _constant(node: torch.fx.Node) -> torch.Tensor | None:
    """The tensor that the node stands for, if it is an attribute whose elements are all equal."""
    if node.op != "get_attr" or "val" not in node.meta:
        return None
    value = getattr(node.graph.owning_module, node.target, None)
    if not isinstance(value, torch.Tensor) or value.numel() == 0:
        return None
    is_uniform = value.numel() == 1 or bool((value == value.flatten()[0]).all())
    return value if is_uniform else None


def _scalar(constant: torch.Tensor) -> dict[str, Any]:
    value = constant.flatten()[0].item()
    if isinstance(value, bool):
        return {"as_bool": value}
    return {"as_int": value} if isinstance(value, int) else {"as_float": value}


def _dtype(constant: torch.Tensor) -> Any:
    return export_serialize._TORCH_TO_SERIALIZE_DTYPE[constant.dtype]


def _argument(name: str, **value: Any) -> Any:
    return schema.NamedArgument(name=name, arg=schema.Argument.create(**value))
