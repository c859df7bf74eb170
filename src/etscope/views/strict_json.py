"""Write JSON by its standard: no NaN, no infinity, and only ASCII.

ASCII keeps names from a hostile file from controlling the terminal that prints the text, and can
hold lone surrogates, which UTF-8 cannot.
"""

from __future__ import annotations

import json
import math
from typing import Any

_encode = json.JSONEncoder(allow_nan=False).encode  # made once: it takes longer than a row


def dumps(value: Any) -> str:
    """Return `value` as JSON on one line. Infinities are the texts "Infinity" and "-Infinity"."""
    try:
        return _encode(value)
    except ValueError:  # an infinity or NaN, for which JSON has no number
        return _encode(_finite(value))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list) else value
