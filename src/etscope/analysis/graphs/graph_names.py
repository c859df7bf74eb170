"""Names of a record's graphs: short ones for people, and back."""

from __future__ import annotations

from difflib import get_close_matches

from etscope.analysis.profile.symbols import EDGE_GRAPH
from etscope.errors import MissingDataError, UsageError
from etscope.formats.etrecord.reader import EDGE, EXPORTED, RecordView

_SHORT = {EDGE: "edge", EXPORTED: "exported"}
_LONG = {"edge": EDGE, EDGE_GRAPH: EDGE, "exported": EXPORTED}


def short_name(name: str) -> str:
    """A graph's name for people: "edge/forward" for "edge_dialect_exported_program/forward"."""
    head, slash, method = name.partition("/")
    return _SHORT.get(head, head) + slash + method


def find_graph(record: RecordView, wanted: str) -> str:
    """The name in the record of the graph that a person calls `wanted`.

    That is its name in the file, its short name, or a part of either that no other graph has:
    "edge", "forward". Raises `UsageError` if several graphs could be meant, `MissingDataError` if
    there is none.
    """
    head, slash, method = wanted.partition("/")
    full = _LONG.get(head, head) + slash + method
    names = record.graph_names
    if full in names:
        return full
    found = [n for n in names if n.startswith(full + "/") or n.endswith("/" + wanted)]
    if len(found) > 1:
        raise UsageError(
            f"several graphs could be meant by {wanted!r}",
            hint="name one of: " + ", ".join(map(short_name, found)),
        )
    if not found:
        raise _missing(record, wanted)
    return found[0]


def _missing(record: RecordView, wanted: str) -> MissingDataError:
    known = [short_name(name) for name in record.graph_names]
    heads = dict.fromkeys(name.partition("/")[0] for name in known)
    close = get_close_matches(wanted, [*heads, *known, *record.graph_names], n=1)
    return MissingDataError(
        f"the record has no graph {wanted!r}",
        hint=f"did you mean {close[0]!r}?"
        if close
        else "its graphs are: " + (", ".join(known) or "none"),
    )
