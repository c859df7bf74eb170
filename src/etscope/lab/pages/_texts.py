"""Values as texts for people: the filters of the templates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any
from urllib.parse import quote

from markupsafe import Markup, escape

from etscope.units import format_bytes, format_duration, format_share
from etscope.views.tables.text_cells import visible

NOTHING = "\N{EN DASH}"
_UNITS = (("ns", 1e-6), ("µs", 1e-3), ("ms", 1.0), ("s", 1e3))


def duration(milliseconds: Any) -> str:
    """A time in the unit that suits it: 0.0123 is "12.300 µs"."""
    if not _is_number(milliseconds):
        return NOTHING
    if milliseconds == 0:
        return "0 ms"
    unit, factor = next(
        (found for found in reversed(_UNITS) if abs(milliseconds) >= found[1]), _UNITS[0]
    )
    return f"{format_duration(milliseconds / factor, unit)} {unit}"


def size(count: Any) -> str:
    """Bytes, in the unit that suits them."""
    return format_bytes(count) if _is_number(count) else NOTHING


def share(value: Any) -> str:
    """A fraction of 1 as a percentage."""
    return format_share(value) if _is_number(value) else NOTHING


def seconds(value: Any) -> str:
    """A length of time for people: 3,725 is "1 h 2 min"."""
    if not _is_number(value):
        return NOTHING
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(int(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def between(first: datetime | None, second: datetime | None) -> str:
    """How long it was from one time to another; to now, if the other is not yet."""
    if first is None:
        return NOTHING
    return seconds(((second or datetime.now(timezone.utc)) - first).total_seconds())


def when(value: datetime | None) -> Markup | str:
    """A time as an element that the script turns into the reader's own clock."""
    if value is None:
        return NOTHING
    plain = value.astimezone(timezone.utc)
    text = plain.strftime("%Y-%m-%d %H:%M:%S")
    return Markup('<time datetime="{}">{} UTC</time>').format(plain.isoformat(), text)


def lines(text: str) -> Markup:
    """A log: its lines stay lines, and nothing in them acts."""
    return Markup("\n").join(escape(visible(line)) for line in text.split("\n"))


def plain(value: Any) -> str:
    """A value of an environment or a specification."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.6g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {plain(one)}" for key, one in value.items()) or NOTHING
    if isinstance(value, (list, tuple)):
        return ", ".join(map(plain, value)) or NOTHING
    return str(value)


def fact(value: Any, name: Any) -> str:
    """A value by the unit that its name ends in: `memory_bytes` is a size, `load_ms` a time."""
    if str(name).endswith("_bytes"):
        digits = value if not isinstance(value, str) else int(value) if value.isdecimal() else None
        return plain(value) if digits is None else size(digits)
    return duration(value) if str(name).endswith("_ms") and _is_number(value) else plain(value)


def fact_name(name: Any) -> str:
    """The name without the unit that `fact` tells."""
    return word(str(name).removesuffix("_bytes").removesuffix("_ms"))


def word(value: Any) -> str:
    """A state or another word of the machine, for people: "user_error" is "user error"."""
    return str(value).replace("_", " ")


def part(value: Any) -> str:
    """A text as one part of a path, or one value of a query."""
    return quote(str(value), safe="")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


FILTERS: Mapping[str, Callable[..., Any]] = {
    "between": between,
    "duration": duration,
    "fact": fact,
    "fact_name": fact_name,
    "lines": lines,
    "part": part,
    "plain": plain,
    "seconds": seconds,
    "share": share,
    "size": size,
    "when": when,
    "word": word,
}
