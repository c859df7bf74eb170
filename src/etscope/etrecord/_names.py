"""Names of extra graphs: they become names of members, which the file also needs for itself."""

from __future__ import annotations

from etscope.errors import RecordError
from etscope.formats.etrecord.reader import OWN_PREFIX, RESERVED, SIBLINGS


def check_graph_name(name: str) -> None:
    """Raise `RecordError` if the graphs "<name>/<method>" could be taken for something else."""
    parts = name.split("/")
    if (
        not name
        or RESERVED & {name, parts[0]}
        or name.startswith(OWN_PREFIX)
        or any(part in ("", ".", "..") for part in parts)
        or name.endswith(SIBLINGS)
        or not name.isprintable()
        or "\\" in name
    ):
        raise RecordError(
            f"The name {name} provided in the extra_recorded_export_modules dict is a reserved "
            "name in the ETRecord namespace."
        )
