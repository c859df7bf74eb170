"""The options of a driver, checked: what they may be called, and what they may hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from etscope.errors import UsageError


def checked(driver: str, options: Mapping[str, Any], known: Mapping[str, type]) -> dict[str, Any]:
    """The options by name; all of `known`, None for those not given.

    Raises `UsageError` for a name that is not known, or a value of another type.
    """
    strange = sorted(set(options) - set(known))
    if strange:
        raise UsageError(
            f"the driver {driver} has no option {', '.join(strange)}",
            hint=f"its options: {', '.join(known) or 'none'}",
        )
    for name, value in options.items():
        kind = known[name]
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            raise UsageError(
                f"the option {name} of the driver {driver} is {kind.__name__}, not {value!r}"
            )
        if isinstance(value, str) and (not value or value.startswith("-") or not _is_line(value)):
            raise UsageError(f"the option {name} of the driver {driver} cannot be {value!r}")
    return {name: options.get(name) for name in known}


def _is_line(text: str) -> bool:
    return text.isprintable()
