"""Let a Python process that `python -m etscope.compat` started take etscope's modules as well.

Python imports the first `sitecustomize` on its path. The one that this hides, if any, is run, too.
"""

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

from etscope import compat

compat.install()
_place = str(Path(__file__).parent)
sys.path[:] = [path for path in sys.path if path != _place]
_hidden = PathFinder.find_spec("sitecustomize", sys.path)
if _hidden is not None and _hidden.loader is not None:
    sys.modules["sitecustomize"] = module_from_spec(_hidden)
    _hidden.loader.exec_module(sys.modules["sitecustomize"])
