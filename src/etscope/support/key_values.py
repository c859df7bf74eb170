"""KEY=VALUE pairs of options, forms and label files."""

from __future__ import annotations

from collections.abc import Iterable

from etscope.errors import UsageError

__all__ = ["key_values"]


def key_values(texts: Iterable[str], what: str, form: str = "KEY=VALUE") -> dict[str, str]:
    """Return the values by key; spaces around both are removed.

    what: the name in messages, "label" or "--label". form: the form of a pair in messages. Raises
    `UsageError` for a text without a key or "=", and for a key with two values.
    """
    found: dict[str, str] = {}
    for text in texts:
        key, sign, value = (part.strip() for part in text.partition("="))
        if not sign or not key:
            raise UsageError(f"{what} {text!r} is not {form}")
        if found.setdefault(key, value) != value:
            raise UsageError(f"{what} {key} is given twice: {found[key]} and {value}")
    return found
