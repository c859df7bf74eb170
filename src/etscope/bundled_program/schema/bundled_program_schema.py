"""The schema's classes by the path that upstream gives them."""

from etscope.bundled_program.schema import *  # noqa: F403
from etscope.bundled_program.schema import __all__ as __all__
