"""The gate of a generate job: compare the logits on the device with a reference's, at each
token of the same text (`etscope.evaluation.evaluate_tokens`).

Its result in the job's summary is plain JSON:

    fine                whether the limits hold, and no logits are NaN
    verdict             in words
    reference           its name
    tokens              that were compared, of `text_tokens`
    mean_kl, max_kl     Kullback-Leibler divergence from the reference, nats; limit_mean_kl
    agreement           the share of the tokens with the reference's likeliest one; limit_agreement
    flips, ties         tokens with another likeliest one; of these, those that rounding may change
    perplexity, reference_perplexity
    first_divergence    index in the text of the first token that is another one, ties apart
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from etscope.analysis.generation.layout import layout_of
from etscope.errors import UsageError
from etscope.evaluation import TokenEvaluation, evaluate_tokens
from etscope.formats.identify import ETRECORD, identify
from etscope.run import Place
from etscope.run.generation.prompt import check_tokens, tokens_from
from etscope.run.program import Opened, open_program
from etscope.units import format_share
from etscope_lab.jobs.spec import JobSpec, Quality

REFERENCE, TOKENS = "quality.reference", "quality.tokens"  # fields of the job's files


def check_gate(opened: Opened, files: Mapping[str, Path]) -> None:
    """Read the text and the reference of a gate, before anything is measured.

    Raises `UsageError` for a text of less than two tokens, `MismatchError` for tokens that the
    model does not have and a reference that is not a language model, and the errors of reading.
    """
    ids = tokens_from(files[TOKENS])
    if len(ids) < 2:
        raise UsageError("the text of the quality gate has less than two tokens")
    check_tokens(ids, layout_of(opened.program), "the quality gate's text")
    if identify(files[REFERENCE]) != ETRECORD:
        layout_of(open_program(files[REFERENCE]).program)


def quality_of(
    spec: JobSpec,
    opened: Opened,
    files: Mapping[str, Path],
    place: Place,
    timeout: float,
) -> dict[str, Any]:
    """Compare the program on the device with the reference, which runs on this machine.

    timeout: seconds, for each window of the text. Raises the errors of `evaluate_tokens`.
    """
    gate = spec.quality
    if gate is None:
        raise UsageError("the job has no quality gate")
    found = evaluate_tokens(
        opened,
        files[TOKENS],
        reference=files[REFERENCE],
        data=files.get("data"),
        threads=spec.threads,
        runner=spec.runner,
        timeout=timeout,
        place=place,
    )
    return gate_result(gate, found)


def gate_result(gate: Quality, found: TokenEvaluation) -> dict[str, Any]:
    """Judge an evaluation by the limits of a gate."""
    metrics = found.agreement.metrics
    at = found.divergence
    return {
        "fine": found.is_within(gate.max_kl, gate.min_agreement) and not found.is_finding,
        "verdict": _in_words(gate, found),
        "reference": gate.reference.name or found.reference,
        "tokens": len(found.agreement),
        "text_tokens": found.text_tokens,
        "mean_kl": metrics["mean_kl"],
        "max_kl": metrics["max_kl"],
        "limit_mean_kl": gate.max_kl,
        "agreement": metrics["top1_agreement"],
        "limit_agreement": gate.min_agreement,
        **{name: metrics[name] for name in ("flips", "ties", "perplexity", "reference_perplexity")},
        "first_divergence": None if at is None else int(found.places.index[at]),
    }


def _in_words(gate: Quality, found: TokenEvaluation) -> str:
    agreement, count = found.agreement, len(found.agreement)
    parts = []
    if gate.max_kl is not None:
        parts.append(
            f"the mean KL divergence from the reference is {agreement.mean_kl:.3g} nats, "
            f"the limit is {gate.max_kl:g}"
        )
    if gate.min_agreement is not None:
        parts.append(
            f"{format_share(agreement.top1_agreement)} of {count:,} tokens have the "
            f"reference's likeliest token, the limit is {format_share(gate.min_agreement)}"
        )
    if found.is_finding:
        parts.append(f"NaN in the logits of {int(agreement.non_finite.sum()):,} tokens")
    return "; ".join(parts)
