"""Compare a language model's logits with a reference's, token by token.

Both are given the same tokens, whatever they would have chosen themselves (teacher forcing), so
that row i of each is the distribution of one and the same next token. Compared are

- the Kullback-Leibler divergence of the program from the reference, the sum over the vocabulary of
  p_reference * (ln p_reference - ln p_program), in nats (S. Kullback, R. A. Leibler: On Information
  and Sufficiency, 1951). Its mean over tokens is what llama.cpp's `llama-perplexity
  --kl-divergence` calls the mean KLD;
- flips: another token is the likeliest one. They distinguish quantized models that perplexity does
  not (A. Dutta et al.: Accuracy Is Not All You Need, 2024);
- perplexity, exp of the mean of -ln p of the tokens that came (F. Jelinek et al., 1977), of both.

Probabilities are the softmax of the logits, in float64; a few rows at a time are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.errors import MismatchError, MissingDataError
from etscope.model.statistics import statistic

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_CHUNK = 1 << 21  # elements that are float64 at a time: 16 MB for each of a few arrays
# Logits nearer to each other than so many units in the last place of the row's largest number, in
# float32, may change places by rounding alone: they are sums of as many products as a model is
# wide, of values that went through all of its layers.
_NOISE = 64 * float(np.finfo(np.float32).eps)


@dataclass(frozen=True, eq=False)
class Agreement:
    """A program compared with the reference at each token, as columns [tokens]. At a flip, the
    likeliest token differs.

    token: int64, the id that came next in the text. reference_top, top: int64, the likeliest token
        in the reference and in the program, the first one of several.
    kl: float64, nats, at least 0; NaN where one of the two has NaN, infinite where the program
        rules out a token that the reference does not.
    margin: float64, of logits: how far the reference's likeliest token is above the next one.
    gap: float64, of the reference's logits: how far its likeliest token is above the program's; 0
        without a flip. noise: float64, of logits: what rounding may do to them.
    rank: int64, of the reference's likeliest token in the program, from 1.
    reference_log_p, log_p: float64, ln of the probability of `token`, in each.
    """

    token: Ints
    reference_top: Ints
    top: Ints
    kl: Floats
    margin: Floats
    gap: Floats
    noise: Floats
    rank: Ints
    reference_log_p: Floats
    log_p: Floats

    def __len__(self) -> int:
        return len(self.token)

    @classmethod
    def of(
        cls, reference: npt.NDArray[Any], program: npt.NDArray[Any], tokens: npt.ArrayLike
    ) -> Agreement:
        """Compare logits [tokens, vocabulary] of the reference and of the program, of any float
        type; `tokens` are the ids that came next, [tokens].

        Raises `MismatchError` for logits of other shapes, and for ids beyond their vocabulary.
        """
        forced = np.asarray(tokens, np.int64).reshape(-1)
        if reference.ndim != 2 or reference.shape != program.shape:
            raise MismatchError(
                f"the reference's logits are {list(reference.shape)} and the program's "
                f"{list(program.shape)}: both must have the same shape, [tokens, vocabulary]",
                hint="take a reference of the same vocabulary, and the rows of the same tokens",
            )
        if len(forced) != len(program):
            raise MismatchError(
                f"{len(program)} rows of logits for {len(forced)} tokens: each token needs one row"
            )
        size = reference.shape[1]
        if len(forced) and not (forced.min() >= 0 and forced.max() < size):
            wrong = int(forced[(forced < 0) | (forced >= size)][0])
            raise MismatchError(
                f"token {wrong} is not in the vocabulary of the logits, which has {size:,} tokens"
            )
        rows = max(1, _CHUNK // max(size, 1))
        parts = [
            cls._of_few(reference[at : at + rows], program[at : at + rows], forced[at : at + rows])
            for at in range(0, len(forced), rows)
        ]
        return cls.joined(parts)

    @classmethod
    def _of_few(
        cls, reference: npt.NDArray[Any], program: npt.NDArray[Any], tokens: Ints
    ) -> Agreement:
        """Compare a few rows, which are made float64."""
        expected, actual = reference.astype(np.float64), program.astype(np.float64)
        place = np.arange(len(tokens))
        with np.errstate(invalid="ignore", divide="ignore"):
            reference_top, top = _likeliest(expected), _likeliest(actual)
            best = expected[place, reference_top]
            plain = np.where(np.isnan(expected), -np.inf, expected)
            # A vocabulary of one token has no second one.
            second = np.partition(plain, -2, axis=1)[:, -2] if plain.shape[1] > 1 else -np.inf
            gap = np.where(top == reference_top, 0.0, best - expected[place, top])
            sizes = [np.where(np.isfinite(one), np.abs(one), 0.0) for one in (expected, actual)]
            largest = np.maximum(*(one.max(axis=1) for one in sizes))
            # The place of the reference's token in the order of `_likeliest`: of equal ones the
            # first, and one without a number below all others.
            own = np.take_along_axis(actual, reference_top[:, None], axis=1)
            above = (actual > own) | (
                (actual == own) & (np.arange(actual.shape[1]) < reference_top[:, None])
            )
            unknown = np.where(np.isnan(own[:, 0]), np.sum(~np.isnan(actual), axis=1), 0)
            rank = (1 + above.sum(axis=1) + unknown).astype(np.int64)
            _log_softmax(expected)
            _log_softmax(actual)
            log_p, reference_log_p = actual[place, tokens], expected[place, tokens]
            terms = np.exp(expected)
            possible = terms != 0  # NaN is
            np.subtract(expected, actual, out=actual)
            terms *= np.where(possible, actual, 0.0)
            divergence = terms.sum(axis=1)
        return cls(
            token=tokens,
            reference_top=reference_top,
            top=top,
            kl=np.where(divergence < 0, 0.0, divergence),  # of rounding
            margin=best - second,
            gap=gap,
            noise=_NOISE * largest,
            rank=rank,
            reference_log_p=reference_log_p,
            log_p=log_p,
        )

    @classmethod
    def joined(cls, parts: Sequence[Agreement]) -> Agreement:
        """Return the tokens of all parts. Raises `MissingDataError` without any."""
        if not any(len(part) for part in parts):
            raise MissingDataError("there is no token to compare logits at")
        return cls(
            **{
                field.name: np.concatenate([getattr(part, field.name) for part in parts])
                for field in fields(cls)
            }
        )

    # -- flips

    @property
    def flips(self) -> npt.NDArray[np.bool_]:
        """A mask of the flips: tokens at which the likeliest token differs."""
        found: npt.NDArray[np.bool_] = self.top != self.reference_top
        return found

    @property
    def ties(self) -> npt.NDArray[np.bool_]:
        """A mask of the flips that rounding alone may cause: the two tokens are nearly as
        likely.
        """
        found: npt.NDArray[np.bool_] = self.flips & (self.gap <= self.noise)
        return found

    @property
    def top1_agreement(self) -> float:
        """The share of the tokens with the same likeliest token."""
        return 1.0 - float(self.flips.mean())

    @property
    def first_divergence(self) -> int | None:
        """The index of the first token at which the program disagrees: a flip that is not a tie, or
        NaN where the reference has a number. None if there is none.
        """
        found = np.flatnonzero((self.flips & ~self.ties) | self.non_finite)
        return int(found[0]) if len(found) else None

    @property
    def non_finite(self) -> npt.NDArray[np.bool_]:
        """A mask of the tokens at which only the program gives no probabilities."""
        found: npt.NDArray[np.bool_] = np.isnan(self.log_p) & ~np.isnan(self.reference_log_p)
        return found

    # -- divergence and likelihood

    @property
    def mean_kl(self) -> float:
        """The mean of `kl`, NaN if one is."""
        return float(self.kl.mean())

    def kl_statistic(self, name: str) -> float:
        """Return a statistic of `kl`: "p50", "max", as `etscope.model.statistics` names them."""
        return statistic(self.kl, name)

    @property
    def perplexity(self) -> float:
        """exp of the mean of -ln p of the tokens, in the program."""
        return _perplexity(self.log_p)

    @property
    def reference_perplexity(self) -> float:
        """The perplexity in the reference."""
        return _perplexity(self.reference_log_p)

    @property
    def log_likelihood_difference(self) -> float:
        """The mean over tokens of ln p in the program less that in the reference: -ln of the ratio
        of the perplexities."""
        return float((self.log_p - self.reference_log_p).mean())

    @property
    def standard_error(self) -> float | None:
        """The standard error of `log_likelihood_difference`, from the paired differences at each
        token, as if the tokens were independent; None for a single token.
        """
        if len(self) < 2:
            return None
        with np.errstate(invalid="ignore"):
            differences = self.log_p - self.reference_log_p
            return float(differences.std(ddof=1) / np.sqrt(len(self)))

    @cached_property
    def metrics(self) -> dict[str, float | int | None]:
        return {
            "tokens": len(self),
            "top1_agreement": self.top1_agreement,
            "flips": int(self.flips.sum()),
            "ties": int(self.ties.sum()),
            "mean_kl": self.mean_kl,
            "p50_kl": self.kl_statistic("p50"),
            "p99_kl": self.kl_statistic("p99"),
            "max_kl": self.kl_statistic("max"),
            "perplexity": self.perplexity,
            "reference_perplexity": self.reference_perplexity,
            "log_likelihood_difference": self.log_likelihood_difference,
            "standard_error": self.standard_error,
            "non_finite": int(self.non_finite.sum()),
        }


def _perplexity(log_p: Floats) -> float:
    with np.errstate(over="ignore"):
        return float(np.exp(-log_p.mean()))


def _likeliest(logits: Floats) -> Ints:
    """Return the first of the largest logits of each row, int64 [rows]; NaN is never the largest,
    as in `etscope.analysis.generation.plan.choose`."""
    found: Ints = np.where(np.isnan(logits), -np.inf, logits).argmax(axis=1).astype(np.int64)
    return found


def _log_softmax(logits: Floats) -> None:
    """Replace logits [rows, vocabulary] by ln of their softmax."""
    logits -= logits.max(axis=1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
