"""Compare two measured sides: a row for each quantity, with its limit and its outcome."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from etscope.analysis.check.measured import BY_NAME, QUANTITIES, Amount, Measured, Part, Quantity
from etscope.analysis.comparison.changes import percent
from etscope.analysis.comparison.diff import other_model
from etscope.analysis.statistics.compare_samples import (
    Comparison,
    Policy,
    Verdict,
    compare_all,
)
from etscope.errors import MismatchError, UsageError
from etscope.support.shown import Shown
from etscope.units import (
    TimeScale,
    count,
    format_bytes,
    format_count,
    format_duration,
    format_share,
    scale_factor,
)

SHOWN = 3  # parts of a quantity that got worse

# dB. Above it, outputs differ in the order of float32 additions only; a type of half the bits stays
# below it.
_AS_GOOD = 80.0


class Outcome(Enum):
    """The outcome of a row, the most important first."""

    WORSE = "worse"
    CANNOT_TELL = "cannot tell"
    OK = "ok"
    NOT_COMPARED = "not compared"


@dataclass(frozen=True, slots=True)
class Limit:
    """A threshold. value: None if it is off. given: True if the user gave it; the check then fails
    if there is nothing to compare."""

    value: float | None
    text: str
    given: bool = False

    @classmethod
    def of(cls, quantity: Quantity, given: str | float | None) -> Limit:
        """Read "2%", "0.02", "1dB", "3" or "off"; None is the default.

        Raises `UsageError` for anything else.
        """
        text = quantity.limit if given is None else str(given).strip()
        if text == "off":
            return cls(None, text)
        is_share, option = quantity.unit in ("%", "points"), quantity.option.replace("_", "-")
        number, percents = text.removesuffix("dB" if quantity.unit == "dB" else "%").strip(), 1
        if is_share and text.endswith("%"):
            percents = 100
        try:
            value = float(number) / percents
        except ValueError:
            value = math.nan
        whole = quantity.unit or value.is_integer()
        least = 0 if quantity.name != "time" else math.ulp(0)
        if not (math.isfinite(value) and value >= least and whole) or (
            is_share and percents == 1 and value >= 1
        ):
            form = {"dB": "1 or 1dB", "": "0"}.get(quantity.unit, "2% or 0.02")
            raise UsageError(
                f"{option} is {given!r}, which is not a threshold",
                hint=f"write {form}, or off",
            )
        if is_share:
            text = f"{100 * value:g}" + ("%" if quantity.unit == "%" else " points")
            text = "1 point" if text == "1 points" else text
        return cls(value, text, given is not None)


@dataclass(frozen=True, slots=True)
class Row(Shown):
    """A compared quantity.

    base, new: None where a side lacks it. change: as text; change_value: in the unit of the limit.
    reason: of "cannot tell" and "not compared", or on how an outcome was found. parts: with the
    largest share in a change for the worse. comparison: of times.
    """

    quantity: Quantity
    method: str | None
    limit: Limit
    base: Amount | None
    new: Amount | None
    outcome: Outcome = Outcome.OK
    change: str = ""
    change_value: float | None = None
    reason: str = ""
    parts: tuple[Part, ...] = ()
    comparison: Comparison | None = None

    @property
    def texts(self) -> tuple[str, str]:
        """The values of both sides as text; "" where a side lacks it."""
        one, other = ("" if side is None else value_text(side) for side in (self.base, self.new))
        return one, other

    @property
    def unit(self) -> str:
        """The unit of the values; of times, the clock's."""
        clock = (amount.basis.get("clock") for amount in (self.new, self.base) if amount)
        return next(filter(None, clock), self.quantity.measured_in)

    @property
    def title(self) -> str:
        """The name of the quantity, with the method unless that is "forward"."""
        usual = self.method in (None, "forward")
        return self.quantity.title if usual else f"{self.quantity.title} of {self.method}"


def check_limits(given: Mapping[str, str | float | None]) -> dict[str, Limit]:
    """Return the limits by the name of the quantity. given: by option. Raises `UsageError`."""
    return {one.name: Limit.of(one, given.get(one.option)) for one in QUANTITIES}


def compare(
    base: Measured, new: Measured, limits: Mapping[str, Limit], *, force: bool = False
) -> tuple[Row, ...]:
    """Compare two sides.

    Raises `MismatchError` for the sides of different models, unless `force` is given.
    """
    if not force:
        _check_model(base, new)
    return tuple(_Comparison(base, new, limits).rows())


def _check_model(base: Measured, new: Measured) -> None:
    sides = base, new
    methods = [{one.method for one in side.amounts if one.method} for side in sides]
    modules = [set(side.modules) for side in sides]
    operators = [{key.rpartition(": ")[2] for key in side.operators} for side in sides]
    ends = [
        {part.name for one in side.amounts if one.quantity == "interface" for part in one.parts}
        for side in sides
    ]
    difference = None
    if all(methods) and methods[0].isdisjoint(methods[1]):
        difference = "they have no method in common"
    elif all(modules) or (all(operators) and all(ends) and ends[0].isdisjoint(ends[1])):
        difference = other_model(modules, operators)
    if difference is not None:
        raise MismatchError(
            f"{base.name} and {new.name} are of different models: {difference}",
            hint="name a BASE of the same model, or add --force",
        )


@dataclass
class _Comparison:
    base: Measured
    new: Measured
    limits: Mapping[str, Limit]
    times: dict[str, Comparison] = field(default_factory=dict)

    def rows(self) -> Iterator[Row]:
        """Yield a row for each quantity and method, in the order of `QUANTITIES`."""
        sides = [
            {(one.quantity, one.method): one for one in side.amounts}
            for side in (self.base, self.new)
        ]
        both = [key for key in sides[0] if key in sides[1]]
        self._compare_times([(sides[0][key], sides[1][key]) for key in both if key[0] == "time"])
        for quantity in QUANTITIES:
            keys = [key for key in {**sides[1], **sides[0]} if key[0] == quantity.name]
            asked = self.limits[quantity.name].given
            if not keys and (asked or quantity.name != "worst_sample"):  # one call has no worst
                yield self._missing(quantity, None, None, None)
            for key in keys:
                one, other = (side.get(key) for side in sides)
                if one is None or other is None:
                    yield self._missing(quantity, key[1], one, other)
                else:
                    yield self._compared(quantity, one, other)

    def _compare_times(self, pairs: Sequence[tuple[Amount, Amount]]) -> None:
        """Judge all times together: the rate of false alarms holds for all of them."""
        limit = self.limits["time"].value
        pairs = [(one, other) for one, other in pairs if one.samples and other.samples]
        if limit is None or not pairs:
            return
        found = compare_all(
            [one.samples for one, _ in pairs], [other.samples for _, other in pairs], Policy(limit)
        )
        self.times = {str(one.method): c for (one, _), c in zip(pairs, found, strict=True)}

    def _missing(
        self, quantity: Quantity, method: str | None, one: Amount | None, other: Amount | None
    ) -> Row:
        """Return the row of a quantity that a side lacks. It is not a pass if the user asked for
        it, or if NEW lost it."""
        limit = self.limits[quantity.name]
        side, name = (self.base, "BASE") if one is None else (self.new, "NEW")
        reason = side.missing.get(quantity.name, f"{name} does not have it")
        if name not in reason:
            reason = f"{name}: {reason}"
        asked = limit.given or (one is not None and other is None)
        outcome = Outcome.CANNOT_TELL if asked and limit.value is not None else Outcome.NOT_COMPARED
        return Row(quantity, method, limit, one, other, outcome, reason=reason)

    def _compared(self, quantity: Quantity, one: Amount, other: Amount) -> Row:
        limit = self.limits[quantity.name]
        change, text = _change(quantity, one, other)
        exact = change if math.isfinite(change) else None
        row = Row(quantity, one.method, limit, one, other, change=text, change_value=exact)
        if limit.value is None:
            return replace(row, outcome=Outcome.NOT_COMPARED, reason="its threshold is off")
        differs = _other_basis(one, other)
        if quantity.name == "time":
            row = self._timed(row, one, other, differs)
        elif differs and min(one.value, other.value) < _AS_GOOD:
            row = replace(row, outcome=Outcome.CANNOT_TELL, reason=differs)
        elif change > limit.value * (1 + 1e-12) or math.isnan(change):
            row = replace(row, outcome=Outcome.WORSE)
        elif one.unknown != other.unknown:
            names = sorted({*one.unknown, *other.unknown})
            reason = f"the work of {', '.join(names[:SHOWN])} is not known"
            row = replace(row, outcome=Outcome.CANNOT_TELL, reason=reason)
        elif one.unknown:
            row = replace(row, reason=f"without {count(len(one.unknown), 'call')} of unknown work")
        if row.outcome is Outcome.WORSE:
            row = replace(row, parts=_worse_parts(quantity, one, other))
        return row

    def _timed(self, row: Row, one: Amount, other: Amount, differs: str) -> Row:
        """Judge a time; what needs no clock decides if the clock cannot."""
        found = self.times.get(str(one.method))
        reason = differs or "a side has no times of its runs"
        if found is not None and not differs:
            limit = row.limit.value or 0.0
            row = replace(row, comparison=found)
            if found.relative is not None and not found.is_unbounded:
                row = replace(row, change=percent(found.relative), change_value=found.relative)
            if found.verdict is Verdict.REGRESSED:
                return replace(row, outcome=Outcome.WORSE)
            if found.verdict is not Verdict.CANNOT_TELL:
                return row
            if found.high is not None and found.high <= limit:
                return replace(row, reason=f"at most {percent(found.high)}, at 99% confidence")
            reason = found.reason or _interval(found)
        if why := self._no_more_work():
            return replace(row, reason=f"the clock cannot tell ({reason}); {why}")
        return replace(row, outcome=Outcome.CANNOT_TELL, reason=reason)

    def _no_more_work(self) -> str:
        """Return why NEW cannot take longer, by what needs no clock; "" if it may."""
        base, new = self.base, self.new
        if not (base.operators and new.operators) or base.executorch != new.executorch:
            return ""
        if base.program_sha256 == new.program_sha256:
            return "both ran the same program"
        if any(number > base.operators.get(key, 0) for key, number in new.operators.items()):
            return ""
        totals = [
            {(a.quantity, a.method): a for a in side.amounts if a.quantity in ("flops", "bytes")}
            for side in (base, new)
        ]
        if totals[0].keys() != totals[1].keys() or any(
            totals[1][key].value > one.value or one.unknown != totals[1][key].unknown
            for key, one in totals[0].items()
        ):
            return ""
        return "NEW runs no other operators, and no more FLOPs and bytes"


def _interval(found: Comparison) -> str:
    if found.low is None or found.high is None or found.is_unbounded:
        return "the runs are too few or too unsteady"
    return f"the change is between {percent(found.low)} and {percent(found.high)}"


def _other_basis(one: Amount, other: Amount) -> str:
    """Return what makes two amounts incomparable; "" if nothing does."""
    for name in one.basis.keys() & other.basis.keys():
        values = one.basis[name], other.basis[name]
        if values[0] != values[1]:
            shown = "" if max(map(len, values)) > 60 else f": {values[0]} and {values[1]}"
            return f"the sides differ in {name}{shown}"
    return ""


def _change(quantity: Quantity, one: Amount, other: Amount) -> tuple[float, str]:
    """Return by how much a quantity got worse, and the change as text."""
    if quantity.unit == "":
        added = _added(quantity, one, other)
        return len(added), f"{len(added)} new" if added else "none"
    if quantity.unit == "%":
        if one.value == other.value:
            return 0.0, "same"
        change = other.value / one.value - 1 if one.value else math.inf
        return change, percent(change) if one.value else "new"
    if quantity.unit == "points":
        change = one.value - other.value
        return change, f"{-100 * change:+.1f} points" if change else "same"
    if math.isnan(one.value) or math.isnan(other.value):
        change = 0.0 if math.isnan(one.value) else math.nan
        return change, "NaN" if math.isnan(other.value) else "no more NaN"
    exact = other.value - one.value
    text = f"{exact:+.1f} dB" if math.isfinite(exact) and exact else "same"
    return min(one.value, _AS_GOOD) - min(other.value, _AS_GOOD), text


def _added(quantity: Quantity, one: Amount, other: Amount) -> list[Part]:
    """Return the parts of NEW that BASE does not have; of an interface, also the reverse. A new
    method changes nothing for callers."""
    before, after = (Counter((p.name, p.module) for p in side.parts) for side in (one, other))
    gone, methods = before - after, {part.name.partition(" ")[0] for part in one.parts}
    new, found = after - before, []
    for part in other.parts:
        is_known = quantity.name != "interface" or part.name.partition(" ")[0] in methods
        if is_known and new[part.name, part.module] > 0:
            new[part.name, part.module] -= 1
            found.append(part)
    if quantity.name == "interface":
        found += [Part(name, text="removed") for name, _ in [*gone.elements()][len(found) :]]
    return found


def _worse_parts(quantity: Quantity, one: Amount, other: Amount) -> tuple[Part, ...]:
    """Return the parts that made a quantity worse, the largest first, with their change as text."""
    if quantity.unit == "":
        added = _added(quantity, one, other)
        return tuple(replace(part, text=part.text or "new") for part in added)
    if quantity.unit == "dB":
        before = {part.name: part.value for part in one.parts}
        worse = (part for part in other.parts if part.value < before.get(part.name, math.inf))
        return tuple(replace(part, text=value_text(other, part.value)) for part in worse)[:SHOWN]
    has_modules = all(any(part.module for part in side.parts) for side in (one, other))

    def key(part: Part) -> tuple[str, str | None]:
        return part.name, part.module if has_modules else None

    def text(value: float) -> str:
        return count(int(value), "node") if quantity.unit == "points" else value_text(other, value)

    changes: Counter[tuple[str, str | None]] = Counter()
    for sign, side in ((-1, one), (1, other)):
        for part in side.parts:
            changes[key(part)] += sign * part.value  # type: ignore[assignment]
    places = {key(part): part for part in other.parts}
    grew = [place for place, change in changes.most_common(SHOWN) if change > 0]
    return tuple(
        replace(
            places[place],
            value=changes[place],
            module=place[1],
            text=f"+{text(changes[place])}",
        )
        for place in grew
        if place in places
    )


def value_text(amount: Amount, value: float | None = None) -> str:
    """Return a value of the quantity as text, with its unit; by default of the amount."""
    value = amount.value if value is None else value
    match BY_NAME[amount.quantity].measured_in:
        case "bytes":
            return format_bytes(value)
        case "share":
            return format_share(value)
        case "dB":
            return "equal" if value == math.inf else f"{value:.1f} dB"
        case "ns":
            clock = TimeScale.of(amount.basis.get("clock", "ns"))
            if clock is TimeScale.CYCLES:
                return f"{format_count(round(value))} cycles"
            return f"{format_duration(value / scale_factor(clock, TimeScale.MS), 'ms')} ms"
    return format_count(value)
