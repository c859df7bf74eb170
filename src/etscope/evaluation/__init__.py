"""Many samples of inputs: how each operator, each sample and a classifier as a whole do on the
device.

from etscope.evaluation import evaluate

found = evaluate("model.etrecord", "samples/", labels="labels.txt")
print(found.verdict)

And a language model on a text: whether it still says what a reference says, token by token.

from etscope.evaluation import evaluate_tokens

found = evaluate_tokens("model.pte", "text.tokens", reference="model_fp32.pte")
print(found.agreement.mean_kl, found.agreement.top1_agreement)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from etscope.support.lazy import lazy_names

if TYPE_CHECKING:
    from etscope.evaluation._classification import Labels, Task, read_labels
    from etscope.evaluation._dataset import Dataset, Sample, open_dataset
    from etscope.evaluation._evaluate import DEFAULT_TOP, EvaluateOptions, evaluate, evaluate_dump
    from etscope.evaluation._results import Evaluation
    from etscope.evaluation._token_results import TokenEvaluation
    from etscope.evaluation._tokens import EvaluateTokensOptions, evaluate_tokens

__all__ = [
    "DEFAULT_TOP",
    "Dataset",
    "EvaluateOptions",
    "EvaluateTokensOptions",
    "Evaluation",
    "Labels",
    "Sample",
    "Task",
    "TokenEvaluation",
    "evaluate",
    "evaluate_dump",
    "evaluate_tokens",
    "open_dataset",
    "read_labels",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "DEFAULT_TOP": "etscope.evaluation._evaluate",
        "Dataset": "etscope.evaluation._dataset",
        "EvaluateOptions": "etscope.evaluation._evaluate",
        "EvaluateTokensOptions": "etscope.evaluation._tokens",
        "Evaluation": "etscope.evaluation._results",
        "Labels": "etscope.evaluation._classification",
        "Sample": "etscope.evaluation._dataset",
        "Task": "etscope.evaluation._classification",
        "TokenEvaluation": "etscope.evaluation._token_results",
        "evaluate": "etscope.evaluation._evaluate",
        "evaluate_dump": "etscope.evaluation._evaluate",
        "evaluate_tokens": "etscope.evaluation._tokens",
        "open_dataset": "etscope.evaluation._dataset",
        "read_labels": "etscope.evaluation._classification",
    },
)
