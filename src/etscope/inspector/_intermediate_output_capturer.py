"""Upstream's `executorch.devtools.inspector._intermediate_output_capturer`: the value of each call
of an fx graph by debug handle.

`etscope.bridge.reference` is what etscope itself compares with: by node, not by handle.
"""

from __future__ import annotations

from typing import Any

from etscope.inspector._inspector_utils import DebugHandle, NodeFilter, as_debug_handle
from etscope.support.optional import require

__all__ = ["IntermediateOutputCapturer"]


class IntermediateOutputCapturer:
    """Runs a `torch.fx.GraphModule` and keeps the values of the nodes that all `node_filters` pick:
    calls with a debug handle, `getitem` left out."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.node_filters = [NodeFilter("debug_handle", "call_function", exclude_ops=["getitem"])]

    def run_and_capture(self, *args: Any, **kwargs: Any) -> dict[DebugHandle, Any]:
        """Run the module; returns copies of the values by debug handle. Where nodes share one, the
        last of them counts."""
        fx = require("torch.fx", wanted_by="IntermediateOutputCapturer")
        torch = require("torch", wanted_by="IntermediateOutputCapturer")
        captured: dict[DebugHandle, Any] = {}
        filters = self.node_filters

        def copied(value: Any) -> Any:
            if isinstance(value, (tuple, list)):
                return [copied(item) for item in value]
            return value.detach().clone() if isinstance(value, torch.Tensor) else value

        class Capturing(fx.Interpreter):  # type: ignore[misc, name-defined]
            def run_node(self, node: Any) -> Any:
                value = super().run_node(node)
                if all(one.matches(node) for one in filters):
                    captured[as_debug_handle(node.meta["debug_handle"])] = copied(value)
                return value

        Capturing(self.module).run(*args, **kwargs)
        return captured
