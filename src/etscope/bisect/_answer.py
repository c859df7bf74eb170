"""What trying a piece answers."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

from etscope.errors import FormatError

GOOD = "good"
VALUE = "value"  # an output is too far from what eager PyTorch has there
COMMAND = "command"  # the user's command says so
LOWER = "lower"  # ExecuTorch cannot lower it
RUN = "run"  # the runtime fails, or dies
UNKNOWN = "unknown"  # nothing can be said
KINDS = (GOOD, VALUE, COMMAND, LOWER, RUN, UNKNOWN)

_BY_REASON = (LOWER, RUN)


@dataclass(frozen=True, slots=True)
class Answer:
    """Of one piece.

    number: the worst output's metric, or the exit status of the command. outputs: names of those
    that are wrong. detail: why, in words.
    """

    kind: str
    number: float | None = None
    outputs: tuple[str, ...] = ()
    detail: str = ""

    @property
    def reason(self) -> str:
        """What two failures of the same kind have in common: their words without names, numbers
        and what follows a colon."""
        text = re.sub(r"[\w.]+::[\w.]+(, [\w.]+::[\w.]+)*", "*", self.detail)
        return re.sub(r"\b\d+\b", "#", re.split(r": |\n", text)[0])

    def like(self, whole: Answer) -> bool | None:
        """Whether it is the failure that the whole model has; None when that cannot be said."""
        if self.kind == GOOD:
            return False
        if self.kind == UNKNOWN or self.kind != whole.kind:
            return None
        return True if self.kind not in _BY_REASON or self.reason == whole.reason else None

    def to_json(self) -> dict[str, Any]:
        number = None if self.number is None else str(self.number)  # JSON has no NaN
        return {**asdict(self), "number": number, "outputs": list(self.outputs)}

    @classmethod
    def of_json(cls, content: dict[str, Any]) -> Answer:
        number = content["number"]
        if content["kind"] not in KINDS:
            raise FormatError(f"there is no answer {content['kind']!r:.40}")
        return cls(
            kind=content["kind"],
            number=None if number is None else float(number),
            outputs=tuple(map(str, content["outputs"])),
            detail=str(content["detail"]),
        )
