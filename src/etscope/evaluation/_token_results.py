"""Results of a language model on a text, and their tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from etscope.analysis.generation.agreement import Agreement
from etscope.errors import MismatchError, MissingDataError
from etscope.formats.generation import GenerationCalls
from etscope.model.report import Report, Section, facts
from etscope.model.table import Column, Kind, Table
from etscope.run.generation.prompt import Tokenizer
from etscope.support.shown import Shown

Progress = Callable[[int, int | None], None]
Ints = npt.NDArray[np.int64]
_COLUMN_NAMES = ("index", "window", "position", "call")
_SOME_KL = 1e-6  # nats, above what rounding makes in float32


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Logits [rows, vocabulary], and int64 [rows] the position of the token that each row is
    computed from; the row predicts the next token. calls: the calls that computed them; None for a
    module.
    """

    logits: npt.NDArray[Any]
    positions: Ints
    calls: GenerationCalls | None = None
    logits_methods: tuple[str, ...] = ()

    def call_of(self, position: int) -> int | None:
        """Return the number of the first call that gave the logits of a position."""
        calls = self.calls
        if calls is None:
            return None
        of_logits = np.isin(np.array(calls.methods)[calls.method], self.logits_methods)
        mine = (calls.position <= position) & (position < calls.position + calls.tokens)
        found = np.flatnonzero(of_logits & mine)
        return int(found[0]) if len(found) else None


class LogitsSource(Protocol):
    """A model that gives logits for the tokens of a window."""

    @property
    def name(self) -> str:
        """The name for readers."""

    @property
    def context(self) -> int | None:
        """The most tokens that it takes; None if that is not known."""

    def rows(self, tokens: Sequence[int]) -> Rows:
        """Return the logits that predict all tokens but the first, each from those before it."""


@dataclass(frozen=True, slots=True, eq=False)
class ModuleLogits:
    """A module in PyTorch: see `bridge.reference.language_model.module_logits`."""

    module: Callable[..., Any]
    name: str
    context: int | None = None

    def rows(self, tokens: Sequence[int]) -> Rows:
        from etscope.bridge.reference.language_model import module_logits

        given = np.asarray(tokens[:-1], np.int64)
        return Rows(module_logits(self.module, given), np.arange(len(given)))


@dataclass(frozen=True, slots=True)
class Window:
    """Tokens [begin, end) of a text; tokens from `first` on are predicted."""

    begin: int
    first: int
    end: int


def windows(count: int, context: int, stride: int) -> Iterator[Window]:
    """Cut a text: a window gives a model up to `context` tokens and predicts those after them."""
    first = 1
    while first < count:
        end = min(first + (context if first == 1 else stride), count)
        yield Window(max(0, end - 1 - context), first, end)
        first = end


@dataclass(frozen=True, slots=True, eq=False)
class TokenPlaces:
    """The places of predicted tokens, as columns int64 [tokens].

    index: the token's index in the text. window: the number of the window. position: in the context
    of that window, the position of the last token that it is predicted from. call: in the window's
    run, the number of the call that computed its logits. phase: the phase of that call, a text for
    each token.
    """

    index: Ints
    window: Ints
    position: Ints
    call: Ints
    phase: tuple[str, ...]

    @classmethod
    def of(cls, rows: Rows, kept: Ints, window: int, begin: int) -> TokenPlaces:
        """Return the places of the tokens predicted from the positions `kept` of a window, which
        begins at a token of the text."""
        numbers = [rows.call_of(position) for position in kept.tolist()]
        calls = rows.calls
        assert calls is not None and all(number is not None for number in numbers)
        call = np.array(numbers, np.int64)
        return cls(
            index=begin + kept + 1,
            window=np.full(len(kept), window, np.int64),
            position=kept.astype(np.int64),
            call=call,
            phase=tuple(calls.phases[index] for index in calls.phase[call].tolist()),
        )

    @classmethod
    def joined(cls, parts: Sequence[TokenPlaces]) -> TokenPlaces:
        columns = {
            name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMN_NAMES
        }
        return cls(**columns, phase=tuple(phase for part in parts for phase in part.phase))


@dataclass(frozen=True, eq=False, kw_only=True)
class TokenEvaluation(Shown):
    """A language model compared with its reference on a text.

    program, reference: their names. agreement: the agreement at each predicted token. places: the
    places of these tokens. context, stride, windows: how the text was cut. text_tokens: the number
    of tokens in the whole text. saved: the folder with the recorded call of the first token that
    differs. record: the file of the program's record, if it has one. has_float: True if the record
    has the graph before quantization.
    """

    program: str
    reference: str
    agreement: Agreement
    places: TokenPlaces
    windows: tuple[Window, ...]
    context: int
    stride: int
    text_tokens: int
    tokenizer: Tokenizer | None = None
    record: str | None = None
    has_float: bool = False
    saved: Path | None = None

    @property
    def divergence(self) -> int | None:
        """The row of the first token that differs, ties apart; None without one."""
        return self.agreement.first_divergence

    @property
    def is_finding(self) -> bool:
        """True if the program has NaN in logits where the reference has none."""
        return bool(self.agreement.non_finite.any())

    def is_within(self, max_kl: float | None = None, min_agreement: float | None = None) -> bool:
        """Return whether the mean KL divergence is at most `max_kl`, nats, and the share of the
        tokens with the same likeliest token at least `min_agreement`. NaN is never within a limit.
        """
        kl, top1 = self.agreement.mean_kl, self.agreement.top1_agreement
        return (max_kl is None or kl <= max_kl) and (min_agreement is None or top1 >= min_agreement)

    # -- in words

    @property
    def notes(self) -> tuple[str, ...]:
        """The result in sentences."""
        return tuple(self._notes())

    def _notes(self) -> Iterator[str]:
        found = self.agreement
        flips, ties = int(found.flips.sum()), int(found.ties.sum())
        if not flips:
            where = "the token" if len(found) == 1 else f"all {len(found):,} tokens"
            yield f"the likeliest token is the reference's at {where}"
        else:
            of_ties = f", {ties:,} of them ties" if ties else ""
            yield (
                f"another token than the reference's is the likeliest at {flips:,} of "
                f"{len(found):,} tokens{of_ties}"
            )
        nan = int(found.non_finite.sum())
        if nan:
            yield f"the program's logits have NaN at {nan:,} tokens, the reference's have not"
        yield from self._divergence_notes()
        kl = np.nan_to_num(found.kl, nan=-1.0, posinf=math.inf)
        worst = int(kl.argmax())
        if kl[worst] > _SOME_KL:
            where = self._where(worst)
            yield f"the distributions are furthest apart at token {where}: {kl[worst]:.3g} nats"
        missing = self.text_tokens - 1 - len(found)
        if missing:
            yield (
                f"{missing:,} tokens were not compared: the program gives logits of the last token "
                "of a call alone (-X prompt_length=1 compares them)"
            )
        if len(self.windows) > 1:
            yield (
                f"{len(self.windows):,} windows: each token is predicted once, from up to "
                f"{self.context:,} tokens before it; a window predicts {self.stride:,} of them"
            )

    def _divergence_notes(self) -> Iterator[str]:
        at = self.divergence
        if at is None:
            if self.agreement.flips.any():
                yield "no token differs by more than rounding: the flips are ties"
            return
        found, places = self.agreement, self.places
        call = int(places.call[at])
        yield (
            f"first diverging token: {self._where(at)}: {self._named(int(found.top[at]))} in place "
            f"of {self._named(int(found.reference_top[at]))}, which the reference has "
            f"{found.gap[at]:.3g} above it"
        )
        record = "RECORD" if self.record is None else quote(self.record)
        more = " --quantization" if self.has_float else ""
        folder = "DIR" if self.saved is None else quote(str(self.saved))
        first = "add --save DIR, which records that call, then " if self.saved is None else ""
        command = f"etscope numerics {folder} -r {record} --calls {call}{more}"
        yield f"which operator: {first}{command}"

    def _where(self, row: int) -> str:
        places = self.places
        window = f" of window {places.window[row]}" if len(self.windows) > 1 else ""
        position = f"{places.phase[row]} at position {places.position[row]}"
        return f"{places.index[row]} (call {places.call[row]}{window}, {position})"

    def _named(self, token: int) -> str:
        text = self._text(token)
        return f"token {token}" if text is None else f"{text!r} ({token})"

    def _text(self, token: int) -> str | None:
        if self.tokenizer is None:
            return None
        return str(self.tokenizer.library.decode([token], skip_special_tokens=False))

    # -- tables

    def report(self, *, by_token: bool = False, sort: str | None = None) -> Report:
        """Return the summary, and with `by_token` the table of the tokens."""
        found = self.agreement
        nats: dict[str, Any] = {"kind": Kind.FLOAT, "unit": "nats"}
        metrics = found.metrics
        entries = [
            (Column("reference"), self.reference),
            (Column("tokens", Kind.COUNT, title="tokens compared"), len(found)),
            (Column("text_tokens", Kind.COUNT, title="tokens of the text"), self.text_tokens),
            (Column("windows", Kind.COUNT), len(self.windows)),
            (Column("context", Kind.COUNT), self.context),
            (Column("stride", Kind.COUNT), self.stride if len(self.windows) > 1 else None),
            (Column("top1_agreement", Kind.SHARE, title="top-1 agreement"), found.top1_agreement),
            (Column("flips", Kind.COUNT), metrics["flips"]),
            (Column("ties", Kind.COUNT, title="flips that are ties"), metrics["ties"]),
            (Column("mean_kl", title="KL divergence, mean", **nats), _plain(found.mean_kl)),
            (Column("p50_kl", title="p50", **nats), _plain(metrics["p50_kl"])),
            (Column("p99_kl", title="p99", **nats), _plain(metrics["p99_kl"])),
            (Column("max_kl", title="max", **nats), _plain(metrics["max_kl"])),
            (Column("perplexity", Kind.FLOAT), _plain(found.perplexity)),
            (
                Column("reference_perplexity", Kind.FLOAT, title="perplexity of the reference"),
                _plain(found.reference_perplexity),
            ),
            (
                Column("log_likelihood_difference", title="difference of ln p, mean", **nats),
                _plain(found.log_likelihood_difference),
            ),
            (
                Column("standard_error", title="its standard error", **nats),
                _plain(found.standard_error),
            ),
            (Column("non_finite", Kind.COUNT, title="tokens with NaN"), metrics["non_finite"]),
        ]
        sections = [facts("agreement", "Agreement with the reference", entries)]
        if by_token:
            sections.append(Section("tokens", self.token_table(sort)))
        at = self.divergence
        about = {"program": self.program}
        if at is not None:
            about |= {
                "first_diverging_token": str(int(self.places.index[at])),
                "first_diverging_call": str(int(self.places.call[at])),
            }
        return Report(about, tuple(sections), summary=self.notes)

    def token_table(self, sort: str | None = None) -> Table:
        """Return a row for each predicted token. sort: "run", the order of the text, or "error",
        the largest divergence first."""
        found, places = self.agreement, self.places
        with np.errstate(invalid="ignore"):
            p, reference_p = np.exp(found.log_p), np.exp(found.reference_log_p)
        texts = [self._text(token) for token in found.token.tolist()]
        flip = np.where(found.ties, "tie", np.where(found.flips, "flip", ""))
        several = len(self.windows) > 1
        columns: dict[Column, Any] = {
            Column("index", Kind.INT, title="token"): places.index,
            **({Column("window", Kind.INT, priority=3): places.window} if several else {}),
            Column("call", Kind.INT, priority=1): places.call,
            Column("phase", priority=2): list(places.phase),
            Column("position", Kind.INT, priority=3): places.position,
            Column("id", Kind.INT, priority=1): found.token,
            **({Column("text", priority=1): texts} if self.tokenizer is not None else {}),
            Column("kl", Kind.FLOAT, "nats", "KL"): found.kl,
            Column("flip"): [text or None for text in flip.tolist()],
            Column("top", Kind.INT, title="program's"): found.top,
            Column("reference_top", Kind.INT, title="reference's"): found.reference_top,
            Column("rank", Kind.INT, title="its rank", priority=1): found.rank,
            Column("margin", Kind.FLOAT, priority=2): found.margin,
            Column("p", Kind.FLOAT, title="p", priority=2): p,
            Column("reference_p", Kind.FLOAT, title="p of the reference", priority=2): reference_p,
        }
        order = np.arange(len(found))
        if sort == "error":
            order = np.argsort(-np.where(np.isnan(found.kl), math.inf, found.kl), kind="stable")
        content = {
            column: [values[index] for index in order.tolist()]
            if isinstance(values, list)
            else values[order].tolist()
            for column, values in columns.items()
        }
        return Table.of(content, title="Tokens")


def _plain(value: float | int | None) -> float | int | None:
    return None if value is None or math.isnan(value) else value


# -- the comparison


def other_vocabulary(reference: int, program: int) -> MismatchError:
    return MismatchError(
        f"the reference has a vocabulary of {reference:,} tokens, and the program of {program:,}: "
        "they are of different models",
        hint="take a reference of the same model, such as its export without quantization",
    )


def compared(
    own: LogitsSource,
    other: LogitsSource,
    ids: Sequence[int],
    cut: Sequence[Window],
    progress: Progress | None,
) -> dict[str, Any]:
    """Compare window by window; return the agreement, and the place of each token."""
    parts: list[Agreement] = []
    places: list[TokenPlaces] = []
    for number, window in enumerate(cut):
        if progress is not None:
            progress(number, len(cut))
        given = ids[window.begin : window.end]
        rows = own.rows(given)
        reference = other.rows(given)
        if reference.logits.shape[-1] != rows.logits.shape[-1]:
            raise other_vocabulary(reference.logits.shape[-1], rows.logits.shape[-1])
        wanted = np.arange(window.first - window.begin - 1, len(given) - 1)
        kept = wanted[np.isin(wanted, rows.positions) & np.isin(wanted, reference.positions)]
        if not len(kept):
            continue
        following = np.asarray(given, np.int64)[kept + 1]
        parts.append(Agreement.of(_at(reference, kept), _at(rows, kept), following))
        places.append(TokenPlaces.of(rows, kept, number, window.begin))
    if not parts:
        raise MissingDataError(
            "program and reference give logits for no token in common",
            hint="a program that gives logits only for the last token of a call takes tokens one "
            "by one: prompt_length=1 (-X prompt_length=1)",
        )
    joined = TokenPlaces.joined(places)
    return {"agreement": Agreement.joined(parts), "places": joined, "windows": tuple(cut)}


def _at(rows: Rows, positions: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Return the logits of some positions; a view where they follow each other."""
    order = np.argsort(rows.positions, kind="stable")
    found = order[np.searchsorted(rows.positions, positions, sorter=order)]
    if len(found) and np.array_equal(found, np.arange(found[0], found[0] + len(found))):
        return rows.logits[found[0] : found[0] + len(found)]
    return rows.logits[found]
