"""Programs and records of the models of tests/support/evaluation, to run on many samples."""

from __future__ import annotations

import warnings

import torch

from etscope.export import export
from tests.support.artifact_recipes.workbench import Workbench
from tests.support.evaluation.models import Classifier, Picked, Places, Running, inputs


def evaluated(bench: Workbench) -> None:
    """Export each as it is in the record, and as the device has it."""
    table, state = (torch.zeros(1, 48, 64),), (torch.ones(4),)
    models = {
        "classifier": (Classifier(), (inputs()[0],)),
        "classifier_off": (Classifier(1.5), (inputs()[0],)),
        "running": (Running(), state),
        "running_off": (Running(1.01), state),
        "places": (Places(), table),
        "places_off": (Places(1.6e-4), table),
        "picked": (Picked(), (torch.arange(4.0), torch.tensor([1]))),
    }
    bench.notes.update(seed=0, planted=[name for name in models if name.endswith("_off")])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, (model, given) in models.items():
            export(model, given).save(bench.folder, name, bundle=False)
