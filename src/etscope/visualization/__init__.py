"""Upstream's `executorch.devtools.visualization`: programs in Model Explorer's page.

`etscope graph` and `etscope report` draw graphs without Model Explorer, with times and errors.
"""

from __future__ import annotations

from etscope.visualization.visualization_utils import (
    ModelExplorerServer,
    SingletonModelExplorerServer,
    visualize,
    visualize_graph,
    visualize_model_explorer,
    visualize_with_clusters,
)

__all__ = [
    "ModelExplorerServer",
    "SingletonModelExplorerServer",
    "visualize",
    "visualize_graph",
    "visualize_model_explorer",
    "visualize_with_clusters",
]
