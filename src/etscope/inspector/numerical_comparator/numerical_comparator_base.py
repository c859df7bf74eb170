"""The base of comparators: pairs of values in, a table of their distances out."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from etscope.analysis.metrics import measure
from etscope.errors import ComparatorError, MissingDataError
from etscope.model.table import object_column
from etscope.support.optional import require

if TYPE_CHECKING:
    import pandas as pd

    from etscope.inspector._inspector import Inspector


DebugHandle = tuple[int, ...]
IntermediateOutputMapping = dict[tuple[DebugHandle, Any], tuple[DebugHandle, Any]]
"""(handles, value) in the reference graph -> (handles, value) at run time."""

_COLUMNS = (
    "aot_debug_handle",
    "aot_ops",
    "aot_intermediate_output",
    "runtime_ops",
    "runtime_debug_handle",
    "runtime_intermediate_output",
    "gap",
)


class NumericalComparatorBase(ABC):
    """A distance of two values, and the table of it for all values of a run.

    A subclass has `element_compare`, and `preprocessing` where values must be changed first:
    dequantized, or brought into another layout.
    """

    def __init__(self, inspector: Inspector | None = None) -> None:
        self._inspector = inspector

    @property
    def inspector(self) -> Inspector | None:
        """The Inspector with the compared values; it sets itself if this is None."""
        return self._inspector

    @inspector.setter
    def inspector(self, value: Inspector | None) -> None:
        self._inspector = value

    def preprocessing(self, mapping: IntermediateOutputMapping) -> IntermediateOutputMapping:
        """Return the mapping to compare, made from the found mapping; by default the same.

        Values are tensors, or tuples of tensors for an operator with several outputs.
        """
        return mapping

    @abstractmethod
    def element_compare(self, a: Any, b: Any) -> float:
        """The distance of a value `b` of the run from a value `a` of the reference graph."""

    def compare(
        self,
        mapping: IntermediateOutputMapping,
        aot_debug_handle_to_op_names: Mapping[DebugHandle, Sequence[str]],
        runtime_debug_handle_to_op_names: Mapping[DebugHandle, Sequence[str]],
    ) -> pd.DataFrame:
        """Return a table with a row for each pair of the preprocessed mapping, in its order.

        The columns are upstream's: the handles, the names of the operators and the value on both
        sides (aot: of the reference graph), and `gap`: a list of the distances, one for each tensor
        of an operator's output; NaN for tuples without elements. Pairs with None in the place of a
        value have no row.

        Raises `ComparatorError` for a mapping in another form, and if two outputs have different
        numbers of tensors, `MissingDataError` when there is nothing to compare.
        """
        pandas = require("pandas", wanted_by="NumericalComparatorBase.compare")

        processed = self.preprocessing(mapping)
        self._validate_preprocessing_output(processed)
        rows = [
            (
                aot_handle,
                _op_names(aot_handle, aot_debug_handle_to_op_names),
                aot,
                _op_names(runtime_handle, runtime_debug_handle_to_op_names),
                runtime_handle,
                runtime,
                self._distances(aot_handle, aot, runtime),
            )
            for (aot_handle, aot), (runtime_handle, runtime) in processed.items()
            if aot is not None and runtime is not None
        ]
        if not rows:
            why = "preprocessing() left no pair" if mapping else "no value has a counterpart"
            if processed:
                why = "of every pair one value is None"
            raise MissingDataError(
                f"there is nothing to compare: {why}",
                hint="run with the debug level intermediate_outputs and keep the debug buffer",
            )
        frame: pd.DataFrame = pandas.DataFrame(
            {name: object_column([row[at] for row in rows]) for at, name in enumerate(_COLUMNS)}
        )
        return frame

    @staticmethod
    def _validate_preprocessing_output(processed: object) -> None:
        if not isinstance(processed, dict):
            raise ComparatorError(
                f"preprocessing() must return a dict, got {type(processed).__name__}",
                hint="(debug handles, value) -> (debug handles, value)",
            )
        for item in processed.items():
            for side, pair in zip(("key", "value"), item, strict=True):
                if not (isinstance(pair, tuple) and len(pair) == 2):
                    raise ComparatorError(
                        f"Invalid {side} format in preprocessed mapping: {_kind(pair)}",
                        hint="each side must be a tuple of debug handles and a value",
                    )
                if not (isinstance(pair[0], tuple) and all(isinstance(x, int) for x in pair[0])):
                    which = "AOT" if side == "key" else "runtime"
                    raise ComparatorError(
                        f"Invalid {which} debug handle in {side}: {_kind(pair[0])}",
                        hint="debug handles are a tuple of int",
                    )

    def _distances(self, handle: DebugHandle, aot: Any, runtime: Any) -> list[float]:
        """The distance of each tensor; one tensor may stand alone or in a sequence of one."""
        pairs = _items(aot), _items(runtime)
        if len(pairs[0]) != len(pairs[1]):
            raise ComparatorError(
                f"the reference has {len(pairs[0])} tensors at debug handle {handle}, "
                f"the run {len(pairs[1])}",
                hint="pair them in preprocessing()",
            )
        # A batch norm has outputs without elements: few comparators have a distance for these.
        may_be_empty = len(pairs[0]) > 1
        return [
            math.nan
            if may_be_empty and _is_empty(a) and _is_empty(b)
            else self.element_compare(a, b)
            for a, b in zip(*pairs, strict=True)
        ]


def compared(metric: str, a: Any, b: Any) -> float:
    """A metric of two values; `ComparatorError` where they are not numeric."""
    distance = measure(metric, a, b)
    if distance is None:
        raise ComparatorError(
            f"Cannot convert values of type {type(a).__name__} and {type(b).__name__} to tensors"
        )
    return distance


def _items(output: Any) -> Sequence[Any]:
    is_several = isinstance(output, Sequence) and not isinstance(output, (str, bytes))
    return output if is_several else (output,)


def _is_empty(value: Any) -> bool:
    return 0 in getattr(value, "shape", ())


def _op_names(handle: DebugHandle, names: Mapping[DebugHandle, Sequence[str]]) -> list[str]:
    """Return the operators with all handles among these."""
    handles = set(handle)
    return [op for key, ops in names.items() if handles.issuperset(key) for op in ops]


def _kind(value: object) -> str:
    text = repr(value)
    return f"{text[:100]}{'...' if len(text) > 100 else ''} ({type(value).__name__})"
