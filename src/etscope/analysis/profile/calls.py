"""The executions in a dump as the calls of a language model: their phase, position and tokens.

A run.json says what each call was. Without one, the names of the methods give a part of it
(`extension/llm/runner/constants.h`), and the dump the rest: ExecuTorch's runners pass the prompt
in one call or a few. Such a call takes longer than a call of one token, and its values, if they
were logged, are larger. What comes from the dump is marked as inferred.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from etscope.errors import MissingDataError, UsageError
from etscope.formats.etdump.debug_values import TensorRef
from etscope.formats.etdump.reader import ETDump
from etscope.formats.generation import DECODE, PREFILL, GenerationCalls
from etscope.model.event_table import CALL_ROLES, Block

__all__ = ["RunCalls", "inferred_calls", "recorded_calls"]

Ints = npt.NDArray[np.int64]

# Names of a language model's methods: extension/llm/runner/constants.h and extension/asr/runner of
# ExecuTorch 1.5; the second pair is Qualcomm's. An encoder's phase has the method's name.
PAIRS = (("prefill", "decode"), ("prefill_forward", "kv_forward"))
EMBEDDING = "token_embedding"
ENCODERS = ("encoder", "vision_encoder", "image_encoder", "audio_encoder")
_PHASES = {
    name: phase for pair in PAIRS for name, phase in zip(pair, (PREFILL, DECODE), strict=True)
}
# Other models have an encoder or a decoder, too: a language model has one of these pairs,
_SURE_PAIRS = (*PAIRS, (EMBEDDING, "text_decoder"), ("encoder", "text_decoder"))
# or methods that only programs of language models have: what a runner asks them for before it runs.
_FACTS = frozenset(
    {"get_max_seq_len", "get_max_context_len", "get_vocab_size", "use_kv_cache", "get_eos_ids"}
)
# or kernels of ExecuTorch's own for caches: extension/llm/custom_ops/op_sdpa.cpp and
# op_update_cache.cpp, whose names a dump has with or without their library's.
_KERNELS = re.compile(
    r"(native_call_)?(llama::|(update_cache|sdpa_with_kv_cache|custom(_quantized)?_sdpa)\b)"
)
# A call has several tokens if it takes this much longer than the single-token calls after it in
# most of its instructions; an interruption lengthens only one.
_LONGER, _INSTRUCTIONS_LONGER = 1.4, 1.2
_NEAR = 7  # calls of one token to compare with: three interrupted ones do not move the median


@dataclass(frozen=True, slots=True, eq=False)
class RunCalls:
    """The executions in a dump, in order, as columns [calls].

    run: int64, index of the run in the dump. phase: None where it is not known. position: int64,
    of the first token in the context, -1 where it is not known; tokens: int64, 0 where not known.
    inferred: how the phases were inferred from the dump; None if the run recorded them.
    """

    run: Ints
    phase: tuple[str | None, ...]
    position: Ints
    tokens: Ints
    inferred: str | None = None

    @property
    def phases(self) -> tuple[str, ...]:
        """The phases, in order of appearance; () if none is known."""
        return tuple(dict.fromkeys(phase for phase in self.phase if phase is not None))

    @property
    def note(self) -> str | None:
        """A sentence for the reader of inferred phases; None for recorded ones."""
        if self.inferred is None:
            return None
        return f"The run did not record phases: they are inferred {self.inferred}."

    def chosen(self, phase: str | None, calls: range | None) -> RunCalls:
        """Return the calls of a phase, and of those the ones with these numbers in the dump.

        Raises `MissingDataError` for a phase that no call has, `UsageError` for numbers beyond the
        last one.
        """
        kept = np.ones(len(self.run), np.bool_)
        if phase is not None:
            kept = np.array([one == phase for one in self.phase], np.bool_)
            if not kept.any():
                known = ", ".join(self.phases)
                raise MissingDataError(
                    f"no call of the dump is known to be of the phase {phase!r}",
                    hint=f"phases are: {known}"
                    if known
                    else "phases are known of runs of etscope generate, and of dumps of a language "
                    "model with its program or record (--program, --etrecord)",
                )
        if calls is not None:
            if not (0 <= calls.start < len(kept) and calls.start < calls.stop <= len(kept)):
                last = "" if calls.stop == calls.start + 1 else f"..{calls.stop - 1}"
                count = "one call" if len(kept) == 1 else f"{len(kept):,} calls"
                raise UsageError(
                    f"call {calls.start}{last} does not exist",
                    hint=f"the dump has {count}, counted from 0",
                )
            numbers = np.arange(len(kept))
            kept &= (numbers >= calls.start) & (numbers < calls.stop)
        if not kept.any():
            raise MissingDataError(f"none of these calls is of the phase {phase!r}")
        return self._of(kept)

    def of_runs(self, runs: Ints) -> RunCalls:
        return self._of(np.isin(self.run, runs))

    def _of(self, kept: npt.NDArray[np.bool_]) -> RunCalls:
        return replace(
            self,
            run=self.run[kept],
            phase=tuple(one for one, keep in zip(self.phase, kept, strict=True) if keep),
            position=self.position[kept],
            tokens=self.tokens[kept],
        )


def recorded_calls(runs: Ints, noted: GenerationCalls) -> RunCalls:
    """Return the calls that were noted when they ran; `runs` are the dump's, as many."""
    phases = tuple(noted.phases[index] for index in noted.phase.tolist())
    return RunCalls(runs, phases, noted.position, noted.tokens)


def inferred_calls(
    dump: ETDump,
    blocks: Mapping[str | None, Sequence[Block]],
    methods: Collection[str],
    of_one_length: Collection[str] = (),
) -> RunCalls:
    """Return a dump's executions as calls; only a language model's have phases and tokens.

    blocks: the blocks that executed a method, by method. methods: all methods of the program.
    of_one_length: the methods that take the same number of tokens in every call.
    """
    # Runners also execute methods that only return a constant, such as get_max_seq_len.
    working = {
        method: [one for one in of_it if any(key.instruction is not None for key in one.keys)]
        for method, of_it in blocks.items()
    }
    blocks = working if any(working.values()) else blocks
    method_of = {
        run: method
        for method, of_it in blocks.items()
        for block in of_it
        for run in block.runs.tolist()
    }
    runs = np.array(sorted(method_of), np.int64)
    names = [method_of[run] for run in runs.tolist()]
    phase: list[str | None] = [None] * len(runs)
    tokens = np.zeros(len(runs), np.int64)
    how: dict[str, None] = {}
    is_language_model = (
        not _FACTS.isdisjoint(methods)
        or any(_KERNELS.match(text) for text in dump.strings)
        or any(set(methods).issuperset(pair) for pair in _SURE_PAIRS)
    )
    number = {run: index for index, run in enumerate(runs.tolist())}
    for method, of_it in blocks.items() if is_language_model else ():
        mine = sorted(number[run] for block in of_it for run in block.runs.tolist())
        known = method if method in ENCODERS else _PHASES.get(method or "")
        if not mine or method == EMBEDDING or (known is None and method in of_one_length):
            continue
        told: Ints | None = np.zeros(len(mine), np.int64)
        text = "by the methods' names"
        if known is None:
            told, text = _by_values(dump, of_it), "by the sizes of the values"
            if told is None:
                told, text = _by_length(of_it), "by the calls' lengths"
        if told is None:
            continue
        how[text] = None
        tokens[mine] = np.maximum(told, 0)
        for index, its_tokens in zip(mine, told.tolist(), strict=True):
            phase[index] = known or (DECODE if its_tokens == 1 else PREFILL)
    # An embedding is made for the call of the decoder that comes next.
    after: str | None = None
    for index in reversed(range(len(runs))):
        if names[index] == EMBEDDING:
            phase[index] = after
        elif phase[index] in (PREFILL, DECODE):
            after = phase[index]
    position = _positions(names, phase, tokens)
    return RunCalls(runs, tuple(phase), position, tokens, "; ".join(how) or None)


def _by_values(dump: ETDump, blocks: Sequence[Block]) -> Ints | None:
    """Infer the tokens of calls, int64 [calls], from the sizes of their logged tensors."""
    if len(blocks) != 1:
        return None
    block = blocks[0]
    for key in block.keys:
        for position in key.debug:
            values = [dump.value(row) for row in block.column(position).tolist()]
            sizes = [math.prod(v.sizes) if isinstance(v, TensorRef) else None for v in values]
            least = min((size for size in sizes if size), default=0)
            if not least or len(set(sizes)) < 2 or any(not size or size % least for size in sizes):
                continue
            tokens = np.array([(size or 0) // least for size in sizes], np.int64)
            if tokens[0] > 1:
                return tokens
    return None


def _by_length(blocks: Sequence[Block]) -> Ints | None:
    """Infer the tokens of calls, -1 for an unknown number above 1, from their times: the first one
    takes the prompt, and a call of several tokens is longer than the single-token calls after it in
    most of its instructions."""
    runs = np.concatenate([block.runs for block in blocks])
    order = np.argsort(runs, kind="stable")
    total = np.concatenate([block.ticks[list(block.executions)].sum(axis=0) for block in blocks])
    spread = np.concatenate([_typical_ratio(block) for block in blocks])
    total, spread = total[order].astype(np.float64), spread[order]
    if len(total) < 3:
        return None
    tokens = np.ones(len(total), np.int64)
    usual = float(np.median(total))
    near: list[float] = []  # of the calls of one token that come next
    for index in reversed(range(len(total))):
        compared = float(np.median(near)) if near else usual
        if total[index] > _LONGER * compared and spread[index] > _INSTRUCTIONS_LONGER:
            tokens[index] = -1
        else:
            near = [float(total[index]), *near[: _NEAR - 1]]
    if tokens[0] != -1 or (tokens == 1).sum() < 2:
        return None
    return tokens


def _typical_ratio(block: Block) -> npt.NDArray[np.float64]:
    """For each run of a block how much longer than usual its instructions took: the median over the
    time of all, so that one instruction that was interrupted does not count."""
    calls = [index for index in block.profiled if block.keys[index].role in CALL_ROLES]
    ticks = block.ticks[calls].astype(np.float64) if calls else block.ticks[:1].astype(np.float64)
    usual = np.maximum(np.median(ticks, axis=1, keepdims=True), 1.0)
    ratios = ticks / usual
    order = np.argsort(ratios, axis=0, kind="stable")
    weight = np.cumsum(np.take_along_axis(np.broadcast_to(usual, ratios.shape), order, 0), axis=0)
    middle = np.argmax(weight >= weight[-1] / 2, axis=0)[None]
    found: npt.NDArray[np.float64] = np.take_along_axis(
        np.take_along_axis(ratios, order, 0), middle, 0
    )[0]
    return found


def _positions(names: Sequence[str | None], phase: Sequence[str | None], tokens: Ints) -> Ints:
    """Return the positions in the context, which begins anew with a prefill after a decode; -1
    after a call of unknown length."""
    position = np.full(len(tokens), -1, np.int64)
    at, before = 0, None
    for index, (name, its_phase) in enumerate(zip(names, phase, strict=True)):
        if name == EMBEDDING or its_phase not in (PREFILL, DECODE):
            continue
        if its_phase == PREFILL and before == DECODE:
            at = 0
        position[index] = at
        at = at + int(tokens[index]) if at >= 0 and tokens[index] > 0 else -1
        before = its_phase
    return position
