"""The calls of a generation, as its numbers of tokens tell them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from etscope.formats.generation import DECODE, PREFILL


@dataclass(frozen=True, slots=True)
class CountedCall:
    """A call of the decoder: its phase, the position of its first token in the context (from 0, as
    if each generation began with an empty one), and its tokens.

    generation: index of the app's; -1 for a warm-up, which the app does not report.
    """

    phase: str
    position: int
    tokens: int
    generation: int


def counted_calls(
    counts: Sequence[tuple[int, int]], runs: int, *, warm_ups: Sequence[int] = (0, 1)
) -> tuple[CountedCall, ...] | None:
    """Return the call of each of the decoder's runs in a dump, in order; None if no such calls make
    that number of runs.

    counts: of each generation, the prompt's tokens and those generated after the first. The prompt
    is evaluated in one call, token by token, or in chunks of one length; each further token is a
    call. warm_ups: how many there may have been before the one generation, with the same prompt.
    """
    for before in warm_ups if len(counts) == 1 else (0,):
        per_generation = _calls_of([*([counts[0]] * before), *counts], runs)
        if per_generation is not None:
            return tuple(
                replace(call, generation=index - before)
                for index, calls in enumerate(per_generation)
                for call in calls
            )
    return None


def _calls_of(counts: Sequence[tuple[int, int]], runs: int) -> list[list[CountedCall]] | None:
    """The calls of each generation; None if no way to evaluate the prompts makes `runs`."""
    longest = max(1, *(prompt for prompt, _ in counts))
    # Some runners count the first token, which the prompt gives, as generated.
    for first_counts in (0, 1):
        further = [max(0, generated - first_counts) for _, generated in counts]
        prefills = runs - sum(further)
        sizes = (longest, 1) if first_counts else (longest, 1, _chunk(counts, longest, prefills))
        for size in sizes:
            if _chunks(counts, size) == prefills:
                return [
                    [
                        *(
                            CountedCall(PREFILL, position, min(size, prompt - position), 0)
                            for position in range(0, prompt, size)
                        ),
                        *(CountedCall(DECODE, prompt + number, 1, 0) for number in range(count)),
                    ]
                    for (prompt, _), count in zip(counts, further, strict=True)
                ]
    return None


def _chunks(counts: Sequence[tuple[int, int]], size: int) -> int:
    return sum(-(-prompt // size) for prompt, _ in counts)


def _chunk(counts: Sequence[tuple[int, int]], longest: int, calls: int) -> int:
    """The length of the chunks that cut the prompts into `calls`, a power of two if one does it:
    programs are exported with such; else the shortest. Any other number if none does."""
    low, high = 1, longest
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if _chunks(counts, middle) > calls else (low, middle)
    power = 1 << (low - 1).bit_length()
    return power if _chunks(counts, power) == calls else low
