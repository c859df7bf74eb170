"""JSON as its standard has it: no NaN, no infinity, and ASCII.

ASCII keeps names from a hostile file from acting on the terminal that the text is printed on, and
holds lone surrogates, which UTF-8 cannot.
"""

from __future__ import annotations

import json
import math
from typing import Any

_encode = json.JSONEncoder(allow_nan=False).encode  # made once: a row is shorter to write than that


def dumps(value: Any) -> str:
    """`value` as JSON text on one line. Infinities are the texts "Infinity" and "-Infinity"."""
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
