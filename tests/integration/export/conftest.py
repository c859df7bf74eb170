"""Exports that several tests look at."""

from __future__ import annotations

import pytest
import torch

from etscope.export import Exported, export, load_model
from tests.support.export.factories import Counting, Tiny

FACTORIES = "tests/support/export/factories.py"
INPUT = torch.linspace(-2, 2, 16).reshape(2, 8)


def tiny() -> Tiny:
    torch.manual_seed(0)
    return Tiny()


@pytest.fixture(scope="session")
def portable() -> Exported:
    return export(tiny(), (INPUT,))


@pytest.fixture(scope="session")
def xnnpack() -> Exported:
    return export(tiny(), [INPUT.numpy()], backend="xnnpack")  # arrays are inputs, too


@pytest.fixture(scope="session")
def quantized() -> Exported:
    return export(tiny(), (INPUT,), backend="xnnpack", quantize=True)


COUNTING = Counting()


@pytest.fixture(scope="session")
def counting() -> Exported:
    return export(COUNTING, (torch.ones(2),))


@pytest.fixture(scope="session")
def two_methods() -> Exported:
    return load_model(f"{FACTORIES}:methods").export(backend="xnnpack")
